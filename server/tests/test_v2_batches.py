"""Batches of the shop's operations over HTTP: each operation has its own outcome (D22)."""

import io
import json
from typing import Any

import httpx2
import pytest

from petstore_server.api.v2.bodies import MAX_BATCH_BYTES, MAX_OPERATIONS, MEMBERS
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order, Status
from petstore_server.store import orders as stored_orders
from petstore_server.telemetry.logs import configure_logging
from testing.damage import Refusal, refuse
from testing.partners import ORDERS, partner
from testing.service import Service, code, embedded
from testing.stores import all_orders, log

ALL = VisibleOrders.ALL
BATCH = f"{ORDERS}/batch"
JSON = {"Content-Type": "application/json"}

pytestmark = pytest.mark.usefixtures("each_deployment")


def operation(kind: str, order_id: Any, **more: Any) -> dict[str, Any]:
    return {"operation": kind, "orderId": order_id, **more}


def outcome(result: dict[str, Any]) -> tuple[int, str]:
    """The status of a result, and its code, or the status of its order."""
    return result["status"], result.get("code") or result.get("order", {}).get("status", "")


async def statuses(service: Service) -> dict[int, Status]:
    return {order.id: order.status for order in await all_orders(service.backend.store)}


async def test_operations_on_one_order_are_carried_out_in_their_sequence(service: Service) -> None:
    client = await partner(service, ALL)
    results = await client.results(
        operation("ship", 7),
        operation("put", 7, order={"petId": 1, "reference": "R"}),
        operation("update", 7, changes={"reference": None}),
        operation("ship", 7),
        operation("ship", 7),
        operation("complete", 7),
        operation("update", 7, changes={"complete": None}),
        operation("complete", 7),
        operation("cancel", 7),
        operation("put", 7, order={}),
    )
    assert [
        (404, "order_not_found"),
        (201, "pending"),
        (200, "pending"),
        (200, "shipped"),
        (409, "order_already_shipped"),
        (200, "shipped"),
        (200, "shipped"),
        (200, "shipped"),
        (409, "order_already_shipped"),
        (409, "order_already_shipped"),
    ] == [outcome(result) for result in results]
    times = [result["order"]["updatedAt"] for result in results if "order" in result]
    assert sorted(set(times)) == times
    actions = [entry.action for entry in await log(service.backend.store) if entry.subject == "order:7"]
    expected = ["put", "update", "ship", "complete", "update", "complete"]
    assert [f"order.{action}" for action in expected] == actions


async def test_an_operation_that_is_not_implemented_is_an_internal_error_and_changes_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEMBERS, "hold", "")
    await service.orders(Order(1))
    client = await partner(service, ALL)
    assert [(500, "internal_error")] == [outcome(result) for result in await client.results(operation("hold", 1))]
    assert {1: Status.PENDING} == await statuses(service)


MALFORMED: list[Any] = [
    None,
    {},
    {"operation": ["ship"], "orderId": 1},
    {"operation": "Ship", "orderId": 1},
    {"orderId": 1},
    *[operation("ship", value) for value in ("1", 1.0, True, None, 2**63)],
    operation("ship", 1, order={}),
    operation("ship", 1, shipDate="today"),
    operation("ship", 1, ifMatch="old"),
    operation("ship", 1, ifNoneMatch="*"),
    operation("complete", 1, shipDate=None),
    operation("cancel", 1, changes={}),
    operation("put", 1),
    operation("put", 1, order=[]),
    operation("put", 1, order={"id": 1}),
    operation("put", 1, order={"account": "\ud800"}),
    operation("put", 1, order={}, ifNoneMatch='"a"'),
    operation("update", 1),
    operation("update", 1, changes={"status": "shipped"}),
    operation("update", 1, changes={"reference": "\ud800"}),
]


@embedded
async def test_a_malformed_operation_is_its_own_refusal(service: Service) -> None:
    client = await partner(service, ALL)
    await service.orders(Order(1), Order(2))
    body = json.dumps({"operations": [*MALFORMED, operation("ship", 2)]})
    results = (await client.send("POST", BATCH, content=body, headers=JSON)).json()["results"]
    assert [(400, "invalid_body")] * len(MALFORMED) + [(200, "shipped")] == [outcome(each) for each in results]
    assert all(len(each["message"]) < 300 for each in results[:-1])
    assert {1: Status.PENDING, 2: Status.SHIPPED} == await statuses(service)
    only = await client.results({"operation": "lose"})
    assert [(400, "invalid_body")] == [outcome(each) for each in only]


@embedded
async def test_a_malformed_body_is_one_refusal_for_all(service: Service) -> None:
    client = await partner(service, ALL)
    await service.orders(Order(1))
    good = json.dumps(operation("ship", 1))
    for body in (
        "{}",
        f"[{good}]",
        '{"operations":{}}',
        '{"operations":[]}',
        f'{{"operations":[{good}],"more":1}}',
        f'{{"operations":[{good}],"operations":[{good}]}}',
        f'{{"operations":[{good}, {{"operation":"ship","operation":"ship","orderId":1}}]}}',
        f'{{"operations":[{good}, NaN]}}',
    ):
        refused = await client.send("POST", BATCH, content=body, headers=JSON)
        assert (400, "invalid_body") == code(refused), body
    assert (400, "invalid_parameter") == code(await client.send("POST", f"{BATCH}?wait=1", content=good, headers=JSON))
    refused = await client.send("POST", BATCH, content=good, headers={"Content-Type": "text/plain"})
    assert (415, "unsupported_media_type") == code(refused)
    assert {1: Status.PENDING} == await statuses(service)


async def test_a_batch_has_500_operations_at_most(service: Service) -> None:
    client = await partner(service, ALL)
    await service.orders(*(Order(number) for number in range(MAX_OPERATIONS + 1)))
    operations = [operation("ship", number) for number in range(MAX_OPERATIONS + 1)]
    refused = await client.batch(*operations)
    assert (400, "invalid_body") == code(refused)
    assert "The body has 501 operations; send 1 to 500 in a batch." == refused.json()["message"]
    assert {Status.PENDING} == set((await statuses(service)).values())
    used = int((await client.get(ORDERS, limit=1)).headers["x-ratelimit-remaining"])
    response = await client.batch(*operations[1:])
    assert used - 1 == int(response.headers["x-ratelimit-remaining"])  # it is charged as one request
    assert ("no-store", [(200, "shipped")] * MAX_OPERATIONS) == (
        response.headers["cache-control"],
        [outcome(each) for each in response.json()["results"]],
    )
    assert [*range(1, MAX_OPERATIONS + 1)] == [each["order"]["id"] for each in response.json()["results"]]
    assert {0: Status.PENDING} == {k: v for k, v in (await statuses(service)).items() if v is Status.PENDING}


@embedded
async def test_a_batch_has_256_kib_at_most_and_other_bodies_64(service: Service) -> None:
    client = await partner(service, ALL)

    async def send(path: str, size: int) -> httpx2.Response:
        body = json.dumps({"operations": [operation("ship", 1)]}).encode().ljust(size)
        return await client.send("POST", path, content=body, headers=JSON)

    assert 404 == (await send(BATCH, MAX_BATCH_BYTES)).json()["results"][0]["status"]
    for path, size, limit in ((BATCH, MAX_BATCH_BYTES + 1, "256 KiB"), (f"{ORDERS}/1/ship", 64 * 1024 + 1, "64 KiB")):
        refused = await send(path, size)
        assert (413, True) == (refused.status_code, limit in refused.json()["message"])
    assert 400 == (await send(f"{ORDERS}/1/ship", 64 * 1024)).status_code
    assert 413 == (await send(f"{ORDERS}/batch/ship", 64 * 1024 + 1)).status_code


async def test_a_batch_needs_the_scope_of_a_cancel_for_cancels_only(service: Service) -> None:
    client = await partner(service, ALL, frozenset({Scope.ORDERS_MANAGE}))
    await service.orders(Order(1), Order(2))
    cancel, ship = await client.results(operation("cancel", 1), operation("ship", 2))
    assert [(403, "insufficient_scope"), (200, "shipped")] == [outcome(cancel), outcome(ship)]
    assert "orders:cancel" in cancel["message"]
    [missing] = await client.results(operation("cancel", 99))
    assert {**missing, "message": cancel["message"]} == cancel == missing
    assert {1: Status.PENDING, 2: Status.SHIPPED} == await statuses(service)


async def test_an_operation_that_the_store_refuses_fails_by_itself(service: Service) -> None:
    output = io.StringIO()
    configure_logging("info", output)
    client = await partner(service, ALL)
    await service.orders(*(Order(number, reference="bad" if number == 3 else None) for number in range(1, 6)))
    refuse(service.settings.database_url, "orders", "new.reference = 'bad'", Refusal.STATEMENT)
    results = await client.results(*(operation("ship", number) for number in range(1, 6)))
    assert [(500, "internal_error") if place == 2 else (200, "shipped") for place in range(5)] == [
        outcome(result) for result in results
    ]
    [line] = [json.loads(text) for text in output.getvalue().splitlines()]
    assert ("operation failed", "error", "v2.batchOrders") == (line["event"], line["level"], line["operation"])
    assert "The store refuses this: " in line["exception"]
    assert (True, {"status": "ok"}) == await service.application.readiness()


@embedded
async def test_a_batch_is_503_only_if_the_store_fails_for_all_of_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    configure_logging("info", output)
    client = await partner(service, ALL)
    await service.orders(Order(1), Order(2), Order(3))
    failing = {2, 3}
    request = stored_orders.Orders.request

    async def fail(self: stored_orders.Orders, change: Any, account_id: int = 0) -> Any:
        if change.order_id in failing:
            raise ServiceUnavailable("the disk is full")
        return await request(self, change, account_id)

    monkeypatch.setattr(stored_orders.Orders, "request", fail)
    unavailable = 503, "service_unavailable"
    results = await client.results(*(operation("ship", number) for number in (1, 2, 3)))
    assert [(200, "shipped"), unavailable, unavailable] == [outcome(result) for result in results]
    refused = await client.batch(operation("ship", 2), operation("cancel", 2), operation("ship", 3))
    assert (unavailable, "1") == (code(refused), refused.headers["retry-after"])
    results = await client.results({"operation": "lose"}, operation("ship", 2))
    assert [400, 503] == [result["status"] for result in results]
    lines = [json.loads(text) for text in output.getvalue().splitlines()]
    # One for each request, whatever the number of its operations.
    assert [("store unavailable", "the disk is full")] * 3 == [(line["event"], line["reason"]) for line in lines]


@embedded
async def test_after_a_503_later_operations_on_the_same_order_are_not_carried_out(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await partner(service, ALL)
    await service.orders(Order(1), Order(2))
    request = stored_orders.Orders.request
    requested: list[int] = []

    async def fail_once(self: stored_orders.Orders, change: Any, account_id: int = 0) -> Any:
        requested.append(change.order_id)
        if requested.count(1) == 2 and change.order_id == 1:
            raise ServiceUnavailable("another program keeps order 1 locked")
        return await request(self, change, account_id)

    monkeypatch.setattr(stored_orders.Orders, "request", fail_once)
    results = await client.results(
        operation("update", 1, changes={"quantity": 2}),
        operation("put", 1, order={"quantity": 3}),
        operation("ship", 2),
        operation("ship", 1),
        operation("lose", 1),
        operation("complete", 1),
    )
    unavailable = (503, "service_unavailable")
    assert [(200, "pending"), unavailable, (200, "shipped"), unavailable, (400, "invalid_body"), unavailable] == [
        outcome(result) for result in results
    ]
    assert [1, 1, 2] == sorted(requested)
    assert {1: Status.PENDING, 2: Status.SHIPPED} == await statuses(service)
