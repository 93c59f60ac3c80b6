"""The gate: which requests may be sent, and when. There is one for each base URL and key in a process.

The gate is open, or closed until a known time: after a 429, during a ban, or while a window has nothing left. When it
reopens, one request (the probe) goes first and the others wait for its response. While it is open, no more requests
are in flight than the windows have left, so with one process per key hardly any request is refused.

The gate does not wait, sleep or read a clock. All times are monotonic seconds that callers pass in, and waiting
callers are notified through callbacks, so threads and tasks can share a gate. The gate notices other processes with
the same key by how fast the remaining requests decrease, and leaves unused what they may have spent since.
"""

import hashlib
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from weakref import WeakValueDictionary

from petstore_client._limits import Limits, Window
from petstore_client._types import Clock

FIRST_EXTRA = 2.0
"""Upper bound, in seconds, of the wait added after the second 429 in a row; it doubles with each further one."""

LONGEST_EXTRA = 60.0

SHORT_WINDOW = 600
"""Seconds. Only in windows up to this length the gate allows for requests of other processes. Doing so can cost a wait
until the window ends, which is too long for a day; and one refusal a day never leads to a ban."""

FRESH = 1.0
"""Seconds after a response during which a request is safe: the server tolerates requests that arrive within two seconds
of the first 429 (D15)."""

_KEPT = 1000


class Place(Enum):
    """The state of a call at the gate."""

    WAITING = "waiting"
    PASSED = "passed"
    HELD = "held"
    LEFT = "left"


@dataclass(eq=False, slots=True)
class Ticket:
    """One attempt of a call at the gate. A HELD ticket may try again at `until`."""

    place: Place = Place.WAITING
    until: float = 0.0
    banned: bool = False
    sent_at: float = 0.0
    decided: Callable[[], None] | None = None


@dataclass(slots=True)
class _KnownWindow:
    """What responses said about a window. `ends` is never before its true end, or None if it has not started again."""

    limit: int | None
    remaining: int
    ends: float | None
    seconds: int | None
    first: int  # the remaining requests when the window was first seen
    since: float
    seen: float
    own: int = 0  # requests of this process since then

    def others_may_have_spent(self, now: float, in_flight: int) -> bool:
        """Whether other processes, at twice the rate seen so far, would have used up the remaining requests by now."""
        if self.ends is None or self.seconds is None or self.seconds > SHORT_WINDOW or now - self.seen <= FRESH:
            return False
        others = self.first - self.remaining - self.own - in_flight
        return others > 0 and 2 * others * (now - self.seen) >= self.remaining * (self.seen - self.since)


@dataclass(eq=False)
class Gate:
    """See the module. `jitter` returns numbers from 0 to 1."""

    jitter: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _windows: dict[str, _KnownWindow] = field(default_factory=dict)
    _held_until: float = float("-inf")
    _banned_until: float = float("-inf")
    _refusals: int = 0  # consecutive series of 429s
    _unproven: bool = True  # the next request to pass is a probe
    _was_held: bool = False
    _probe: Ticket | None = None
    _in_flight: int = 0
    _waiting: deque[Ticket] = field(default_factory=deque)
    _paced: int = 0
    _next_slot: float = float("-inf")

    def enter(self, now: float) -> Ticket:
        """Ask to send one request. A ticket that has PASSED must be given to `settle` or `leave`."""
        ticket = Ticket()
        with self._lock:
            self._waiting.append(ticket)
            self._serve(now)
        return ticket

    def when_decided(self, ticket: Ticket, notify: Callable[[], None]) -> None:
        """Call `notify`, from any thread, when the ticket is no longer WAITING; immediately if it is not."""
        with self._lock:
            if ticket.place is Place.WAITING:
                ticket.decided = notify
                return
        notify()

    def settle(self, ticket: Ticket, now: float, limits: Limits, refused: bool) -> None:
        """Record the response to a request that passed, if it described the account's windows."""
        with self._lock:
            if ticket.place is not Place.PASSED:
                return
            if ticket.sent_at >= self._held_until:  # otherwise it was in flight when the gate closed: nothing new
                self._refusals = self._refusals + 1 if refused else 0
            if not refused:
                self._count_own()
            for window in limits.windows:
                self._learn(window, ticket.sent_at, now)
            if refused:
                self._hold(now + limits.pause + self._extra())
            elif ticket is self._probe and now >= self._held_until:
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
            if ticket.place is Place.WAITING:
                self._waiting.remove(ticket)
                ticket.place = Place.LEFT
            elif ticket.place is Place.PASSED:
                if charged:
                    self._count_own()
                    for known in self._windows.values():
                        known.remaining = max(0, known.remaining - 1)
                if ticket is self._probe and not self._was_held:
                    self._unproven = False  # no limit was ever reached, so one lost response must not delay others
                self._finish(ticket, now)

    def held_for(self, now: float) -> float:
        """Seconds until the gate reopens; 0 if it is open."""
        with self._lock:
            return max(0.0, self._opens(now) - now)

    def reserve_slot(self, now: float, pacing: str) -> float:
        """Seconds to wait so that the remaining requests are spread evenly: over the minute, or over the day as well.

        Call `use_slot` when the wait is over.
        """
        with self._lock:
            self._renew(now)
            slot = max(now, self._next_slot)
            self._next_slot = slot + max(self._spacing(name, slot) for name in self._windows_to_pace(pacing))
            self._paced += 1
            return slot - now

    def use_slot(self) -> None:
        """A reserved slot was used or given up."""
        with self._lock:
            self._paced -= 1

    def idle(self, now: float) -> bool:
        """Whether the gate knows nothing that a new gate would not know."""
        with self._lock:
            self._renew(now)
            ended = all(known.ends is None for known in self._windows.values())
            return ended and now >= self._held_until and not (self._in_flight or self._waiting or self._paced)

    def _serve(self, now: float) -> None:
        """Decide, in order, on all waiting tickets that can be decided."""
        self._renew(now)
        while self._waiting:
            opens = self._opens(now)
            if opens <= now and not self._room():
                return
            ticket = self._waiting.popleft()
            if opens > now:
                ticket.place, ticket.until, ticket.banned = Place.HELD, opens, now < self._banned_until
                self._unproven = self._was_held = True
            else:
                ticket.place, ticket.sent_at = Place.PASSED, now
                self._in_flight += 1
                if self._unproven:
                    self._probe = ticket
            if ticket.decided is not None:
                ticket.decided()

    def _opens(self, now: float) -> float:
        spent = [
            known.ends
            for known in self._windows.values()
            if known.ends is not None and (known.remaining <= 0 or known.others_may_have_spent(now, self._in_flight))
        ]
        return max(now, self._held_until, *spent)

    def _room(self) -> bool:
        if self._probe is not None:
            return False
        return all(known.remaining > self._in_flight for known in self._windows.values()) or self._in_flight == 0

    def _finish(self, ticket: Ticket, now: float) -> None:
        ticket.place = Place.LEFT
        self._in_flight -= 1
        if ticket is self._probe:
            self._probe = None
        if any(known.remaining <= 0 for known in self._windows.values()):
            self._unproven = self._was_held = True
        self._serve(now)

    def _count_own(self) -> None:
        for known in self._windows.values():
            known.own += 1

    def _hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)
        self._unproven = self._was_held = True

    def _extra(self) -> float:
        """Exponential backoff with full jitter, in addition to the wait that repeated 429s ask for."""
        if self._refusals < 2:
            return 0.0
        return self.jitter() * min(LONGEST_EXTRA, FIRST_EXTRA * 2.0 ** min(self._refusals - 2, 16))

    def _learn(self, window: Window, sent: float, now: float) -> None:
        """Record what a response said about a window.

        The server decided between `sent` and `now`, and rounds to whole seconds, so the end of the window lies in an
        interval. An interval that begins after the known end describes a new window. Within one window the smallest
        values are the true ones.
        """
        latest, earliest = now + window.left, sent + window.left - 1
        known = self._windows.get(window.name)
        if known is None or known.ends is None or known.limit != window.limit or earliest > known.ends:
            self._windows[window.name] = _KnownWindow(
                window.limit, window.remaining, latest, window.seconds, window.remaining, now, now
            )
        else:
            known.remaining, known.ends = min(known.remaining, window.remaining), min(known.ends, latest)
            known.seen = now

    def _renew(self, now: float) -> None:
        """Reset windows that have ended to their whole limit; forget those whose limit is unknown."""
        for name, known in list(self._windows.items()):
            if known.ends is not None and now >= known.ends:
                known.ends = None
                known.remaining = known.limit or 0
                if known.limit is None:
                    del self._windows[name]

    def _windows_to_pace(self, pacing: str) -> list[str]:
        """`minute` leaves out the day; windows with other names always count."""
        return [name for name in self._windows if pacing == "day" or name != "day"] or [""]

    def _spacing(self, name: str, slot: float) -> float:
        known = self._windows.get(name)
        if known is None:
            return 0.0
        if known.ends is None:
            return known.seconds / known.limit if known.seconds and known.limit else 0.0
        return max(0.0, known.ends - slot) / max(1, known.remaining - self._paced)


_Name = tuple[str, str, Clock]  # test clocks have their own monotonic time, which must not mix with others

_lock = threading.Lock()
_in_use: WeakValueDictionary[_Name, Gate] = WeakValueDictionary()
_kept: dict[_Name, Gate] = {}


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


def _drop_idle() -> None:
    """Keep the table small in a program with many keys. A dropped gate lives on in the clients that hold it."""
    for name, gate in list(_kept.items()):
        if gate.idle(name[2].monotonic()):
            del _kept[name]
