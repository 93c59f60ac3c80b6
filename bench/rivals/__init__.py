"""Other services that do the same work: FastAPI as a good engineer tunes it, and Go's net/http."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.plan import Plan, run
from bench.servers import Running, started
from testing.subprocesses import free_port

_HERE = Path(__file__).parent


TUNED = "FastAPI, tuned"
_UVICORN = ("uvicorn", "--no-access-log", "--log-level", "warning", "--backlog", "4096")


@dataclass(frozen=True)
class Rival:
    """A running rival: its address without a slash at the end, and the header fields that it wants."""

    url: str
    headers: dict[str, str]


@contextmanager
def tuned(plan: Plan, orders: int) -> Iterator[Rival]:
    """FastAPI over a SQLite file with pending orders 1 to `orders`, in one process on uvloop."""
    with plan.scratch() as folder:
        env = dict(os.environ) | {"RIVAL_DATABASE": str(folder / "rival.db"), "PYTHONPATH": str(_HERE)}
        key = run([sys.executable, _HERE / "tuned.py", str(orders)], env=env).strip()
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", *_UVICORN, "tuned:app", "--host", "127.0.0.1", "--port", str(port)]
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
