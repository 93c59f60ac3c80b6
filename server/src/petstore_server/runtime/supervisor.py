"""`petstore serve --workers N`: N server processes on one port, with one admin port that answers for all (D1).

Each accepts from a listening socket of its own, among which the kernel spreads connections (SO_REUSEPORT): from one
that all share, the first to wake takes a whole burst. This process holds the sockets open: a worker that dies takes
only its own connections along, and those not yet accepted wait for the one that is started in its place.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import msgspec
import structlog

from petstore_server.http.admin import Readiness, admin_application
from petstore_server.runtime.application import DRAIN_SECONDS, admin_server, first, stop_signals
from petstore_server.runtime.worker import LARGEST_LINE, Report
from petstore_server.settings import Settings
from petstore_server.telemetry.aggregation import Figure, Figures, Sample, exposition, lasting, summed

_REPORT_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_STEADY_SECONDS = 30.0  # who has served for so long is started again without a long pause
_DRAIN_SECONDS = DRAIN_SECONDS + 4.0  # a worker cuts off by itself what takes longer than its own
_WORKER = "petstore_server.cli.worker"


class WorkerFailed(Exception):
    """A worker could not start, and has said why; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker ended with {code}")
        self.code = code


class Worker:
    """One of the processes, started again when it dies."""

    def __init__(self, number: int, listener: socket.socket, environ: dict[str, str]) -> None:
        self.number = number
        self._listener = listener
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None
        self._channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asking = asyncio.Lock()
        self._asked = 0
        self._last: Figures = []
        self._ended: Figures = []

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises WorkerFailed."""
        ours, theirs = socket.socketpair()
        with theirs:
            handles = self._listener.fileno(), theirs.fileno()
            # A session of its own: Ctrl-C reaches this process alone, which then asks each worker once.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _WORKER, *map(str, handles)),
                env=self._environ,
                pass_fds=handles,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LARGEST_LINE)
        line = await reader.readline()
        if not line:
            writer.close()
            raise WorkerFailed(await self.ended())
        self._last = _decode(line).figures
        self._channel = reader, writer  # from here on it can be asked

    async def ended(self) -> int:
        """Wait until the process has ended; return its exit code."""
        assert self._process is not None  # noqa: S101 - said to the type checker: started before
        code = await self._process.wait()
        if self._channel is not None:
            self._channel[1].close()
            self._channel = None
        self._ended, self._last = summed([self._ended, lasting(self._last)]), []
        return code

    def signal(self, number: int) -> None:
        """Send a signal, if the process is there."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def report(self) -> Report | None:
        """Ask how it is; None if it is not there or does not answer in time."""
        async with self._asking:
            self._asked += 1
            try:
                async with asyncio.timeout(_REPORT_SECONDS):
                    report = await self._ask(self._asked)
            except (TimeoutError, OSError, EOFError):
                return None
        self._last = report.figures
        return report

    def figures(self) -> Figures:
        """What it last reported, and what the processes before it had counted."""
        return summed([self._ended, self._last])

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


class Workers:
    """All of the processes together."""

    def __init__(self, listeners: Sequence[socket.socket], environ: dict[str, str]) -> None:
        self._workers = [Worker(number, listener, environ) for number, listener in enumerate(listeners, 1)]
        self._draining = asyncio.Event()
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Start the first, which may make or migrate the store, and then the others. Raises WorkerFailed."""
        await self._workers[0].start()
        await asyncio.gather(*[worker.start() for worker in self._workers[1:]])

    async def run_background_tasks(self) -> None:
        """Run until all have ended after `drain`, and until then start each one that dies again."""
        await asyncio.gather(*[self._keep(worker) for worker in self._workers])

    def drain(self) -> None:
        """Have all of them finish what is under way and stop; the second time, without the delay."""
        self._draining.set()
        for worker in self._workers:
            worker.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End those that are still there."""
        self._draining.set()
        for worker in self._workers:
            worker.signal(signal.SIGKILL)

    async def readiness(self) -> Readiness:
        """Ready if all are; degraded if one is."""
        return self._evaluate(await self._reports())

    async def exposition(self) -> bytes:
        """The metrics of all, summed."""
        reports = await self._reports()
        figures = summed([worker.figures() for worker in self._workers])
        ready = self._evaluate(reports).ready
        serving = sum(report is not None for report in reports)
        own = [_gauge("petstore_ready", "1 while /readyz says so.", ready)]
        own.append(_gauge("petstore_workers", "Server processes that answer.", serving))
        return exposition([*[figure for figure in figures if figure.name != "petstore_ready"], *own])

    async def _reports(self) -> list[Report | None]:
        return await asyncio.gather(*[worker.report() for worker in self._workers])

    def _evaluate(self, reports: list[Report | None]) -> Readiness:
        if self._draining.is_set():
            return Readiness(False, {"status": "unavailable", "reason": "draining: the process is about to stop"})
        degraded: dict[str, Any] | None = None
        for worker, report in zip(self._workers, reports, strict=True):
            if report is None:
                reason = f"worker {worker.number} does not answer"
                return Readiness(False, {"status": "unavailable", "reason": reason})
            if not report.ready:
                return Readiness(False, report.detail)
            if report.detail.get("status") != "ok":
                degraded = report.detail
        return Readiness(True, degraded or {"status": "ok"})

    async def _keep(self, worker: Worker) -> None:
        pause, began = _FIRST_PAUSE, monotonic()
        while True:
            code = await worker.ended()
            if self._draining.is_set():
                return
            pause = _FIRST_PAUSE if monotonic() - began > _STEADY_SECONDS else pause
            self._log.error("worker ended", worker=worker.number, code=code, again_in=pause)
            await asyncio.sleep(pause)
            if self._draining.is_set():
                return
            pause, began = min(2 * pause, _LONGEST_PAUSE), monotonic()
            with contextlib.suppress(WorkerFailed):
                await worker.start()
                self._log.info("worker serves again", worker=worker.number)
            if self._draining.is_set():
                worker.signal(signal.SIGTERM)


async def serve_with_workers(
    settings: Settings, given: dict[str, str], public: socket.socket, admin: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then drain all. `given` are settings beside those of the environment.

    Raises WorkerFailed where a worker could not start.
    """
    stop = stop_signals()
    listeners = _spread(public, settings.workers)
    workers = Workers(listeners, {**os.environ, **given})
    server = admin_server(admin_application(workers.readiness, workers.exposition))
    starting = asyncio.ensure_future(workers.start())
    tasks = [starting]
    try:
        await first(stop.wait, [starting])
        if stop.is_set():
            return
        tasks = [asyncio.ensure_future(workers.run_background_tasks()), asyncio.ensure_future(server.serve([admin]))]
        await first(server.begun, tasks)
        on_ready()
        await first(stop.wait, tasks)
        for listener in listeners:  # so that each worker is the last to close its own: refused is better than waiting
            listener.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_delay_seconds + _DRAIN_SECONDS):
                while not tasks[0].done():
                    stop.clear()
                    workers.drain()
                    await first(stop.wait, tasks[:1])
    finally:
        starting.cancel()
        workers.kill()
        server.should_exit = True
        await asyncio.gather(*tasks, return_exceptions=True)


def _spread(listener: socket.socket, number: int) -> list[socket.socket]:
    """So many sockets on the address of one that is bound to it alone: nobody else can have it, then or later."""
    listeners = [listener]
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    for _ in range(1, number):
        listeners.append(socket.socket(listener.family, listener.type))
        listeners[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listeners[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listeners[-1].bind(listener.getsockname())
        listeners[-1].setblocking(False)
    return listeners


def _decode(line: bytes) -> Report:
    return msgspec.json.decode(line, type=Report)


def _gauge(name: str, documentation: str, value: float) -> Figure:
    return Figure(name, documentation, "gauge", [Sample(name, {}, value)])
