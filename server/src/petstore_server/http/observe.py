"""What operators see of the service: metrics and logs. Neither ever holds a key."""

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.windows import Outcome, Verdict
from petstore_server.http.request import Request

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Write logs as JSON Lines to `stream` (stderr by default), from `level` (a name) up."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encode),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    # uvicorn's own words are not JSON, and tell nothing that the gate does not.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _encode(event: dict[str, Any], **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


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
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._by_verdict: dict[tuple[str, Outcome, str], Counter] = {}

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count an answer."""
        pair = self._by_answer.get((operation, status))
        if pair is None:
            pair = self._requests.labels(operation, str(status)), self._seconds.labels(operation)
            self._by_answer[operation, status] = pair
        pair[0].inc()
        pair[1].observe(seconds)

    def decided(self, plan: str, verdict: Verdict) -> None:
        """Count a limit decision. `plan` is `none` for callers without a valid key."""
        window = "none" if verdict.outcome is Outcome.ADMITTED else verdict.shown.name
        counter = self._by_verdict.get((plan, verdict.outcome, window))
        if counter is None:
            counter = self._admissions.labels(plan, verdict.outcome.value, window)
            self._by_verdict[plan, verdict.outcome, window] = counter
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


class RequestObserver:
    """Tells metrics and logs of every answer.

    A line a request is written at the level debug alone: it costs seven tenths of all else that a small answer
    takes. From info on, only what an operator may have to act upon is logged: faults (5xx) and bans.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log = structlog.get_logger()
        self._verbose = self._log.bind().is_enabled_for(logging.DEBUG)

    def answered(self, request: Request, status: int, seconds: float) -> None:
        self._metrics.answered(request.operation, status, seconds)
        if request.verdict is not None:
            self._metrics.decided(str(request.grant.plan) if request.grant else "none", request.verdict)
        if self._verbose:
            self._log.debug(
                "request answered",
                method=request.method,
                status=status,
                milliseconds=round(seconds * 1000, 3),
                **_story(request),
            )

    def failed(self, request: Request, error: Exception) -> None:
        if isinstance(error, ServiceUnavailable):
            self._log.warning("store unavailable", reason=error.reason, **_story(request))
        else:
            self._log.error("request failed", exc_info=error, **_story(request))


def _story(request: Request) -> dict[str, Any]:
    grant = request.grant
    return {
        "request_id": request.request_id,
        "operation": request.operation,
        "account": grant.account_id if grant else None,
        "key": grant.key_id if grant else None,
    }
