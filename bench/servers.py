"""Servers under load: the product, nginx, and whatever else is started by a command."""

import http.client
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from bench.machine import BenchError, pinned, program
from bench.plan import PETSTORE, Plan
from bench.stores import Store
from testing.subprocesses import free_port

_START_SECONDS = 60
_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit; worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{
    access_log off; sendfile off; output_buffers 2 512k; tcp_nodelay on; gzip_static on;
    keepalive_requests 1000000000; types {{ }} default_type application/json;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    server {{
        listen 127.0.0.1:{port} backlog=4096; root {folder};
        location = /fixed {{ return 200 '{fixed}'; }}
        location /nothing {{ return 204; }}
    }}
}}
"""


@dataclass(frozen=True)
class Running:
    """A started server: the address of its root, without a slash at the end, and its process.

    `admin` is the address of the product's admin port.
    """

    url: str
    pid: int
    ready_seconds: float
    admin: str = ""


@contextmanager
def started(
    command: Sequence[str | Path],
    *,
    core: int | str,
    url: str,
    ready: str,
    env: Mapping[str, str] | None = None,
    folder: Path,
) -> Iterator[Running]:
    """Start a command on a core, wait until the URL `ready` gets a response below 500, and end it afterwards."""
    log = folder / f"{Path(command[0]).name}.{time.monotonic_ns()}.log"
    began = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            pinned(core, command), env=dict(env or os.environ), stdout=output, stderr=output, cwd=folder
        )
    try:
        while not _answers(ready):
            if process.poll() is not None or time.perf_counter() - began > _START_SECONDS:
                raise BenchError(f"{Path(command[0]).name} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.002)
        yield Running(url, process.pid, time.perf_counter() - began)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    peer = http.client.HTTPConnection(parts.netloc, timeout=_START_SECONDS)
    try:
        peer.request("GET", parts.path or "/")
        return peer.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        peer.close()


@contextmanager
def petstore(plan: Plan, store: Store, *, core: int | str = "", **settings: str) -> Iterator[Running]:
    """`petstore serve` over a store, on the server core or another; ready when `/readyz` says so."""
    port, admin = free_port(), free_port()
    command: list[str | Path] = [PETSTORE, "serve", "--port", str(port), "--admin-port", str(admin)]
    with started(
        command,
        core=core or plan.cores.server,
        url=f"http://127.0.0.1:{port}",
        ready=f"http://127.0.0.1:{admin}/readyz",
        env={**store.environment, **settings},
        folder=plan.folder,
    ) as server:
        yield replace(server, admin=f"http://127.0.0.1:{admin}")


@contextmanager
def nginx(plan: Plan, folder: Path, fixed: bytes = b"") -> Iterator[Running]:
    """One nginx worker on the server core: the files of a folder, `fixed` at /fixed, 204 below /nothing."""
    path = program("nginx")
    if path is None:
        raise BenchError("nginx is not installed. Run `make bench-setup`.")
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, fixed=fixed.decode()))
    command: list[str | Path] = [path, "-c", config, "-p", folder]
    url = f"http://127.0.0.1:{port}"
    with started(command, core=plan.cores.server, url=url, ready=f"{url}/nothing", folder=folder) as server:
        worker = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])
        yield Running(url, worker, server.ready_seconds)
