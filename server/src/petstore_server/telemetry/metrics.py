"""Metrics of one process, and of several together.

A request only adds to plain numbers; they become Prometheus samples when the metrics are read. No label contains a key,
or takes more values with more keys or addresses.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add
from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from petstore_server import __version__, commit
from petstore_server.domain.usage import NO_OPERATION
from petstore_server.domain.windows import ADMITTED, Decision, Outcome

NOT_ADMITTED = (401, 429)  # without a valid key, over a limit or banned

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def build_info() -> Metric:
    """Which build runs, as labels of a metric that is always 1."""
    info = GaugeMetricFamily("petstore_build_info", "1, with the version and the commit.", labels=("version", "commit"))
    info.add_metric((__version__, commit()), 1)
    return info


class _Histogram:
    """Counts values by the upper bounds of buckets, both included."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def add(self, other: "_Histogram") -> None:
        """Count what another one of the same buckets has counted."""
        self.counts = [*map(add, self.counts, other.counts)]
        self.sum += other.sum

    def totals(self) -> tuple[Sequence[tuple[str, float]], float]:
        """Cumulative counts by bound, and the sum of all values."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True)), self.sum


class Metrics:
    """The counters of a process: responses, limit decisions, and the histograms `commits` and `rebuilds`."""

    def __init__(self) -> None:
        self._responses: defaultdict[tuple[str, int], _Histogram] = defaultdict(lambda: _Histogram(_LATENCIES))
        self._admitted: defaultdict[str, int] = defaultdict(int)
        self._refused: defaultdict[tuple[str, Outcome, str], int] = defaultdict(int)
        self.commits = _Histogram(_BATCHES)
        self.rebuilds = _Histogram(_LATENCIES)

    def responded(self, operation: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._responses[operation, status].observe(seconds)

    def decided(self, plan: str, decision: Decision) -> None:
        """Count a limit decision. `plan` is `none` for callers without a valid key."""
        if decision.outcome is ADMITTED:
            self._admitted[plan] += 1
        else:
            self._refused[plan, decision.outcome, decision.shown.name] += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics as Prometheus samples."""
        responses = CounterMetricFamily("petstore_requests", "Requests answered.", labels=("operation", "status"))
        latencies: defaultdict[str, _Histogram] = defaultdict(lambda: _Histogram(_LATENCIES))
        for (operation, status), histogram in self._responses.items():
            responses.add_metric((operation, str(status)), sum(histogram.counts))
            # Refusals take no time, so they are not among the latencies of the operation.
            latencies[NO_OPERATION if status in NOT_ADMITTED else operation].add(histogram)
        what = "Seconds from a request's headers to its response."
        seconds = HistogramMetricFamily("petstore_request_duration_seconds", what, labels=("operation",))
        for operation, histogram in latencies.items():
            seconds.add_metric((operation,), *histogram.totals())
        what = "Requests admitted and refused, by plan; `window` is the one that refused."
        decisions = CounterMetricFamily("petstore_limit_decisions", what, labels=("plan", "outcome", "window"))
        for plan, count in self._admitted.items():
            decisions.add_metric((str(plan), ADMITTED.value, "none"), count)
        for (plan, outcome, window), count in self._refused.items():
            decisions.add_metric((str(plan), outcome.value, window), count)
        yield from (responses, seconds, decisions)
        what = "Commits of the store, by the number of changes that shared one."
        yield HistogramMetricFamily("petstore_store_commit_changes", what, *self.commits.totals())
        what = "Seconds to update the list after a change that affects it."
        yield HistogramMetricFamily("petstore_list_rebuild_duration_seconds", what, *self.rebuilds.totals())


_SAME = {  # what all processes see of the store, and when the last of them started
    "petstore_last_backup_timestamp_seconds",
    "petstore_store_has",
    "petstore_accounts_using",
    "petstore_postgresql_connections",
    "petstore_postgresql_max_connections",
    "petstore_start_timestamp_seconds",
    "petstore_clock_ahead_seconds",
    "petstore_webhooks",
    "petstore_webhook_lag_seconds",
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
    for (metric_name, name, labels), numbers in values.items():
        together[metric_name].add_sample(name, dict(labels), max(numbers) if name in _SAME else sum(numbers))
    return list(together.values())


def exposition(metrics: Iterable[Metric]) -> bytes:
    """The metrics in Prometheus's text format."""
    registry: Any = SimpleNamespace(collect=lambda: metrics)  # of which nothing else is used
    return generate_latest(registry)
