"""The access log: what a line says for every outcome, which responses have one, and that no key reaches it."""

import asyncio
import json
from typing import Any

import pytest

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order, Status
from testing import wire
from testing.deployment import Deployment
from testing.service import Service, bearer, running

V1, V2 = "/v1/store/orders", "/v2/store/orders"

OF_EVERY_LINE = {"event", "level", "timestamp", "pid"}

Line = dict[str, Any]


def access_lines(capsys: pytest.CaptureFixture[str]) -> list[Line]:
    """The lines of the access log."""
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [line for line in lines if line["event"] == "request answered"]


async def exchange_all(service: Service) -> None:
    """One request for each outcome."""
    await service.orders(Order(1), Order(2, status=Status.SHIPPED))
    get, delete = service.client.get, service.client.delete
    key = bearer(await service.key())
    listed = await get(V1, headers={**key, "X-Request-Id": "mine", "Accept-Encoding": "identity"})
    held = {"If-None-Match": listed.headers["etag"], "Accept-Encoding": "identity"}
    await get(V1, headers={**key, **held})
    await service.client.head(V1, headers=key)
    await delete(f"{V1}/1", headers=key)
    await delete(f"{V1}/2", headers=key)
    await delete(f"{V1}/3", headers=key)
    await get(V1)
    await service.client.post(V1, headers=key)
    await delete(f"{V1}/1", headers=bearer(await service.key(scopes=frozenset({Scope.ORDERS_READ}))))
    await get(f"{V2}?limit=1", headers=key)
    await get(f"{V2}?limit=0", headers=key)
    await get("/openapi.json", headers={"If-None-Match": "*"})
    limited = bearer(await service.key(await service.account(Plan.ENTERPRISE, Limits(1, 10))))
    for _ in range(2):
        await get(V1, headers=limited)
    service.clock.now += 3
    for _ in range(20):
        await get(V1, headers=limited)
    await wire.send(service.transport.port, b"GARBAGE\r\n\r\n")


EXPECTED = [
    ("GET", V1, 200, None, "listOrders"),
    ("GET", V1, 304, None, "listOrders"),
    ("HEAD", V1, 200, None, "listOrders"),
    ("DELETE", f"{V1}/1", 204, None, "cancelOrder"),
    ("DELETE", f"{V1}/2", 409, "order_already_shipped", "cancelOrder"),
    ("DELETE", f"{V1}/3", 404, "order_not_found", "cancelOrder"),
    ("GET", V1, 401, "missing_api_key", "none"),
    ("POST", V1, 405, "method_not_allowed", "none"),
    ("DELETE", f"{V1}/1", 403, "insufficient_scope", "cancelOrder"),
    ("GET", V2, 200, None, "v2.listOrders"),
    ("GET", V2, 400, "invalid_parameter", "v2.listOrders"),
    ("GET", "/openapi.json", 304, None, "none"),
    ("GET", V1, 200, None, "listOrders"),
    *[("GET", V1, 429, "rate_limit_exceeded", "listOrders")] * 20,
    ("GET", V1, 429, "api_key_banned", "listOrders"),
    (None, None, 400, "bad_request", "none"),
]


def outcomes(lines: list[Line]) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in ("method", "path", "status", "code", "operation")) for line in lines]


async def test_every_outcome_has_a_line(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(deployment, PETSTORE_ACCESS_LOG="all") as service:
        await exchange_all(service)
    lines = access_lines(capsys)
    assert EXPECTED == outcomes(lines)
    assert {"info"} == {line["level"] for line in lines}
    assert {"127.0.0.1"} == {line["address"] for line in lines}
    assert {True} == {OF_EVERY_LINE <= line.keys() for line in lines}
    first = lines[0]
    assert ("mine", "account 1") == (first["request_id"], first["account"])
    assert first["key"].startswith("key_")
    assert 0 <= first["duration_seconds"] < 60
    assert len(b'[{"id":1},{"id":2}]') == first["bytes"]
    assert [0, 0, 0] == [line["bytes"] for line in lines[1:4]]
    assert lines[4]["bytes"] > 0
    without_key = lines[6]
    assert (None, None) == (without_key["account"], without_key["key"])
    refused = [line for line in lines if line["status"] == 429]
    assert {("account 3", True)} == {(line["account"], line["key"].startswith("key_")) for line in refused}
    assert ("rrrrrr-", None) == (lines[-1]["request_id"][:7], lines[-1]["duration_seconds"])


@pytest.mark.parametrize(
    ("settings", "lowest"),
    [
        ({}, 1000),
        ({"PETSTORE_ACCESS_LOG": "all", "PETSTORE_LOG_LEVEL": "warning"}, 1000),
        ({"PETSTORE_ACCESS_LOG": "errors"}, 400),
        ({"PETSTORE_ACCESS_LOG": "errors", "PETSTORE_LOG_LEVEL": "debug"}, 0),
    ],
)
async def test_settings_decide_from_which_status_on_responses_have_a_line(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], settings: dict[str, str], lowest: int
) -> None:
    async with running(deployment, **settings) as service:
        await exchange_all(service)
    lines = access_lines(capsys)
    assert [outcome for outcome in EXPECTED if outcome[2] >= lowest] == outcomes(lines)
    assert {(True, "info"), (False, "debug")} >= {(line["status"] >= 400, line["level"]) for line in lines}


async def test_a_connection_over_the_maximum_has_a_line(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(deployment, PETSTORE_ACCESS_LOG="errors", PETSTORE_MAX_CONNECTIONS="1") as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.transport.port)
        assert b" 503 " in await wire.send(service.transport.port, b"")
        writer.close()
    assert [(None, None, 503, "service_unavailable", "none")] == outcomes(access_lines(capsys))


async def test_a_line_has_no_query_and_no_key_and_shows_other_characters_as_escapes(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(deployment, PETSTORE_ACCESS_LOG="all") as service:
        key = await service.key()
        encoded = key.replace("_", "%5F").replace("e", "%65")
        for target in (
            f"{V1}?token=secret&{key}",
            f"/v1/{key}",
            f"/v1/{encoded}",
            r"/v1/a\b",
            "/v1/%1b[2J",
            f"/v1/%1b%e9{key}",
            f"/v1/pso_live_{key}",
            f"/v1/{key[:20]}%2520%22/-{key[20:]}".replace("pso_", "PSO%25255F"),
            "/" + "x" * 5000,
        ):
            request = wire.head("GET", target, f"X-Request-Id: {key}", "Connection: close")
            await wire.send(service.transport.port, request)
    logged = capsys.readouterr().err
    assert key not in logged
    assert key[9:] not in logged
    assert "secret" not in logged
    *paths, long = [json.loads(line)["path"] for line in logged.splitlines() if "request answered" in line]
    hidden = "/v1/pso_live_[hidden]"
    escaped = r"/v1/\x1b\xe9pso_live_[hidden]"
    assert [V1, hidden, hidden, r"/v1/a\x5cb", "/v1/%1b[2J", escaped, hidden, hidden] == paths
    assert "/" + "x" * 511 + "…" == long


async def test_the_address_is_the_one_that_is_counted(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(deployment, PETSTORE_ACCESS_LOG="all", PETSTORE_TRUSTED_PROXIES="127.0.0.1") as service:
        for header in ("203.0.113.7", "198.51.100.1, 2001:db8:1:2::3"):
            await service.client.get(V1, headers={"X-Forwarded-For": header})
    assert ["203.0.113.7", "2001:db8:1:2::/64"] == [line["address"] for line in access_lines(capsys)]
