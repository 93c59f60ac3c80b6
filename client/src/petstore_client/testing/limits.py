"""The limits and bans of the fake service (D12, D13, D15)."""

from math import ceil, floor, inf

from petstore_client.testing.faults import Raw, error

GRACE = 2.0


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
    """Both windows of the account, and the strikes and bans of its key. Times are in Unix seconds."""

    def __init__(self, per_minute: int, per_day: int, ban_strikes: int, ban_seconds: int) -> None:
        self.bans = 0
        self.retry_at = -inf
        self.windows = (Window("minute", 60, per_minute), Window("day", 86_400, per_day))
        self._ban_strikes = ban_strikes
        self._ban_seconds = ban_seconds
        self._banned_until = self._refused_since = -inf
        self._strikes = 0

    def refuse(self, now: float) -> Raw | None:
        """Charge a request, or return the 429 that refuses it."""
        if now < self._banned_until:
            return _banned(self._banned_until - now)
        if spent := [window.ends for window in self.windows if window.left(now) == 0]:
            return error(429, "rate_limit_exceeded", "The limit is used up.", max(1, ceil(max(spent) - now)))
        for window in self.windows:
            window.used += 1
        return None

    def refused(self, raw: Raw, now: float) -> Raw:
        """Record a 429, and return it, or the ban that it causes."""
        if now < self._banned_until:
            return raw
        if now >= self.retry_at:
            self._refused_since = now
        elif now > self._refused_since + GRACE:
            self._strikes += 1
        if raw.ban or self._strikes >= self._ban_strikes:
            self.bans, self._strikes = self.bans + 1, 0
            self._banned_until = self.retry_at = now + (raw.ban or self._ban_seconds)
            return _banned(self._banned_until - now)
        wait = raw.headers.get("retry-after", "")
        self.retry_at = max(self.retry_at, now + int(wait)) if wait.isdigit() else self.retry_at
        return raw

    def headers(self, now: float) -> dict[str, str]:
        """The limit headers of every response."""
        banned = now < self._banned_until
        shown = [
            (0 if banned else window.left(now), max(window.ends, ceil(self._banned_until) if banned else 0), window)
            for window in self.windows
        ]
        left, ends, window = min(shown, key=lambda each: (each[0], -each[1]))
        return {
            "x-ratelimit-limit": str(window.limit),
            "x-ratelimit-remaining": str(left),
            "x-ratelimit-reset": str(ends),
            "ratelimit-policy": ", ".join(f'"{each.name}";q={each.limit};w={each.seconds}' for each in self.windows),
            "ratelimit": ", ".join(f'"{it.name}";r={r};t={max(1, ceil(ends - now))}' for r, ends, it in shown),
        }


def _banned(seconds: float) -> Raw:
    return error(429, "api_key_banned", "This key is banned.", max(1, ceil(seconds)))
