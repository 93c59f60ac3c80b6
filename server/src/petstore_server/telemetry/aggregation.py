"""The metrics of several processes as those of one.

Each process counts for itself, so a request costs no more than in a single one; sums are made when somebody asks.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_LOWEST = ("petstore_ready",)
_CREATED = "_created"


class Sample(NamedTuple):
    """One number of a metric."""

    name: str
    labels: dict[str, str]
    value: float


class Figure(NamedTuple):
    """One metric as Prometheus knows it: `kind` is counter, gauge or histogram."""

    name: str
    documentation: str
    kind: str
    samples: list[Sample]


Figures = list[Figure]


def figures_of(registry: CollectorRegistry) -> Figures:
    """All metrics of a registry, as they stand."""
    return [
        Figure(
            metric.name,
            metric.documentation,
            metric.type,
            [Sample(sample.name, sample.labels, float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def lasting(figures: Figures) -> Figures:
    """What counts on after the process has ended: all but gauges. A sum must never fall (Prometheus: a reset)."""
    return [figure for figure in figures if figure.kind != "gauge"]


def summed(processes: Iterable[Figures]) -> Figures:
    """The metrics of all processes together: sums, but ready only if all are, and created when the first was."""
    together: dict[str, Figure] = {}
    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for figures in processes:
        for figure in figures:
            together.setdefault(figure.name, figure._replace(samples=[]))
            for sample in figure.samples:
                place = (figure.name, sample.name, tuple(sorted(sample.labels.items())))
                values.setdefault(place, []).append(sample.value)
    for (figure_name, name, labels), found in values.items():
        lowest = name in _LOWEST or name.endswith(_CREATED)
        together[figure_name].samples.append(Sample(name, dict(labels), min(found) if lowest else sum(found)))
    return list(together.values())


def exposition(figures: Figures) -> bytes:
    """The metrics in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Given(figures))
    return generate_latest(registry)


class _Given(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        for figure in self._figures:
            metric = Metric(figure.name, figure.documentation, figure.kind)
            for sample in figure.samples:
                metric.add_sample(sample.name, sample.labels, sample.value)
            yield metric
