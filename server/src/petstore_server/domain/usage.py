"""Usage: what an account has used of its windows, and what each account did in each hour or day (UTC)."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.windows import Count


class Usage(NamedTuple):
    """What an account has used of its windows."""

    minute: Count = Count()
    day: Count = Count()


class Granularity(StrEnum):
    HOUR = "hour"
    DAY = "day"

    @property
    def seconds(self) -> int:
        return HOUR if self is Granularity.HOUR else DAY

    def start(self, at: float) -> int:
        """The start of the hour or day that `at` is in; both are Unix seconds."""
        return int(at // self.seconds) * self.seconds


class UsageCounts(NamedTuple):
    """Requests of an account with a valid key: admitted, and refused by each window or for a ban; orders cancelled."""

    admitted: int = 0
    refused_minute: int = 0
    refused_day: int = 0
    refused_banned: int = 0
    cancelled: int = 0

    @property
    def refused(self) -> int:
        return self.refused_minute + self.refused_day + self.refused_banned


class KeylessCounts(NamedTuple):
    """Requests without a valid key: refused for that (401), and by the limit of an address (429)."""

    refused_key: int = 0
    refused_address: int = 0


Counts = TypeVar("Counts", UsageCounts, KeylessCounts)


class Activity(NamedTuple):
    """What one process counted since it last saved. Hours are their starts in Unix seconds.

    `accounts` has counts by account id and hour, `keyless` by hour, and `keys` the hour in which each was last used.
    """

    accounts: Mapping[tuple[int, int], UsageCounts]
    keyless: Mapping[int, KeylessCounts]
    keys: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.accounts or self.keyless or self.keys)


NO_ACTIVITY = Activity({}, {}, {})


def add(one: Counts, other: Counts) -> Counts:
    """The sum of two counts."""
    return type(one)(*[left + right for left, right in zip(one, other, strict=True)])


def merge(counted: Iterable[tuple[int, Counts]], by: Granularity) -> dict[int, Counts]:
    """Sum counts, given with their starts in Unix seconds, into hours or days; return these by start, ascending."""
    merged: dict[int, Counts] = {}
    for at, counts in sorted(counted):
        start = by.start(at)
        merged[start] = add(merged[start], counts) if start in merged else counts
    return merged
