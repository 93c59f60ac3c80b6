"""One of several server processes, as it runs and as its supervisor sees it.

It inherits two sockets: the one on which it listens, and a channel to the supervisor. The worker reports on request,
and drains when the other end of the channel closes: no worker outlives its supervisor.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import time
from typing import Any

import msgspec
import uvloop
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from petstore_server.runtime.application import Application
from petstore_server.runtime.backend import lock_for_serving, opened_backend
from petstore_server.runtime.engines import Announce
from petstore_server.runtime.servers import run
from petstore_server.settings import Settings, read_settings
from petstore_server.telemetry.logs import logging_to_stderr
from petstore_server.telemetry.metrics import aggregate, without_gauges

_LARGEST_LINE = 1 << 24
_REPORT_SECONDS = 3.0
_WORKER = "petstore_server.cli.worker"
UNREADABLE = (OSError, EOFError, ValueError, msgspec.MsgspecError)  # a channel without a report; includes TimeoutError


class Report(msgspec.Struct):
    """The state of a worker. `number` is that of the request; report 0 is sent unasked, once the worker serves.

    `metrics` are in Prometheus's text format.
    """

    number: int
    ready: bool
    detail: dict[str, Any]
    metrics: str


_decode = msgspec.json.Decoder(Report).decode


def serve_inherited(listener: int, channel: int, announce: Announce) -> None:
    """Serve on the inherited sockets with these file descriptors.

    Raises SettingsError, StoreUnusable and ServiceUnavailable if the service cannot start.
    """
    settings = read_settings(os.environ)
    with (
        logging_to_stderr(settings.log_level),
        socket.socket(fileno=listener) as public,
        socket.socket(fileno=channel) as supervisor,
        lock_for_serving(settings),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(settings, public, supervisor, announce))


async def _serve(settings: Settings, public: socket.socket, channel: socket.socket, announce: Announce) -> None:
    async with opened_backend(settings, time.time, announce) as backend:
        application = Application(settings, backend, time.time, secrets.token_hex)
        requests, reports = await asyncio.open_unix_connection(sock=channel, limit=_LARGEST_LINE)

        async def report(number: int) -> None:
            ready, detail = await application.readiness()
            line = msgspec.json.encode(Report(number, ready, detail, application.metrics.exposition().decode()))
            reports.write(line + b"\n")
            await reports.drain()

        async def report_on_request() -> None:
            with contextlib.suppress(ConnectionError):
                while request := await requests.readline():
                    await report(int(request))

        await run(settings, application, public, lambda: report(0), companion=report_on_request)


class WorkerFailed(Exception):
    """A worker could not start, and has printed the reason; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker ended with exit code {code}")
        self.code = code


class Worker:
    """One of the server processes, as its supervisor sees it."""

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
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_LARGEST_LINE)
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
