"""The trace that a request names in `traceparent`: in the log, the access log and the audit log (W3C Trace Context)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.api.trace_context import TraceContext, parse_traceparent
from petstore_server.domain.accounts import suspend
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Order
from testing import wire
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.service import Service, bearer, running

ORDERS = "/v2/store/orders"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
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
