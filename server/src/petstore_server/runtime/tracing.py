"""Spans of requests, sent by OpenTelemetry's SDK. Loaded only where its endpoint is set; needs the extra `otel`.

A request that is sampled has a server span, with children for its calls of the store and of Redis. Others cost one
decision of the sampler. The settings are OpenTelemetry's own environment variables.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from petstore_server import __version__
from petstore_server.api.access_log import shown_path
from petstore_server.api.callers import ClientAddress
from petstore_server.api.gate import HEALTH
from petstore_server.api.routes import Routes
from petstore_server.api.trace_context import parse_traceparent
from petstore_server.domain.errors import DomainError, ServiceUnavailable
from petstore_server.server.messages import Answer, Request

CLOSING_SECONDS = 2.0
"""For which the end of a process waits until the last spans are sent."""

Respond = Callable[[Request], Coroutine[Any, Any, Answer | None]]

_STORE_CALLS = ("query", "read", "transaction", "submit")
_REDIS_CALLS = ("count", "count_address")
_SERVER_ERROR = 500
_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
_OTHER, _OTHER_NAME = "_OTHER", "HTTP"  # for a method that the conventions do not know: a client may invent any
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans and sends them from a thread."""

    def __init__(self, environment: str) -> None:
        """`environment` is that of the settings."""
        own = {"service.name": "petstore", "service.version": __version__, "deployment.environment.name": environment}
        resource = Resource.create(own).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("petstore_server", __version__)

    def traced(self, respond: Respond, routes: Routes, client_address: ClientAddress) -> Respond:
        """Answer requests as `respond` does, each within a span if it is sampled; `/healthz` has none."""

        def respond_traced(request: Request) -> Coroutine[Any, Any, Answer | None]:
            work = respond(request)
            if request.refusal is not None or request.path == HEALTH:
                return work
            name = request.method if request.method in _METHODS else _OTHER_NAME
            span = self._tracer.start_span(name, _parent(request), SpanKind.SERVER)
            if not span.is_recording():
                return work
            _describe(span, name, request, routes, client_address)
            context = contextvars.copy_context()
            context.run(otel_context.attach, set_span_in_context(span))
            return _InContext(_finish(span, work), context)

        return respond_traced

    def trace_store(self, engine: Any, system: str) -> None:
        """Give the calls of an engine spans; `system` is the name of the database in the conventions."""
        for name in _STORE_CALLS:
            setattr(engine, name, self._child(getattr(engine, name), f"store.{name}", system))
        if system == "sqlite":  # elsewhere it does nothing
            engine.peek = self._child_at_once(engine.peek, "store.query", system)

    def trace_redis(self, counters: Any) -> None:
        """Give the calls that count a request spans."""
        for name in _REDIS_CALLS:
            setattr(counters, name, self._child(getattr(counters, name), f"redis.{name}", "redis"))

    async def close(self) -> None:
        """Send the spans that are left, and wait for CLOSING_SECONDS at most: a collector may not respond."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, CLOSING_SECONDS)

    def _child(self, call: Callable[..., Any], name: str, system: str) -> Callable[..., Any]:
        @wraps(call)
        async def run(*arguments: Any, **options: Any) -> Any:
            with self._span(name, system, arguments):
                return await call(*arguments, **options)

        return run

    def _child_at_once(self, call: Callable[..., Any], name: str, system: str) -> Callable[..., Any]:
        @wraps(call)
        def run(*arguments: Any, **options: Any) -> Any:
            with self._span(name, system, arguments):
                return call(*arguments, **options)

        return run

    @contextmanager
    def _span(self, name: str, system: str, arguments: Sequence[Any]) -> Iterator[None]:
        """A child of the current span, if there is one that has not ended. A query shows its text, without values."""
        if not get_current_span().is_recording():
            yield
            return
        attributes = {"db.system.name": system}
        if arguments and isinstance(arguments[0], str) and system != "redis":
            attributes["db.query.text"] = " ".join(arguments[0].split())
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                if isinstance(error, ServiceUnavailable) or not isinstance(error, DomainError):
                    _fail(span, type(error).__name__)
                raise


class _InContext(Coroutine[Any, Any, Answer | None]):
    """A coroutine in a context of its own: it begins outside of a task, between those of other requests."""

    def __init__(self, work: Coroutine[Any, Any, Answer | None], context: contextvars.Context) -> None:
        self._work = work
        self._context = context

    def send(self, value: Any) -> Any:
        return self._context.run(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._context.run(self._work.throw, *error)

    def close(self) -> None:
        self._context.run(self._work.close)

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.send(None)


async def _finish(span: Span, work: Coroutine[Any, Any, Answer | None]) -> Answer | None:
    """The answer; it ends the span."""
    try:
        answer = await work
    except Exception as error:
        _fail(span, type(error).__name__)
        raise
    else:
        if answer is not None:
            status = answer[0].status
            span.set_attribute("http.response.status_code", status)
            request_id = answer[1].rpartition(b"X-Request-Id: ")[2].strip().decode("ascii")
            span.set_attribute("http.response.header.x-request-id", [request_id])
            if status >= _SERVER_ERROR:
                _fail(span, str(status))
        return answer
    finally:
        span.end()


def _parent(request: Request) -> otel_context.Context:
    """The context that the request's headers name; an empty one without a trace that the log would show too."""
    if parse_traceparent(request.headers.get(b"traceparent")) is None:  # OpenTelemetry also takes some repeated ones
        return otel_context.Context()
    names = ("traceparent", "tracestate")
    carrier = {name: request.headers.get(name.encode(), b"").decode("latin-1") for name in names}
    return _propagator.extract(carrier, otel_context.Context())


def _describe(span: Span, name: str, request: Request, routes: Routes, client_address: ClientAddress) -> None:
    """Set what the conventions of HTTP say of a request. The query may hold a secret, so it is left out."""
    route = routes.find(request.path).route
    attributes = {
        "http.request.method": _OTHER if name == _OTHER_NAME else request.method,
        "url.path": shown_path(request.path),
        "url.scheme": "http",
        "network.protocol.version": "1.0" if request.http_1_0 else "1.1",
        "client.address": client_address(request.peer, request.headers),
    }
    if name == _OTHER_NAME:
        attributes["http.request.method_original"] = request.method
    if route is not None:
        attributes["http.route"] = route.template
        span.update_name(f"{name} {route.template}")
    span.set_attributes(attributes)


def _fail(span: Span, kind: str) -> None:
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", kind)
