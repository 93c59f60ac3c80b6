"""Traces: spans as a collector gets them (OTLP), and `traceparent` in the logs and the audit log."""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from petstore_server.api.trace_context import TraceContext, parse_traceparent
from petstore_server.domain.accounts import suspend
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Order
from petstore_server.runtime import backend
from petstore_server.settings import SettingsError, read_settings
from testing import wire
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.process import UNLIMITED, exchange, new_key, put_orders, serving, serving_as
from testing.redis_engine import wait_for_redis
from testing.service import Service, bearer, running
from testing.subprocesses import PATIENCE, busy, within
from testing.threaded_receiver import ThreadedReceiver, receiving

ORDERS = "/v2/store/orders"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER, CLIENT = 2, 3  # kinds of spans


class Collector:
    """What an OTLP receiver on a port of this host has received."""

    def __init__(self, receiver: ThreadedReceiver) -> None:
        self.receiver = receiver
        self.environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url.removesuffix("/hook"),
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def resources(self) -> list[Any]:
        """The spans of each process, and its attributes."""
        assert {"/v1/traces"} >= {each.target for each in self.receiver.received}
        requests = [ExportTraceServiceRequest.FromString(each.body) for each in self.receiver.received]
        return [resource for request in requests for resource in request.resource_spans]

    @property
    def spans(self) -> list[Any]:
        return [span for resource in self.resources() for scope in resource.scope_spans for span in scope.spans]

    def of(self, trace: str) -> list[Any]:
        return [span for span in self.spans if span.trace_id.hex() == trace]

    def request(self, trace: str) -> Any:
        """The span of the one request of a trace."""
        [found] = [span for span in self.of(trace) if span.kind == SERVER]
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    with receiving() as receiver:
        yield Collector(receiver)


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
    of_process = {"service.name": "petstore", "deployment.environment.name": "production"}
    assert of_process.items() <= attributes(collector.resources()[0].resource).items()
    assert [] == collector.of(traces[3])
    redis = "PETSTORE_REDIS_URL" in each_deployment.engines
    database = "postgresql" if redis else "sqlite"
    for trace, name, status in (
        (traces[0], f"GET {ORDERS}", 200),
        (traces[1], f"DELETE {ORDERS}/{{orderId}}", 204),
        (traces[2], f"GET {ORDERS}/{{orderId}}", 404),
    ):
        request = collector.request(trace)
        children = [span for span in collector.of(trace) if span.kind == CLIENT]
        assert (name, PARENT) == (request.name, request.parent_span_id.hex())
        assert status == attributes(request)["http.response.status_code"]
        assert 0 == request.status.code  # not an error of the service, also where it is one of the client
        assert children
        systems = {attributes(child)["db.system.name"] for child in children}
        assert systems == ({database, "redis"} if redis else {database})
        for child in children:
            assert request.start_time_unix_nano <= child.start_time_unix_nano
            assert child.end_time_unix_nano <= request.end_time_unix_nano
    assert "store.submit" in {span.name for span in collector.of(traces[1])}
    expected = {
        "url.path": f"{ORDERS}/2",
        "http.route": f"{ORDERS}/{{orderId}}",
        "http.response.header.x-request-id": [cancelled.headers["x-request-id"]],
        "client.address": "127.0.0.1",
        "network.protocol.version": "1.1",
    }
    assert expected.items() <= attributes(collector.request(traces[1])).items()


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

        with ThreadPoolExecutor(8) as threads:  # of more, a busy machine would refuse some with 503
            assert len(numbers) == len([*threads.map(ask, numbers)])
        assert 0 == server.stop()
    spans = {span.span_id: span for span in collector.spans}
    expected = [f"{number + more:032x}" for more in (0, 100, 200) for number in numbers]
    assert sorted(expected) == sorted(span.trace_id.hex() for span in spans.values() if span.kind == SERVER)
    for span in spans.values():
        if span.kind != SERVER:
            assert span.trace_id == spans[span.parent_span_id].trace_id
    for number in numbers:
        assert f"{ORDERS}/{number}" == attributes(collector.request(f"{number:032x}"))["url.path"]
        assert "store.submit" in [span.name for span in collector.of(f"{number:032x}")]
    assert key.encode() not in b"".join(span.SerializeToString() for span in collector.spans)


def test_a_request_without_a_trace_begins_one_as_the_sampler_decides(tmp_path: Path, collector: Collector) -> None:
    key, _ = new_key(tmp_path / "store.db")
    for sampler, number in (("parentbased_always_on", 3), ("parentbased_always_off", 0)):
        collector.receiver.received.clear()
        with serving(tmp_path / "store.db", OTEL_TRACES_SAMPLER=sampler, **collector.environ) as server:
            with server.client(key) as client:
                for _ in range(3):
                    client.get(ORDERS)
            assert 0 == server.stop()
        requests = [span for span in collector.spans if span.kind == SERVER]
        assert (number, number) == (len(requests), len({span.trace_id for span in requests}))
        assert not [span for span in requests if span.parent_span_id]


def test_a_repeated_traceparent_is_ignored_by_spans_as_by_the_log(tmp_path: Path, collector: Collector) -> None:
    key, _ = new_key(tmp_path / "store.db")
    later = f"traceparent: 01-{TRACE}-{PARENT}-01-more"
    with serving(tmp_path / "store.db", **collector.environ) as server:
        with server.connect() as connection:
            exchange(connection, wire.head("GET", ORDERS, "Connection: close", later, later, key=key))
        assert 0 == server.stop()
    [span] = [span for span in collector.spans if span.kind == SERVER]
    assert (b"", True) == (span.parent_span_id, span.trace_id.hex() != TRACE)


def test_a_method_that_the_conventions_do_not_know_is_not_in_the_name_of_a_span(
    tmp_path: Path, collector: Collector
) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store)
    with serving(store, **collector.environ) as server, server.client(key) as client:
        for path in (ORDERS, "/v1/none"):
            for method in ("BREW", "OPTIONS"):
                client.request(method, path)
        assert 0 == server.stop()
    spans = [span for span in collector.spans if span.kind == SERVER]
    names = ("http.request.method", "http.request.method_original")
    assert [
        (f"HTTP {ORDERS}", ["_OTHER", "BREW"]),
        (f"OPTIONS {ORDERS}", ["OPTIONS", None]),
        ("HTTP", ["_OTHER", "BREW"]),
        ("OPTIONS", ["OPTIONS", None]),
    ] == [(span.name, [attributes(span).get(name) for name in names]) for span in spans]


def test_a_503_is_an_error_in_its_span(tmp_path: Path, collector: Collector) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store)
    with serving(store, **collector.environ) as server, server.client(key) as client:
        assert 200 == client.get(ORDERS).status_code
        store.rename(tmp_path / "moved.db")
        assert 503 == client.delete(f"{ORDERS}/1", headers=sent(TRACE)).status_code
        (tmp_path / "moved.db").rename(store)
        server.stop()
    request = collector.request(TRACE)
    assert (2, "503") == (request.status.code, attributes(request)["error.type"])
    assert [2] == [span.status.code for span in collector.of(TRACE) if span.name == "store.submit"]


def test_a_collector_that_does_not_respond_delays_neither_requests_nor_the_stop(tmp_path: Path) -> None:
    key, _ = new_key(tmp_path / "store.db")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
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


@pytest.mark.parametrize("headers", ["Bearer s3cr3t", "Authorization: Bearer s3cr3t==", "a=b,s3cr3t", 'a="s3cr3t"'])
def test_headers_for_the_collector_that_are_malformed_are_an_error_that_does_not_show_them(headers: str) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        with pytest.raises(SettingsError, match=f"^{name} must be NAME=VALUE") as caught:
            backend.tracing({**endpoint, name: headers}, read_settings({}))
        assert "s3cr3t" not in str(caught.value)
        assert backend.wants_tracing({**endpoint, name: "Authorization=Bearer s3cr3t==, b=c%2Cd,"})


def test_what_opentelemetry_does_not_take_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(SettingsError, match=r"^OpenTelemetry does not take .*: max_export_batch_size must be"):
        backend.tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, read_settings({}))


def test_another_protocol_and_a_missing_extra_are_errors_that_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"):
        backend.tracing({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, read_settings({}))
    assert backend.wants_tracing({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": ""})  # as if it were not set

    def find(name: str, *more: Sequence[str]) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return find_spec(name)

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT is set, .*requirements/otel\.lock$"):
        backend.tracing(endpoint, read_settings({}))


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
@pytest.mark.parametrize("url", ["collector:4318", "grpc://collector:4317", "http://", "http:///v1/traces"])
def test_an_endpoint_other_than_an_http_url_is_an_error(name: str, url: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} must be an http:// or https:// URL\.$"):
        backend.wants_tracing({name: url})


SENT = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    "value",
    [
        SENT,
        f"00-{TRACE}-{PARENT}-00",
        f"00-{TRACE}-{PARENT}-ff",
        f"cc-{TRACE}-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01-what-the-future-will-be-like",
        f"01-{TRACE}-{PARENT}-01-",
    ],
)
def test_a_valid_traceparent_names_a_trace_and_the_callers_span(value: str) -> None:
    assert TraceContext(TRACE, PARENT) == parse_traceparent(value.encode())


INVALID = [
    "",
    f"ff-{TRACE}-{PARENT}-01",
    f"00-{TRACE}-{PARENT}-01-more",
    f"00-{TRACE}-{PARENT}-01-",
    f"01-{TRACE}-{PARENT}-01more",
    f"00-{TRACE}-{PARENT}-1",
    f"00-{TRACE}-{PARENT}",
    f"00-{TRACE.upper()}-{PARENT}-01",
    f"00-{'0' * 32}-{PARENT}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"0-{TRACE}-{PARENT}-01",
    f"00-{TRACE[1:]}-{PARENT}-01",
    f"00_{TRACE}_{PARENT}_01",
    f" {SENT}",
    f"{SENT}, {SENT}",
    f"01-{TRACE}-{PARENT}-01-more, {SENT}",
]


@pytest.mark.parametrize("value", INVALID)
def test_an_invalid_traceparent_is_ignored(value: str) -> None:
    assert parse_traceparent(value.encode()) is None
    assert parse_traceparent(None) is None


@given(st.binary(max_size=80) | st.from_regex(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"))
def test_what_is_used_of_any_bytes_are_hexadecimal_digits(value: bytes) -> None:
    trace = parse_traceparent(value)
    if trace is not None:
        assert (32, 16) == (len(bytes.fromhex(trace.trace_id)) * 2, len(bytes.fromhex(trace.parent_id)) * 2)


async def test_each_line_about_a_request_has_its_trace(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(deployment, PETSTORE_ACCESS_LOG="all") as service:
        account = await service.account()
        key, refused = await service.key(), await service.key(account)
        await service.backend.store.accounts.change(account, suspend(service.actor.at), service.actor)
        for text in (key, refused):
            await service.client.get(ORDERS, headers=bearer(text, traceparent=SENT))

        async def unavailable(*_: object) -> Any:
            raise ServiceUnavailable("no disk")

        monkeypatch.setattr(service.backend.store.search, "page", unavailable)
        await service.client.get(ORDERS, headers=bearer(key, traceparent=SENT))
        await service.client.get(ORDERS, headers=bearer(key, traceparent="none"))
        repeated = ["Connection: close", f"traceparent: {SENT}", f"traceparent: {SENT}"]
        await wire.send(service.transport.port, wire.head("GET", ORDERS, *repeated))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    of = [(line["event"], line.get("trace_id"), line.get("parent_id")) for line in lines if "request_id" in line]
    assert [
        ("request answered", TRACE, PARENT),
        ("key refused", TRACE, PARENT),
        ("request answered", TRACE, PARENT),
        ("store unavailable", TRACE, PARENT),
        ("request answered", TRACE, PARENT),
        ("store unavailable", None, None),
        ("request answered", None, None),
        ("request answered", None, None),
    ] == of
    assert all(("trace_id" in line) == ("parent_id" in line) for line in lines)


@pytest.mark.usefixtures("each_deployment")
async def test_the_audit_entry_of_a_change_has_the_trace_of_the_request(service: Service) -> None:
    await service.orders(Order(1), Order(2))
    key = await service.key(scopes=DEFAULT_SCOPES | {Scope.ORDERS_WRITE})
    traced = bearer(key, traceparent=SENT, **{"X-Request-Id": "mine"})
    assert 204 == (await service.client.delete(f"{ORDERS}/1", headers=traced)).status_code
    assert 204 == (await service.client.delete(f"{ORDERS}/2", headers=bearer(key))).status_code
    placing = {**traced, "Idempotency-Key": "one"}
    placed = await service.client.post(ORDERS, headers=placing, json={"petId": 1, "quantity": 1})
    assert 201 == placed.status_code
    entries = {entry.subject: entry async for entry in service.backend.store.audit.entries()}
    assert (TRACE, "mine") == (entries["order:1"].trace_id, entries["order:1"].request_id)
    assert entries["order:2"].trace_id is None
    by_placing = entries[f"order:{placed.json()['id']}"]
    assert (TRACE, "mine") == (by_placing.trace_id, by_placing.request_id)
    for entry in entries.values():
        assert "trace_id" not in (entry.after or {})


async def test_commands_show_the_trace_of_a_change(deployment: Deployment) -> None:
    async with running(deployment) as service:
        await service.orders(Order(1))
        headers = bearer(await service.key(), traceparent=SENT)
        assert 204 == (await service.client.delete(f"{ORDERS}/1", headers=headers)).status_code
    cli = CommandLine(deployment)
    [line] = cli.must("audit", "--action", "order.cancel", "--json").out.splitlines()
    assert TRACE == json.loads(line)["traceId"]
    assert f"trace {TRACE}" in " ".join(cli.must("audit", "--action", "order.cancel").out.split())
    created = cli.must("audit", "--action", "account.create", "--json").out
    assert "traceId" not in created
