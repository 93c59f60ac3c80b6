"""Usage: what an account has used of its windows, and what each account did in each hour or day (UTC)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.windows import Count


class Usage(NamedTuple):
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
    """Requests of an account with a valid key: admitted, and refused by each window or for a ban; and responses.

    The responses to admitted requests: cancelled (2xx that cancelled an order, not of a batch), succeeded (other 2xx),
    unchanged (304), forbidden (403), not_found (404), conflict (409), gone (410), invalid (other 4xx), failed (5xx). A
    request that is not answered yet, or whose client has disconnected, has none.
    """

    admitted: int = 0
    refused_minute: int = 0
    refused_day: int = 0
    refused_banned: int = 0
    cancelled: int = 0
    succeeded: int = 0
    unchanged: int = 0
    forbidden: int = 0
    not_found: int = 0
    conflict: int = 0
    gone: int = 0
    invalid: int = 0
    failed: int = 0

    @property
    def refused(self) -> int:
        return self.refused_minute + self.refused_day + self.refused_banned

    @property
    def requests(self) -> int:
        return self.admitted + self.refused


class KeylessCounts(NamedTuple):
    """Requests without a valid key: refused for that (401), and by the limit of an address (429)."""

    refused_key: int = 0
    refused_address: int = 0


class ResponseCounts(NamedTuple):
    """The responses of the service in a period: those that failed (5xx), and all by how long they took.

    `durations` has the number of responses by the upper bound of a bucket in seconds; each is in one bucket.
    """

    failed: int = 0
    durations: Mapping[float, int] = {}

    def plus(self, other: "ResponseCounts") -> "ResponseCounts":
        """The responses of two periods together."""
        return ResponseCounts(self.failed + other.failed, Counter(self.durations) + Counter(other.durations))

    def percentile(self, percent: int) -> float | None:
        """The smallest bound below which this percentage of the durations is; None without any."""
        needed, found = sum(self.durations.values()) * percent / 100, 0
        for bound in sorted(self.durations):
            found += self.durations[bound]
            if found and found >= needed:
                return bound
        return None


Counts = TypeVar("Counts", UsageCounts, KeylessCounts)


NO_OPERATION = "none"
"""Stands for the operation of a request whose path or method is not served."""

DEPRECATED = ("getPet",)


def uses_of(operation: str) -> tuple[str, ...]:
    """What is used with an operation: itself, and its version, which `v1.*` stands for."""
    version, dot, _ = operation.partition(".")
    return () if operation == NO_OPERATION else (operation, f"{version if dot else 'v1'}.*")


class Activity(NamedTuple):
    """What one process counted since it last saved. Hours are their starts in Unix seconds.

    `accounts` has counts by account id, hour and operation, `keyless` by hour, `keys` the hour in which each was last
    used, and `uses` the hour in which an account last used an operation or a version (`uses_of`).
    """

    accounts: Mapping[tuple[int, int, str], UsageCounts]
    keyless: Mapping[int, KeylessCounts]
    keys: Mapping[str, int]
    uses: Mapping[tuple[int, str], int] = MappingProxyType({})

    def __bool__(self) -> bool:
        return bool(self.accounts or self.keyless or self.keys)


NO_ACTIVITY = Activity({}, {}, {})


def add(one: Counts, other: Counts) -> Counts:
    return type(one)(*[left + right for left, right in zip(one, other, strict=True)])


def merge(counted: Iterable[tuple[int, Counts]], by: Granularity) -> dict[int, Counts]:
    """Sum counts, given with their starts in Unix seconds, into hours or days; return these by start, ascending."""
    merged: dict[int, Counts] = {}
    for at, counts in sorted(counted):
        start = by.start(at)
        merged[start] = add(merged[start], counts) if start in merged else counts
    return merged
