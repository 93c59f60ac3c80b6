"""The gate: who may send a request, and when. One for each base URL and key in a process.

It is open, or held until a moment: by a 429, by a ban, or by a window that has nothing left. When it reopens, one
request goes first, the probe, and the others wait for its answer. While it is open no more requests are under way
than the windows have left, so that with one process on a key hardly any request is ever refused.

Nothing here waits, sleeps or reads a clock: moments are monotonic seconds that callers pass in. Whoever has to wait
is told through a callback, so threads and tasks can share a gate. Other processes with the same key show in how fast
the remaining requests dwindle: what they may have used up meanwhile is left alone.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from petstore_client.limits import Limits, Window

FIRST_EXTRA = 2.0
"""Seconds at most that are waited on top of the moment that the second 429 in a row names; each further one doubles."""

LONGEST_EXTRA = 60.0

SHORT_WINDOW = 600
"""Seconds; in windows of at most this length care is taken of what others may have used up. It may cost a wait to the
window's end, which in a longer window would be too dear; and one refusal in a day never leads to a ban."""

FRESH = 1.0
"""Seconds after an answer in which a request is safe in any case: the server forgives what is under way when the first
429 goes out, for two seconds (unless it was set otherwise)."""


class Place(Enum):
    """Where a call stands at the gate."""

    WAITING = "waiting"
    PASSED = "passed"
    HELD = "held"
    LEFT = "left"


@dataclass(eq=False, slots=True)
class Ticket:
    """One attempt of a call at the gate. `until` is when a HELD one may come again."""

    place: Place = Place.WAITING
    until: float = 0.0
    banned: bool = False
    sent_at: float = 0.0
    decided: Callable[[], None] | None = None


@dataclass(slots=True)
class _Known:
    """What is known of a window. `ends` is never before its true end, None where it has not begun again."""

    limit: int | None
    remaining: int
    ends: float | None
    seconds: int | None
    first: int  # what remained at first sight
    since: float
    seen: float
    own: int = 0  # requests of this process since then

    def others_may_have_spent(self, now: float, under_way: int) -> bool:
        """Whether others, at twice the rate seen so far, would have used up by now what remained."""
        if self.ends is None or self.seconds is None or self.seconds > SHORT_WINDOW or now - self.seen <= FRESH:
            return False
        others = self.first - self.remaining - self.own - under_way
        return others > 0 and 2 * others * (now - self.seen) >= self.remaining * (self.seen - self.since)


@dataclass(eq=False)
class Gate:
    """See the module. `jitter` gives numbers from 0 to 1."""

    jitter: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _windows: dict[str, _Known] = field(default_factory=dict)
    _held_until: float = float("-inf")
    _banned_until: float = float("-inf")
    _refusals: int = 0  # series of 429s, one after another
    _unproven: bool = True  # the next one through is a probe
    _was_held: bool = False
    _probe: Ticket | None = None
    _under_way: int = 0
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

    def when_decided(self, ticket: Ticket, tell: Callable[[], None]) -> None:
        """Have `tell` called, from any thread, once the ticket is no longer WAITING; at once if it is not."""
        with self._lock:
            if ticket.place is Place.WAITING:
                ticket.decided = tell
                return
        tell()

    def settle(self, ticket: Ticket, now: float, limits: Limits, refused: bool) -> None:
        """Note the answer to a request that passed, and which described the account's windows."""
        with self._lock:
            if ticket.place is not Place.PASSED:
                return
            if ticket.sent_at >= self._held_until:  # else it was under way when the gate closed, and tells nothing new
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
        """The key is banned: nobody sends before `until`, and whoever asks is told why."""
        with self._lock:
            self._banned_until = max(self._banned_until, until)
            self._hold(until)

    def give_up(self, ticket: Ticket) -> bool:
        """Wait no longer; False where the ticket has been decided on meanwhile."""
        with self._lock:
            if ticket.place is not Place.WAITING:
                return False
            self._waiting.remove(ticket)
            ticket.place = Place.LEFT
            return True

    def leave(self, ticket: Ticket, now: float, charged: bool = False) -> None:
        """Give up a ticket, whatever its place; `charged` where the server may have counted its request."""
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
                    self._unproven = False  # nothing ever spoke of a limit, so one lost answer must not hold up others
                self._finish(ticket, now)

    def held_for(self, now: float) -> float:
        """Seconds until the gate reopens; 0 where it is open."""
        with self._lock:
            return max(0.0, self._opens(now) - now)

    def reserve_slot(self, now: float, pacing: str) -> float:
        """Seconds to wait so that what remains is spread evenly: over the minute, or over the day as well.

        Call `use_slot` when the wait is over.
        """
        with self._lock:
            self._renew(now)
            slot = max(now, self._next_slot)
            self._next_slot = slot + max(self._spacing(name, slot) for name in self._windows_to_pace(pacing))
            self._paced += 1
            return slot - now

    def use_slot(self) -> None:
        """A slot that was reserved is taken, or was given up."""
        with self._lock:
            self._paced -= 1

    def idle(self, now: float) -> bool:
        """Whether the gate knows nothing any more that a new one would not."""
        with self._lock:
            self._renew(now)
            ended = all(known.ends is None for known in self._windows.values())
            return ended and now >= self._held_until and not (self._under_way or self._waiting or self._paced)

    def _serve(self, now: float) -> None:
        """Decide, in their order, on all that wait and can be decided on."""
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
                self._under_way += 1
                if self._unproven:
                    self._probe = ticket
            if ticket.decided is not None:
                ticket.decided()

    def _opens(self, now: float) -> float:
        spent = [
            known.ends
            for known in self._windows.values()
            if known.ends is not None and (known.remaining <= 0 or known.others_may_have_spent(now, self._under_way))
        ]
        return max(now, self._held_until, *spent)

    def _room(self) -> bool:
        if self._probe is not None:
            return False
        return all(known.remaining > self._under_way for known in self._windows.values()) or self._under_way == 0

    def _finish(self, ticket: Ticket, now: float) -> None:
        ticket.place = Place.LEFT
        self._under_way -= 1
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
        """Exponential, with full jitter, on top of what repeated 429s ask for."""
        if self._refusals < 2:
            return 0.0
        return self.jitter() * min(LONGEST_EXTRA, FIRST_EXTRA * 2.0 ** min(self._refusals - 2, 16))

    def _learn(self, window: Window, sent: float, now: float) -> None:
        """Take in what an answer said of a window.

        The server decided between `sent` and `now`, and rounds to whole seconds, so the window's end lies in a span.
        A span that begins after the end known so far speaks of a new window; within one window the least is true.
        """
        latest, earliest = now + window.left, sent + window.left - 1
        known = self._windows.get(window.name)
        if known is None or known.ends is None or known.limit != window.limit or earliest > known.ends:
            self._windows[window.name] = _Known(
                window.limit, window.remaining, latest, window.seconds, window.remaining, now, now
            )
        else:
            known.remaining, known.ends = min(known.remaining, window.remaining), min(known.ends, latest)
            known.seen = now

    def _renew(self, now: float) -> None:
        """Begin anew, with the whole limit, what has ended; forget it where the limit is not known."""
        for name, known in list(self._windows.items()):
            if known.ends is not None and now >= known.ends:
                known.ends = None
                known.remaining = known.limit or 0
                if known.limit is None:
                    del self._windows[name]

    def _windows_to_pace(self, pacing: str) -> list[str]:
        """`minute` leaves out the day; windows under other names, or under none, always count."""
        return [name for name in self._windows if pacing == "day" or name != "day"] or [""]

    def _spacing(self, name: str, slot: float) -> float:
        known = self._windows.get(name)
        if known is None:
            return 0.0
        if known.ends is None:
            return known.seconds / known.limit if known.seconds and known.limit else 0.0
        return max(0.0, known.ends - slot) / max(1, known.remaining - self._paced)
