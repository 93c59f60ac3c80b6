"""Strikes and bans: what becomes of a key that goes on after a 429 (spec S7.3; D15)."""

from dataclasses import dataclass
from math import floor
from typing import NamedTuple

STRIKE_WINDOW = 600
"""Seconds within which strikes add up."""

BAN_MEMORY = 86_400
"""Seconds after its beginning during which a ban makes the next one longer."""

CLOCK_TOLERANCE = 60
"""Seconds by which the clocks of two hosts may differ."""


class BanPolicy(NamedTuple):
    """The operator's four numbers; seconds but for `strikes`."""

    strikes: int = 20
    seconds: int = 120
    max_seconds: int = 3600
    grace_seconds: float = 2


@dataclass(frozen=True, slots=True)
class Ban:
    """A key's latest ban, in whole Unix seconds; `level` counts the bans that led up to it, itself included."""

    key_id: str
    began: int
    until: int
    level: int

    def holds(self, now: float) -> bool:
        """Whether the ban is in force at `now` (Unix seconds).

        A clock set back by more than hosts may differ ends a ban rather than prolong it.
        """
        return self.began - CLOCK_TOLERANCE <= now < self.until


@dataclass(slots=True)
class AbuseRecord:
    """How a key has behaved of late. Moments are Unix seconds.

    `refused_at` is the first of the running series of 429s, `retry_at` the moment that the latest Retry-After named.
    """

    refused_at: float = 0.0
    retry_at: float = 0.0
    strikes: tuple[float, ...] = ()
    ban: Ban | None = None


def refuse(record: AbuseRecord, key_id: str, now: float, retry_at: float, policy: BanPolicy) -> Ban | None:
    """Note a request that was refused at `now` and is told to come back at `retry_at`; return the ban it earns.

    A strike is a refusal before the Retry-After of an earlier 429 has passed, unless it came within the grace
    after the first of those 429s, when requests may have been under way already.
    """
    if not record.refused_at <= now < record.retry_at:  # a new series; also after the clock was set back
        record.refused_at, record.retry_at = now, retry_at
        return None
    record.retry_at = max(record.retry_at, retry_at)
    if now - record.refused_at < policy.grace_seconds:
        return None
    recent = tuple(at for at in record.strikes if now - STRIKE_WINDOW < at <= now)
    record.strikes = (*recent, now)
    if len(record.strikes) < policy.strikes:
        return None
    record.strikes = ()
    record.ban = next_ban(record.ban, key_id, now, policy)
    return record.ban


def next_ban(previous: Ban | None, key_id: str, now: float, policy: BanPolicy) -> Ban:
    """The ban that begins at `now`: twice as long as one that began within a day before it, up to the longest."""
    repeated = previous is not None and now - previous.began < BAN_MEMORY
    level = previous.level + 1 if previous is not None and repeated else 1
    # The exponent is bounded so that no number of bans makes it a costly one.
    seconds = min(policy.seconds * 2 ** min(level - 1, 32), policy.max_seconds)
    return Ban(key_id, floor(now), floor(now) + seconds, level)
