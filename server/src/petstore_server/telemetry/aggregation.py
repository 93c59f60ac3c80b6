"""Aggregation: the metrics of several processes as those of one.

Each process counts for itself, so counting a request costs no more than in a single process. Sums are computed when
/metrics is requested.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import prometheus_client.core
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_MINIMUM = ("petstore_ready",)
_MAXIMUM = ("petstore_last_backup_timestamp_seconds",)
_CREATED = "_created"


class Sample(NamedTuple):
    """One value of a metric."""

    name: str
    labels: dict[str, str]
    value: float


class Family(NamedTuple):
    """A metric family as Prometheus defines it: `kind` is counter, gauge or histogram."""

    name: str
    documentation: str
    kind: str
    samples: list[Sample]


Families = list[Family]


def single(name: str, documentation: str, kind: Literal["counter", "gauge"], value: float) -> Family:
    """A family of one sample without labels."""
    suffix = "_total" if kind == "counter" else ""
    return Family(name, documentation, kind, [Sample(name + suffix, {}, value)])


def collect(registry: CollectorRegistry) -> Families:
    """All metrics of a registry with their present values."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [Sample(sample.name, sample.labels, float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def without_gauges(families: Families) -> Families:
    """What a process that has ended still adds to the sums: a counter that fell would look like a restart."""
    return [family for family in families if family.kind != "gauge"]


def aggregate(processes: Iterable[Families]) -> Families:
    """The metrics of all processes together: sums, but ready only if all are, created when the first was, and the
    latest time at which any of them knows of a backup.
    """
    together: dict[str, Family] = {}
    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for families in processes:
        for family in families:
            together.setdefault(family.name, family._replace(samples=[]))
            for sample in family.samples:
                place = (family.name, sample.name, tuple(sorted(sample.labels.items())))
                values.setdefault(place, []).append(sample.value)
    for (family_name, name, labels), found in values.items():
        minimum = name in _MINIMUM or name.endswith(_CREATED)
        value = min(found) if minimum else max(found) if name in _MAXIMUM else sum(found)
        together[family_name].samples.append(Sample(name, dict(labels), value))
    return list(together.values())


def exposition(families: Families) -> bytes:
    """The metrics in Prometheus's text format."""
    metrics = []
    for family in families:
        metric = Metric(family.name, family.documentation, family.kind)
        metric.samples = [prometheus_client.core.Sample(*sample) for sample in family.samples]
        metrics.append(metric)
    return generate_latest(Collected(lambda: metrics))


class Collected(Collector):
    """Makes metrics when they are read."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()
