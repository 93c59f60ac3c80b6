"""The servers of one process: listening, serving both ports, and stopping on a signal."""

import asyncio
import contextlib
import errno
import gc
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from petstore_server.runtime.application import Application, run_console
from petstore_server.runtime.background import run_tasks
from petstore_server.server.sockets import is_foreign_address, listening_socket
from petstore_server.server.writer import unacknowledged
from petstore_server.settings import Settings, SettingsError

# A thread that reads or commits takes the interpreter from the event loop each time it has waited for a disk or a lock:
# for a commit twice (decision 0006). By default it waits up to 5 ms for it each time while the loop is busy.
_SWITCH_SECONDS = 0.0001

DRAIN_SECONDS = 8
"""How long requests may take after the listeners have closed; then they are cut off."""

MAX_ADMIN_CONNECTIONS = 64
_ADMIN_HEAD_SECONDS = 10.0
_ADMIN_STALL_SECONDS = 60.0  # for the next bytes of a body to arrive, or for the client to take any of a response
_FIRST_REQUEST_SECONDS = 1.0  # for which a new connection to the admin port is kept while the server stops
_LAST_READ_SECONDS = 0.05
_WARNING_SECONDS = 60.0

_log = logging.getLogger(__name__)


def listening(host: str, port: int, setting: str) -> socket.socket:
    """A socket that listens on the address. Raises SettingsError, which names the setting, if it cannot."""
    try:
        listener = listening_socket(host, port)
    except OSError as error:
        remedy = f"choose another with {setting}"
        if is_foreign_address(error):
            remedy = f"give an address of this machine with {setting.replace('PORT', 'HOST')}"
        elif error.errno == errno.EADDRINUSE:
            remedy += "; `ss -ltnp` shows what uses this one"
        raise SettingsError(f"Cannot listen on {host}:{port} ({error.strerror or error}); {remedy}.") from None
    listener.setblocking(False)
    return listener


def spread(listener: socket.socket, number: int) -> list[socket.socket]:
    """As many sockets on the address of one that is bound to it exclusively, so that no other process can bind it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    others = [socket.socket(listener.family, listener.type) for _ in range(1, number)]
    for other in others:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(listener.getsockname())
        other.setblocking(False)
    return [listener, *others]


class AdminConnection(H11Protocol):
    """A connection to the admin port: at most MAX_ADMIN_CONNECTIONS are open, and clients that stall are cut off.

    uvicorn bounds neither: silent connections would take the descriptors that the public port needs. A body that
    does not arrive keeps its first part on the disk, and a response that is not read keeps a snapshot of the store.
    """

    _warned_at = -math.inf
    _since = 0.0  # when the client's turn began, or it last made progress
    _unread = 0  # bytes of responses that the client had not taken at the last check

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > MAX_ADMIN_CONNECTIONS:
            others = (each for each in self.connections if isinstance(each, AdminConnection))
            oldest = min(others, key=lambda each: each._since if each._is_waiting() else math.inf)  # noqa: SLF001
            oldest.transport.abort()
            if self.loop.time() - AdminConnection._warned_at > _WARNING_SECONDS:
                AdminConnection._warned_at = self.loop.time()
                _log.warning("admin connections closed", extra={"maximum": MAX_ADMIN_CONNECTIONS})

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_idle() and not self._unread:  # else it may be a part of a head
            self._since = self.loop.time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()

    def check_progress(self) -> None:
        """Abort the connection if it has waited for the client for too long. Called ten times a second."""
        unsent, now = self.transport.get_write_buffer_size(), self.loop.time()
        unread = unsent + unacknowledged(self.transport) if unsent else 0
        if unread != self._unread or not self._is_waiting():
            self._unread, self._since = unread, now
        elif now - self._since > (_ADMIN_HEAD_SECONDS if self._is_idle() and not unread else _ADMIN_STALL_SECONDS):
            self.transport.abort()

    def shutdown(self) -> None:
        """End after the request that is answered or, on a new connection, after one that is on its way."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:  # a second timer: after a pause of the process, one may be due before the loop has read
            self.loop.call_later(_FIRST_REQUEST_SECONDS, self.loop.call_later, _LAST_READ_SECONDS, self._end)
        else:
            super().shutdown()

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _is_waiting(self) -> bool:
        """Whether the client has to send or to read something."""
        if self._is_idle() or self.transport.get_write_buffer_size():
            return True
        return self.cycle.more_body and not self.flow.read_paused


class AdminServer(uvicorn.Server):
    """A uvicorn server for the admin port that leaves signals to others."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=AdminConnection,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        for connection in list(self.server_state.connections):
            if isinstance(connection, AdminConnection):
                connection.check_progress()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(0)  # what the loop has just accepted becomes a connection that uvicorn knows
        await super().shutdown(sockets)

    async def wait_until_started(self) -> None:
        """Wait until it accepts connections."""
        while not self.started:  # noqa: ASYNC110 - uvicorn only sets a flag
            await asyncio.sleep(0.01)


def stop_signals(drain_delay: float | None) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, and SIGHUP if a closed terminal can have sent it.

    Otherwise there is nothing to do on SIGHUP: settings are read at the start. Where it is ignored, it remains so.
    The first signal is logged, with the `drain_delay` (seconds). A worker has None: its supervisor logs it.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    received = list[signal.Signals]()

    def receive(number: signal.Signals) -> None:
        if drain_delay is not None and not received:
            _log.info("draining", extra={"signal": number.name, "delay_seconds": drain_delay})
        received.append(number)
        stop.set()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as with nohup
        if _has_terminal():
            numbers.append(signal.SIGHUP)
        else:
            loop.add_signal_handler(signal.SIGHUP, lambda: _log.info("SIGHUP ignored"))
    for number in numbers:
        loop.add_signal_handler(number, receive, number)
    return stop


def _has_terminal() -> bool:
    """Whether a terminal controls this process."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY))
    except OSError:
        return False
    return True


async def serve_until_stopped(
    settings: Settings,
    application: Application,
    listener: socket.socket,
    on_ready: Callable[[], Awaitable[None]],
    *,
    admin: socket.socket | None = None,
    companion: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until a stop signal, then drain: /readyz turns 503, the delay passes, requests are finished.

    `companion` runs from `on_ready` until the end; if it ends earlier, the server drains as well.
    """
    stop = stop_signals(None if admin is None else settings.drain_delay_seconds)
    public = application.public_server()
    background = [asyncio.ensure_future(run_tasks(application.background))]
    admin_server = AdminServer(application.admin)
    admin_serving = [asyncio.ensure_future(admin_server.serve([admin]))] if admin is not None else []
    try:
        await public.start(listener)
        if admin_serving:
            await first(admin_server.wait_until_started, [*background, *admin_serving])
        gc.collect()
        gc.freeze()  # what exists now stays: collecting it takes time and finds nothing
        sys.setswitchinterval(_SWITCH_SECONDS)
        await on_ready()
        if application.console is not None:
            background.append(asyncio.ensure_future(run_console(application.console)))
        if companion is not None:
            background.append(asyncio.ensure_future(companion()))
        await first(stop.wait, [*background, *admin_serving])
        application.drain()
        with contextlib.suppress(TimeoutError):
            stop.clear()  # a second signal ends the delay
            await asyncio.wait_for(stop.wait(), settings.drain_delay_seconds)
    finally:
        application.drain()
        await public.stop(DRAIN_SECONDS)
        admin_server.should_exit = True  # last, so that /readyz reports the draining until the end
        await asyncio.gather(*admin_serving, return_exceptions=True)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


async def first(wait: Callable[[], Awaitable[Any]], tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait for `wait`, or for one of the tasks, which should not end earlier: its error is raised."""
    waiting = asyncio.ensure_future(wait())
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()
