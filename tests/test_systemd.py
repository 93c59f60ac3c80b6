"""The units of deploy/systemd under systemd: a Debian 13 that boots in a container of systemd-nspawn."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testing import needs
from testing.debian import debian
from testing.documents import ROOT, block, install_page
from testing.subprocesses import PATIENCE, within

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PACKAGES = ("ca-certificates", "curl", "dbus", "iproute2", "openssl", "python3-venv", "sudo", "systemd-sysv")
READY = "curl --fail --silent --show-error --retry 30 --retry-delay 1 --retry-connrefused http://127.0.0.1:8081/readyz"
_ENVIRON = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "PIP_NO_INDEX=1"]
_ENVIRON += ["PIP_FIND_LINKS=/wheels", "LC_ALL=C.UTF-8", "SYSTEMD_PAGER="]
RESTARTS = 3

# Each request has a connection of its own, as from a proxy that keeps none.
LOAD = f"""
import collections, json, subprocess, sys, threading, time, urllib.request
outcomes, stop = collections.Counter(), threading.Event()
def send():
    while not stop.is_set():
        request = urllib.request.Request("http://127.0.0.1:8080/v1/store/orders")
        request.add_header("Authorization", "Bearer " + sys.argv[1])
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                outcomes[response.status] += 1
        except OSError as error:
            outcomes[repr(error)] += 1
def wait(number):
    begun = outcomes.total()
    while outcomes.total() < begun + number:
        time.sleep(0.01)
threads = [threading.Thread(target=send) for _ in range(4)]
for each in threads:
    each.start()
for _ in range({RESTARTS}):
    wait(300)
    subprocess.run(["systemctl", "restart", "petstore"], check=True)
wait(300)
stop.set()
for each in threads:
    each.join()
print(json.dumps(outcomes))
"""


class Machine:
    """A booted Debian. `leader` is its init process, as this system numbers it."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def try_(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script of bash, as root."""
        command = ["nsenter", "--all", f"--target={self._leader}", "env", "-i", "--chdir=/root", *_ENVIRON]
        return subprocess.run(
            [*command, "bash", "-euc", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def run(self, script: str) -> str:
        """Run a script that must succeed; return what it shows."""
        done = self.try_(script)
        assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-4000:] + self.log()
        return done.stdout

    def log(self) -> str:
        return self.try_("journalctl -u petstore -o cat | tail -n 50").stdout

    def main_process(self) -> int:
        """The process of the service, 0 if there is none."""
        return int(self.run("systemctl show --property=MainPID --value petstore"))


@contextmanager
def booted(path: Path) -> Iterator[Machine]:
    """Boot the Debian in the directory, with a network of its own, and wait until its services run."""
    nspawn = needs.program("systemd-nspawn", "systemd-container")
    options = ["--register=no", "--keep-unit", "--private-network", "--console=pipe", "--boot"]
    command = [nspawn, "--quiet", f"--directory={path}", *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield Machine(_leader(process))
        finally:
            process.terminate()


def _leader(process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + PATIENCE
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < deadline:
        assert process.poll() is None
        for child in map(int, children.read_text().split()):
            state = Machine(child).try_("systemctl is-system-running").stdout.strip()
            if state in ("running", "degraded"):
                return child
        time.sleep(0.2)
    raise AssertionError("the Debian does not boot")


@pytest.fixture(name="machine", scope="module")
def _machine() -> Iterator[Machine]:
    """A Debian in which the service was installed by the page, and runs."""
    with debian("trixie", *PACKAGES) as root:
        root.add_checkout("/usr/local/src/petstore", "root")
        root.add_wheels("run.lock")
        (root.path / "usr/sbin/policy-rc.d").unlink()
        with booted(root.path) as machine:
            machine.run(install_page().steps[0])
            machine.run(READY)
            yield machine


def test_the_sockets_belong_to_systemd_and_the_service_serves_them(machine: Machine) -> None:
    shown = machine.run("systemctl is-active petstore.socket petstore-admin.socket petstore")
    assert ["active"] * 3 == shown.split()
    assert re.search(r'"api":"http://127\.0\.0\.1:8080","admin":"http://127\.0\.0\.1:8081"', machine.log())


def test_the_service_runs_within_the_bounds_of_its_unit(machine: Machine) -> None:
    shown = machine.run("systemctl show petstore --property=MemoryMax,TasksMax,OOMPolicy,LimitCORE")
    assert {"MemoryMax=1572864000", "TasksMax=512", "OOMPolicy=continue", "LimitCORE=0"} == set(shown.split())
    threads = machine.run(f"ls /proc/{machine.main_process()}/task").split()
    assert 0 < len(threads) < 40  # what docs/operating.md allows a process


def test_a_killed_service_comes_back(machine: Machine) -> None:
    before = machine.main_process()
    machine.run("systemctl kill --signal=KILL --kill-whom=main petstore")
    within(10, lambda: machine.main_process() not in (0, before))
    machine.run(READY)


def test_a_hangup_does_not_end_the_service(machine: Machine) -> None:
    before = machine.main_process()
    machine.run("systemctl kill --signal=HUP --kill-whom=main petstore")
    within(10, lambda: "SIGHUP ignored" in machine.log())
    assert before == machine.main_process()


def test_restarts_under_load_refuse_no_request(machine: Machine) -> None:
    machine.run("systemctl reset-failed petstore")  # these starts count towards the limit of the unit
    plan = "--plan enterprise --per-minute 1000000 --per-day 100000000"
    key = machine.run(f"petstore accounts create load {plan} >/dev/null\npetstore keys create load").strip()
    outcomes = json.loads(machine.run(f"python3 - {key} <<'EOF'\n{LOAD}\nEOF"))
    assert {"200"} == set(outcomes)
    assert outcomes["200"] > 1_000


def test_a_reload_replaces_the_process_only_if_the_settings_are_right(machine: Machine) -> None:
    machine.run("systemctl reset-failed petstore")
    before = machine.main_process()
    machine.run("cp /etc/petstore/petstore.env /var/tmp/right\necho PETSTORE_WORKER=2 >> /etc/petstore/petstore.env")
    refused = machine.try_("systemctl reload petstore")
    assert refused.returncode != 0
    assert "PETSTORE_WORKER" in machine.log()
    assert before == machine.main_process()
    machine.run(READY)
    machine.run("cat /var/tmp/right > /etc/petstore/petstore.env\nsystemctl reload petstore")
    within(20, lambda: machine.main_process() not in (0, before))
    machine.run(READY)


def test_wrong_settings_close_the_ports_until_they_are_corrected(machine: Machine) -> None:
    """A connection that waits starts the service again and again; docs/operating.md says how to go on."""
    machine.run("systemctl reset-failed petstore\necho PETSTORE_WORKER=2 >> /etc/petstore/petstore.env")
    machine.run("systemctl restart petstore || true\n! curl --silent http://127.0.0.1:8081/readyz")
    sockets = "petstore.socket petstore-admin.socket"
    within(10, lambda: ["failed", "failed"] == machine.try_(f"systemctl is-active {sockets}").stdout.split())
    machine.run("sed -i /PETSTORE_WORKER=/d /etc/petstore/petstore.env")
    machine.run(f"systemctl reset-failed petstore\nsystemctl start {sockets} petstore")
    machine.run(READY)


def test_a_missing_store_is_not_replaced_by_an_empty_one(machine: Machine) -> None:
    machine.run(
        "systemctl stop petstore.socket petstore-admin.socket petstore\nmv /var/lib/petstore/orders.db /var/tmp/"
    )
    machine.run("systemctl reset-failed petstore\nsystemctl start petstore || true")
    within(20, lambda: "There is no store at /var/lib/petstore/orders.db." in machine.log())
    machine.run(
        "systemctl stop petstore\ntest ! -e /var/lib/petstore/orders.db\nmv /var/tmp/orders.db /var/lib/petstore/"
    )
    machine.run("systemctl reset-failed petstore\nsystemctl start petstore.socket petstore-admin.socket petstore")
    machine.run(READY)


def test_the_timer_makes_a_backup(machine: Machine) -> None:
    machine.run("systemctl enable --now petstore-backup.timer\nsystemctl start petstore-backup")
    assert "petstore-backup.timer" in machine.run("systemctl list-timers --no-legend")
    assert re.search(r"orders-\d{8}T\d{6}Z\.db", machine.run("ls /var/lib/petstore/backups"))


def test_the_lines_of_the_readme_turn_webhooks_on_and_let_them_reach_public_addresses(machine: Machine) -> None:
    readme, settings = ROOT / "deploy" / "README.md", "/etc/petstore/petstore.env"
    machine.run("ip address add 8.8.8.8/32 dev lo && systemd-run --quiet python3 -m http.server 443 --bind 8.8.8.8")
    machine.run("systemctl reset-failed petstore\n" + block(readme, "webhooks: secret", "sh"))
    machine.run(f"echo PETSTORE_WEBHOOK_SECRET_FILE=/etc/petstore/webhook-secret >> {settings}")
    machine.run(f"systemctl restart petstore\n{READY}")
    scopes = "--scope orders:read --scope webhooks:manage"
    key = machine.run(
        f"petstore accounts create hooks --plan free >/dev/null\npetstore keys create hooks {scopes}"
    ).strip()

    def ask(path: str, body: str = "") -> dict[str, Any]:
        sent = f"-H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'"
        answer: dict[str, Any] = json.loads(machine.run(f"curl --fail --silent {sent} http://127.0.0.1:8080{path}"))
        return answer

    webhook = ask("/v2/webhooks", '{"url": "https://8.8.8.8/"}')["id"]
    folder = "/etc/systemd/system/petstore.service.d"
    machine.run(f"mkdir {folder}\ncat > {folder}/webhooks.conf <<'EOF'\n{block(readme, 'webhooks: unit', 'ini')}EOF")
    machine.run(f"systemctl daemon-reload\nsystemctl restart petstore\n{READY}")
    denied = machine.run("systemctl show petstore --property=IPAddressDeny")
    assert ("10.0.0.0/8" in denied, "0.0.0.0/0" in denied) == (True, False)
    excerpt = ask(f"/v2/webhooks/{webhook}/ping")["excerpt"]
    assert "SSL" in excerpt  # the server has no TLS, and was reached
    machine.run(f"rm -r {folder}\nsed -i /WEBHOOK/d {settings}\nsystemctl daemon-reload\nsystemctl restart petstore")
    machine.run(READY)


@pytest.mark.parametrize("unit", ["petstore.service", "petstore-backup.service"])
def test_little_of_the_system_is_exposed_to_the_units(machine: Machine, unit: str) -> None:
    shown = machine.run(f"systemd-analyze security --no-pager {unit}")
    exposure = re.search(r"Overall exposure level for .*: ([\d.]+)", shown)
    assert exposure
    assert float(exposure[1]) <= 2.5
