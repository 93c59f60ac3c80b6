"""Aggregation: the metrics of several processes as those of one.

Each process counts for itself, so counting a request costs no more than in a single process. Sums are computed when
/metrics is requested.
"""

from collections.abc import Callable, Iterable

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

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
