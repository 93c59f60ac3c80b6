"""A worker as its supervisor sees it: its process, and the channel over which it reports."""

import asyncio
import contextlib
import socket
import sys

import msgspec
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from petstore_server.runtime.worker import LARGEST_LINE, Report
from petstore_server.telemetry.aggregation import aggregate, without_gauges

UNREADABLE = (OSError, EOFError, ValueError, msgspec.MsgspecError)  # a channel without a report; includes TimeoutError

_REPORT_SECONDS = 3.0
_WORKER = "petstore_server.cli.worker"


class WorkerFailed(Exception):
    """A worker could not start, and has printed the reason; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker ended with exit code {code}")
        self.code = code


class Worker:
    """One of the server processes."""

    def __init__(self, number: int, listener: socket.socket, environ: dict[str, str]) -> None:
        self.number = number
        self._listener = listener
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None
        self._channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asking = asyncio.Lock()
        self._asked = 0
        self._latest = ""  # metrics in text form, as they came
        self._ended: list[Metric] = []

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises WorkerFailed, OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await self._spawn(self._listener.fileno(), theirs.fileno())
            except OSError:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LARGEST_LINE)
        line = await reader.readline()
        if not line:
            writer.close()
            raise WorkerFailed(await self.ended())
        self._latest = _decode(line).metrics
        self._channel = reader, writer  # it can be asked from now on

    async def ended(self) -> int:
        """Wait until the process has ended; return its exit code."""
        assert self._process is not None  # noqa: S101 - for the type checker: called only after `start`
        code = await self._process.wait()
        if self._channel is not None:
            self._channel[1].close()
            self._channel = None
        self._ended, self._latest = without_gauges(self.metrics()), ""
        return code

    def signal(self, number: int) -> None:
        """Send a signal if the process runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def report(self) -> Report | None:
        """Ask for a report; None if the process does not run or does not answer in time."""
        async with self._asking:
            self._asked += 1
            try:
                async with asyncio.timeout(_REPORT_SECONDS):
                    report = await self._ask(self._asked)
            except UNREADABLE:
                return None
        self._latest = report.metrics
        return report

    def metrics(self) -> list[Metric]:
        """What it last reported, and what the processes before it had counted."""
        return aggregate([self._ended, text_string_to_metric_families(self._latest)])

    async def _spawn(self, *handles: int) -> asyncio.subprocess.Process:
        # In a separate session, so that Ctrl-C reaches only the supervisor, which then signals each worker once.
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _WORKER, *map(str, handles)),
            env=self._environ,
            pass_fds=handles,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _ask(self, number: int) -> Report:
        if self._channel is None:
            raise EOFError
        reader, writer = self._channel
        writer.write(b"%d\n" % number)
        await writer.drain()
        while line := await reader.readline():
            report = _decode(line)
            if report.number == number:  # else the late answer to an earlier question
                return report
        raise EOFError


def _decode(line: bytes) -> Report:
    return msgspec.json.decode(line, type=Report)
