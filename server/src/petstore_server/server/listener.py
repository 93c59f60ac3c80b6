"""The public port: accepts connections, enforces deadlines, and drains."""

import asyncio
import logging
import socket
from contextlib import suppress

from petstore_server.server.connection import Connection
from petstore_server.server.scheduler import ConnectionScheduler
from petstore_server.server.sockets import BACKLOG
from petstore_server.server.writer import WRITE_MARK

ACCEPTED_TOGETHER = 16
"""Connections accepted before the open ones get their turn.

libuv accepts one at a time: of hundreds that arrive together, the last would wait for as many turns of busy ones.
"""

TICK_SECONDS = 1
"""How often connections are checked: the seconds of deadlines are counted in these."""

_FEW_CONNECTIONS = 32  # whose memory may stay with the process

_log = logging.getLogger(__name__)


class PublicServer(ConnectionScheduler):
    """Serves `respond` over HTTP/1.1."""

    async def start(self, listener: socket.socket) -> None:
        """Accept connections from a bound socket. Raises OSError."""
        self._listeners = list[tuple[asyncio.Server, socket.socket]]()
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, WRITE_MARK)  # connections inherit it
        for handle in (listener, *(listener.dup() for _ in range(ACCEPTED_TOGETHER - 1))):
            server = await self._loop.create_server(lambda: Connection(self), sock=handle, backlog=BACKLOG)
            self._listeners.append((server, handle))
        self._tick()

    async def stop(self, seconds: float) -> None:
        """Accept no more, answer one more request on each connection, and cut off what takes longer than `seconds`.

        So a proxy in front loses no request: connections are refused, and those that it keeps end with a response.
        """
        self.draining = True
        accepted = []
        for server, listener in self._listeners:
            with suppress(OSError):  # until none is left: closing the listener would reset them, with their requests
                while True:
                    rest, _ = listener.accept()
                    accepted.append(self._loop.connect_accepted_socket(lambda: Connection(self), rest))
            server.close()
        # A connection that the loop has just accepted becomes one of `connections` in its next round.
        await asyncio.gather(asyncio.sleep(0), *accepted, return_exceptions=True)
        lingering = min(self.deadlines.last_request, seconds)
        if not await self._emptied(lingering):
            self.closing = True
            for connection in list(self.connections):
                self.schedule(connection, None)
            if not await self._emptied(seconds - lingering):
                _log.warning("connections cut off", extra={"connections": len(self.connections)})
        for connection in list(self.connections):
            connection.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ticking.cancel()

    async def _emptied(self, seconds: float) -> bool:
        """Wait until no connection is open and no request is answered; return False if that takes longer."""
        self._empty.clear()
        if self.connections or self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
        return not (self.connections or self._tasks)

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(TICK_SECONDS, self._tick)
        self.check_progress()
        if len(self.connections) + _FEW_CONNECTIONS < self._most_connections // 2:
            self._most_connections = len(self.connections)
            _give_memory_back()


def _give_memory_back() -> None:
    """Return free memory to the system: the C library keeps what is free between pieces in use."""
    import ctypes  # when it is needed: loading it takes time

    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
