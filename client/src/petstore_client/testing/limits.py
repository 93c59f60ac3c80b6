"""The limits and bans of the fake service (D12, D13, D15)."""

from datetime import UTC, datetime
from math import floor, inf

from petstore_client import v2
from petstore_client.testing.faults import Raw, ServiceRaw, error

GRACE = 2.0
STRIKE_WINDOW = 600
BAN_MEMORY = 86_400  # seconds within which a further ban lasts twice as long
MAX_BAN = 3600


class Window:
    """A fixed window, which begins with the first request that is charged to it."""

    def __init__(self, name: str, seconds: int, limit: int) -> None:
        self.name = name
        self.seconds = seconds
        self.limit = limit
        self._ends = 0
        self._used = 0

    def left(self, now: float) -> int:
        """The remaining requests."""
        return self.limit - (self._used if now < self._ends else 0)

    def ends(self, now: float) -> int:
        """The end of the window, or of the one that a request would begin."""
        return self._ends if now < self._ends else floor(now) + self.seconds

    def charge(self, now: float) -> None:
        self._used, self._ends = self.limit - self.left(now) + 1, self.ends(now)


class Limits:
    """Both windows of the account, and the strikes and bans of its key. Times are in Unix seconds."""

    def __init__(self, per_minute: int, per_day: int, ban_strikes: int, ban_seconds: int) -> None:
        self.bans = 0
        self.last_ban: v2.Ban | None = None
        self.retry_at = -inf
        self.windows = (Window("minute", 60, per_minute), Window("day", 86_400, per_day))
        self._ban_strikes = ban_strikes
        self._ban_seconds = ban_seconds
        self._banned_until = 0
        self._level = 0  # the number of consecutive bans
        self._refused_since = -inf
        self._strikes: list[float] = []

    def refuse(self, now: float) -> Raw | None:
        """Charge a request, or return the 429 that refuses it."""
        if now < self._admits_from(now):
            return self._refusal(now)
        for window in self.windows:
            window.charge(now)
        return None

    def refused(self, raw: Raw, now: float) -> Raw:
        """Record a 429, and return it, or the ban that it causes."""
        if now >= self.retry_at:
            self._refused_since = now
        elif now >= max(self._banned_until, self._refused_since + GRACE):
            self._strikes = [at for at in self._strikes if now - at < STRIKE_WINDOW] + [now]
        ban = raw.ban if isinstance(raw, ServiceRaw) else 0
        if ban or len(self._strikes) >= self._ban_strikes:
            self._ban(ban, floor(now))
            raw = self._refusal(now)
        wait = raw.headers.get("retry-after", "")
        self.retry_at = max(self.retry_at, floor(now) + int(wait)) if wait.isdigit() else self.retry_at
        return raw

    def _ban(self, seconds: int, now: int) -> None:
        """Begin a ban of this length, or, for 0, of the length that the ones before it lead to."""
        again = self.last_ban is not None and now - self.last_ban.began.timestamp() < BAN_MEMORY
        self._level = self._level + 1 if again else 1
        longest = max(MAX_BAN, self._ban_seconds)
        seconds = seconds or min(self._ban_seconds * 2 ** min(self._level - 1, 32), longest)
        self.bans, self._strikes, self._banned_until = self.bans + 1, [], now + seconds
        began, ended = (datetime.fromtimestamp(at, UTC) for at in (now, now + seconds))
        self.last_ban = v2.Ban(began=began, ended=ended)

    def headers(self, now: float) -> dict[str, str]:
        """The limit headers of every response."""
        state = [(window.name, window.left(now), window.ends(now)) for window in self.windows]
        place = min((1, 0), key=lambda at: (state[at][1], -state[at][2]))
        _, left, ends = state[place]
        if now < self._banned_until:
            place, left, ends = 0, 0, self._admits_from(now)
            state.append(("ban", 0, self._banned_until))
        return {
            "x-ratelimit-limit": str(self.windows[place].limit),
            "x-ratelimit-remaining": str(left),
            "x-ratelimit-reset": str(ends),
            "ratelimit-policy": ", ".join(f'"{each.name}";q={each.limit};w={each.seconds}' for each in self.windows),
            "ratelimit": ", ".join(f'"{name}";r={left};t={ends - floor(now)}' for name, left, ends in state),
        }

    def _admits_from(self, now: float) -> int:
        """The time at which the ban and the windows that are used up end, in Unix seconds."""
        return max(self._banned_until, *(window.ends(now) for window in self.windows if not window.left(now)), 0)

    def _refusal(self, now: float) -> Raw:
        """The 429 of a key that is banned, or whose limit is used up."""
        code, message = "rate_limit_exceeded", "The limit is used up."
        if now < self._banned_until:
            code, message = "api_key_banned", "This key is banned."
        return error(429, code, message, self._admits_from(now) - floor(now), self.headers(now))
