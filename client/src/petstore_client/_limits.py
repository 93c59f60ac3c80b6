"""The limit headers of a response, the waits that they imply, and what they say about the account's windows.

Retry-After (RFC 9110 §10.2.3) and `t` of RateLimit (draft-ietf-httpapi-ratelimit-headers) count seconds from now and
need no clock. X-RateLimit-Reset is a Unix timestamp, which is compared with the Date of the same response.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf
from typing import NamedTuple

DEFAULT_WAIT, MAX_WAIT = 60.0, 366 * 86_400.0  # seconds to wait after a 429 that names no time; and at most

SHORT_WINDOW, MAX_WINDOW = 600, 86_400  # seconds; only in short ones a wait for what others may send is worth it

FRESH = 1.0  # seconds after a response in which a request is safe: the server tolerates it within two (D15)

_ITEM = re.compile(r'"([^"]*)"((?:\s*;\s*[a-z][a-z0-9]*\s*=\s*[^;,\s]+)*)')
_PARAMETER = re.compile(r";\s*([a-z][a-z0-9]*)\s*=\s*(\d{1,12})(?=\s*(?:;|$))")
_DIGITS = re.compile(r"\d{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RateWindow:
    """One rate limit window as a response described it. `seconds` is its duration, None if the response had none."""

    name: str
    limit: int | None
    remaining: int
    reset: datetime
    seconds: int | None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The limits in a response: the window with the least remaining, and all. Times are UTC by the server's clock."""

    limit: int
    remaining: int
    reset: datetime
    windows: tuple[RateWindow, ...] = ()


class Window(NamedTuple):
    """A window as the gate needs it: `left` is the time in seconds from the response to the end of the window."""

    name: str
    limit: int | None
    remaining: int
    left: float
    seconds: int | None


class Limits(NamedTuple):
    """The limits in one response.

    `pause` is the wait in seconds that a 429 asks for. `of_address` is True if the windows describe the client's
    address instead of its account (D14).
    """

    windows: tuple[Window, ...]
    pause: float
    retry_after: float | None
    of_address: bool
    shown: RateLimit | None


def read_limits(headers: Mapping[str, str], now: float) -> Limits:
    """Read the headers of a response (any case); `now` is its arrival time in Unix seconds by this host's clock."""
    date = http_date(headers.get("date"))
    clock = now if date is None else date.timestamp()
    retry_after = _retry_after(headers.get("retry-after"), clock)
    windows = _windows(headers)
    shown = _shown(headers)
    clock_known = date is not None or retry_after is None  # a guess at the server's clock must not override Retry-After
    if not windows and shown is not None and clock_known and 0 <= shown[2] - clock <= MAX_WINDOW:
        windows = (Window("", shown[0], shown[1], shown[2] - clock, None),)
    of_address = any(window.name == "address" for window in windows)
    rate_limit = None if shown is None else _rate_limit(shown, windows, clock)
    return Limits(windows, _pause(retry_after, windows), retry_after, of_address, rate_limit)


@dataclass(slots=True)
class _KnownWindow:
    """What responses said about a window. `ends` is never before its true end, or None if it has not started again."""

    first: Window  # as it was first seen, at `since`
    remaining: int
    ends: float | None
    since: float
    seen: float
    own: int = 0  # requests of this process since then

    def others_may_have_spent(self, now: float, in_flight: int) -> bool:
        """Whether other processes, at twice the rate seen so far, would have used up the remaining requests by now."""
        if self.ends is None or (self.first.seconds or MAX_WINDOW) > SHORT_WINDOW or now - self.seen <= FRESH:
            return False
        others = self.first.remaining - self.remaining - self.own - in_flight
        return others > 0 and 2 * others * (now - self.seen) >= self.remaining * (self.seen - self.since)


class KnownWindows:
    """What responses said about the windows of an account. Times are monotonic seconds that callers pass in."""

    def __init__(self) -> None:
        self._known: dict[str, _KnownWindow] = {}

    def learn(self, window: Window, sent: float, now: float) -> None:
        """Record what a response said about a window.

        The server decided between `sent` and `now`, and rounds to seconds, so the end of the window is in an interval.
        One that begins after the known end is that of a new window. Within one the smallest values are the true ones.
        """
        latest, earliest = now + window.left, sent + window.left - 1
        known = self._known.get(window.name)
        if known is None or known.ends is None or known.first.limit != window.limit or earliest > known.ends:
            self._known[window.name] = _KnownWindow(window, window.remaining, latest, now, now)
        else:
            known.remaining, known.ends = min(known.remaining, window.remaining), min(known.ends, latest)
            known.seen = now

    def renew(self, now: float) -> None:
        """Reset windows that have ended to their whole limit; forget those whose limit is unknown."""
        for name, known in list(self._known.items()):
            if known.ends is not None and now >= known.ends:
                if known.first.limit is None:
                    del self._known[name]
                else:
                    known.ends, known.remaining = None, known.first.limit

    def count(self, lost: bool) -> None:
        """Count a request of this process. `lost` if no response said what remains."""
        for known in self._known.values():
            known.own += 1
            if lost:
                known.remaining = max(0, known.remaining - 1)

    def opens(self, now: float, in_flight: int) -> float:
        """When the exhausted windows end; `now` if none is exhausted."""
        spent = [
            known.ends
            for known in self._known.values()
            if known.ends is not None and (known.remaining <= 0 or known.others_may_have_spent(now, in_flight))
        ]
        return max(now, *spent) if spent else now

    @property
    def first_end(self) -> float:
        """When the first of the windows ends."""
        return min((known.ends for known in self._known.values() if known.ends is not None), default=inf)

    def allow(self, in_flight: int) -> bool:
        """Whether one more request is allowed in addition to those in flight."""
        return all(known.remaining > in_flight for known in self._known.values())

    @property
    def spacing(self) -> tuple[float, float]:
        """The length of the shortest window, and the time between two requests of a process in it, in seconds.

        One process uses up the window at this rate. All that share the key send at it, so each finds the window
        exhausted within that time after the first one, which is at most FRESH. (0, 0) if no window is known.
        """
        known = [(each.first.seconds, each.first.limit) for each in self._known.values()]
        seconds, limit = min(((s, q) for s, q in known if s and q), default=(0, 1))
        return seconds, min(FRESH, seconds / limit)


def _pause(retry_after: float | None, windows: tuple[Window, ...]) -> float:
    """The later of Retry-After and the end of the exhausted windows, in seconds."""
    named = [window.left for window in windows if window.remaining == 0]
    if retry_after is not None:
        named.append(retry_after)
    return min(max(1.0, *named), MAX_WAIT) if named else DEFAULT_WAIT


def _retry_after(value: str | None, clock: float) -> float | None:
    """Seconds from either form of the field; DEFAULT_WAIT if it is unreadable, None if it is absent."""
    if value is None:
        return None
    if _DIGITS.fullmatch(value.strip()):
        return min(float(value), MAX_WAIT)
    date = http_date(value)
    return DEFAULT_WAIT if date is None else min(max(0.0, date.timestamp() - clock), MAX_WAIT)


def _windows(headers: Mapping[str, str]) -> tuple[Window, ...]:
    policies = dict(_items(headers.get("ratelimit-policy", "")))
    windows = []
    for name, item in _items(headers.get("ratelimit", "")):
        if "r" in item and "t" in item:
            policy = policies.get(name, {})
            left = min(float(item["t"]), MAX_WAIT)
            windows.append(Window(name, policy.get("q"), item["r"], left, policy.get("w")))
    return tuple(windows)


def _items(value: str) -> list[tuple[str, dict[str, int]]]:
    """The items of a list of strings with integer parameters (RFC 9651); anything else is skipped."""
    return [
        (name, {key: int(number) for key, number in _PARAMETER.findall(parameters)})
        for name, parameters in _ITEM.findall(value)
    ]


def _shown(headers: Mapping[str, str]) -> tuple[int, int, int] | None:
    values = [headers.get(f"x-ratelimit-{name}", "").strip() for name in ("limit", "remaining", "reset")]
    if not all(_DIGITS.fullmatch(value) for value in values):
        return None
    limit, remaining, reset = map(int, values)
    return limit, remaining, reset


def _rate_limit(shown: tuple[int, int, int], windows: tuple[Window, ...], clock: float) -> RateLimit | None:
    limit, remaining, reset = shown
    try:
        known = tuple(
            RateWindow(each.name, each.limit, each.remaining, _utc(clock + each.left), each.seconds) for each in windows
        )
        return RateLimit(limit, remaining, _utc(reset), known)
    except (OverflowError, ValueError, OSError):  # a timestamp after the year 9999
        return None


def _utc(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)


def http_date(value: str | None) -> datetime | None:
    """An HTTP-date (RFC 9110 §5.6.7) as an aware datetime, or None."""
    try:
        date = parsedate_to_datetime(value or "")
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
