"""Other services that do the same work, and a protocol that sends fixed bytes."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.machine import free_port
from bench.plan import Plan, run
from bench.servers import Running, started

_HERE = Path(__file__).parent
_APPS = _HERE / "apps"


class Kind(NamedTuple):
    """A service: the program that fills its database, and what serves it."""

    fill: str
    serve: Sequence[str]


_UVICORN = ("uvicorn", "--no-access-log", "--log-level", "warning", "--backlog", "4096")
_GRANIAN = ("granian", "--interface", "asgi", "--loop", "uvloop", "--no-log", "--backlog", "4096")
PLAIN, TUNED, LITESTAR = "FastAPI as documented", "FastAPI, tuned", "Litestar on granian, tuned"
KINDS = {
    PLAIN: Kind("plain.py", (*_UVICORN, "plain:app")),
    TUNED: Kind("tuned.py", (*_UVICORN, "tuned_fastapi:app")),
    LITESTAR: Kind("tuned.py", (*_GRANIAN, "tuned_litestar:app")),
}


@dataclass(frozen=True)
class Rival:
    """A running rival: its address without a slash at the end, and the header fields that it wants."""

    url: str
    headers: dict[str, str]


@contextmanager
def rival(plan: Plan, name: str, orders: int) -> Iterator[Rival]:
    """One of KINDS over a SQLite file with pending orders 1 to `orders`, in one process on uvloop."""
    kind = KINDS[name]
    with plan.scratch() as folder:
        env = dict(os.environ) | {"RIVAL_DATABASE": str(folder / "rival.db"), "PYTHONPATH": str(_APPS)}
        key = run([sys.executable, _APPS / kind.fill, str(orders)], env=env).strip()
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", *kind.serve, "--host", "127.0.0.1", "--port", str(port)]
        ready = f"{url}/v1/store/orders"
        with started(command, core=plan.cores.server, url=url, ready=ready, env=env, folder=folder):
            yield Rival(url, {"Authorization": f"Bearer {key}"})


@contextmanager
def peer_in_go(plan: Plan, folder: Path, body: bytes, key: str) -> Iterator[Running]:
    """The peer of `peer.go`, compiled now, which serves these bytes as the list to the client with the key."""
    program, file = folder / "peer", folder / "list"
    file.write_bytes(body)
    cache = {"GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod"}
    run(["go", "build", "-o", program, _HERE / "peer.go"], env=dict(os.environ) | cache)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [program, str(port), file, key]
    with started(command, core=plan.cores.server, url=url, ready=f"{url}/", folder=folder) as server:
        yield server


@contextmanager
def fixed_bytes(plan: Plan, folder: Path, body: bytes) -> Iterator[Running]:
    """A uvloop protocol that sends these bytes as the body of every response."""
    file = folder / "fixed"
    file.write_bytes(body)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [sys.executable, _HERE / "fixed_bytes.py", str(port), file]
    with started(command, core=plan.cores.server, url=url, ready=f"{url}/", folder=folder) as server:
        yield server
