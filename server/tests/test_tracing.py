"""Spans of requests, as a collector receives them over OTLP/HTTP: their parents, children and attributes."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from petstore_server.runtime import backend
from petstore_server.settings import SettingsError, read_settings
from testing.deployment import Deployment
from testing.process import UNLIMITED, new_key, put_orders, serving, serving_as
from testing.redis_engine import wait_for_redis
from testing.subprocesses import PATIENCE, busy, within

ORDERS = "/v2/store/orders"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER, CLIENT = 2, 3  # kinds of spans


class Collector:
    """An OTLP receiver on a port of this host; `spans` are all that it has received."""

    def __init__(self) -> None:
        self.resource: dict[str, Any] = {}
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert "/v1/traces" == self.path
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for received in ExportTraceServiceRequest.FromString(body).resource_spans:
                    collector.resource = attributes(received.resource)
                    collector.spans += [span for scope in received.scope_spans for span in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def of(self, trace: str) -> list[Any]:
        return [span for span in self.spans if span.trace_id.hex() == trace]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def attributes(part: Any) -> dict[str, Any]:
    """The attributes of a span or a resource, as texts and numbers."""
    read = {}
    for each in part.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        read[each.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return read


def sent(trace: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{PARENT}-{flags}"}


@pytest.mark.usefixtures("each_deployment")
def test_a_sampled_request_has_a_span_with_children_for_the_store_and_redis(
    each_deployment: Deployment, collector: Collector
) -> None:
    put_orders(each_deployment, 3)
    key, _ = new_key(each_deployment)
    traces = [f"{number:032x}" for number in range(1, 5)]
    with serving(each_deployment, **collector.environ) as server, server.client(key) as client:
        assert 200 == client.get(f"{ORDERS}?limit=1", headers=sent(traces[0])).status_code
        cancelled = client.delete(f"{ORDERS}/2", headers=sent(traces[1]))
        assert 204 == cancelled.status_code
        assert 404 == client.get(f"{ORDERS}/99", headers=sent(traces[2])).status_code
        assert 200 == client.get(ORDERS, headers=sent(traces[3], "00")).status_code
        assert 200 == client.get("/healthz", headers=sent(traces[3])).status_code
        assert 0 == server.stop()  # which sends the rest
    assert {
        "service.name": "petstore",
        "deployment.environment.name": "production",
    }.items() <= collector.resource.items()
    assert [] == collector.of(traces[3])
    redis = "PETSTORE_REDIS_URL" in each_deployment.engines
    database = "postgresql" if redis else "sqlite"
    for trace, name, status in (
        (traces[0], f"GET {ORDERS}", 200),
        (traces[1], f"DELETE {ORDERS}/{{orderId}}", 204),
        (traces[2], f"GET {ORDERS}/{{orderId}}", 404),
    ):
        [request] = [span for span in collector.of(trace) if span.kind == SERVER]
        children = [span for span in collector.of(trace) if span.kind == CLIENT]
        assert (name, PARENT, status) == (
            request.name,
            request.parent_span_id.hex(),
            attributes(request)["http.response.status_code"],
        )
        assert 0 == request.status.code  # not an error of the service, also where it is one of the client
        assert children
        systems = {attributes(child)["db.system.name"] for child in children}
        assert systems == ({database, "redis"} if redis else {database})
        for child in children:
            assert request.start_time_unix_nano <= child.start_time_unix_nano
            assert child.end_time_unix_nano <= request.end_time_unix_nano
    of_cancel = collector.of(traces[1])
    assert "store.submit" in {span.name for span in of_cancel}
    [request] = [span for span in of_cancel if span.kind == SERVER]
    shown = attributes(request)
    assert cancelled.headers["x-request-id"] == shown["http.response.header.x-request-id"][0]
    assert (f"{ORDERS}/2", f"{ORDERS}/{{orderId}}", "127.0.0.1", "1.1") == (
        shown["url.path"],
        shown["http.route"],
        shown["client.address"],
        shown["network.protocol.version"],
    )


@pytest.mark.usefixtures("each_deployment")
def test_spans_of_requests_at_the_same_time_do_not_mix_and_hold_no_key(
    each_deployment: Deployment, collector: Collector
) -> None:
    put_orders(each_deployment, 50)
    key, _ = new_key(each_deployment, plan=UNLIMITED)
    numbers = range(1, 41)

    with serving_as(each_deployment, [], collector.environ, wait_for_redis) as server:

        def ask(number: int) -> None:
            with server.client(key) as client:
                assert 204 == client.delete(f"{ORDERS}/{number}", headers=sent(f"{number:032x}")).status_code
                assert 200 == client.get(ORDERS, headers=sent(f"{number + 100:032x}")).status_code
                assert 404 == client.get(f"/v1/{key}", headers=sent(f"{number + 200:032x}")).status_code

        threads = [threading.Thread(target=ask, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0 == server.stop()
    requests = {span.span_id: span for span in collector.spans if span.kind == SERVER}
    by_trace = [span.trace_id.hex() for span in requests.values()]
    expected = [f"{number + more:032x}" for more in (0, 100, 200) for number in numbers]
    assert sorted(expected) == sorted(by_trace)
    spans = {span.span_id: span for span in collector.spans}
    for span in collector.spans:
        if span.kind != SERVER:
            assert span.trace_id == spans[span.parent_span_id].trace_id
    for number in numbers:
        [request] = [span for span in requests.values() if span.trace_id.hex() == f"{number:032x}"]
        assert f"{ORDERS}/{number}" == attributes(request)["url.path"]
        assert "store.submit" in [span.name for span in collector.of(f"{number:032x}")]
    assert key.encode() not in b"".join(span.SerializeToString() for span in collector.spans)


def test_a_request_without_a_trace_begins_one_as_the_sampler_decides(tmp_path: Path, collector: Collector) -> None:
    key, _ = new_key(tmp_path / "store.db")
    for sampler, number in (("parentbased_always_on", 3), ("parentbased_always_off", 0)):
        collector.spans.clear()
        with serving(tmp_path / "store.db", OTEL_TRACES_SAMPLER=sampler, **collector.environ) as server:
            with server.client(key) as client:
                for _ in range(3):
                    client.get(ORDERS)
            assert 0 == server.stop()
        requests = [span for span in collector.spans if span.kind == SERVER]
        assert (number, number) == (len(requests), len({span.trace_id for span in requests}))
        assert not [span for span in requests if span.parent_span_id]


def test_a_503_is_an_error_in_its_span(tmp_path: Path, collector: Collector) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store)
    with serving(store, **collector.environ) as server, server.client(key) as client:
        assert 200 == client.get(ORDERS).status_code
        store.rename(tmp_path / "moved.db")
        assert 503 == client.delete(f"{ORDERS}/1", headers=sent(TRACE)).status_code
        (tmp_path / "moved.db").rename(store)
        server.stop()
    [request] = [span for span in collector.of(TRACE) if span.kind == SERVER]
    assert (2, "503") == (request.status.code, attributes(request)["error.type"])
    assert [2] == [span.status.code for span in collector.of(TRACE) if span.name == "store.submit"]


@contextmanager
def silent_port() -> Iterator[str]:
    """The address of something that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_collector_that_does_not_respond_delays_neither_requests_nor_the_stop(tmp_path: Path) -> None:
    key, _ = new_key(tmp_path / "store.db")
    with silent_port() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "10"}
        with serving(tmp_path / "store.db", **environ) as server, server.client(key) as client:
            for _ in range(20):
                assert 200 == client.get(ORDERS).status_code
            began = time.monotonic()
            assert 0 == server.stop()
            assert time.monotonic() - began < 4 + busy()
    within(PATIENCE, lambda: '"event":"stopped"' in server.log.read_text())


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_there_are_no_spans_unless_the_endpoint_is_set(environ: dict[str, str]) -> None:
    assert backend.tracing(environ, read_settings({})) is None


def test_another_protocol_and_a_missing_extra_are_errors_that_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"):
        backend.tracing({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, read_settings({}))

    def find(name: str, *more: Sequence[str]) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return find_spec(name)

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT is set, .*requirements/otel\.lock$"):
        backend.tracing(endpoint, read_settings({}))
