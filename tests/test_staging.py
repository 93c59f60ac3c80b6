"""`docs/staging.md`: its commands make a second service next to production, behind one nginx, with keys of its own.

What needs a machine is left out: users, the units' start, packages from an index and a certificate of an authority.
"""

import os
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from testing.documents import ROOT, block, install_page
from testing.nginx_front import Configuration, front, rendered
from testing.process import PETSTORE, new_key, put_orders, serving
from testing.subprocesses import free_port

pytestmark = pytest.mark.system

PAGE = ROOT / "docs" / "staging.md"
ORDERS = "/v1/store/orders"
NAMES = {
    "api.example.com": "https://api.example.com/v1",
    "staging-api.example.com": "https://staging-api.example.com/v1",
}


class Machine:
    """A directory in place of `/`, in which the page's commands write, with the domains of production and staging."""

    def __init__(self, root: Path, domain: str = "api.example.com", staging: str = "staging-api.example.com") -> None:
        self.root = root
        self.domains = f"DOMAIN={domain} STAGING={staging}"
        for folder in ("etc/sysusers.d", "etc/systemd/system", "etc/nginx/conf.d", "usr/local/bin", "var/lib", "bin"):
            (root / folder).mkdir(parents=True)
        (root / "etc/petstore").mkdir()
        (root / "etc/petstore/petstore.env").write_text("PETSTORE_BASE_URL=https://api.example.com/v1\n")
        shipped = (ROOT / "deploy/nginx/petstore.conf").read_text()
        (root / "etc/nginx/conf.d/petstore.conf").write_text(shipped.replace("api.example.com", domain))
        for name in ("systemctl", "systemd-sysusers", "certbot", "nginx"):
            (root / "bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {root}/called\n')
            (root / "bin" / name).chmod(0o755)

    def run(self, mark: str, then: str = "") -> str:
        """Run a block of the page, and then a command; return what they print."""
        unusable = ("pip install", "-m venv", "curl ")
        lines = block(PAGE, f"staging: {mark}", "sh").splitlines()
        assert lines
        script = "\n".join(line for line in lines if not any(part in line for part in unusable))
        for path in ("/etc/", "/var/", "/usr/local/bin/"):
            script = script.replace(f" {path}", f" {self.root}{path}")
        for there, here in (
            ("DOMAIN=api.example.com STAGING=staging-api.example.com", self.domains),
            ("/usr/local/src/petstore", str(ROOT)),
            (" -o petstore-staging", ""),
            (" -g petstore-staging", ""),
        ):
            script = script.replace(there, here)
        script = f"{self.domains}\ncd {ROOT}\n{script}\n{then}"
        path = f"{self.root}/bin:{self.root}/usr/local/bin:{os.environ['PATH']}"
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)
        assert 0 == done.returncode, f"{script}\n{done.stderr}"
        return done.stdout

    def text(self, path: str) -> str:
        return (self.root / path).read_text()

    def use_this_program(self) -> None:
        """Let the command of the page run the program of this checkout, in this directory, as the present user."""
        command = self.root / "usr/local/bin/petstore-staging"
        text = command.read_text()
        for there, here in (
            ("setpriv --reuid petstore-staging --regid petstore-staging --init-groups", "env"),
            ("/opt/petstore-staging/bin/petstore", str(PETSTORE)),
            ("=/etc/", f"={self.root}/etc/"),
            ("=/var/", f"={self.root}/var/"),
        ):
            assert there in text, there
            text = text.replace(there, here)
        command.write_text(text)
        settings = self.root / "etc/petstore-staging/petstore-staging.env"
        settings.write_text(settings.read_text().replace("sqlite:////var/", f"sqlite:///{self.root}/var/"))

    def settings(self) -> dict[str, str]:
        lines = self.text("etc/petstore-staging/petstore-staging.env").splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def test_the_files_of_staging_name_nothing_of_production(machine: Machine) -> None:
    machine.run("files")
    user = machine.text("etc/sysusers.d/petstore-staging.conf")
    assert 'u petstore-staging - "Pet Store Orders" /var/lib/petstore-staging\n' in user
    units = ["petstore-staging.service", "petstore-staging.socket", "petstore-staging-admin.socket"]
    assert sorted(units) == sorted(path.name for path in (machine.root / "etc/systemd/system").iterdir())
    text = "".join(machine.text(f"etc/systemd/system/{unit}") for unit in units)
    assignments = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    for line in ("User=petstore-staging", "StateDirectory=petstore-staging", "Service=petstore-staging.service"):
        assert line in assignments
    assert "ExecStart=/opt/petstore-staging/bin/petstore serve" in assignments
    ports = [machine.settings()[name] for name in ("PETSTORE_PORT", "PETSTORE_ADMIN_PORT")]
    assert ["8090", "8091"] == ports
    assert [f"ListenStream=127.0.0.1:{port}" for port in ports] == [
        line for line in assignments if line.startswith("ListenStream")
    ]
    rest = "\n".join(assignments).replace("petstore-staging", "").replace("/bin/petstore ", "")
    assert "petstore" not in rest, rest
    if shutil.which("systemd-analyze"):
        paths = [str(machine.root / "etc/systemd/system" / unit) for unit in units]
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True)
        complaints = [line for line in done.stderr.splitlines() if "staging" in line and "not executable" not in line]
        assert [] == [line for line in complaints if "User" not in line and "No such file" not in line]


def test_the_removal_of_production_leaves_staging(machine: Machine) -> None:
    machine.run("files")
    machine.run("proxy")
    kept = {path for path in machine.root.rglob("*") if "petstore-staging" in path.name}
    units = [*(ROOT / "deploy/systemd").glob("*.s*"), *(ROOT / "deploy/systemd").glob("*.timer")]
    for unit in units:
        shutil.copy(unit, machine.root / "etc/systemd/system")
    removal = install_page().steps[-1].replace("\\\n", "")
    commands = [line.split() for line in removal.splitlines() if line.startswith("rm ")]
    paths = [path for _, _, *paths in commands for path in paths]
    assert paths
    for path in paths:  # in this directory only
        for found in machine.root.glob(path.removeprefix("/")):
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    left = [path for path in machine.root.rglob("*") if path.name.startswith("petstore") and path.is_file()]
    assert {path for path in kept if path.is_file()} == set(left)


def test_domains_that_contain_the_name_of_the_service_stay_as_they_are(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", "api.petstore.example", "staging.petstore.example")
    machine.run("proxy")
    text = machine.text("etc/nginx/conf.d/petstore-staging.conf")
    assert "server_name staging.petstore.example;" in text
    assert "petstore_staging.example" not in text
    assert "api.petstore.example" not in text


def test_both_serve_behind_one_proxy_each_with_its_own_keys_and_orders(machine: Machine, tmp_path: Path) -> None:
    machine.run("files")
    machine.use_this_program()
    for mark in ("start", "proxy", "address"):
        machine.run(mark)
    assert f"PETSTORE_STAGING_BASE_URL={NAMES['staging-api.example.com']}" in machine.text("etc/petstore/petstore.env")
    test_key = machine.run("keys", then='echo "$TEST_KEY"').split()[-1]
    production = tmp_path / "production.db"
    put_orders(production, 1)
    key, _ = new_key(production)
    staging = machine.root / "var/lib/petstore-staging/orders.db"
    settings = {name: text for name, text in machine.settings().items() if "PORT" not in name}
    both = dict(zip(("PETSTORE_BASE_URL", "PETSTORE_STAGING_BASE_URL"), NAMES.values(), strict=True))
    with (
        serving(production, PETSTORE_TRUSTED_PROXIES="127.0.0.1", **both) as one,
        serving(staging, **settings) as other,
        front(tmp_path / "nginx", one.port, behind_one(machine, other.port)) as proxy,
        httpx2.Client(verify=False, base_url=f"https://127.0.0.1:{proxy.port}") as client,
    ):

        def ask(host: str, key: str, target: str = ORDERS) -> httpx2.Response:
            return client.get(target, headers={"Host": host, "Authorization": f"Bearer {key}"})

        statuses = {(host, each[:9]): ask(host, each).status_code for host in NAMES for each in (key, test_key)}
        assert {
            ("api.example.com", "pso_live_"): 200,
            ("api.example.com", "pso_test_"): 401,
            ("staging-api.example.com", "pso_live_"): 401,
            ("staging-api.example.com", "pso_test_"): 200,
        } == statuses
        assert [1] == [order["id"] for order in ask("api.example.com", key).json()]
        assert len(ask("staging-api.example.com", test_key).json()) > 1
        for host, each in (("api.example.com", key), ("staging-api.example.com", test_key)):
            assert "57" == ask(host, each).headers["x-ratelimit-remaining"]  # each counts its own
            servers = ask(host, each, "/openapi.json").json()["servers"]
            assert {*NAMES.values()} == {server["url"] for server in servers}


def behind_one(machine: Machine, staging_port: int) -> Configuration:
    """Production's server of nginx as shipped, and that of staging as the page makes it, on one port."""

    def configuration(folder: Path, port: int, service_port: int) -> str:
        text = machine.text("etc/nginx/conf.d/petstore-staging.conf")
        inner = free_port()
        for made, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("listen [::]:443 ssl http2;", ""),
            ("server 127.0.0.1:8090 max", f"server 127.0.0.1:{staging_port} max"),
            ('"~^(DELETE|PUT)$" 127.0.0.1:8092;', f'"~^(DELETE|PUT)$" 127.0.0.1:{inner};'),
            ("listen 127.0.0.1:8092;", f"listen 127.0.0.1:{inner};"),
            ("/etc/petstore_staging/tls/fullchain.pem", f"{folder}/fullchain.pem"),
            ("/etc/petstore_staging/tls/privkey.pem", f"{folder}/privkey.pem"),
            ("/var/log/nginx/petstore_staging.access.log", f"{folder}/staging.log"),
        ):
            assert 1 == text.count(made), made
            text = text.replace(made, here)
        return rendered(folder, port, service_port) + text

    return configuration
