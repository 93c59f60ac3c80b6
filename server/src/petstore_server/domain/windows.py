"""Rate limit windows and the verdict on a request (spec S7; D12–D15).

A window is fixed: it opens with the first request, at the whole second in which that came, and its end stands.
The adapters in `ratelimit` count; what the counts mean is decided here alone.
"""

from enum import Enum
from math import ceil, floor
from typing import NamedTuple

from petstore_server.domain.accounts import Limits
from petstore_server.domain.bans import Ban

MINUTE = 60
DAY = 86_400
ADDRESS_LIMIT = 60
"""Requests a minute for callers without a valid key, counted by address (D14)."""


class Count(NamedTuple):
    """A window's beginning (whole Unix seconds) and what was charged to it."""

    start: int = 0
    used: int = 0


class Window(NamedTuple):
    """A window as the headers tell it. `reset` is in whole Unix seconds, `seconds` the window's length."""

    name: str
    seconds: int
    limit: int
    remaining: int
    reset: int


class Outcome(Enum):
    ADMITTED = "admitted"
    LIMITED = "limited"
    BANNED = "banned"


class Decision(NamedTuple):
    """What was decided on one request at `now` (Unix seconds), with every figure that the headers need.

    `shown` is the window of the X-RateLimit headers; `windows` are all that apply.
    """

    outcome: Outcome
    shown: Window
    windows: tuple[Window, ...]
    now: float

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least 1, after which the shown window has reset (spec S7.2)."""
        return max(1, ceil(self.shown.reset - self.now))


def roll_window(count: Count, seconds: int, now: float) -> Count:
    """The window that runs at `now`: the given one, or a new and empty one where that has ended.

    After the clock was set back the window is moved to begin now and keeps what was charged to it: nobody then
    waits longer than its length.
    """
    if now < count.start:
        return Count(floor(now), count.used)
    if now >= count.start + seconds:
        return Count(floor(now), 0)
    return count


def fits(minute: Count, day: Count, limits: Limits) -> bool:
    """Whether one more request may be charged to both windows; else it is charged to neither."""
    return minute.used < limits.per_minute and day.used < limits.per_day


def evaluate_account(admitted: bool, minute: Count, day: Count, limits: Limits, now: float) -> Decision:
    """The verdict from both settled windows, after the charge where the request was admitted.

    Headers tell of the window with the least remaining, on a tie the later to reset; of a refusal, the exhausted
    window that resets last (D13). That is one rule: in a refusal the exhausted ones have the least remaining.
    """
    by_minute = Window(
        "minute", MINUTE, limits.per_minute, max(0, limits.per_minute - minute.used), minute.start + MINUTE
    )
    by_day = Window("day", DAY, limits.per_day, max(0, limits.per_day - day.used), day.start + DAY)
    tied = by_day.remaining == by_minute.remaining
    day_shows = by_day.reset >= by_minute.reset if tied else by_day.remaining < by_minute.remaining
    outcome = Outcome.ADMITTED if admitted else Outcome.LIMITED
    return Decision(outcome, by_day if day_shows else by_minute, (by_minute, by_day), now)


def evaluate_ban(ban: Ban, minute: Count, day: Count, limits: Limits, now: float) -> Decision:
    """The verdict on a banned key: nothing remains until the ban ends, or an exhausted window if that is later."""
    ends = [ban.until]
    if minute.used >= limits.per_minute:
        ends.append(minute.start + MINUTE)
    if day.used >= limits.per_day:
        ends.append(day.start + DAY)
    by_minute = Window("minute", MINUTE, limits.per_minute, 0, max(ends))
    by_day = Window("day", DAY, limits.per_day, 0, max(ends))
    return Decision(Outcome.BANNED, by_minute, (by_minute, by_day), now)


def evaluate_address(admitted: bool, count: Count, now: float) -> Decision:
    """The verdict on a caller without a valid key, from its address's settled window (D14)."""
    window = Window("address", MINUTE, ADDRESS_LIMIT, max(0, ADDRESS_LIMIT - count.used), count.start + MINUTE)
    return Decision(Outcome.ADMITTED if admitted else Outcome.LIMITED, window, (window,), now)
