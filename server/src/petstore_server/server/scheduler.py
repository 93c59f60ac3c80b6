"""The scheduler of a server: the turns of its connections, and the bounds on all of them together."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from email.utils import formatdate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from petstore_server.fair_queue import FairQueue
from petstore_server.server.messages import Answer, Request
from petstore_server.server.writer import ResponseWriter

if TYPE_CHECKING:
    from petstore_server.server.connection import Connection

READ_BUFFER = 16 * 1024
"""Bytes read from a connection at once, and kept of one whose requests are still being answered."""

CONNECTIONS_PER_TURN = 16
"""Connections that get their turn before the event loop does other work, at most: their responses are written together.

A write wakes the client, or the proxy, that waits for it. It need not be woken again for those that follow at once. The
first response waits until the others are computed, so there are not too many. Responses that had to wait are written
together too, at most as many.
"""

CONNECTIONS_PER_SHORT_TURN = 6
MANY_WAITING = 64
"""Requests that wait for the store or for Redis. After a turn that leaves more than these waiting, and more than
waited before it, the next turn is short.

Such a request comes back to the event loop several times, each time behind a turn and what follows from it. A client
with few requests would be late by several times what the requests of many others take.
"""

MAX_UNFINISHED = 64 * 1024 * 1024
"""Bytes of incomplete requests on all connections together: added up once a second, and when an eighth has come."""

MAX_UNREAD = 128 * 1024 * 1024
"""Bytes of responses that the kernel keeps until clients take them, on all connections together: as of 1,000 slow ones.

They are added up once a second. The clients that took least in that second are cut off first.
"""

REFUSED = ("maximum", "unfinished", "unread")
"""Why connections are refused or cut off: the number of connections, or one of these bounds."""

_WARNING_SECONDS = 60
_MAX_REFUSALS = 64
"""Connections over the maximum that get a response at the same time; more are cut off."""


class Deadlines(NamedTuple):
    """For how many seconds a connection may wait for the same thing."""

    request: float = 10
    """From a request's first byte to its last."""
    idle: float = 60
    """For the next request. Longer than the proxy in front keeps its idle connections."""
    stall: float = 60
    """For the client to take any byte of its response."""
    last_bytes: float = 2
    """For the client to close, after the last response."""
    last_request: float = 1
    """For one more request while the server stops: a proxy uses the connections that it believes open."""


_log = logging.getLogger(__name__)


class ConnectionScheduler:
    """Gives connections their turns, and holds what they share. `clock` gives Unix seconds.

    `body_limits` has the paths with another limit than MAX_BODY for the bytes of a body.
    `flow_of` returns the account of a request; accounts share turns equally.

    `respond` also gets what is refused before there is a request (`Request.refusal`). `connections` are those that are
    open. `buffer` is what they read into, one after another. `date_line` is the current Date header. `turn` is another
    object in each turn. Writers that hold responses say so with `hold`; all are flushed by the end of the next turn.
    """

    def __init__(
        self,
        respond: Callable[[Request], Coroutine[Any, Any, Answer | None]],
        clock: Callable[[], float],
        max_connections: int,
        deadlines: Deadlines | None = None,
        flow_of: Callable[[Request], Hashable] = lambda _: None,
        body_limits: Mapping[bytes, int] = MappingProxyType({}),
    ) -> None:
        self.respond = respond
        self.body_limits = body_limits
        self.buffer = memoryview(bytearray(READ_BUFFER))
        self.deadlines = deadlines or Deadlines()
        self.draining = False  # a response is the last one of its connection
        self.closing = False  # and idle connections are closed
        self.refused = dict.fromkeys(REFUSED, 0)
        self._warned: dict[str, float] = {}
        self._received = 0  # bytes since incomplete requests were added up
        self._most_connections = 0  # since memory was given back
        self.date_line = b""
        self.turn = object()
        self._clock = clock
        self._date_second = 0
        self._max_connections = max_connections
        self.connections: set[Connection] = set()
        self._flow_of = flow_of
        self._scheduled: FairQueue[Connection] = FairQueue()  # by the flow of the next request
        self._holding: list[ResponseWriter] = []
        self._turn_follows = False
        self._per_turn = CONNECTIONS_PER_TURN
        self._loop = asyncio.get_running_loop()
        self._empty = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_done = self._done  # one object for all tasks
        self.update_date()

    def admit(self, connection: "Connection") -> None:
        """Take a new connection, and refuse it if there are too many."""
        self.connections.add(connection)
        self._most_connections = max(self._most_connections, len(self.connections))
        excess = len(self.connections) - self._max_connections
        if excess > 0:
            self._note_refused("maximum")
        if excess > _MAX_REFUSALS:
            connection.cut()
        elif excess > 0:
            connection.refuse()

    def forget(self, connection: "Connection") -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self._notice_end()

    def received(self, size: int) -> None:
        """Bytes have been received and parsed: refuse incomplete requests if all of them take too much memory."""
        self._received += size
        if self._received > MAX_UNFINISHED // 8:
            self._bound_unfinished()

    def started(self, task: "asyncio.Task[Any]") -> None:
        """A request is being answered. A stop waits for the task, also if the connection is gone by then."""
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._notice_end()

    def _notice_end(self) -> None:
        if not (self.connections or self._tasks):
            self._empty.set()

    def schedule(self, connection: "Connection", request: Request | None) -> None:
        """Have the connection advance to its next request once all that is readable now has been read.

        All requests of a turn have thus been read when the turn begins, so what one of them finds out may serve the
        others (`Request.turn`).
        """
        if not connection.scheduled:
            connection.scheduled = True
            if not self._turn_follows:
                self._have_turn()
            self._scheduled.add(None if request is None else self._flow_of(request), connection)

    def hold(self, writer: ResponseWriter) -> None:
        """Flush what the writer holds at the end of this turn, or of the next one, or when many hold responses."""
        if len(self._holding) == CONNECTIONS_PER_TURN:  # outside of turns: those that waited for the store
            self._flush()
        self._holding.append(writer)
        if not self._turn_follows:
            self._have_turn()

    def update_date(self) -> None:
        """Bring `date_line` up to date."""
        second = int(self._clock())
        if second != self._date_second:
            self._date_second = second
            self.date_line = b"Date: %s\r\n" % formatdate(second, usegmt=True).encode()

    def report(self, error: BaseException | None) -> None:
        """Log a defect that ended a connection."""
        _log.error("connection failed", exc_info=error)

    def _have_turn(self) -> None:
        self._turn_follows = True
        self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        try:
            self._flush()  # responses that have waited for the store do not wait for this turn as well
            self.turn = object()
            self.update_date()
            waiting = len(self._tasks)
            for connection in self._scheduled.take(self._per_turn):
                try:
                    connection.advance()
                except Exception as error:  # noqa: BLE001 - a defect must not end the other connections' turn
                    connection.cut()
                    self.report(error)
            more_wait = len(self._tasks) > max(waiting, MANY_WAITING)
            self._per_turn = CONNECTIONS_PER_SHORT_TURN if more_wait else CONNECTIONS_PER_TURN
            self._flush()
        finally:
            self._turn_follows = False
            if self._scheduled or self._holding:
                self._have_turn()

    def _flush(self) -> None:
        while self._holding:
            self._holding.pop(0).flush()

    def check_progress(self) -> None:
        """Enforce the deadlines, and the bounds on all connections. Called once a second."""
        held = [(*connection.check_progress(), connection) for connection in list(self.connections)]
        self._bound("unread", held, MAX_UNREAD, lambda connection: connection.cut())
        self._bound_unfinished()

    def _bound_unfinished(self) -> None:
        self._received = 0
        held = [(*connection.unfinished(), connection) for connection in self.connections]
        self._bound("unfinished", held, MAX_UNFINISHED, lambda connection: connection.refuse())

    def _bound(
        self,
        reason: str,
        held: "Sequence[tuple[Any, int, Connection]]",
        maximum: int,
        end: "Callable[[Connection], None]",
    ) -> None:
        """End connections, lowest rank first, until all hold at most `maximum` bytes. `held` has rank and bytes."""
        excess = sum(size for _, size, _ in held) - maximum
        for _, size, connection in sorted(held, key=lambda each: each[0]) if excess > 0 else ():
            if size and excess > 0:
                excess -= size
                self._note_refused(reason)
                end(connection)

    def _note_refused(self, reason: str) -> None:
        self.refused[reason] += 1
        now = self._loop.time()
        if now >= self._warned.get(reason, now):
            self._warned[reason] = now + _WARNING_SECONDS
            _log.warning("connections refused", extra={"reason": reason, "connections": len(self.connections)})
