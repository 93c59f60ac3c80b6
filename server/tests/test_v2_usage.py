"""What is kept of requests: getUsage with its windows and history, usage by operation, and the audit log (D20, D22)."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from petstore_server.domain.accounts import Limits, Plan, VisibleOrders, edit
from petstore_server.domain.audit import AuditFilters
from petstore_server.domain.keys import Scope, unban
from petstore_server.domain.orders import Order
from petstore_server.domain.usage import Granularity, UsageCounts
from petstore_server.operations.audit import ACTIONS
from testing.partners import Partner, partner
from testing.service import Service, bearer, embedded

USAGE = "/v2/usage"

pytestmark = pytest.mark.usefixtures("each_deployment")


async def test_the_windows_are_those_of_the_limit_headers_with_this_request_charged(service: Service) -> None:
    key = await service.key(await service.account(Plan.FREE), scopes=frozenset({Scope.PETS_READ}))
    for used in (1, 2):
        response = await service.client.get(USAGE, headers=bearer(key))
        usage = response.json()
        assert ("free", ["minute", "day"]) == (usage["plan"], [window["name"] for window in usage["windows"]])
        assert [(60, 60 - used), (1000, 1000 - used)] == [
            (window["limit"], window["remaining"]) for window in usage["windows"]
        ]
        assert int(response.headers["x-ratelimit-reset"]) == usage["windows"][0]["reset"]
    assert 405 == (await service.client.post(USAGE, headers=bearer(key))).status_code
    assert 200 == (await service.client.head(USAGE, headers=bearer(key))).status_code


@embedded
@pytest.mark.parametrize("orders", VisibleOrders)
async def test_the_orders_that_the_account_sees_are_shown(service: Service, orders: VisibleOrders) -> None:
    account = await service.account(Plan.FREE)
    await service.backend.store.accounts.change(account, edit(None, None, orders), service.actor)
    response = await service.client.get(USAGE, headers=bearer(await service.key(account)))
    assert str(orders) == response.json()["orders"]


async def test_the_history_includes_this_request_and_is_the_same_before_and_after_it_is_saved(service: Service) -> None:
    await service.orders(Order(1), Order(2))
    account = await service.account(Plan.ENTERPRISE, Limits(4, 1000))
    headers = bearer(await service.key(account))
    hour = "2026-10-26T07:00:00Z"

    async def history(query: str = "") -> Any:
        return (await service.client.get(f"{USAGE}?{query}", headers=headers)).json()["history"]

    for number in (1, 2):
        assert 204 == (await service.client.delete(f"/v{number}/store/orders/{number}", headers=headers)).status_code
    for admitted in (3, 4):
        assert [{"start": hour, "admitted": admitted, "refused": 0}] == await history()
        await service.background_round()
    assert 429 == (await service.client.get(USAGE, headers=headers)).status_code
    service.clock.now += 3600
    later = {"start": "2026-10-26T08:00:00Z", "admitted": 1, "refused": 0}
    assert [{"start": hour, "admitted": 4, "refused": 1}, later] == await history()
    day = {"start": "2026-10-26T00:00:00Z", "admitted": 6, "refused": 1}
    assert [day] == await history("granularity=day")
    query = "from=2026-10-26T07:30:00Z&to=2026-10-26T08:00:00Z"
    assert [{"start": hour, "admitted": 4, "refused": 1}] == await history(query)
    query = "from=2026-10-26T07:30:00Z&to=2026-10-26T08:00:00.000001Z"  # which the next hour overlaps
    assert [hour, later["start"]] == [each["start"] for each in await history(query)]
    await service.background_round()
    stored = await service.backend.store.usage.counts(1, 0, int(service.clock.now) + 1, Granularity.HOUR)
    assert 2 == next(iter(stored.values())).cancelled


@pytest.mark.parametrize("each_deployment", ["scaled-out"], indirect=True)
async def test_the_history_includes_this_request_though_the_clock_of_redis_is_ahead(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.backend.shared is not None
    monkeypatch.setattr(service.backend.shared.counters, "_clock", lambda: service.clock.now + 3600)
    usage = (await service.client.get(USAGE, headers=bearer(await service.key()))).json()
    assert [{"start": "2026-10-26T08:00:00Z", "admitted": 1, "refused": 0}] == usage["history"]


RANGES = {
    "granularity=day": 200,
    "from=2026-10-01T00:00:00Z&to=2026-10-01T00:00:00Z": 200,
    "from=2026-01-01T00:00:00Z": 400,
    "from=2026-01-01T00:00:00Z&granularity=day": 200,
    "from=0001-01-01T00:00:00Z&to=9999-12-31T00:00:00Z&granularity=day": 400,
    "to=0001-01-01T00:00:00Z": 200,
    "from=9999-12-31T23:59:59Z": 400,
    "from=2026-10-02T00:00:00Z&to=2026-10-01T00:00:00Z": 400,
}


@embedded
async def test_a_range_of_at_most_a_thousand_entries_is_served(service: Service) -> None:
    key = await service.key(await service.account(Plan.ENTERPRISE, Limits(1000, 1000)))
    for query, status in RANGES.items():
        response = await service.client.get(f"{USAGE}?{query}", headers=bearer(key))
        assert (status, query) == (response.status_code, query)
        assert status == 200 or "invalid_parameter" == response.json()["code"]


@embedded
async def test_a_range_that_is_too_long_is_refused_with_advice_that_helps(service: Service) -> None:
    headers = bearer(await service.key())
    advice = {"hour": "ask for less, or for granularity=day.", "day": "ask for less."}
    for by, then in advice.items():
        query = f"{USAGE}?from=2000-01-01T00:00:00Z&granularity={by}"
        message = (await service.client.get(query, headers=headers)).json()["message"]
        assert f"'from', rounded down to the {by}, and 'to' must be at most 1000 {by}s apart; {then}" == message


@pytest.mark.parametrize("lifted", [False, True])
async def test_the_key_that_asks_is_shown_with_its_scopes_expiry_and_last_ban(service: Service, lifted: bool) -> None:
    expires = service.clock.now + 86_400
    scopes = frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL})
    key, key_id = await service.key_and_id(scopes=scopes, expires_at=expires)
    shown = (await service.client.get(USAGE, headers=bearer(key))).json()["key"]
    at = "2026-10-27T07:33:20.250000Z"
    assert {"id": key_id, "scopes": ["orders:cancel", "orders:read"], "expiresAt": at} == shown
    for _ in range(60):
        await service.client.get(USAGE, headers=bearer(key))
    service.clock.now += 3
    for _ in range(20):
        await service.client.get(USAGE, headers=bearer(key))
    await service.background_round()
    if lifted:
        await service.backend.store.keys.change(key_id, unban(service.actor.at), service.actor)
        await service.background_round()
    service.clock.now += 120
    shown = (await service.client.get(USAGE, headers=bearer(key))).json()["key"]
    ban = {"began": "2026-10-26T07:33:23Z", "ended": "2026-10-26T07:35:23Z"}
    assert shown.get("lastBan") == (None if lifted else ban)


@embedded
async def test_a_key_that_expires_at_the_end_of_time_is_shown(service: Service) -> None:
    last = datetime.max.replace(tzinfo=UTC).timestamp()  # which is rounded to the year 10000
    response = await service.client.get(USAGE, headers=bearer(await service.key(expires_at=last)))
    assert "9999-12-31T23:59:59Z" == response.json()["key"]["expiresAt"]


# What is kept of the shop's requests: usage by operation, and entries that are found by the request


async def one_of_each(client: Partner) -> dict[str, httpx2.Response]:
    """A request for each action, each about another order."""
    return {
        "order.put": await client.put(1, petId=2),
        "order.update": await client.update(2, quantity=2),
        "order.ship": await client.ship(3),
        "order.cancel": await client.cancel(4),
        "order.complete": await client.complete(3),
        "order.place": await client.place("a"),
    }


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


async def test_every_action_of_orders_is_found_by_its_request(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(*(Order(number) for number in range(1, 8)))
    responses = await one_of_each(client)
    assert {action for action in ACTIONS if action.startswith("order.")} == responses.keys()
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
