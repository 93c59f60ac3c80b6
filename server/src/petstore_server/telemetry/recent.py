"""What the service did in the last hour, from samples of its metrics in memory."""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.core import Metric

REFUSED_STATUSES = (401, 403, 429)  # without a valid key, without the scope, over a limit or banned

SAMPLE_SECONDS = 60  # seconds between two samples: the length of one interval of a report

INTERVALS = 60  # of a report at most

_REQUESTS, _BUCKETS = "petstore_requests_total", "petstore_request_seconds_bucket"


class Interval(NamedTuple):
    """Requests between two Unix times: answered, refused (REFUSED_STATUSES), wrong (other 4xx), failed (5xx)."""

    start: float
    end: float
    answered: int
    refused: int
    wrong: int
    failed: int


class Report(NamedTuple):
    """Requests in intervals, oldest first, in all, and latencies in seconds by percentile (None without requests).

    A latency is the upper bound of the histogram's bucket that contains the percentile.
    """

    intervals: list[Interval]
    total: Interval
    percentiles: dict[int, float | None]


class Totals(NamedTuple):
    """The metrics at a time: requests by status, and durations of at most some number of seconds by that number."""

    at: float
    statuses: Counter[str]
    buckets: Counter[float]


class RecentRequests:
    """Keeps a sample for each of the last 60 minutes. `metrics` reads the metrics, `clock` gives Unix seconds."""

    def __init__(self, metrics: Callable[[], Awaitable[Iterable[Metric]]], clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        start = Totals(clock(), Counter(), Counter())  # metrics begin at zero, with the process
        self._samples = deque([start], maxlen=INTERVALS)

    def begin_with(self, samples: Sequence[Totals]) -> None:
        """Put samples of an earlier time, oldest first, before those of this process. Their counts end at zero."""
        self._samples = deque([*samples, *self._samples], maxlen=INTERVALS)

    async def sample(self) -> None:
        """Take a sample. Called every SAMPLE_SECONDS."""
        self._samples.append(await self._now())

    async def report(self) -> Report:
        """The requests since the oldest sample, this second included."""
        samples = [*self._samples, await self._now()]
        intervals = [_between(one, other) for one, other in pairwise(samples)]
        first, last = samples[0], samples[-1]
        bounds = {*first.buckets, *last.buckets}
        durations = Counter({bound: last.buckets[bound] - first.buckets[bound] for bound in bounds})
        return Report(intervals, _between(first, last), {each: _percentile(durations, each) for each in (50, 95, 99)})

    async def _now(self) -> Totals:
        statuses: Counter[str] = Counter()
        buckets: Counter[float] = Counter()
        for metric in await self._metrics():
            for sample in metric.samples:
                if sample.name == _REQUESTS:
                    statuses[sample.labels["status"]] += int(sample.value)
                elif sample.name == _BUCKETS:
                    buckets[float(sample.labels["le"])] += int(sample.value)
        return Totals(self._clock(), statuses, buckets)


def _between(one: Totals, other: Totals) -> Interval:
    kinds: Counter[str] = Counter()
    for status in {*one.statuses, *other.statuses}:
        count = other.statuses[status] - one.statuses[status]
        kinds[_kind(status)] += max(0, count)  # the counts of a worker that died may be missing
    return Interval(one.at, other.at, kinds["answered"], kinds["refused"], kinds["wrong"], kinds["failed"])


def _kind(status: str) -> str:
    if int(status) in REFUSED_STATUSES:
        return "refused"
    if status.startswith("4"):
        return "wrong"
    return "failed" if status.startswith("5") else "answered"


def _percentile(durations: Counter[float], percent: int) -> float | None:
    """The smallest bound of a cumulative histogram below which this percentage of the durations is."""
    total = max(durations.values(), default=0)
    if total <= 0:
        return None
    return next(bound for bound in sorted(durations) if durations[bound] * 100 >= total * percent)
