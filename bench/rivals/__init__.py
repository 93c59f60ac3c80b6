"""Alternatives to the service, started for the same work: FastAPI and its usual companions, json-server, Prism."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import BenchError, free_port, program
from bench.plan import PETSTORE, Plan, progress, run
from bench.servers import Running, started
from bench.stores import order_file

FASTAPI, JSON_SERVER, PRISM = "FastAPI + SQLAlchemy", "json-server", "Prism"
_HERE = Path(__file__).parent
_NPM_PACKAGES = ("json-server@0.17.4", "@stoplight/prism-cli@5.16.0")
_NPM_FOLDER = _HERE.parents[1] / "build" / "bench" / "npm"


@dataclass(frozen=True)
class Rival:
    """A running rival: the URL of its list of orders, and the header fields that it wants."""

    list_url: str
    headers: dict[str, str]
    server: Running


@contextmanager
def fastapi(plan: Plan, orders: int) -> Iterator[Rival]:
    """The FastAPI service over a SQLite file with orders 1 to `orders`, in one uvicorn process on uvloop."""
    with plan.scratch() as folder:
        env = dict(os.environ) | {"RIVAL_DATABASE": str(folder / "rival.db")}
        key = run([sys.executable, _HERE / "fastapi_orders.py", str(orders)], env=env).strip()
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(_HERE), "fastapi_orders:app", "--port", str(port)]
        url = f"http://127.0.0.1:{port}"
        with started(
            [*command, "--no-access-log", "--log-level", "warning", "--backlog", "4096"],
            core=plan.cores.server,
            url=url,
            ready=f"{url}/docs",
            env=env,
            folder=folder,
        ) as server:
            yield Rival(f"{url}/v1/store/orders", {"Authorization": f"Bearer {key}"}, server)


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


@contextmanager
def json_server(plan: Plan, orders: int) -> Iterator[Rival]:
    """json-server over the same orders. It knows no keys and no limits, and writes its file without a flush."""
    with plan.scratch() as folder:
        listed = [json.loads(line) for line in order_file(plan, orders).read_text().splitlines()]
        (folder / "db.json").write_text(json.dumps({"orders": listed}))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command: list[str | Path] = [
            _npm("json-server"),
            "--quiet",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "db.json",
        ]
        with started(command, core=plan.cores.server, url=url, ready=f"{url}/orders/1", folder=folder) as server:
            yield Rival(f"{url}/orders", {}, server)


@contextmanager
def prism(plan: Plan) -> Iterator[Rival]:
    """Prism, which serves the examples of the contract after it has checked each request."""
    with plan.scratch() as folder:
        (folder / "openapi.json").write_text(run([PETSTORE, "openapi", "--json"]))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [str(_npm("prism")), "mock", "--host", "127.0.0.1", "--port", str(port), "-v", "silent"]
        headers = {"Authorization": "Bearer any"}
        command.append("openapi.json")
        with started(command, core=plan.cores.server, url=url, ready=f"{url}/store/orders", folder=folder) as server:
            yield Rival(f"{url}/store/orders", headers, server)


def npm_missing() -> str:
    """Why the rivals on Node.js cannot be measured, or nothing. Installs them when needed."""
    if program("npm") is None:
        return "npm is not installed"
    try:
        _npm("json-server")
    except BenchError as error:
        return str(error)
    return ""


def _npm(name: str) -> Path:
    """A command of the npm packages, installed below `build/` when first needed."""
    command = _NPM_FOLDER / "node_modules" / ".bin" / name
    if not command.exists():
        progress("installing json-server and Prism with npm, once")
        _NPM_FOLDER.mkdir(parents=True, exist_ok=True)
        run(["npm", "install", "--prefix", _NPM_FOLDER, "--no-audit", "--no-fund", "--silent", *_NPM_PACKAGES])
    return command
