"""`petstore serve --workers N`: the supervisor of N server processes on one port, with the admin port for all (D1).

Each worker accepts from a separate listening socket, among which the kernel spreads connections (SO_REUSEPORT): from
a shared socket, the first worker to wake up would take a whole burst. The supervisor holds the sockets open. A worker
that dies loses only its own connections; those not yet accepted wait for the worker that replaces it. Only a socket
that systemd keeps open is shared: what waits in another one would be lost when it is closed.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import BaseRoute

from petstore_server.api.admin import DRAINING, Readiness, admin_application
from petstore_server.runtime.application import make_console, run_console
from petstore_server.runtime.background import BackgroundTask, run_tasks
from petstore_server.runtime.opening import named_store, webhook_service
from petstore_server.runtime.servers import DRAIN_SECONDS, AdminServer, first, stop_signals
from petstore_server.runtime.worker import WorkerReport
from petstore_server.settings import Settings
from petstore_server.telemetry.logs import lost_lines
from petstore_server.telemetry.metrics import aggregate, build_info

_PROGRAM = "petstore_server.cli.worker"
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 2.0  # before one that died is replaced: it must not occupy the host
_STEADY_SECONDS = 30.0  # a worker that has served this long is replaced without a long pause
_DRAIN_SECONDS = DRAIN_SECONDS + 4.0  # a worker cuts off by itself what takes longer than its own limit
_REPORT_SECONDS = 3.0
_MAX_REPORT = 16_000_000  # bytes
_UNREADABLE = (OSError, ValueError, msgspec.MsgspecError)  # a channel without a report; includes TimeoutError

_decode = msgspec.json.Decoder(WorkerReport).decode
_log = logging.getLogger(__name__)


class WorkerFailed(Exception):
    """A worker could not start, and has printed the reason; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker ended with exit code {code}")
        self.code = code


class Worker:
    """One of the server processes, as its supervisor sees it."""

    def __init__(self, number: int, listener: socket.socket) -> None:
        self.number = number
        self._listener = listener
        self._process: asyncio.subprocess.Process | None = None
        self._channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._question: asyncio.Task[WorkerReport | None] | None = None
        self._latest = ""  # metrics in text form, as they came
        self._ended: list[Metric] = []

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises WorkerFailed, OSError."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = await self._spawn(self._listener.fileno(), theirs.fileno())
            reader, writer = await asyncio.open_unix_connection(sock=ours.dup(), limit=_MAX_REPORT)
        with contextlib.ExitStack() as failed:
            failed.callback(writer.close)
            line = await reader.readline()
            if not line:
                raise WorkerFailed(await self.ended())
            self._latest = _decode(line).metrics
            failed.pop_all()
        self._channel = reader, writer  # it can be asked from now on

    async def ended(self) -> int:
        """Wait until the process has ended; return its exit code, 0 if there was none."""
        code = 0 if self._process is None else await self._process.wait()
        if self._channel is not None:
            self._channel[1].close()
            self._channel = None
        # A counter that fell would look like a restart; what is open or ready now ends with the process.
        self._ended, self._latest = [metric for metric in self.metrics() if metric.type != "gauge"], ""
        return code

    def signal(self, number: int) -> None:
        """Send a signal if the process runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def report(self) -> WorkerReport | None:
        """Ask for a report; None if the process does not run or does not answer in time.

        Only one question is under way: a late answer is not taken for the answer to a later question.
        """
        question = self._question
        if question is None or question.done():
            question = self._question = asyncio.ensure_future(self._ask())
        await asyncio.wait([question], timeout=_REPORT_SECONDS)
        return question.result() if question.done() else None

    def metrics(self) -> list[Metric]:
        """What it last reported, and what the processes before it had counted."""
        return aggregate([self._ended, text_string_to_metric_families(self._latest)])

    async def _spawn(self, *handles: int) -> asyncio.subprocess.Process:
        # In a separate session, so that Ctrl-C reaches only the supervisor, which then signals each worker once.
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _PROGRAM, *map(str, handles)),
            pass_fds=handles,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _ask(self) -> WorkerReport | None:
        channel = self._channel
        if channel is None:
            return None
        reader, writer = channel
        writer.write(b"\n")
        try:
            report = _decode(await reader.readline())
        except _UNREADABLE:
            return None
        if self._channel is channel:  # else the process has ended, and its counts are in `_ended`
            self._latest = report.metrics
        return report


class Workers:
    """All workers together."""

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        self._workers = [Worker(number, listener) for number, listener in enumerate(listeners, 1)]
        self._draining = False
        self._restarts = 0
        self._silent: str | None = None  # the reason that was logged

    async def start(self) -> None:
        """Start the first, which may migrate the store, and then the others. Raises WorkerFailed, OSError."""
        await self._workers[0].start()
        await asyncio.gather(*[worker.start() for worker in self._workers[1:]])

    async def keep_running(self) -> None:
        """Replace each worker that dies, until this is cancelled."""
        await asyncio.gather(*[self._keep(worker) for worker in self._workers])

    async def ended(self) -> None:
        """Wait until no worker runs."""
        await asyncio.gather(*[worker.ended() for worker in self._workers])

    def stop(self, number: int) -> None:
        """Send each worker that runs a signal; they are not ready from now on.

        SIGTERM makes it finish the requests under way and stop; the second time, without the delay.
        """
        self._draining = True
        for worker in self._workers:
            worker.signal(number)

    async def readiness(self) -> Readiness:
        """Ready if all are; degraded if one is."""
        return self._evaluate(await self._reports())

    async def collect(self) -> list[Metric]:
        """The metrics of all workers and of the supervisor, summed. Asking a worker evaluates its readiness."""
        reports = await self._reports()
        lost = CounterMetricFamily("petstore_log_lines_lost", "Log lines that could not be written.", lost_lines())
        metrics = aggregate([*[worker.metrics() for worker in self._workers], [lost]])
        return [
            *[metric for metric in metrics if metric.name not in ("petstore_ready", "petstore_build_info")],
            build_info(),
            GaugeMetricFamily("petstore_ready", "1 if /readyz returns 200.", self._evaluate(reports).ready),
            CounterMetricFamily("petstore_worker_restarts", "Workers that died and were replaced.", self._restarts),
            GaugeMetricFamily("petstore_workers", "Workers that respond.", sum(each is not None for each in reports)),
        ]

    async def _reports(self) -> list[WorkerReport | None]:
        return await asyncio.gather(*[worker.report() for worker in self._workers])

    def _evaluate(self, reports: list[WorkerReport | None]) -> Readiness:
        if self._draining:
            return DRAINING
        silent = [f"worker {number} does not respond" for number, report in enumerate(reports, 1) if report is None]
        states = [Readiness.unavailable(reason) for reason in silent]
        states += [report.readiness for report in reports if report is not None]
        worst = min(states, key=lambda state: (state.ready, state.detail["status"] == "ok"))
        # Any other reason is logged by the worker that has it.
        if silent and self._silent is None:
            self._silent = silent[0]
            _log.error("not ready", extra={"reason": self._silent})
        elif worst.ready and self._silent is not None:
            _log.info("ready again", extra={"reason": self._silent})
            self._silent = None
        return worst

    async def _keep(self, worker: Worker) -> None:
        """Replace the process whenever it dies, after a pause that grows while it dies soon, or cannot start."""
        pause, started = _FIRST_PAUSE, monotonic()
        while True:
            code = await worker.ended()
            if monotonic() - started > _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            self._restarts += 1
            _log.error("worker ended", extra={"worker": worker.number, "exit_code": code, "retry_in_seconds": pause})
            await asyncio.sleep(pause)
            pause, started = min(2 * pause, _MAX_PAUSE), monotonic()
            try:
                with contextlib.suppress(WorkerFailed):  # its exit code says enough
                    await worker.start()
                    _log.info("worker serves again", extra={"worker": worker.number})
            except _UNREADABLE as error:  # for example, the system can start no more processes
                _log.error("worker cannot be started", extra={"worker": worker.number, "reason": str(error)})
                worker.signal(signal.SIGKILL)


async def serve_with_workers(
    settings: Settings,
    listeners: Sequence[socket.socket],
    admin: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    """Serve until a stop signal, then drain all workers, each with one of the `listeners`.

    Raises WorkerFailed if a worker cannot start, StoreUnusable.
    """
    stop = stop_signals(settings.drain_delay_seconds)
    workers = Workers(listeners)
    tasks = [asyncio.ensure_future(workers.start())]
    opened = contextlib.AsyncExitStack()
    server: AdminServer | None = None
    try:
        await first(stop.wait, tasks)
        if not stop.is_set():
            routes: Sequence[BaseRoute] = ()
            if settings.console:
                store = await opened.enter_async_context(named_store(settings))
                group = await opened.enter_async_context(asyncio.TaskGroup())
                hooks = webhook_service(settings, store, time.time)
                console = make_console(settings, store, workers, hooks, time.time)
                opened.callback(group.create_task(run_console(console)).cancel)
                # Learns of damage that another process has seen: the console then takes no change either.
                learning = BackgroundTask("watch access", store.access_version)
                opened.callback(group.create_task(run_tasks([learning])).cancel)
                routes = (console,)
            server = AdminServer(admin_application(workers.readiness, workers.collect, settings, routes))
            tasks = [asyncio.ensure_future(workers.keep_running()), asyncio.ensure_future(server.serve([admin]))]
            await first(server.wait_until_started, tasks)
            on_ready()
            await first(stop.wait, tasks)
    finally:  # also after a failure of this process: the workers finish their requests and save their counts
        tasks[0].cancel()  # no worker is started any more
        await asyncio.gather(tasks[0], return_exceptions=True)
        for listener in listeners:  # each worker is then the last to close its own: connections are refused at once
            listener.close()
        ended = asyncio.ensure_future(workers.ended())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_delay_seconds + _DRAIN_SECONDS):
                while not ended.done():
                    stop.clear()
                    workers.stop(signal.SIGTERM)
                    await first(stop.wait, [ended])
        workers.stop(signal.SIGKILL)
        if server is not None:
            server.should_exit = True
        await asyncio.gather(ended, *tasks, return_exceptions=True)
        await opened.aclose()
