"""Strikes and bans: what happens to a key that keeps sending requests after a 429 (spec S7.3; D15)."""

from bisect import bisect_right
from dataclasses import dataclass, field
from math import floor
from typing import NamedTuple

from petstore_server.domain.timestamps import DAY

STRIKE_WINDOW = 600  # seconds within which strikes add up
BAN_MEMORY = DAY  # seconds after its start during which a ban makes the next one longer
CLOCK_TOLERANCE = 60  # seconds by which the clocks of two hosts may differ


class BanPolicy(NamedTuple):
    """The operator's settings; all but `strikes` are in seconds."""

    strikes: int = 20
    seconds: int = 120
    max_seconds: int = 3600
    grace_seconds: float = 2


@dataclass(frozen=True, slots=True)
class Ban:
    """A key's latest ban, in whole Unix seconds; `level` is the number of consecutive bans, this one included.

    A ban of level 0 was lifted: it never holds, and the next one is of level 1.

    `strikes` are those that led to it. The audit log records them; a ban that was read from the store lacks them.
    """

    key_id: str
    began: int
    until: int
    level: int
    strikes: int | None = field(default=None, compare=False)

    def holds(self, now: float) -> bool:
        """Whether the ban is in force at `now` (Unix seconds). A clock set back by over CLOCK_TOLERANCE ends it."""
        return self.began - CLOCK_TOLERANCE <= now < self.until


class AbuseRecord(NamedTuple):
    """The recent refusals of a key. Times are Unix seconds.

    `refused_at` is the first 429 of the current series, `retry_at` the end of the latest Retry-After in it. `strikes`
    are the times of the strikes that may still count, ascending.
    """

    refused_at: float = 0.0
    retry_at: float = 0.0
    strikes: tuple[float, ...] = ()


class Refusal(NamedTuple):
    """What a refusal leads to: the key's new record, whether it was a strike, and whether a ban begins with it."""

    record: AbuseRecord
    struck: bool = False
    banned: bool = False


def refuse(record: AbuseRecord, now: float, retry_at: float, policy: BanPolicy) -> Refusal:
    """Apply a refusal at `now`, whose Retry-After ends at `retry_at`, to the record of the key.

    A strike is a refusal before the Retry-After of an earlier 429 has elapsed, unless it comes within the grace period
    after the first of those 429s: it may already have been in flight.
    """
    if not record.refused_at <= now < record.retry_at:  # a new series; also after the clock was set back
        return Refusal(record._replace(refused_at=now, retry_at=retry_at))
    retry_at = max(record.retry_at, retry_at)
    if now - record.refused_at < policy.grace_seconds:
        return Refusal(record._replace(retry_at=retry_at))
    first = bisect_right(record.strikes, now - STRIKE_WINDOW)
    strikes = (*record.strikes[first : bisect_right(record.strikes, now)], now)
    if len(strikes) < policy.strikes:
        return Refusal(record._replace(retry_at=retry_at, strikes=strikes), struck=True)
    return Refusal(record._replace(retry_at=retry_at, strikes=()), struck=True, banned=True)


def next_ban(previous: Ban | None, key_id: str, now: float, policy: BanPolicy) -> Ban:
    """The ban that begins at `now`: one level above a ban that began within a day before it."""
    level = previous.level + 1 if previous is not None and now - previous.began < BAN_MEMORY else 1
    return Ban(key_id, floor(now), floor(now) + ban_seconds(level, policy), level, policy.strikes)


def ban_seconds(level: int, policy: BanPolicy) -> int:
    """The length of a ban of this level: twice that of the level below, up to the maximum."""
    # The exponent is bounded, so that no number of bans makes it expensive.
    seconds: int = policy.seconds * 2 ** min(level - 1, 32)
    return min(seconds, policy.max_seconds)
