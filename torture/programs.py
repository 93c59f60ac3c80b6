"""`petstore` as the checks run it: commands, and servers that are recorded, frozen, killed and started again."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from testing.preloaded import PetstoreProcess, PipedProcess
from testing.process import wait_until_serving
from testing.subprocesses import end, environment_with, resident
from torture import recording
from torture.recording import Options

Given = TypeVar("Given")
Found = TypeVar("Found")


def environment(url: str, **more: str) -> dict[str, str]:
    """The settings of a program that uses this store, with none of the caller's own."""
    return environment_with(PETSTORE_DATABASE_URL=url, **more)


def begun(url: str, *arguments: str, options: Options | None = None) -> PipedProcess:
    """Start a command, recorded if there are options."""
    return PipedProcess(arguments, environment(url), partial(recording.prepare, options or Options()))


def petstore(url: str, *arguments: str, options: Options | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    process = begun(url, *arguments, options=options)
    out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)


async def apart(function: Callable[[Given], Found], given: Given) -> Found:
    """Call the function in another process, and return its result."""
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, function, given)
    finally:
        pool.shutdown(wait=False)


@dataclass
class Server:
    """A server that can be ended and started again on the same ports."""

    url: str
    settings: dict[str, str] = field(default_factory=dict)
    options: Options | None = None
    port: int = 0
    admin_port: int = 0
    process: PetstoreProcess | None = None
    log: Path = field(default_factory=lambda: Path(tempfile.mkstemp(prefix="petstore-torture-", suffix=".log")[1]))

    def start(self) -> "Server":
        """Start it, and wait until it serves."""
        serve = ["serve", "--port", str(self.port), "--admin-port", str(self.admin_port)]
        begin = self.log.stat().st_size
        prepare = partial(recording.prepare, self.options or Options())
        given = environment(self.url, **self.settings)
        self.process = PetstoreProcess(serve, given, Path(os.devnull), self.log, prepare)
        found = wait_until_serving(self.process, self.log, begin)
        self.port, self.admin_port = (int(found[name].rpartition(":")[2]) for name in ("api", "admin"))
        return self

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; what does not end is killed, and AssertionError raised."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        return end(process, number, self.log)

    def memory(self) -> int:
        """Bytes resident."""
        assert self.process is not None
        return resident(self.process.pid)

    def descriptors(self) -> int:
        """Open files and sockets."""
        assert self.process is not None
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def serving(url: str, options: Options | None = None, **settings: str) -> Iterator[Server]:
    """A server on free ports, ended at the end if it still runs."""
    server = Server(url, settings, options)
    try:
        yield server.start()
    finally:
        try:
            server.end(signal.SIGKILL)
        finally:
            server.log.unlink()
