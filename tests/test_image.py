"""`deploy/Containerfile`: the commands in its comment, in podman.

The base image is a new Debian under the name of the public one. Ports are those of a host on a network of the test.
"""

import re
import time
from collections.abc import Iterator

import pytest

from smoke import Service, run
from support.containers import Containers, containers
from support.debian import debian
from support.documents import ROOT
from support.network import Network
from support.subprocesses import busy, within

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


def ready(port: int) -> bool:
    """Whether the service with this admin port is."""
    try:
        return Service(f"http://127.0.0.1:{port}", "").ask("GET", "/readyz").status == 200
    except OSError:
        return False
