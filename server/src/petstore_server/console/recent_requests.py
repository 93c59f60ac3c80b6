"""The requests of the last hour by outcome, their latencies and errors, from samples of the metrics.

Each sample is also counted for its hour, until that is stored: the overview shows days from the store.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.core import Metric

from petstore_server.domain.usage import NO_OPERATION, Granularity, ResponseCounts
from petstore_server.telemetry.metrics import NOT_ADMITTED

REFUSED_STATUSES = (*NOT_ADMITTED, 403)  # without the scope
SAMPLE_SECONDS = 60  # between two samples: the length of one interval of a report
INTERVALS = 60  # of a report at most
PERCENTILES = (50, 95, 99)  # of latencies that are shown


class Interval(NamedTuple):
    """Requests from a Unix time on: answered, refused (REFUSED_STATUSES), wrong (other 4xx), failed (5xx)."""

    start: float
    answered: int
    refused: int
    wrong: int
    failed: int


class RecentReport(NamedTuple):
    """Requests in intervals, oldest first, in all, and latencies in seconds by percentile (None without requests).

    A latency is the upper bound of the histogram's bucket that contains the percentile. `errors` has the number of
    responses from 400 on by operation and status, the most first.
    """

    intervals: list[Interval]
    total: Interval
    percentiles: dict[int, float | None]
    errors: list[tuple[tuple[str, str], int]]


class Totals(NamedTuple):
    """A sample: requests by operation and status, and the latency histogram."""

    at: float
    responses: Counter[tuple[str, str]]
    buckets: Counter[float]


class RecentRequests:
    """Keeps a sample for each of the last 60 minutes. `metrics` reads the metrics, `clock` gives Unix seconds."""

    def __init__(self, metrics: Callable[[], Awaitable[Iterable[Metric]]], clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        start = Totals(clock(), Counter(), Counter())  # metrics begin at zero, with the process
        self._samples = deque([start], maxlen=INTERVALS)
        self._unsaved: dict[int, ResponseCounts] = {}

    def begin_with(self, samples: Sequence[Totals]) -> None:
        """Put samples of an earlier time, oldest first, before those of this process. Their counts end at zero."""
        self._samples = deque([*samples, *self._samples], maxlen=INTERVALS)

    async def sample(self) -> None:
        before, now = self._samples[-1], await self._now()
        self._samples.append(now)
        added = _responses(before, now)
        if added.durations or added.failed:
            hour = Granularity.HOUR.start(now.at)
            self._unsaved[hour] = self._unsaved.get(hour, ResponseCounts()).plus(added)

    async def save(self, add: Callable[[Mapping[int, ResponseCounts]], Awaitable[None]]) -> None:
        """Store what the samples have counted by hour. Raises what `add` raises, and then keeps it for later."""
        if self._unsaved:
            await add(self._unsaved)
            self._unsaved = {}

    async def report(self) -> RecentReport:
        """The requests since the oldest sample, this second included."""
        samples = [*self._samples, await self._now()]
        first, last = samples[0], samples[-1]
        served = _responses(first, last)
        percentiles = {percent: served.percentile(percent) for percent in PERCENTILES}
        responses = (last.responses - first.responses).most_common()
        errors = [(what, count) for what, count in responses if what[1] >= "400"]
        intervals = [_between(one, other) for one, other in pairwise(samples)]
        return RecentReport(intervals, _between(first, last), percentiles, errors)

    async def _now(self) -> Totals:
        totals = Totals(self._clock(), Counter(), Counter())
        for metric in await self._metrics():
            for sample in metric.samples:
                if sample.name == "petstore_requests_total":
                    totals.responses[sample.labels["operation"], sample.labels["status"]] += int(sample.value)
                elif sample.name == "petstore_request_duration_seconds_bucket":
                    totals.buckets[float(sample.labels["le"])] += int(sample.value)
        return totals


def _between(one: Totals, other: Totals) -> Interval:
    counts = Counter[str]()
    added = other.responses - one.responses  # without negative ones: a worker may have died
    for (operation, status), count in added.items():
        if int(status) in REFUSED_STATUSES:
            counts["refused"] += count
        elif status >= "400":
            counts["wrong" if status < "500" else "failed"] += count
        elif operation != NO_OPERATION:  # else it is a document
            counts["answered"] += count
    return Interval(one.at, *(counts[name] for name in Interval._fields[1:]))


def _responses(one: Totals, other: Totals) -> ResponseCounts:
    """The responses between two samples."""
    failed = sum(count for (_, status), count in (other.responses - one.responses).items() if status >= "500")
    below, durations = 0, dict[float, int]()
    for bound, count in sorted((other.buckets - one.buckets).items()):
        if count > below:
            durations[bound], below = count - below, count
    return ResponseCounts(failed, durations)
