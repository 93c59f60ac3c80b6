"""The gate: which requests may be sent, and when. There is one for each base URL and key in a process.

The gate is open, or closed until a known time: after a 429, during a ban, or while a window has nothing left. When it
reopens, one request (the probe) goes first and the others wait for its response. While it is open, no more requests
are in flight than the windows have left, so with one process per key hardly any request is refused.

The gate does not wait, sleep or read a clock. All times are monotonic seconds that callers pass in, and waiting
callers are notified through callbacks, so threads and tasks can share a gate. The gate notices other processes with
the same key by how fast the remaining requests decrease, and leaves unused what they may have spent since.
"""

import hashlib
import os
import random
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from weakref import WeakValueDictionary

from petstore_client._limits import KnownWindows, Limits
from petstore_client._types import Clock
from petstore_client.errors import PetstoreError

FIRST_EXTRA, LONGEST_EXTRA = 2.0, 60.0
"""Bounds, in seconds, of the wait added after the second 429 in a row, which doubles with each further one."""

_KEPT = 1000


class Place(Enum):
    """The state of a call at the gate."""

    WAITING = "waiting"
    PASSED = "passed"
    HELD = "held"  # by a limit
    PACED = "paced"  # until its slot
    LEFT = "left"


_numbers = count()


@dataclass(eq=False, slots=True)
class Ticket:
    """One attempt of a call at the gate. A HELD or PACED ticket enters again at `until`, and keeps its turn."""

    pacing: str | None = None
    had_slot: bool = False
    place: Place = Place.WAITING
    until: float = 0.0
    banned: bool = False
    sent_at: float = 0.0
    notify: Callable[[], None] | None = None
    number: int = field(default_factory=_numbers.__next__)


@dataclass(eq=False)
class Gate:
    """See the module. `jitter` returns numbers from 0 to 1."""

    jitter: Callable[[], float]
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _busy: bool = False  # the lock is held, and the state may be inconsistent
    _departures: deque[tuple[Ticket, float, bool]] = field(default_factory=deque)
    _windows: KnownWindows = field(default_factory=KnownWindows)
    _held_until: float = float("-inf")
    _banned_until: float = float("-inf")
    _refusals: int = 0  # consecutive series of 429s
    _unproven: bool = True  # the next request to pass is a probe
    _was_held: bool = False
    _probe: Ticket | None = None
    _in_flight: int = 0
    _waiting: list[Ticket] = field(default_factory=list)  # in the order of arrival
    _slots: int = 0  # reserved and not yet used
    _next_slot: float = float("-inf")

    def enter(self, now: float, pacing: str | None = None) -> Ticket:
        """Ask to send one request. A ticket that has PASSED must be given to `record_response` or `leave`.

        With `pacing` ("minute" or "day") requests are spread evenly over the rest of the windows.
        """
        ticket = Ticket(pacing)
        with self._locked():
            self._wait_in_line(ticket, now)
        return ticket

    def enter_again(self, ticket: Ticket, now: float) -> None:
        """Ask again with a ticket that was HELD or PACED."""
        with self._locked():
            if ticket.place is Place.PACED:
                ticket.had_slot = True
                self._slots -= 1
            ticket.place = Place.WAITING
            self._wait_in_line(ticket, now)

    def when_decided(self, ticket: Ticket, notify: Callable[[], None]) -> None:
        """Call `notify`, from any thread, when the ticket is no longer WAITING; immediately if it is not."""
        with self._locked():
            if ticket.place is Place.WAITING:
                ticket.notify = notify
                return
        notify()

    def record_response(self, ticket: Ticket, now: float, limits: Limits, refused: bool) -> None:
        """Record the response to a request that passed, if it described the account's windows."""
        with self._locked():
            if ticket.place is not Place.PASSED:
                return
            if ticket.sent_at >= self._held_until:  # otherwise it was in flight when the gate closed: nothing new
                self._refusals = self._refusals + 1 if refused else 0
            if not refused:
                self._windows.count(lost=False)
            for window in limits.windows:
                self._windows.learn(window, ticket.sent_at, now)
            if refused:
                self._hold(now + limits.pause + self._extra())
            elif ticket is self._probe and now >= self._held_until:
                self._unproven = False
            self._finish(ticket, now)

    def ban(self, until: float) -> None:
        """The key is banned: no request passes before `until`, and held tickets say so."""
        with self._locked():
            self._banned_until = max(self._banned_until, until)
            self._hold(until)

    def give_up(self, ticket: Ticket) -> bool:
        """Stop waiting; return False if the ticket has been decided in the meantime."""
        with self._locked():
            if ticket.place is not Place.WAITING:
                return False
            self._waiting.remove(ticket)
            ticket.place = Place.LEFT
            return True

    def leave(self, ticket: Ticket, now: float, charged: bool = False) -> None:
        """Release a ticket in any state; `charged` if the server may have counted its request.

        The garbage collector may call this for an abandoned iteration, at any time and in any thread, even while that
        thread holds the lock. So it never waits for the lock: the thread that holds it carries the departure out.
        """
        self._departures.append((ticket, now, charged))
        self._carry_out_departures()

    def held_for(self, now: float) -> float:
        """Seconds until the gate reopens; 0 if it is open."""
        with self._locked():
            return self._opens(now) - now

    def idle(self, now: float) -> bool:
        """Whether the gate knows nothing that a new gate would not know."""
        with self._locked():
            self._windows.renew(now)
            used = self._in_flight or self._waiting or self._slots or self._windows.started
            return not used and now >= self._held_until

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._busy:
                raise PetstoreError("A destructor made a call of this API while its thread was busy with the client.")
            self._busy = True
            try:
                yield
            finally:
                self._busy = False
        self._carry_out_departures()

    def _carry_out_departures(self) -> None:
        while self._departures and self._lock.acquire(blocking=False):
            nested, self._busy = self._busy, True
            try:
                while self._departures and not nested:
                    self._depart(*self._departures.popleft())
            finally:
                self._busy = nested
                self._lock.release()
            if nested:  # this thread is in `_locked`, which carries them out at its end
                return

    def _depart(self, ticket: Ticket, now: float, charged: bool) -> None:
        if ticket.place is Place.WAITING:
            self._waiting.remove(ticket)
        elif ticket.place is Place.PACED:
            self._slots -= 1
        elif ticket.place is Place.PASSED:
            if charged:
                self._windows.count(lost=True)
            if ticket is self._probe and not self._was_held:
                self._unproven = False  # no limit was ever reached, so one lost response must not delay others
            self._finish(ticket, now)
        ticket.place = Place.LEFT

    def _wait_in_line(self, ticket: Ticket, now: float) -> None:
        insort(self._waiting, ticket, key=lambda waiting: waiting.number)
        self._serve(now)

    def _serve(self, now: float) -> None:
        """Decide, in order, on all waiting tickets that can be decided."""
        self._windows.renew(now)
        while self._waiting:
            opens = self._opens(now)
            if opens <= now and not self._room():
                return
            ticket = self._waiting.pop(0)
            if opens > now:
                ticket.place, ticket.until, ticket.banned = Place.HELD, opens, now < self._banned_until
                self._unproven = self._was_held = True
                ticket.had_slot = False
            elif ticket.pacing is None or ticket.had_slot or self._unproven:
                self._pass(ticket, now)
            else:
                self._pace(ticket, ticket.pacing, now)
            if ticket.notify is not None:
                ticket.notify()

    def _pass(self, ticket: Ticket, now: float) -> None:
        ticket.place, ticket.sent_at = Place.PASSED, now
        self._in_flight += 1
        if self._unproven:
            self._probe = ticket

    def _pace(self, ticket: Ticket, pacing: str, now: float) -> None:
        earliest = max(now, self._next_slot)
        slot, self._next_slot, fits = self._windows.slot(now, earliest, pacing, self._in_flight + self._slots)
        if slot <= now:
            self._pass(ticket, now)
        elif fits:
            ticket.place, ticket.until = Place.PACED, slot
            self._slots += 1
        else:
            ticket.place, ticket.until = Place.HELD, slot

    def _opens(self, now: float) -> float:
        return max(self._held_until, self._windows.opens(now, self._in_flight))

    def _room(self) -> bool:
        return self._probe is None and (self._in_flight == 0 or self._windows.allow(self._in_flight))

    def _finish(self, ticket: Ticket, now: float) -> None:
        ticket.place = Place.LEFT
        self._in_flight -= 1
        if ticket is self._probe:
            self._probe = None
        if self._windows.exhausted:
            self._unproven = self._was_held = True
        self._serve(now)

    def _hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)
        self._unproven = self._was_held = True

    def _extra(self) -> float:
        """Exponential backoff with full jitter, in addition to the wait that repeated 429s ask for."""
        if self._refusals < 2:
            return 0.0
        return self.jitter() * min(LONGEST_EXTRA, FIRST_EXTRA * 2.0 ** min(self._refusals - 2, 16))


_Name = tuple[str, str, Clock]  # test clocks have their own monotonic time, which must not mix with others

_lock = threading.RLock()
_in_use: WeakValueDictionary[_Name, Gate] = WeakValueDictionary()
_kept: dict[_Name, Gate] = {}
_generation = 0


def gate_for(base_url: str, key: str, clock: Clock) -> Gate:
    """The gate of this base URL and key. It outlives its clients for as long as a limit is in effect."""
    name = (base_url, hashlib.sha256(key.encode()).hexdigest(), clock)
    with _lock:
        gate = _in_use.get(name)
        if gate is None:
            gate = _in_use[name] = Gate(random.random)
        _kept[name] = gate
        if len(_kept) > _KEPT:
            _drop_idle()
        return gate


def generation() -> int:
    """A number that changes in a child process after a fork."""
    return _generation


def process_lock() -> threading.RLock:
    """A lock of this process, for what has to be done once after a fork."""
    return _lock


def _drop_idle() -> None:
    """Keep the table small in a program with many keys. A dropped gate lives on in the clients that hold it."""
    for name, gate in list(_kept.items()):
        if gate.idle(name[2].monotonic()):
            del _kept[name]


def _forget() -> None:
    """Replace locks and gates in a forked child: another thread of the parent may have held any of them."""
    global _lock, _in_use, _kept, _generation
    _lock, _in_use, _kept, _generation = threading.RLock(), WeakValueDictionary(), {}, _generation + 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
