"""The gate: which requests may be sent, and when. There is one for each base URL and key in a process.

The gate is open, or closed until a known time: after a 429, during a ban, or while a window has nothing left. When it
reopens, one request (the probe) goes first and the others wait for its response. While it is open, no more requests
are in flight than the windows have left, so with one process per key hardly any request is refused.

Processes that share a key know nothing of each other. Each spaces its requests in the window that follows an exhausted
one, for which all of them were waiting, so a process that wakes a second before the others cannot use it up. All send
at the same rate, so they get equal parts, and find the window exhausted within about a second of each other, which the
server tolerates (D15).

The gate does not wait or read a clock. All times are monotonic seconds that callers pass in, and waiting callers are
notified through callbacks, so threads and tasks can share a gate.
"""

import hashlib
import os
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from weakref import WeakValueDictionary

from petstore_client._limits import KnownWindows, Limits
from petstore_client._types import Clock

FIRST_EXTRA, MAX_EXTRA = 2.0, 600.0  # seconds: bounds of the wait added after a second 429, which doubles with each

_RECENT = 1000


class Place(Enum):
    """The state of a call at the gate."""

    WAITING = auto()
    PASSED = auto()
    HELD = auto()  # by a limit
    SPACED = auto()  # until its slot, because other processes may need the window too
    LEFT = auto()


_numbers = count()


@dataclass(eq=False, slots=True)
class Ticket:
    """One attempt of a call at the gate. A HELD or SPACED ticket enters again at `until`, and keeps its turn.

    A ticket is not spaced by more than `patience` seconds.
    """

    patience: float = float("inf")
    place: Place = Place.WAITING
    until: float = 0.0
    banned: bool = False
    has_slot: bool = False
    sent_at: float = 0.0
    closings: int = 0  # of the gate, until the ticket passed
    notify: Callable[[], None] | None = None
    number: int = field(default_factory=_numbers.__next__)


@dataclass(eq=False)
class Gate:
    """See the module."""

    _lock: threading.RLock = field(default_factory=threading.RLock)  # a destructor may end an abandoned call
    _windows: KnownWindows = field(default_factory=KnownWindows)
    _held_until: float = float("-inf")
    _banned_until: float = float("-inf")
    _refusals: int = 0  # consecutive series of 429s
    _closings: int = 0
    _unproven: bool = True  # the next request to pass is a probe
    probe: Ticket | None = None  # the request for whose response the others wait
    _in_flight: int = 0
    _waiting: list[Ticket] = field(default_factory=list)  # in the order of arrival
    _spaced_until: float = float("-inf")
    _next_slot: float = float("-inf")
    _spacing: float = 0.0
    clock: Clock | None = None  # of its clients; its id is part of the gate's name

    def enter(self, now: float, patience: float = float("inf"), number: int | None = None) -> Ticket:
        """Ask to send one request. A ticket that has PASSED must be given to `record_response` or `leave`.

        `number` is that of a ticket whose request was not sent; the new one has its turn.
        """
        ticket = Ticket(patience) if number is None else Ticket(patience, number=number)
        self.enter_again(ticket, now)
        return ticket

    def enter_again(self, ticket: Ticket, now: float) -> None:
        """Ask again with a ticket that was HELD or SPACED."""
        with self._lock:
            ticket.place = Place.WAITING
            insort(self._waiting, ticket, key=lambda waiting: waiting.number)
            self._serve(now)

    def when_decided(self, ticket: Ticket, notify: Callable[[], None]) -> None:
        """Call `notify`, from any thread, when the ticket is no longer WAITING; immediately if it is not."""
        with self._lock:
            if ticket.place is Place.WAITING:
                ticket.notify = notify
                return
        notify()

    def record_response(
        self, ticket: Ticket, now: float, limits: Limits, refused: bool, jitter: Callable[[], float]
    ) -> None:
        """Record the response to a request that passed, if it described the account's windows.

        `jitter` returns numbers from 0 to 1.
        """
        with self._lock:
            if ticket.sent_at >= self._held_until:  # otherwise it was in flight when the gate closed: nothing new
                self._refusals = self._refusals + 1 if refused else 0
            if not refused:
                self._windows.count(lost=False)
            for window in limits.windows:
                self._windows.learn(window, ticket.sent_at, now)
            if refused:
                extra = jitter() * min(MAX_EXTRA, FIRST_EXTRA * 2.0 ** min(self._refusals - 2, 16))
                self._hold(now + limits.pause + extra * (self._refusals > 1))  # exponential backoff with full jitter
            elif ticket is self.probe and now >= self._held_until:
                self._unproven = False
            self._finish(ticket, now)

    def ban(self, until: float) -> None:
        """The key is banned: no request passes before `until`, and held tickets say so."""
        with self._lock:
            self._banned_until = max(self._banned_until, until)
            self._hold(until)

    def give_up(self, ticket: Ticket) -> bool:
        """Stop waiting; return False if the ticket has been decided in the meantime."""
        with self._lock:
            if ticket.place is not Place.WAITING:
                return False
            self._waiting.remove(ticket)
            ticket.place = Place.LEFT
            return True

    def leave(self, ticket: Ticket, now: float, charged: bool = False) -> None:
        """Release a ticket in any state; `charged` if the server may have counted its request."""
        with self._lock:
            if ticket.place is Place.PASSED:
                if charged:
                    self._windows.count(lost=True)
                if ticket is self.probe and self._spaced_until == float("-inf"):
                    self._unproven = False  # no limit was ever reached, so one lost response must not delay others
                self._finish(ticket, now)
            else:
                self.give_up(ticket)

    def held_for(self, now: float) -> float:
        """Seconds until the gate reopens; 0 if it is open."""
        with self._lock:
            return self._opens(now) - now

    def closed_since(self, closings: int, now: float) -> bool:
        """Whether the gate is closed, or has been since it had closed `closings` times."""
        with self._lock:
            return self._closings > closings or self._opens(now) > now

    def renews_in(self, now: float) -> float:
        """Serve again, because a window may have ended; return the seconds until the next one ends."""
        with self._lock:
            self._serve(now)
            return self._windows.first_end - now

    def _serve(self, now: float) -> None:
        """Decide, in order, on all waiting tickets that can be decided."""
        self._windows.renew(now)
        while True:
            opens = self._opens(now)
            if (opens <= now and not self._has_room()) or not self._waiting:  # a destructor may have emptied it
                return
            ticket = self._waiting.pop(0)
            if opens > now:
                ticket.place, ticket.until, ticket.banned = Place.HELD, opens, now < self._banned_until
                ticket.has_slot = False
                self._close(opens)
            else:
                self._pass_or_space(ticket, now)
            if ticket.notify is not None:
                ticket.notify()

    def _pass_or_space(self, ticket: Ticket, now: float) -> None:
        if not ticket.has_slot and now < self._spaced_until:
            slot = max(now, self._next_slot)
            self._next_slot = slot + self._spacing
            if not self._unproven and now < min(slot, self._spaced_until) <= now + ticket.patience:
                ticket.place, ticket.until = Place.SPACED, min(slot, self._spaced_until)
                ticket.has_slot = slot < self._spaced_until
                return
        ticket.place, ticket.sent_at, ticket.closings = Place.PASSED, now, self._closings
        self._in_flight += 1
        if self._unproven:
            self.probe = ticket

    def _opens(self, now: float) -> float:
        return max(self._held_until, self._windows.opens(now, self._in_flight))

    def _has_room(self) -> bool:
        return self.probe is None and (self._in_flight == 0 or self._windows.allow(self._in_flight))

    def _finish(self, ticket: Ticket, now: float) -> None:
        ticket.place = Place.LEFT
        self._in_flight -= 1
        if ticket is self.probe:
            self.probe = None
        self._serve(now)

    def _hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)
        self._close(self._held_until)

    def _close(self, until: float) -> None:
        """A limit holds all requests until this time. The window after it is shared with other processes."""
        self._closings += 1
        self._unproven = True
        seconds, self._spacing = self._windows.spacing
        self._spaced_until, self._next_slot = until + seconds, until


lock = threading.RLock()  # for what has to be done once in this process

generation = object()  # another one in a child process after a fork

_gates: WeakValueDictionary[tuple[str, str, int], Gate] = WeakValueDictionary()  # test clocks have their own times
_recent: deque[Gate] = deque(maxlen=_RECENT)


def gate_for(base_url: str, key: str, clock: Clock) -> Gate:
    """The gate of this base URL and key. The most recent gates outlive their clients, which may have met a limit."""
    name = (base_url, hashlib.sha256(key.encode()).hexdigest(), id(clock))
    with lock:
        gate = _gates.get(name)
        if gate is None:
            gate = _gates[name] = Gate(clock=clock)
            _recent.append(gate)
        return gate


def _forget() -> None:
    """Replace locks and gates in a forked child: another thread of the parent may have held any of them."""
    global lock, generation, _gates, _recent
    lock, generation = threading.RLock(), object()
    _gates, _recent = WeakValueDictionary(), deque(maxlen=_RECENT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
