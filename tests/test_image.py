"""`deploy/Containerfile` and `deploy/compose.yaml`: the commands in their comments, in podman.

Base images are new Debians under the names of the public ones, so no registry is needed. Images, volumes and networks
are in a separate directory, and share nothing with the machine's. Ports are those of a host on a network of the
test.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import yaml

from testing import needs
from testing.debian import debian, kept_wheels
from testing.documents import ROOT, kubernetes_manifests
from testing.network import Network
from testing.subprocesses import busy, within
from tests.smoke import Service, run

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]

DEPLOY = ROOT / "deploy"
_COMMAND = re.compile(r"^#     (podman[ -].*?)(?:  .*)?$", re.MULTILINE)
_KEY = "petstore keys create acme --scope orders:read --scope orders:cancel --scope orders:write"
_ACCOUNT = "petstore accounts create acme --plan enterprise --per-minute 10000 --per-day 10000"


_ENGINE = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
static_dir = "{folder}/static"
tmp_dir = "{folder}/state"
volume_path = "{folder}/volumes"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""
_PIP = "[global]\nno-index = true\nfind-links = /wheels\n"


_POSTGRES = """#!/bin/sh
set -eu
if [ ! -e "$PGDATA" ]; then
    mkdir -p "$(dirname "$PGDATA")"
    (umask 077; printf %s "$POSTGRES_PASSWORD" >/tmp/password)
    initdb $POSTGRES_INITDB_ARGS --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 \\
        --auth-local=trust
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl start --wait -o "-c listen_addresses="
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl stop
fi
exec postgres -c "listen_addresses=*"
"""
_ENTRYPOINT = 'ENTRYPOINT ["/entrypoint"]'
_OFFLINE = "--pull=never -v {folder}/pip.conf:/etc/pip.conf:ro -v {wheels}:/wheels:ro"


class Containers:
    """podman, and what works on it, in a directory. Health checks run only when a test runs them."""

    def __init__(self, folder: Path) -> None:
        for name, text in {"containers.conf": _ENGINE, "storage.conf": _STORAGE, "pip.conf": _PIP}.items():
            (folder / name).write_text(text.format(folder=folder))
        (folder / "tmp").mkdir()
        wheels = kept_wheels("3.13", "run.lock", "scale-out.lock")
        self.offline = _OFFLINE.format(folder=folder, wheels=wheels)
        """Options of a build: base images and wheels come from this machine. Only apt uses the network."""
        self._environ = os.environ | {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            "DISABLE_HC_SYSTEMD": "true",
            "TMPDIR": str(folder / "tmp"),
        }

    def run(self, command: str, **environ: str) -> str:
        """Run a command line of bash in the checkout; return what it shows. AssertionError shows why it failed."""
        shell = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(
            shell, env=self._environ | environ, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert 0 == done.returncode, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def add_image(self, name: str, root: Path, *changes: str) -> None:
        """Make an image of what a directory holds; each change is an instruction of a Containerfile."""
        options = " ".join(f"--change {shlex.quote(change)}" for change in changes)
        self.run(f"tar -C {root} --one-file-system -c . | podman import --quiet {options} - {name}")

    def add_engines(self) -> None:
        """Add images of PostgreSQL 18 and Redis 8 with as much of the interface of the public ones as is used here."""
        with debian("forky", "postgresql-18") as root:
            path = "ENV PATH=/usr/lib/postgresql/18/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            data = ("ENV PGDATA=/var/lib/postgresql/18/docker", "VOLUME /var/lib/postgresql")
            root.run("install -d -o postgres -g postgres -m 3777 /run/postgresql")
            root.add_program("entrypoint", _POSTGRES)
            self.add_image("docker.io/library/postgres:18", root.path, _ENTRYPOINT, path, *data, "STOPSIGNAL SIGINT")
        with debian("forky", "redis-server") as root:
            root.run("install -d -o redis -g redis /data")
            self.add_image("docker.io/library/redis:8", root.path, "WORKDIR /data", "VOLUME /data")


@contextmanager
def containers() -> Iterator[Containers]:
    """An engine without images; everything of it is deleted at the end."""
    needs.root()
    needs.program("podman")
    needs.program("runc")
    needs.program("iptables")
    for name in ("netavark", "aardvark-dns"):
        if not Path("/usr/lib/podman", name).exists():
            needs.missing(f"{name}, for the network of containers, is missing: apt-get install {name}")
    folder = Path(tempfile.mkdtemp(prefix="petstore-containers-", dir="/var/tmp"))  # large, so it is not in memory
    try:
        engine = Containers(folder)
        try:
            yield engine
        finally:
            engine.run("podman pod rm --all --force --time 0 && podman rm --all --force --time 0")
    finally:
        shutil.rmtree(folder)


def commands(file: str) -> list[str]:
    """The commands in the comment of the file."""
    return _COMMAND.findall(re.sub(r" \\\n# +", " ", (DEPLOY / file).read_text()))


@pytest.fixture(scope="module")
def engine() -> Iterator[Containers]:
    with containers() as engine:
        with debian("trixie") as root:
            engine.add_image("docker.io/library/debian:trixie-slim", root.path)
        yield engine


def test_the_image_serves_on_a_volume_and_writes_nowhere_else(engine: Containers, tmp_path: Path) -> None:
    build, migrate, serve = commands("Containerfile")
    engine.run(build.replace("podman build", f"podman build {engine.offline}"))
    with Network("machine") as network, network.host("machine"):
        engine.run(migrate)
        engine.run(serve)
        within(30, lambda: ready(8081))
        inside = "podman exec petstore"
        engine.run(f"{inside} {_ACCOUNT}")
        service = Service("http://127.0.0.1:8080", engine.run(f"{inside} {_KEY}").strip())
        run(service)
        engine.run(f"{inside} petstore doctor")
        assert "10001\n" == engine.run(f"{inside} id -u")
        assert "No module named" in engine.run(f"{inside} python -c 'import flask' 2>&1 || true")
        trusted = "import os, ssl; print(ssl.SSLContext().load_verify_locations(os.environ['SSL_CERT_FILE']))"
        assert "None\n" == engine.run(f'{inside} python -c "{trusted}"')
        assert "Read-only file system" in engine.run(f"{inside} touch /opt/petstore/new 2>&1 || true")
        back_up, restore, *_ = operating(tmp_path)
        for command in back_up:
            engine.run(command)
        before = service.ask("GET", "/v1/store/orders").body
        engine.run("""podman exec -i petstore petstore orders import - --format jsonl <<< '{"id":123456789}'""")
        assert before != service.ask("GET", "/v1/store/orders").body
        for command in restore:
            engine.run(command)
        assert before == service.ask("GET", "/v1/store/orders").body
        began = time.monotonic()
        engine.run("podman stop petstore")
        assert time.monotonic() < began + 2 + busy()
        assert "0\n" == engine.run("podman wait petstore")
        assert '"level":"error"' not in engine.run("podman logs petstore 2>&1")
        engine.run("podman rm petstore")
        engine.run(serve)
        within(30, lambda: ready(8081))
        assert before == service.ask("GET", "/v1/store/orders").body
        engine.run("podman stop petstore")


def test_the_services_keep_their_data_through_restarts(engine: Containers, tmp_path: Path) -> None:
    needs.module("podman_compose")
    build, start_engines, migrate, start, create_account = commands("compose.yaml")

    engine.add_engines()
    environ = written(engine, tmp_path)

    def compose(command: str) -> str:
        command = command.replace("podman-compose", f"{sys.executable} -m podman_compose")
        return engine.run(command, **environ)

    compose(build.replace(" -f", f" --podman-build-args='{engine.offline}' -f"))
    with Network("machine") as network, network.host("machine"):
        compose(start_engines)
        within(60, lambda: healthy(engine, "postgres") and healthy(engine, "redis"))
        compose(migrate)
        compose(start)
        within(30, lambda: healthy(engine, "petstore"))
        compose(create_account.replace("exec", "exec -T"))
        inside = "podman exec petstore_petstore_1"
        service = Service("http://127.0.0.1:8080", engine.run(f"{inside} {_KEY}").strip())
        run(service)
        engine.run(f"{inside} petstore doctor")
        started = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert any(b"redis-server" in arguments for arguments in started)
        for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD"):
            assert not [arguments for arguments in started if environ[name].encode() in arguments]
        assert "NOAUTH" in engine.run("podman exec petstore_redis_1 env -u REDISCLI_AUTH redis-cli ping")
        for name in ("postgres", "redis"):
            assert "0" != engine.run(f"podman exec petstore_{name}_1 id -u").strip()
            assert "CapEff:\t0000000000000000\n" in engine.run(f"podman exec petstore_{name}_1 cat /proc/1/status")
        for command in operating(tmp_path)[2]:
            compose(command)
        assert (tmp_path / "orders.dump").read_bytes().startswith(b"PGDMP")
        first, other = (service.ask("GET", "/v1/", key="", X_Forwarded_For=f"198.51.100.{each}") for each in (1, 2))
        assert first.headers["X-RateLimit-Remaining"] == other.headers["X-RateLimit-Remaining"]
        before = service.ask("GET", "/v1/store/orders").body
        for again in (["restart petstore"], ["restart redis"], ["restart postgres"], ["down", "up -d"]):
            for step in again:
                compose(f"podman-compose -f deploy/compose.yaml {step}")
            within(60, lambda: ready(8081))
            within(30, lambda: before == service.ask("GET", "/v1/store/orders").body)
        compose("podman-compose -f deploy/compose.yaml down")
        kept = engine.run("podman volume ls --quiet").split()
        assert {"petstore_postgres", "petstore_redis"} == {each for each in kept if each != "orders"}


def written(engine: Containers, folder: Path) -> dict[str, str]:
    """What the first line of compose.yaml, and the lines of deploy/README.md about digests, write into deploy/.env."""
    [make] = re.findall(r"^#     (\(umask .*)$", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE)
    pin = "\n".join(operating(folder)[3])
    assert "podman pull" in pin
    for script in (make, re.sub(r"\n +podman pull .*", "", pin)):
        engine.run(script.replace("deploy/.env", str(folder / ".env")))
    assert 0o600 == (folder / ".env").stat().st_mode & 0o777
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def operating(folder: Path) -> list[list[str]]:
    """The blocks of commands of deploy/README.md about containers; backups are in the folder."""
    section = (DEPLOY / "README.md").read_text().partition("\n## Containers\n")[2].partition("\n## ")[0]
    section = re.sub(r"(?<= )orders\.(?=db$|dump$)", f"{folder}/orders.", section, flags=re.MULTILINE)
    return [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)]


def healthy(engine: Containers, service: str) -> bool:
    return engine.run(f"podman healthcheck run petstore_{service}_1 >&2 && echo healthy || true") == "healthy\n"


def ready(port: int) -> bool:
    """Whether the service with this admin port is."""
    try:
        return Service(f"http://127.0.0.1:{port}", "").ask("GET", "/readyz").status == 200
    except OSError:
        return False


def test_the_deployment_of_kubernetes_serves_as_podman_plays_it(engine: Containers, tmp_path: Path) -> None:
    """What podman 4 does not know does not run here: Service, Job, NetworkPolicy, PodDisruptionBudget, Secret volumes.

    So the store is created by the arguments of the Job, and the files of the Secret come from a directory.
    """
    manifests = {manifest["kind"]: manifest for manifest in kubernetes_manifests()}
    build, *_ = commands("Containerfile")
    engine.run(build.replace("podman build", f"podman build {engine.offline}"))
    engine.add_engines()
    password = "0a1b2c3d"
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    urls = f"postgresql://petstore:{password}@postgres:5432/petstore", f"redis://:{password}@redis:6379/0"
    for name, url in zip(manifests["Secret"]["stringData"], urls, strict=True):
        (secrets / name).write_text(f"{url}\n")
    deployment, job = manifests["Deployment"], manifests["Job"]
    deployment["spec"]["replicas"] = 1  # podman would open the same port of the host for each
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container["image"] = "localhost/petstore:latest"
    for port in container["ports"]:
        port["hostPort"] = port["containerPort"]
    for volume in pod["volumes"]:
        if volume.pop("secret", None):
            volume["hostPath"] = {"path": str(secrets), "type": "Directory"}
    played = tmp_path / "played.yaml"
    played.write_text(yaml.safe_dump_all([manifests["ConfigMap"], deployment]))
    settings = " ".join(f"-e {name}={value}" for name, value in manifests["ConfigMap"]["data"].items())
    [migrating] = job["spec"]["template"]["spec"]["containers"]
    with Network("machine") as network, network.host("machine"):
        engine.run("podman network create shop")
        own = f"-e POSTGRES_USER=petstore -e POSTGRES_DB=petstore -e POSTGRES_PASSWORD={password}"
        options = f"{own} -e POSTGRES_INITDB_ARGS=--encoding=UTF8 --user postgres"
        engine.run(f"podman run -d --name postgres --network shop {options} docker.io/library/postgres:18")
        redis = f"docker.io/library/redis:8 redis-server --requirepass {password}"
        engine.run(f"podman run -d --name redis --network shop --user redis {redis}")
        within(60, lambda: "accepting" in engine.run("podman exec postgres pg_isready -h postgres 2>&1 || true"))
        run_once = f"podman run --rm --network shop {settings} -v {secrets}:/run/secrets/petstore:ro --read-only"
        engine.run(f"{run_once} localhost/petstore {' '.join(migrating['args'])}")
        engine.run(f"podman kube play --network shop {played}")
        within(60, lambda: ready(8081))
        [name] = engine.run("podman ps --format '{{.Names}}' | grep petstore-pod.*petstore").split()
        inside = f"podman exec {name}"
        engine.run(f"{inside} {_ACCOUNT}")
        service = Service("http://127.0.0.1:8080", engine.run(f"{inside} {_KEY}").strip())
        assert "ok\n" == httpx2.get("http://127.0.0.1:8080/healthz").text
        run(service)
        assert "10001\n" == engine.run(f"{inside} id -u")
        assert "Read-only file system" in engine.run(f"{inside} touch /opt/petstore/new 2>&1 || true")
        assert "CapEff:\t0000000000000000\n" in engine.run(f"{inside} cat /proc/self/status")
        assert password not in engine.run(f"podman inspect {name}")
        engine.run(f"{inside} petstore doctor")
        engine.run(f"podman kube down {played}")
        assert not engine.run("podman ps --quiet --filter name=petstore-pod").split()
