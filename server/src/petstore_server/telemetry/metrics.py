"""The metrics of one process. No label holds a key or grows with keys or addresses."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from petstore_server.domain.windows import Decision, Outcome

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The service's metrics, in a registry of their own. No label grows with keys or addresses."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "petstore_requests", "Requests answered.", ("operation", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "petstore_request_seconds",
            "Seconds from a request's headers to its answer.",
            ("operation",),
            buckets=_LATENCIES,
            registry=self.registry,
        )
        self._admissions = Counter(
            "petstore_limit_decisions",
            "Requests admitted and refused, by plan; `window` is the one that refused.",
            ("plan", "outcome", "window"),
            registry=self.registry,
        )
        self._commits = Histogram(
            "petstore_store_commit_changes",
            "Commits of the store, by the number of changes that shared one.",
            buckets=_BATCHES,
            registry=self.registry,
        )
        self._rebuilds = Histogram(
            "petstore_list_rebuild_seconds",
            "Seconds to bring the encoded list up to date after a change that shows in it.",
            buckets=_LATENCIES,
            registry=self.registry,
        )
        self.ready = Gauge("petstore_ready", "1 while /readyz says so.", registry=self.registry)
        self._by_response: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._by_decision: dict[tuple[str, Outcome, str], Counter] = {}

    def responded(self, operation: str, status: int, seconds: float) -> None:
        """Count an answer."""
        pair = self._by_response.get((operation, status))
        if pair is None:
            pair = self._requests.labels(operation, str(status)), self._seconds.labels(operation)
            self._by_response[operation, status] = pair
        pair[0].inc()
        pair[1].observe(seconds)

    def decided(self, plan: str, decision: Decision) -> None:
        """Count a limit decision. `plan` is `none` for callers without a valid key."""
        window = "none" if decision.outcome is Outcome.ADMITTED else decision.shown.name
        counter = self._by_decision.get((plan, decision.outcome, window))
        if counter is None:
            counter = self._admissions.labels(plan, decision.outcome.value, window)
            self._by_decision[plan, decision.outcome, window] = counter
        counter.inc()

    def committed(self, changes: int) -> None:
        """Count a commit that this many changes shared."""
        self._commits.observe(changes)

    def rebuilt(self, seconds: float) -> None:
        """Count a renewal of the encoded list."""
        self._rebuilds.observe(seconds)

    def count(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Export a counter that somebody else keeps."""
        self.registry.register(_Kept(CounterMetricFamily, name, documentation, value))

    def state(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Export a gauge that somebody else keeps."""
        self.registry.register(_Kept(GaugeMetricFamily, name, documentation, value))

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)


class _Kept(Collector):
    def __init__(
        self,
        family: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        documentation: str,
        value: Callable[[], float],
    ) -> None:
        self._make: Callable[[], Metric] = lambda: family(name, documentation, value=value())

    def collect(self) -> Iterator[Metric]:
        yield self._make()
