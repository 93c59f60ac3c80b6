"""The use cases of operators, over every engine: keys, accounts, orders (D5–D11)."""

from typing import Any

import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Account, Plan
from petstore_server.domain.audit import Actor, AuditFilters
from petstore_server.domain.errors import (
    OrderAlreadyCancelled,
    OrderNotFound,
    ServiceUnavailable,
)
from petstore_server.domain.keys import (
    DEFAULT_SCOPES,
    Environment,
)
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Count
from petstore_server.operations import accounts, orders
from petstore_server.operations.accounts import IssuedKey
from petstore_server.operations.audit import read_audit
from petstore_server.store import Store
from testing.stores import Stores

pytestmark = pytest.mark.anyio

NOW = 1_795_000_000.0
ACTOR = Actor("operator:test", NOW)


async def account(store: Store, name: str = "acme") -> None:
    made = await accounts.create_account(store, name, Plan.FREE, PLAN_LIMITS[Plan.FREE], ACTOR)
    assert ("", "") == (made.contact, made.note)


async def issue(store: Store, expires_at: float | None = None, note: str = "") -> IssuedKey:
    return await accounts.issue_key(
        store,
        "acme",
        environment=Environment.PRODUCTION,
        scopes=DEFAULT_SCOPES,
        expires_at=expires_at,
        note=note,
        actor=ACTOR,
    )


def test_a_window_that_has_ended_is_reported_as_unused() -> None:
    account = Account(1, "acme", Plan.FREE, PLAN_LIMITS[Plan.FREE], NOW)
    usage = Usage(Count(int(NOW) - 10, 7), Count(int(NOW) - 90_000, 900))
    minute, day = accounts.report_windows(account, usage, NOW)
    assert ("minute", 7, 60, 53, int(NOW) + 50) == minute
    assert ("day", 0, 1000, 1000, None) == day


async def test_several_orders_are_each_changed_or_reported(store: Store) -> None:
    given = [Order(number, status=Status.PENDING) for number in range(1, 251)]
    await store.orders.import_batch(given, "import", ACTOR)
    ids = [*range(1, 251), 999, 7]
    outcomes = [each async for each in orders.change_orders(store, ids, CANCEL, ACTOR)]
    assert ids == [order_id for order_id, _ in outcomes]
    assert {Status.CANCELLED} == {each.status for _, each in outcomes[:250] if isinstance(each, Order)}
    assert [OrderNotFound, OrderAlreadyCancelled] == [type(each) for _, each in outcomes[250:]]


async def test_orders_after_a_failure_of_the_store_are_not_tried(
    file_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    async def fail(order_id: int, *_: object) -> Order:
        tried.append(order_id)
        if order_id == 50:
            raise ServiceUnavailable("the disk is full")
        return Order(order_id)

    async with file_store.opened() as store:
        monkeypatch.setattr(store.orders, "change", fail)
        outcomes = [each async for each in orders.change_orders(store, range(1000), CANCEL, ACTOR)]
    assert tried == [order_id for order_id, _ in outcomes]
    assert len(tried) < 1000
    assert [50] == [order_id for order_id, each in outcomes if isinstance(each, ServiceUnavailable)]


async def test_entries_of_the_audit_log_are_found_by_what_they_are_about(store: Store) -> None:
    await account(store)
    await account(store, "globex")
    await store.orders.import_batch([Order(number) for number in range(1, 8)], "import", ACTOR)
    actors = [Actor(f"operator:{name}", NOW + number, f"req-{number}") for number, name in enumerate("abcab")]
    for number, actor in enumerate(actors, 1):
        await store.orders.change(number, CANCEL, actor)

    async def found(**conditions: Any) -> list[str]:
        return [entry.subject async for entry in read_audit(store, **conditions)]

    assert ["order:1", "order:4"] == await found(actor="a")
    assert ["order:4"] == await found(actor="a", since=NOW + 1)
    assert ["order:1"] == await found(actor="a", until=NOW + 3)
    assert ["import", "order:3"] == await found(order=3)
    assert ["import"] == await found(order=3, until=NOW + 2)
    assert [] == await found(order=3, until=NOW)
    assert ["account:acme"] == await found(account="acme")
    newest = (await store.audit.page(AuditFilters(), 10)).entries
    assert "order:5" == newest[0].subject
    assert ["req-4", "req-3"] == [entry.request_id for entry in newest[:2]]
    assert {"status": "cancelled"} == newest[0].after
    assert None is newest[-1].request_id
    page = await store.audit.page(AuditFilters(about=(("order:2", "operator:c"),)), 10)
    assert ["order:3", "order:2"] == [entry.subject for entry in page.entries]


async def test_closing_again_revokes_the_keys_that_an_interrupted_call_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await account(store)
    await issue(store)

    async def fail(*_: Any) -> None:
        raise ServiceUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store.keys, "change", fail)
        with pytest.raises(ServiceUnavailable):
            await accounts.close_account(store, "acme", ACTOR)
    closed, revoked = await accounts.close_account(store, "acme", ACTOR)
    assert ("closed", 1) == (closed.state, revoked)
