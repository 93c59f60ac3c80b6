"""The metrics of one process. No label contains a key, or takes more values with more keys or addresses.

A request only adds to plain numbers; they become Prometheus samples when the metrics are read.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from petstore_server.domain.windows import ADMITTED, Decision, Outcome

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


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

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add the samples: cumulative counts by bound."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=self._sum)


class Metrics:
    """The service's metrics, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._responses: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds: defaultdict[str, _Histogram] = defaultdict(lambda: _Histogram(_LATENCIES))
        self._admitted: defaultdict[str, int] = defaultdict(int)
        self._refused: defaultdict[tuple[str, Outcome, str], int] = defaultdict(int)
        self._commits = _Histogram(_BATCHES)
        self._rebuilds = _Histogram(_LATENCIES)
        self.registry.register(Collected(self._families))
        self.ready = Gauge("petstore_ready", "1 while /readyz says so.", registry=self.registry)

    def responded(self, operation: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._responses[operation, status] += 1
        self._seconds[operation].observe(seconds)

    def decided(self, plan: str, decision: Decision) -> None:
        """Count a limit decision. `plan` is `none` for callers without a valid key."""
        if decision.outcome is ADMITTED:
            self._admitted[plan] += 1
        else:
            self._refused[plan, decision.outcome, decision.shown.name] += 1

    def committed(self, changes: int) -> None:
        """Count a commit that this many changes shared."""
        self._commits.observe(changes)

    def rebuilt(self, seconds: float) -> None:
        """Count an update of the encoded list."""
        self._rebuilds.observe(seconds)

    def export_counter(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Export a counter that is kept elsewhere."""
        self.registry.register(Collected(lambda: [CounterMetricFamily(name, documentation, value=value())]))

    def export_gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Export a gauge that is kept elsewhere."""
        self.registry.register(Collected(lambda: [GaugeMetricFamily(name, documentation, value=value())]))

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def _families(self) -> Iterator[Metric]:
        responses = CounterMetricFamily("petstore_requests", "Requests answered.", labels=("operation", "status"))
        for (operation, status), count in self._responses.items():
            responses.add_metric((operation, str(status)), count)
        yield responses
        seconds = HistogramMetricFamily(
            "petstore_request_seconds", "Seconds from a request's headers to its response.", labels=("operation",)
        )
        for operation, histogram in self._seconds.items():
            histogram.add_to(seconds, (operation,))
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
        commits = "petstore_store_commit_changes", "Commits of the store, by the number of changes that shared one."
        rebuilds = "petstore_list_rebuild_seconds", "Seconds to update the list after a change that affects it."
        for names, histogram in ((commits, self._commits), (rebuilds, self._rebuilds)):
            family = HistogramMetricFamily(*names)
            histogram.add_to(family)
            yield family


LAST_BACKUP = "petstore_last_backup_timestamp_seconds"


def without_gauges(metrics: Iterable[Metric]) -> list[Metric]:
    """What a process that has ended still adds to the sums: a counter that fell would look like a restart."""
    return [metric for metric in metrics if metric.type != "gauge"]


def aggregate(processes: Iterable[Iterable[Metric]]) -> list[Metric]:
    """The metrics of all processes together: sums, but the latest time at which any of them knows of a backup."""
    together: dict[str, Metric] = {}
    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for metrics in processes:
        for metric in metrics:
            together.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                place = metric.name, sample.name, tuple(sorted(sample.labels.items()))
                values.setdefault(place, []).append(sample.value)
    for (metric_name, name, labels), found in values.items():
        together[metric_name].add_sample(name, dict(labels), max(found) if name == LAST_BACKUP else sum(found))
    return list(together.values())


def exposition(metrics: Iterable[Metric]) -> bytes:
    """The metrics in Prometheus's text format."""
    return generate_latest(Collected(lambda: metrics))


class Collected(Collector):
    """Makes metrics when they are read."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics()
