"""`petstore serve --workers N`: N server processes on one port, with one admin port that answers for all (D1).

Each worker accepts from a separate listening socket, among which the kernel spreads connections (SO_REUSEPORT): from
a shared socket, the first worker to wake up would take a whole burst. The supervisor holds the sockets open. A worker
that dies loses only its own connections; those not yet accepted wait for the worker that replaces it.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.routing import BaseRoute

from petstore_server.api.admin import DRAINING, Readiness, admin_application
from petstore_server.runtime.application import make_console, sampling
from petstore_server.runtime.installation import LocalInstallation
from petstore_server.runtime.servers import DRAIN_SECONDS, AdminServer, first, stop_signals
from petstore_server.runtime.worker import UNREADABLE, Report, Worker, WorkerFailed
from petstore_server.settings import Settings
from petstore_server.telemetry.logs import lost_lines
from petstore_server.telemetry.metrics import aggregate, exposition

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_STEADY_SECONDS = 30.0  # a worker that has served for so long is replaced without a long pause
_DRAIN_SECONDS = DRAIN_SECONDS + 4.0  # a worker cuts off by itself what takes longer than its own limit

_log = logging.getLogger(__name__)


class Workers:
    """All workers together."""

    def __init__(self, listeners: Sequence[socket.socket], environ: dict[str, str]) -> None:
        self._workers = [Worker(number, listener, environ) for number, listener in enumerate(listeners, 1)]
        self._draining = asyncio.Event()

    async def start(self) -> None:
        """Start the first, which may create or migrate the store, and then the others. Raises WorkerFailed, OSError."""
        await self._workers[0].start()
        await asyncio.gather(*[worker.start() for worker in self._workers[1:]])

    async def run(self) -> None:
        """Replace each worker that dies, until all have ended after `drain`."""
        await asyncio.gather(*[self._keep(worker) for worker in self._workers])

    def drain(self) -> None:
        """Make all workers finish the requests under way and stop; the second time, without the delay."""
        self._draining.set()
        for worker in self._workers:
            worker.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the workers that still run."""
        self._draining.set()
        for worker in self._workers:
            worker.signal(signal.SIGKILL)

    async def readiness(self) -> Readiness:
        """Ready if all are; degraded if one is."""
        return self._evaluate(await self._reports())

    async def request_metrics(self) -> list[Metric]:
        """The metrics of all workers, summed."""
        await self._reports()
        return aggregate([worker.metrics() for worker in self._workers])

    async def exposition(self) -> bytes:
        """The metrics of all workers and of the supervisor, summed. Asking a worker evaluates its readiness."""
        reports = await self._reports()
        own = [
            GaugeMetricFamily("petstore_ready", "1 if /readyz returns 200.", self._evaluate(reports).ready),
            GaugeMetricFamily("petstore_workers", "Workers that respond.", sum(each is not None for each in reports)),
        ]
        lost = CounterMetricFamily("petstore_log_lines_lost", "Log lines that could not be written.", lost_lines())
        metrics = aggregate([*[worker.metrics() for worker in self._workers], [lost]])
        return exposition([*[metric for metric in metrics if metric.name != "petstore_ready"], *own])

    async def _reports(self) -> list[Report | None]:
        return await asyncio.gather(*[worker.report() for worker in self._workers])

    def _evaluate(self, reports: list[Report | None]) -> Readiness:
        if self._draining.is_set():
            return DRAINING
        degraded: dict[str, Any] | None = None
        for worker, report in zip(self._workers, reports, strict=True):
            if report is None:
                return Readiness.unavailable(f"worker {worker.number} does not respond")
            if not report.ready:
                return Readiness(False, report.detail)
            if report.detail.get("status") != "ok":
                degraded = report.detail
        return Readiness(True, degraded or {"status": "ok"})

    async def _keep(self, worker: Worker) -> None:
        """Replace the process whenever it dies, after a pause that grows while it dies soon."""
        pause, started = _FIRST_PAUSE, monotonic()
        while True:
            code = await worker.ended()
            if self._draining.is_set():
                return
            pause = _FIRST_PAUSE if monotonic() - started > _STEADY_SECONDS else pause
            _log.error("worker ended", extra={"worker": worker.number, "code": code, "again_in": pause})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), pause)
                return
            pause, started = min(2 * pause, _LONGEST_PAUSE), monotonic()
            await self._start_again(worker)

    async def _start_again(self, worker: Worker) -> None:
        """Start a process in place of one that has ended; if it cannot start, it ends at once."""
        try:
            with contextlib.suppress(WorkerFailed):  # its exit code says enough
                await worker.start()
                _log.info("worker serves again", extra={"worker": worker.number})
        except UNREADABLE as error:  # for example, the system can start no more processes
            _log.error("worker cannot be started", extra={"worker": worker.number, "reason": str(error)})
            worker.signal(signal.SIGKILL)
        if self._draining.is_set():
            worker.signal(signal.SIGTERM)


async def serve_with_workers(
    settings: Settings, given: dict[str, str], public: socket.socket, admin: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Serve until a stop signal, then drain all workers. `given` are settings in addition to the environment's.

    Raises WorkerFailed if a worker cannot start.
    """
    stop = stop_signals()
    listeners = _spread(public, settings.workers)
    workers = Workers(listeners, {**os.environ, **given})
    tasks = [asyncio.ensure_future(workers.start())]
    opened = contextlib.AsyncExitStack()
    server: AdminServer | None = None
    try:
        await first(stop.wait, tasks)
        if stop.is_set():
            return
        routes = await _console_routes(settings, workers, opened)
        server = AdminServer(admin_application(workers.readiness, workers.exposition, routes))
        tasks = [asyncio.ensure_future(workers.run()), asyncio.ensure_future(server.serve([admin]))]
        try:
            await first(server.wait_until_started, tasks)
            on_ready()
            await first(stop.wait, tasks)
        finally:  # also after a failure of this process: the workers finish their requests and save their counts
            for listener in listeners:  # each worker is then the last to close its own: connections are refused at once
                listener.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.drain_delay_seconds + _DRAIN_SECONDS):
                    while not tasks[0].done():
                        stop.clear()
                        workers.drain()
                        await first(stop.wait, tasks[:1])
    finally:
        tasks[0].cancel()
        workers.kill()
        if server is not None:
            server.should_exit = True
        await asyncio.gather(*tasks, return_exceptions=True)
        await opened.aclose()


async def _console_routes(
    settings: Settings, workers: Workers, opened: contextlib.AsyncExitStack
) -> Sequence[BaseRoute]:
    """The routes of the operator console, unless the settings remove it; `opened` closes it. The store exists.

    Raises StoreUnusable.
    """
    if not settings.console:
        return ()
    store = await opened.enter_async_context(LocalInstallation(settings).opened_store())
    console = make_console(settings, store, workers, time.time)
    opened.push_async_callback(console.sources.close)
    asyncio.get_running_loop().run_in_executor(None, console.prepare)
    sampled = asyncio.ensure_future(sampling(console).run())
    opened.callback(sampled.cancel)
    return console.routes


def _spread(listener: socket.socket, number: int) -> list[socket.socket]:
    """This many sockets on the address of one that is bound to it exclusively, so that no other process can bind it."""
    listeners = [listener]
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    for _ in range(1, number):
        listeners.append(socket.socket(listener.family, listener.type))
        listeners[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listeners[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listeners[-1].bind(listener.getsockname())
        listeners[-1].setblocking(False)
    return listeners
