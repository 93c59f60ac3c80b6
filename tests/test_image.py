"""`deploy/Containerfile` and `deploy/compose.yaml`: the commands in their comments, in podman.

Base images are new Debians under the names of the public ones. Ports are those of a host on a network of the test.
"""

import re
import sys
import time
from collections.abc import Iterator

import pytest

from testing.containers import Containers, containers
from testing.debian import debian
from testing.documents import ROOT
from testing.network import Network
from testing.subprocesses import busy, within
from tests.smoke import Service, run

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]

DEPLOY = ROOT / "deploy"
_COMMAND = re.compile(r"^#     (podman .*?)(?:  .*)?$", re.MULTILINE)
_KEY = "petstore keys create acme --scope orders:read --scope orders:cancel --scope orders:write"
_ACCOUNT = "petstore accounts create acme --plan enterprise --per-minute 10000 --per-day 10000"


def commands(file: str) -> list[str]:
    """The commands in the comment of the file."""
    return _COMMAND.findall(re.sub(r" \\\n# +", " ", (DEPLOY / file).read_text()))


@pytest.fixture(scope="module")
def engine() -> Iterator[Containers]:
    with containers() as engine:
        with debian("trixie") as root:
            engine.add_image("docker.io/library/debian:trixie-slim", root.path)
        yield engine


def test_the_image_serves_on_a_volume_and_writes_nowhere_else(engine: Containers) -> None:
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
        assert "Read-only file system" in engine.run(f"{inside} touch /opt/petstore/new 2>&1 || true")
        before = service.ask("GET", "/v1/store/orders").body
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


def test_the_services_keep_their_data_through_restarts(engine: Containers) -> None:
    build, start_engines, migrate, start, create_account = commands("compose.yaml")

    def compose(command: str) -> str:
        command = command.replace("podman compose", f"{sys.executable} -m podman_compose")
        return engine.run(command, POSTGRES_PASSWORD="5ec4e7")

    engine.add_engines()
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
        first, other = (service.ask("GET", "/v1/", key="", X_Forwarded_For=f"198.51.100.{each}") for each in (1, 2))
        assert first.headers["X-RateLimit-Remaining"] == other.headers["X-RateLimit-Remaining"]
        before = service.ask("GET", "/v1/store/orders").body
        for again in (["restart petstore"], ["restart redis"], ["restart postgres"], ["down", "up -d"]):
            for step in again:
                compose(f"podman compose -f deploy/compose.yaml {step}")
            within(60, lambda: ready(8081))
            within(30, lambda: before == service.ask("GET", "/v1/store/orders").body)
        compose("podman compose -f deploy/compose.yaml down")
        kept = engine.run("podman volume ls --quiet").split()
        assert {"petstore_postgres", "petstore_redis"} == {each for each in kept if each != "orders"}


def healthy(engine: Containers, service: str) -> bool:
    return engine.run(f"podman healthcheck run petstore_{service}_1 >&2 && echo healthy || true") == "healthy\n"


def ready(port: int) -> bool:
    """Whether the service with this admin port is."""
    try:
        return Service(f"http://127.0.0.1:{port}", "").ask("GET", "/readyz").status == 200
    except OSError:
        return False
