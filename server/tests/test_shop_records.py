"""What is kept of the shop's requests: usage by operation, and entries that are found by the request (D22)."""

from collections import Counter
from typing import Any

import httpx2
import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.orders import REQUESTED_ACTIONS, Order
from petstore_server.domain.usage import Granularity, UsageCounts
from testing.partners import Partner, partner
from testing.service import Service


async def one_of_each(client: Partner) -> dict[str, httpx2.Response]:
    """A request for each action, about an order of its own."""
    return {
        "order.put": await client.put(1, petId=2),
        "order.update": await client.update(2, quantity=2),
        "order.ship": await client.ship(3),
        "order.cancel": await client.cancel(4),
        "order.complete": await client.complete(3),
        "order.place": await client.place("a"),
    }


@pytest.mark.usefixtures("each_deployment")
async def test_only_a_cancel_is_counted_as_one(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(*(Order(number) for number in range(1, 7)))
    assert all(response.is_success for response in (await one_of_each(client)).values())
    await client.batch({"operation": "put", "orderId": 5, "order": {"petId": 1}}, {"operation": "ship", "orderId": 5})
    for refused in (await client.ship(3), await client.ship(4), await client.ship(3, {"If-Match": '"a"'})):
        assert 409 == refused.status_code
    assert 412 == (await client.ship(6, {"If-Match": '"a"'})).status_code
    assert 404 == (await client.update(99)).status_code
    await service.background_round()
    usage = service.backend.store.usage
    [counts] = (await usage.counts(client.id, 0, int(service.clock.now) + 1, Granularity.HOUR)).values()
    assert UsageCounts(12, cancelled=1, succeeded=6, conflict=3, not_found=1, invalid=1) == counts


@pytest.mark.usefixtures("each_deployment")
async def test_a_put_that_cancels_an_order_is_counted_as_a_cancel_and_a_batch_is_not(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(Order(1), Order(2))
    cancelled: dict[str, Any] = {"status": "cancelled"}
    responses = [await client.put(1, **cancelled), await client.put(1, **cancelled), await client.put(9, **cancelled)]
    assert [200, 200, 201] == [response.status_code for response in responses]
    await client.batch({"operation": "cancel", "orderId": 2})
    await service.background_round()
    usage = service.backend.store.usage
    [counts] = (await usage.counts(client.id, 0, int(service.clock.now) + 1, Granularity.HOUR)).values()
    assert UsageCounts(4, cancelled=1, succeeded=3) == counts


@pytest.mark.usefixtures("each_deployment")
async def test_every_action_of_orders_is_found_by_its_request(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(*(Order(number) for number in range(1, 8)))
    responses = await one_of_each(client)
    assert set(REQUESTED_ACTIONS) == responses.keys()
    audit = service.backend.store.audit
    for action, response in responses.items():
        filters = AuditFilters(request_id=response.headers["x-request-id"])
        assert [action] == [entry.action async for entry in audit.entries(filters)]
    operations: list[Any] = [
        {"operation": "ship", "orderId": 5},
        {"operation": "complete", "orderId": 5},
        {"operation": "update", "orderId": 6, "changes": {"quantity": 3}},
        {"operation": "put", "orderId": 50, "order": {}},
        {"operation": "cancel", "orderId": 7},
        {"operation": "cancel", "orderId": 4},
    ]
    batch = await client.batch(*operations)
    filters = AuditFilters(request_id=batch.headers["x-request-id"])
    made = Counter([entry.subject async for entry in audit.entries(filters)])
    assert {"order:5": 2, "order:6": 1, "order:50": 1, "order:7": 1} == made
