"""Metrics: of one process, of several together, and samples of the last hour for the console.

A request only adds to plain numbers; they become Prometheus samples when the metrics are read. No label contains a key,
or takes more values with more keys or addresses.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from petstore_server import __version__, commit
from petstore_server.domain.usage import NO_OPERATION
from petstore_server.domain.windows import ADMITTED, Decision, Outcome

NOT_ADMITTED = (401, 429)  # without a valid key, over a limit or banned
REFUSED_STATUSES = (*NOT_ADMITTED, 403)  # without the scope

SAMPLE_SECONDS = 60  # seconds between two samples: the length of one interval of a report

INTERVALS = 60  # of a report at most

_REQUESTS, _BUCKETS = "petstore_requests_total", "petstore_request_duration_seconds_bucket"

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def build_info() -> Metric:
    """Which build runs, as labels of a metric that is always 1."""
    info = GaugeMetricFamily("petstore_build_info", "1, with the version and the commit.", labels=("version", "commit"))
    info.add_metric((__version__, commit()), 1)
    return info


class _Histogram:
    """Counts values by the upper bounds of buckets, both included."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def totals(self) -> tuple[Sequence[tuple[str, float]], float]:
        """Cumulative counts by bound, and the sum of all values."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True)), self._sum


class Metrics:
    """What a process counts: responses, limit decisions, and the histograms `commits` and `rebuilds`."""

    def __init__(self) -> None:
        self._responses: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds: defaultdict[str, _Histogram] = defaultdict(lambda: _Histogram(_LATENCIES))
        self._admitted: defaultdict[str, int] = defaultdict(int)
        self._refused: defaultdict[tuple[str, Outcome, str], int] = defaultdict(int)
        self.commits = _Histogram(_BATCHES)
        self.rebuilds = _Histogram(_LATENCIES)

    def responded(self, operation: str, status: int, seconds: float) -> None:
        """Count a response. Refusals take no time, so they are not among the latencies of the operation."""
        self._responses[operation, status] += 1
        self._seconds[NO_OPERATION if status in NOT_ADMITTED else operation].observe(seconds)

    def decided(self, plan: str, decision: Decision) -> None:
        """Count a limit decision. `plan` is `none` for callers without a valid key."""
        if decision.outcome is ADMITTED:
            self._admitted[plan] += 1
        else:
            self._refused[plan, decision.outcome, decision.shown.name] += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics as Prometheus samples."""
        responses = CounterMetricFamily("petstore_requests", "Requests answered.", labels=("operation", "status"))
        for (operation, status), count in self._responses.items():
            responses.add_metric((operation, str(status)), count)
        yield responses
        seconds = HistogramMetricFamily(
            "petstore_request_duration_seconds",
            "Seconds from a request's headers to its response.",
            labels=("operation",),
        )
        for operation, histogram in self._seconds.items():
            seconds.add_metric((operation,), *histogram.totals())
        yield seconds
        decisions = CounterMetricFamily(
            "petstore_limit_decisions",
            "Requests admitted and refused, by plan; `window` is the one that refused.",
            labels=("plan", "outcome", "window"),
        )
        for plan, count in self._admitted.items():
            decisions.add_metric((str(plan), ADMITTED.value, "none"), count)
        for (plan, outcome, window), count in self._refused.items():
            decisions.add_metric((str(plan), outcome.value, window), count)
        yield decisions
        commits = "Commits of the store, by the number of changes that shared one."
        yield HistogramMetricFamily("petstore_store_commit_changes", commits, *self.commits.totals())
        rebuilds = "Seconds to update the list after a change that affects it."
        yield HistogramMetricFamily("petstore_list_rebuild_duration_seconds", rebuilds, *self.rebuilds.totals())


_SAME = {  # what all processes see of the store, and when the last of them started
    "petstore_last_backup_timestamp_seconds",
    "petstore_store_has",
    "petstore_accounts_using",
    "petstore_postgresql_connections",
    "petstore_postgresql_max_connections",
    "petstore_start_timestamp_seconds",
    "petstore_clock_ahead_seconds",
}


def aggregate(processes: Iterable[Iterable[Metric]]) -> list[Metric]:
    """The metrics of all processes together: sums, but the highest value of those in `_SAME`."""
    together: dict[str, Metric] = {}
    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for metrics in processes:
        for metric in metrics:
            together.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                place = metric.name, sample.name, tuple(sorted(sample.labels.items()))
                values.setdefault(place, []).append(sample.value)
    for (metric_name, name, labels), found in values.items():
        together[metric_name].add_sample(name, dict(labels), max(found) if name in _SAME else sum(found))
    return list(together.values())


def exposition(metrics: Iterable[Metric]) -> bytes:
    """The metrics in Prometheus's text format."""
    return generate_latest(_Collected(metrics))


class _Collected(NamedTuple):
    """Metrics in the form in which prometheus_client takes them."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


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

    A latency is the upper bound of the histogram's bucket that contains the percentile. `errors` has the number of
    responses from 400 on by operation and status, the most first.
    """

    intervals: list[Interval]
    total: Interval
    percentiles: dict[int, float | None]
    errors: list[tuple[tuple[str, str], int]]


class Totals(NamedTuple):
    """The metrics at a time: requests by operation and status, and durations of at most so many seconds, by these."""

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
        durations = last.buckets - first.buckets
        percentiles = {each: _percentile(durations, each) for each in (50, 95, 99)}
        responses = (last.responses - first.responses).most_common()
        errors = [(what, count) for what, count in responses if what[1] >= "400"]
        return Report(intervals, _between(first, last), percentiles, errors)

    async def _now(self) -> Totals:
        responses: Counter[tuple[str, str]] = Counter()
        buckets: Counter[float] = Counter()
        for metric in await self._metrics():
            for sample in metric.samples:
                if sample.name == _REQUESTS:
                    responses[sample.labels["operation"], sample.labels["status"]] += int(sample.value)
                elif sample.name == _BUCKETS:
                    buckets[float(sample.labels["le"])] += int(sample.value)
        return Totals(self._clock(), responses, buckets)


def _between(one: Totals, other: Totals) -> Interval:
    kinds = Counter(answered=0, refused=0, wrong=0, failed=0)
    added = other.responses - one.responses  # without negative ones: a worker may have died
    for (operation, status), count in added.items():
        if operation != NO_OPERATION or status >= "400":  # else it is a document
            kinds[_kind(status)] += count
    return Interval(one.at, other.at, **kinds)


def _kind(status: str) -> str:
    if int(status) in REFUSED_STATUSES:
        return "refused"
    if status.startswith("4"):
        return "wrong"
    return "failed" if status.startswith("5") else "answered"


def _percentile(durations: Counter[float], percent: int) -> float | None:
    """The smallest bound of a cumulative histogram below which this percentage of the durations is."""
    total = max(durations.values(), default=0)
    if not total:
        return None
    return next(bound for bound in sorted(durations) if durations[bound] * 100 >= total * percent)
