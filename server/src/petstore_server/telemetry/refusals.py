"""The client addresses whose requests were refused most in the last hour, in bounded memory.

An hour consists of intervals. Each interval keeps a bounded number of addresses by the algorithm of Misra and Gries: a
new address that finds the table full takes one credit from every address in it, and those without credit leave. So an
address with more than 1/MAX_ADDRESSES of an interval's refusals is always found, however many other addresses there
are, and no count is too high; a count can be too low if the table was full.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

REFUSED_STATUSES = {401: "Without a valid key", 403: "Without the scope", 429: "Over a limit, or banned"}
"""The statuses of refused requests, and what each means."""

INTERVAL_SECONDS = 300
INTERVALS = 12
"""The current interval and those before it that make the last hour, which thus has at least 55 minutes."""

MAX_ADDRESSES = 1000
"""Addresses of one interval."""

REPORTED = 200
"""Addresses that one process reports, from which those of all processes are summed."""


class RefusedAddress(NamedTuple):
    """A client address (IPv6: its /64 network), and how many of its requests were refused, by HTTP status."""

    address: str
    statuses: dict[int, int]

    @property
    def refused(self) -> int:
        """All refused requests."""
        return sum(self.statuses.values())

    @property
    def other(self) -> int:
        """Requests without one of REFUSED_STATUSES: malformed, or over the maximum of connections."""
        return sum(count for status, count in self.statuses.items() if status not in REFUSED_STATUSES)


class _Counts:
    """The refusals of one address since it entered the table. It leaves when it has no credit."""

    __slots__ = ("credit", "statuses")

    def __init__(self) -> None:
        self.credit = 0
        self.statuses: Counter[int] = Counter()


class _Interval:
    """The refusals of one interval, which is the `number`-th since 1970."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.addresses: dict[str, _Counts] = {}

    def count(self, address: str, status: int) -> None:
        counts = self.addresses.get(address)
        if counts is None:
            if len(self.addresses) >= MAX_ADDRESSES:
                self._make_room()
                return
            counts = self.addresses[address] = _Counts()
        counts.credit += 1
        counts.statuses[status] += 1

    def _make_room(self) -> None:
        """Take a credit from every address. Each credit is taken once, so a refusal pays for this once on average."""
        for counts in self.addresses.values():
            counts.credit -= 1
        self.addresses = {address: counts for address, counts in self.addresses.items() if counts.credit > 0}


class RefusedAddresses:
    """Counts refused requests by client address. `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._intervals: deque[_Interval] = deque(maxlen=INTERVALS)

    @property
    def entries(self) -> int:
        """How many counts are in memory: one for each address and interval."""
        return sum(len(interval.addresses) for interval in self._intervals)

    def count(self, address: str, status: int) -> None:
        """Count a request from this address that was refused with this status."""
        number = int(self._clock() // INTERVAL_SECONDS)
        if not self._intervals or self._intervals[-1].number != number:
            self._intervals.append(_Interval(number))
        self._intervals[-1].count(address, status)

    def report(self) -> list[RefusedAddress]:
        """The addresses that were refused most in the last hour, at most REPORTED, most refused first."""
        number = int(self._clock() // INTERVAL_SECONDS)
        counted = (
            RefusedAddress(address, counts.statuses)
            for interval in self._intervals
            if number - INTERVALS < interval.number <= number
            for address, counts in interval.addresses.items()
        )
        return most_refused([counted], REPORTED)


def most_refused(reports: Iterable[Iterable[RefusedAddress]], limit: int) -> list[RefusedAddress]:
    """The sum of several reports: at most `limit` addresses, most refused first, then by address."""
    sums: dict[str, Counter[int]] = {}
    for report in reports:
        for each in report:
            sums.setdefault(each.address, Counter()).update(each.statuses)
    found = [RefusedAddress(address, dict(sorted(statuses.items()))) for address, statuses in sums.items()]
    return sorted(found, key=lambda each: (-each.refused, each.address))[:limit]
