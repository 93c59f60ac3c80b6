"""The limits and bans of the fake service, by the rules of the real one (D12, D13, D15)."""

from collections import deque
from math import ceil, floor

from petstore_client.testing.faults import Raw, error

GRACE = 2.0
STRIKES_WITHIN = 600.0
BANS_WITHIN = 86_400.0
LONGEST_BAN = 3600


class Window:
    """A fixed window."""

    def __init__(self, name: str, seconds: int, limit: int) -> None:
        self.name = name
        self.seconds = seconds
        self.limit = limit
        self.ends = 0
        self.used = 0

    def left(self, now: float) -> int:
        """The remaining requests; a window that has ended starts again."""
        if now >= self.ends:
            self.ends, self.used = floor(now) + self.seconds, 0
        return self.limit - self.used


class Limits:
    """Both windows of the account, and the strikes and bans of its key. `bans` counts bans."""

    def __init__(self, per_minute: int, per_day: int, ban_strikes: int, ban_seconds: int) -> None:
        self.bans = 0
        self.retry_at = float("-inf")
        self._windows = (Window("minute", 60, per_minute), Window("day", 86_400, per_day))
        self._ban_strikes = ban_strikes
        self._ban_seconds = ban_seconds
        self._banned_until = float("-inf")
        self._refused_since = float("-inf")
        self._strikes: deque[float] = deque()
        self._started: deque[float] = deque()  # recent bans

    def refuse(self, now: float) -> Raw | None:
        """Charge a request, or return the 429 that refuses it."""
        if now < self._banned_until:
            return banned(self._banned_until - now)
        spent = [window for window in self._windows if window.left(now) == 0]
        if spent:
            wait = max(1, ceil(max(window.ends for window in spent) - now))
            return error(429, "rate_limit_exceeded", "The limit is used up.", {"retry-after": str(wait)})
        for window in self._windows:
            window.used += 1
        return None

    def refused(self, raw: Raw, now: float) -> Raw:
        """Record a 429, and return it, or the ban that it causes."""
        if now < self._banned_until:
            return raw
        if raw.ban:
            self._ban(now, raw.ban)
            return raw
        if now >= self.retry_at:
            self._refused_since = now
        elif now > self._refused_since + GRACE:
            self._strikes.append(now)
            _drop(self._strikes, now - STRIKES_WITHIN)
        if len(self._strikes) >= self._ban_strikes:
            _drop(self._started, now - BANS_WITHIN)
            self._ban(now, min(LONGEST_BAN, self._ban_seconds * 2 ** len(self._started)))
            return banned(self._banned_until - now)
        wait = raw.headers.get("retry-after", "")
        self.retry_at = max(self.retry_at, now + int(wait)) if wait.isdigit() else self.retry_at
        return raw

    def windows(self, now: float) -> list[tuple[str, int, int, int]]:
        """Name, limit, remaining requests and end (in Unix seconds) of each window."""
        return [(window.name, window.limit, window.left(now), window.ends) for window in self._windows]

    def headers(self, now: float) -> dict[str, str]:
        """The limit headers of every response."""
        left = {name: 0 if now < self._banned_until else remaining for name, _, remaining, _ in self.windows(now)}
        ends = {window.name: max(window.ends, ceil(self._banned_until)) if now < self._banned_until else window.ends
                for window in self._windows}  # fmt: skip
        shown = min(self._windows, key=lambda window: (left[window.name], -ends[window.name]))
        return {
            "x-ratelimit-limit": str(shown.limit),
            "x-ratelimit-remaining": str(left[shown.name]),
            "x-ratelimit-reset": str(ends[shown.name]),
            "ratelimit-policy": ", ".join(f'"{w.name}";q={w.limit};w={w.seconds}' for w in self._windows),
            "ratelimit": ", ".join(
                f'"{w.name}";r={left[w.name]};t={max(1, ceil(ends[w.name] - now))}' for w in self._windows
            ),
        }

    def _ban(self, now: float, seconds: float) -> None:
        self.bans += 1
        self._banned_until = self.retry_at = now + seconds
        self._started.append(now)
        self._strikes.clear()


def banned(seconds: float) -> Raw:
    """The 429 of a banned key."""
    return error(429, "api_key_banned", "This key is banned.", {"retry-after": str(max(1, ceil(seconds)))})


def _drop(times: deque[float], before: float) -> None:
    while times and times[0] <= before:
        times.popleft()
