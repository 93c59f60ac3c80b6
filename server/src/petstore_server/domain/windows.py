"""Rate limit windows, and the decision on a request (spec S7; D12–D15).

A window is fixed: it opens with the first request that is charged to it, at the whole second in which that request
arrived, and its end does not move. The adapters in `limits` count; the rules about counts are here.
"""

from dataclasses import dataclass
from enum import Enum
from math import ceil, floor
from typing import NamedTuple

from petstore_server.domain.accounts import Limits
from petstore_server.domain.bans import Ban
from petstore_server.domain.timestamps import DAY, MINUTE

ADDRESS_LIMIT = 60  # requests per minute for callers without a valid key, counted by address (D14)


@dataclass(slots=True)
class Count:
    """A window's start (whole Unix seconds) and the number of requests charged to it.

    Only a limiter changes its own ones, in place: this is on the path of every request.
    """

    start: int = 0
    used: int = 0


class Window(NamedTuple):
    """A window as the headers show it: `reset` is its end in whole Unix seconds."""

    name: str
    limit: int
    remaining: int
    reset: int


class Outcome(Enum):
    ADMITTED = "admitted"
    LIMITED = "limited"
    BANNED = "banned"


ADMITTED, LIMITED, BANNED = Outcome  # Python 3.11 takes ten times as long to find a member in its class


@dataclass(slots=True)
class AccountDecision:
    """The decision on a request with a valid key, at `now` (Unix seconds), and the state of its account's windows.

    One is made for every request, so it holds plain numbers, and makes windows when they are asked for. Not frozen,
    because a frozen dataclass takes eight times as long to make.
    """

    outcome: Outcome
    limits: Limits
    minute_remaining: int
    minute_reset: int
    day_remaining: int
    day_reset: int
    now: float
    ban_reset: int = 0
    """The end of the ban of the key, in Unix seconds; 0 without one."""

    @property
    def day_shown(self) -> bool:
        """Whether the X-RateLimit headers describe the day's window rather than the minute's (D13).

        They describe the window with the least remaining, on a tie the one that resets later. For a refusal that is
        the exhausted window that resets last. For a ban it is the minute's (D15).
        """
        if self.ban_reset:
            return False
        if self.day_remaining == self.minute_remaining:
            return self.day_reset >= self.minute_reset
        return self.day_remaining < self.minute_remaining

    @property
    def windows(self) -> tuple[Window, ...]:
        return (
            Window("minute", self.limits.per_minute, self.minute_remaining, self.minute_reset),
            Window("day", self.limits.per_day, self.day_remaining, self.day_reset),
        )

    @property
    def shown(self) -> Window:
        """The window that the X-RateLimit headers describe; of a banned key it ends when nothing more refuses it."""
        if self.ban_reset:
            ends = [self.ban_reset, *(window.reset for window in self.windows if not window.remaining)]
            return Window("minute", self.limits.per_minute, 0, max(ends))
        return self.windows[self.day_shown]

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least 1, after which the shown window has reset (spec S7.2)."""
        return max(1, ceil(self.shown.reset - self.now))


@dataclass(slots=True)
class AddressDecision:
    """The decision on a request without a valid key, at `now` (Unix seconds), and the state of its address's window."""

    outcome: Outcome
    remaining: int
    reset: int
    now: float

    @property
    def shown(self) -> Window:
        return Window("address", ADDRESS_LIMIT, self.remaining, self.reset)

    @property
    def retry_after(self) -> int:
        return max(1, ceil(self.reset - self.now))


Decision = AccountDecision | AddressDecision  # on one request, with every number that the headers need


def roll_window(count: Count, seconds: int, now: float) -> Count:
    """Return the window that is open at `now`: the given one, or a new and empty one if that has ended.

    If the clock was set back, the window moves to now and keeps its count: no client waits longer than its length.
    """
    if now < count.start:
        return Count(floor(now), count.used)
    if now >= count.start + seconds:
        return Count(floor(now), 0)
    return count


def fits(minute: Count, day: Count, limits: Limits) -> bool:
    """Whether one more request can be charged to both windows; otherwise it is charged to neither."""
    return minute.used < limits.per_minute and day.used < limits.per_day


def evaluate_account(admitted: bool, minute: Count, day: Count, limits: Limits, now: float) -> AccountDecision:
    """The decision from both open windows, after the charge if the request was admitted."""
    per_minute, per_day = limits.per_minute, limits.per_day
    return AccountDecision(
        ADMITTED if admitted else LIMITED,
        limits,
        per_minute - minute.used if minute.used < per_minute else 0,
        minute.start + MINUTE,
        per_day - day.used if day.used < per_day else 0,
        day.start + DAY,
        now,
    )


def evaluate_ban(ban: Ban, minute: Count, day: Count, limits: Limits, now: float) -> AccountDecision:
    """The decision on a banned key, with its windows as they are (D15)."""
    decision = evaluate_account(True, minute, day, limits, now)
    decision.outcome, decision.ban_reset = BANNED, ban.until
    return decision


def evaluate_address(admitted: bool, count: Count, now: float) -> AddressDecision:
    """The decision on a request without a valid key, from its address's open window (D14)."""
    outcome = ADMITTED if admitted else LIMITED
    return AddressDecision(outcome, max(0, ADDRESS_LIMIT - count.used), count.start + MINUTE, now)
