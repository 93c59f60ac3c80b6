"""Other services that do the same work: FastAPI as a good engineer tunes it, and Go's net/http."""

import os
import sys
from pathlib import Path

from bench.orders import LIST
from bench.plan import run
from bench.setup import Running, Setup
from testing.subprocesses import free_port

_HERE = Path(__file__).parent
TUNED = "FastAPI, tuned"
_UVICORN = ("uvicorn", "--no-access-log", "--log-level", "warning", "--backlog", "4096")


def tuned(setup: Setup, orders: int) -> Running:
    """FastAPI over a SQLite file with pending orders 1 to `orders`, in one process on uvloop."""
    env = dict(os.environ) | {"RIVAL_DATABASE": str(setup.folder() / "rival.db"), "PYTHONPATH": str(_HERE)}
    key = run([sys.executable, _HERE / "tuned.py", str(orders)], env=env).strip()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", *_UVICORN, "tuned:app", "--host", "127.0.0.1", "--port", str(port)]
    return setup.started(command, url, url + LIST, name=TUNED, key=key, env=env)


def peer_in_go(setup: Setup, name: str, body: bytes, key: str) -> Running:
    """The peer of `peer.go`, compiled now, which serves these bytes as the list to the client with the key."""
    folder = setup.folder()
    program, file = folder / "peer", folder / "list"
    file.write_bytes(body)
    cache = {"GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod"}
    run(["go", "build", "-o", program, _HERE / "peer.go"], env=dict(os.environ) | cache)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    return setup.started([program, str(port), file, key], url, f"{url}/", name=name, key=key)
