"""`petstore` as a separate process, over real sockets: for what only a process shows."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import httpx2

from petstore_server.domain.keys import Scope
from testing.checked_clients import checked_client
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.preloaded import PetstoreProcess
from testing.subprocesses import PATIENCE, Process, await_ready, end, environment_with, kill, resident

PETSTORE = Path(sys.executable).parent / "petstore"


def environment(store: Path | Deployment, **more: str) -> dict[str, str]:
    """The environment of a command that uses this store, with nothing of the tester's own settings."""
    return environment_with(**Deployment.over(store).settings(more))


def environment_with_store(store: Path | Deployment, **more: str) -> dict[str, str]:
    """What `environment` returns, after making the store if it is a missing file."""
    return environment_with(**Deployment.over(store).made(more))


def petstore(
    store: Path | Deployment, *arguments: str, text: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, in this process: starting another one takes twenty times as long."""
    done = CommandLine(store)(*arguments, stdin=text, **more)
    return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)


def petstore_process(store: Path | Deployment, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end as a separate process, which has an empty stdin."""
    with TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        process = PetstoreProcess(arguments, environment_with_store(store, **more), output, errors)
        try:
            code = process.wait(PATIENCE)
        finally:
            kill(process)
        return subprocess.CompletedProcess(process.args, code, output.read_text(), errors.read_text())


def petstore_bytes(store: Path | Deployment, *arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run the installed command to its end; the output is bytes, in the encoding of its terminal."""
    command, environ = [str(PETSTORE), *arguments], environment_with_store(store, **more)
    return subprocess.run(command, env=environ, capture_output=True, timeout=PATIENCE, check=False)


def begin_demo(
    folder: Path, *options: str, stderr: int | IO[str] = subprocess.PIPE, **more: str
) -> "subprocess.Popen[str]":
    """Start `petstore serve --demo` on free ports, which keeps its files in the folder; pipes get its output."""
    return subprocess.Popen(
        [PETSTORE, "serve", "--demo", "--port", "0", "--admin-port", "0", *options],
        env=environment(folder / "unused.db", TMPDIR=str(folder), **more),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def petstore_json(store: Path | Deployment, *arguments: str, text: str | None = None, **more: str) -> Any:
    """Run one command that must succeed, and read the JSON it prints."""
    done = petstore(store, *arguments, "--json", text=text, **more)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def statuses(store: Path | Deployment) -> dict[int, str]:
    """The status of each order."""
    exported = petstore(store, "orders", "export", "-", "--format", "jsonl").stdout
    return {order["id"]: order["status"] for order in map(json.loads, exported.splitlines())}


def put_orders(store: Path | Deployment, number: int, more: str = "", first: int = 1) -> None:
    """Import so many pending orders, with identifiers from `first` on; `more` are fields such as `,"quantity":1`."""
    lines = "".join(f'{{"id":{order_id},"petId":1{more}}}\n' for order_id in range(first, first + number))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode


def new_key(
    store: Path | Deployment,
    account: str = "acme",
    plan: Sequence[str] = ("--plan", "free"),
    options: Sequence[str] = (),
) -> tuple[str, str]:
    """Make an account on a plan, and a key with these options; return the key and its id."""
    petstore_json(store, "accounts", "create", account, *plan)
    made = petstore_json(store, "keys", "create", account, *options)
    return made["key"], made["id"]


UNLIMITED = ("--plan", "enterprise", "--per-minute", "1000000", "--per-day", "100000000")
EVERY_SCOPE = [part for scope in Scope for part in ("--scope", str(scope))]


@dataclass
class Server:
    """A serving process."""

    process: Process
    api: str
    admin: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.api.rpartition(":")[2])

    def client(self, key: str | None = None, **options: Any) -> httpx2.Client:
        """A client that holds every exchange to the contract."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return checked_client(self.api, headers=headers, timeout=PATIENCE, **options)

    def connect(self) -> socket.socket:
        """A bare connection, for what no client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def readiness(self) -> tuple[int, str]:
        """The status code and the status that the admin port reports."""
        response = httpx2.get(f"{self.admin}/readyz", timeout=PATIENCE)
        return response.status_code, response.json()["status"]

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, by name and labels."""
        lines = httpx2.get(f"{self.admin}/metrics", timeout=PATIENCE).text.splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return end(self.process, signal.SIGTERM, self.log)

    def kill(self) -> None:
        """SIGKILL, as by an operator or the kernel: to the process only, not to its workers."""
        end(self.process, signal.SIGKILL, self.log)

    def memory(self) -> int:
        """Bytes resident."""
        return resident(self.process.pid)


def serving(store: Path | Deployment, *options: str, **more: str) -> AbstractContextManager[Server]:
    """`petstore serve` on free ports, killed at the end if it still runs."""
    return serving_as(store, options, more)


@contextmanager
def serving_as(
    store: Path | Deployment,
    options: Sequence[str],
    settings: Mapping[str, str],
    prepare: Callable[[], object] | None = None,
    *,
    fork_workers: bool = True,
) -> Iterator[Server]:
    """What `serving` does, with a say in how the process starts; see PetstoreProcess."""
    log = Deployment.over(store).store.with_suffix(f".{time.monotonic_ns()}.log")
    log.touch()
    ports = ["--port", "0", "--admin-port", "0"]
    environ = environment_with_store(store, **settings)
    arguments = ["serve", *ports, *options]
    process = PetstoreProcess(arguments, environ, Path(os.devnull), log, prepare, fork_workers=fork_workers)
    try:
        reported = wait_until_serving(process, log)
        yield Server(process, reported["api"], reported["admin"], log)
    finally:
        kill(process)
    for line in log.read_text().splitlines(keepends=True):
        assert not line.endswith("\n") or json.loads(line)["event"], line  # the last one may have been cut off


def wait_until_serving(process: Process, log: Path, begin: int = 0) -> dict[str, str]:
    """Return what the line `serving` of its log says, which comes after so many bytes."""
    lines: list[bytes] = []

    def is_serving() -> bool:
        lines[:] = [line for line in log.read_bytes()[begin:].splitlines() if b'"event":"serving"' in line]
        return bool(lines)

    await_ready(process, is_serving, log)
    reported: dict[str, str] = json.loads(lines[0])
    return reported


def exchange(connection: socket.socket, request: bytes, *, last: bool = False) -> bytes:
    """Send raw bytes and read until the server closes the connection.

    The server keeps it open unless the request asks it to close. With `last`, the client closes its half, so that the
    server closes too.
    """
    connection.sendall(request)
    if last:
        connection.shutdown(socket.SHUT_WR)
    return receive(connection)


def receive(connection: socket.socket, silence: float = PATIENCE) -> bytes:
    """All that comes until the end, or until that many seconds of silence."""
    connection.settimeout(silence)
    received = b""
    while True:
        try:
            part = connection.recv(65536)
        except (TimeoutError, ConnectionResetError):
            return received
        if not part:
            return received
        received += part
