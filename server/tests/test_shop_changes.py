"""Puts and corrections in the store: a put is an import of one record, and other processes change orders too (D22)."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import psycopg
import pytest

from petstore_server import deadlines
from petstore_server.domain import errors
from petstore_server.domain.changes import ChangedOrder, OrderChange, Put
from petstore_server.domain.imports import ImportOutcome
from petstore_server.domain.lists import NO_OWNER
from petstore_server.domain.orders import CANCEL, INT64_MAX, MAX_ASSIGNED_ID, Order, Status, correct, ship_on
from petstore_server.domain.placements import Placed, Placement
from petstore_server.store import Store
from petstore_server.store.statements import Execute, Work
from testing.postgres_locks import LOCK_REFERENCE, until_waiting
from testing.stores import BY, Stores, add_key, add_owner, all_orders, log, reason

DATE = "2026-11-01T10:00:00Z"
SHIP = ship_on(DATE)
ADD = """
    INSERT INTO petstore.orders
        (id, status, complete, reference, record, created_at, updated_at, revision, placed)
    VALUES (%s, %s, 0, %s, %s, 5, 5, 1, 0)
"""
LOCK_CLOCK = "UPDATE petstore.clock SET change = change + 1, at = at + 1, last_order_id = greatest(last_order_id, %s)"
EFFECTIVE = ("created", "changed", "replaced")


def put(order: Order, *, creates_only: bool = False, **more: Any) -> OrderChange:
    return OrderChange(order.id, Put(order, creates_only), BY, **more)


async def request(store: Store, *changes: OrderChange) -> list[Any]:
    """Request all at the same time, so that they share a transaction; return the outcomes."""
    return await asyncio.gather(*map(store.orders.request, changes), return_exceptions=True)


async def stored(store: Store) -> dict[int, Order]:
    return {order.id: order for order in await all_orders(store)}


async def test_what_was_decided_by_an_order_that_another_process_added_is_decided_again(
    postgres_stores: Stores,
) -> None:
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
        with psycopg.connect(postgres_stores.url) as other:
            other.execute(LOCK_CLOCK, [8])
            other.execute(ADD, [8, "cancelled", None, '{"id":8}'])
            changes = asyncio.create_task(
                request(
                    store,
                    put(Order(8, 1, status=Status.SHIPPED, reference="R")),
                    OrderChange(8, CANCEL, BY),
                    OrderChange(8, correct({"pet_id": 1}), BY),
                    put(Order(9, reference="R")),
                    OrderChange(1, correct({"reference": "R"}), BY),
                    OrderChange(2, SHIP, BY),
                )
            )
            await until_waiting(other)
            other.commit()
        *eight, nine, one, two = await changes
        assert [errors.OrderAlreadyCancelled] * 3 == [type(outcome) for outcome in eight]
        assert Order(8, status=Status.CANCELLED) == (await stored(store))[8]
        assert Status.SHIPPED is two.stored.order.status
        [refused] = [each for each in (nine, one) if isinstance(each, errors.ReferenceInUse)]
        [named] = [each.stored.order for each in (nine, one) if isinstance(each, ChangedOrder)]
        assert (named.id,) == refused.values
        assert "R" == (await stored(store))[named.id].reference
        assert "order:8" not in [entry.subject for entry in await log(store)]


async def test_an_order_that_another_process_added_gets_no_change_of_one_that_was_to_be_new(
    postgres_stores: Stores,
) -> None:
    async with postgres_stores.opened() as store:
        await add_key(store)
        with psycopg.connect(postgres_stores.url) as other:
            other.execute("LOCK TABLE petstore.accounts")
            changes = asyncio.create_task(request(store, put(Order(8, account="zoo")), OrderChange(8, CANCEL, BY)))
            await until_waiting(other)
            other.execute(ADD, [8, "shipped", None, '{"id":8}'])
            other.commit()
        assert [errors.OrderAlreadyShipped] * 2 == [type(outcome) for outcome in await changes]
        assert {8: Order(8, status=Status.SHIPPED)} == await stored(store)
        assert "order:8" not in [entry.subject for entry in await log(store)]


async def test_a_new_number_is_put_placed_and_imported_by_two_processes_in_one_order_of_events(
    each_backend: Stores,
) -> None:
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await add_owner(one)
        for number in range(1, 41):
            order_id = 10 * number
            await one.orders.import_batch([Order(order_id - 1)], "import:1", BY)  # the next placed order is this one
            steps = [
                ("put", Order(order_id, 1, reference=f"R {number}")),
                ("put", Order(order_id, 2)),
                ("put", Order(order_id, 3, account="zoo")),
                ("import", Order(order_id, 4)),
                ("place", Order(order_id, 5, 1, account="zoo")),
            ]
            turned = steps[number % len(steps) :] + steps[: number % len(steps)]
            outcomes = await asyncio.gather(
                *(carry_out((one, two)[place % 2], step, owner) for place, step in enumerate(turned))
            )
            final = (await stored(two))[order_id]
            assert 1 == outcomes.count("created"), outcomes
            changes = [order for (_, order), outcome in zip(turned, outcomes, strict=True) if outcome in EFFECTIVE]
            assert final._replace(account=None) in [order._replace(account=None) for order in changes], outcomes


async def carry_out(store: Store, step: tuple[str, Order], owner: int) -> object:
    """The outcome of a step: created, unchanged, replaced, or the class of the error."""
    kind, order = step
    if kind == "import":
        return str((await store.orders.import_batch([order], "import:1", BY))[0])
    if kind == "place":
        placed = await store.orders.place(Placement(owner, f"{order.id}", 5, 1, None), BY)
        return "created" if placed.order_id == order.id else "another number"
    [outcome] = await request(store, put(order))
    if isinstance(outcome, ChangedOrder):
        return "created" if outcome.created else "changed"
    return type(outcome)


@pytest.mark.parametrize("account", [None, "zoo"])
async def test_of_50_requests_for_one_reference_by_two_processes_one_gets_it(
    each_backend: Stores, account: str | None
) -> None:
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await add_owner(one)
        await one.orders.import_batch([Order(number, account=account) for number in range(1, 61)], "import:1", BY)
        for number in range(3):
            reference = f"R {number}"
            changes: list[Awaitable[Any]] = []
            for place in range(20):
                store, order_id = (one, two)[place % 2], 20 * number + place + 1
                changes.append(store.orders.request(OrderChange(order_id, correct({"reference": reference}), BY)))
                new = Order(1_000 + order_id, reference=reference, account=account)
                changes.append(store.orders.request(put(new)))
                if account is not None:
                    changes.append(store.orders.place(Placement(owner, f"{order_id}", 1, 1, None, reference), BY))
            outcomes = await asyncio.gather(*changes, return_exceptions=True)
            refused = [each for each in outcomes if isinstance(each, errors.ReferenceInUse)]
            [first] = [each for each in outcomes if not isinstance(each, errors.ReferenceInUse)]
            assert isinstance(first, Placed | ChangedOrder), first
            order_id = first.order_id if isinstance(first, Placed) else first.stored.order.id
            assert {(order_id,)} == {each.values for each in refused}
            assert [order_id] == [each.id for each in (await stored(two)).values() if each.reference == reference]


async def test_a_reference_moves_from_one_order_to_another(store: Store) -> None:
    await store.orders.import_batch([Order(1, reference="R"), Order(2)], "import:1", BY)
    freed, taken = OrderChange(1, correct({"reference": None}), BY), OrderChange(2, correct({"reference": "R"}), BY)
    [first, second] = await request(store, taken, freed)
    assert (errors.ReferenceInUse, ChangedOrder) == (type(first), type(second))
    [third] = await request(store, taken)
    assert "R" == third.stored.order.reference
    [back, again] = await request(store, OrderChange(2, correct({"reference": None}), BY), put(Order(1, reference="R")))
    assert [None, "R"] == [back.stored.order.reference, again.stored.order.reference]


@pytest.mark.parametrize("account", [None, "zoo"])
async def test_orders_that_have_shared_a_reference_since_1_0_keep_it(store: Store, account: str | None) -> None:
    replaced = await shared_reference(store, account)
    outcomes = await request(store, *map(put, replaced))
    outcomes += await request(store, OrderChange(2, correct({"quantity": 3}), BY), put(replaced[0]))
    kept = [replaced[0], replaced[1]._replace(quantity=3)]
    assert [*replaced, kept[1], kept[0]] == [each.stored.order for each in outcomes]
    [refused] = await request(store, put(Order(3, reference="R", account=account)))
    assert (errors.ReferenceInUse, (1,)) == (type(refused), refused.values)
    assert kept == [*(await stored(store)).values()]


@pytest.mark.parametrize("account", [None, "zoo"])
async def test_a_shared_reference_is_not_free_when_one_of_its_orders_gives_it_up(
    store: Store, account: str | None
) -> None:
    await shared_reference(store, account)
    given_up = OrderChange(1, correct({"reference": None}), BY)
    taken = put(Order(3, reference="R", account=account))
    changed, refused = await request(store, given_up, taken)
    assert changed.order.reference is None
    assert (errors.ReferenceInUse, (2,)) == (type(refused), refused.values)
    await request(store, OrderChange(2, correct({"reference": None}), BY))
    assert [ChangedOrder] == [*map(type, await request(store, taken))]


async def shared_reference(store: Store, account: str | None) -> list[Order]:
    """Store two orders with one reference; return what may replace them."""

    def share() -> Work[None]:
        yield Execute("UPDATE petstore.orders SET reference = 'R'")

    await add_key(store)
    orders = [Order(number, reference=f"R {number}", account=account) for number in (1, 2)]
    await store.orders.import_batch(orders, "import:1", BY)
    await store.engine.transaction(share)
    return [order._replace(pet_id=5, quantity=2, reference="R") for order in orders]


async def test_a_placed_order_stays_protected_after_a_change_of_the_same_transaction(store: Store) -> None:
    owner = await add_owner(store)
    order_id = (await store.orders.place(Placement(owner, "a", 7, 1, None, None), BY)).order_id
    corrected, refused, named = await request(
        store,
        OrderChange(order_id, correct({"quantity": 2}), BY),
        put(Order(order_id, 9)),
        put(Order(order_id, 8, account="zoo")),
    )
    assert corrected.stored.placed
    assert isinstance(refused, errors.AccountMismatch)
    assert Order(order_id, 8, account="zoo") == named.stored.order
    [at] = {each.stored.updated_at for each in (corrected, named)}
    assert at > corrected.stored.created_at


async def test_a_reference_that_stays_locked_is_a_503_and_changes_nothing(
    postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "TIMEOUTS", deadlines.TIMEOUTS._replace(total=0.3))
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1)], "import:1", BY)
        await add_key(store)
        with psycopg.connect(postgres_stores.url) as other:
            for owner in (NO_OWNER, 1):
                other.execute(LOCK_REFERENCE, [owner, "R"])
            for change in (put(Order(2, reference="R")), OrderChange(1, correct({"reference": "R"}), BY)):
                cause = await reason(store.orders.request(change))
                assert "another program is giving this reference to an order" == cause
            cause = await reason(store.orders.place(Placement(1, "a", 7, 1, None, "R"), BY))
            assert "another program is placing an order with this reference" == cause
            await store.orders.request(put(Order(3, reference="S")))
        assert {1: Order(1), 3: Order(3, reference="S")} == await stored(store)


async def test_an_owner_of_a_batch_does_not_find_what_another_puts(store: Store) -> None:
    owner = await add_owner(store)
    outcomes = await request(
        store,
        put(Order(1, account="zoo")),
        OrderChange(1, CANCEL, BY, owner),
        put(Order(2), owner=owner),
        put(Order(1, account="zoo"), creates_only=True),
    )
    names = ["ChangedOrder", "OrderNotFound", "OrderNotFound", "PreconditionFailed"]
    assert names == [type(outcome).__name__ for outcome in outcomes]
    assert Status.CANCELLED is (await store.orders.change(1, CANCEL, BY, owner=owner)).status
    assert [1] == [*await stored(store)]


async def test_the_largest_identifiers_are_put_and_imported_with_assigned_too(store: Store) -> None:
    store.orders.first_assigned = 1_000
    rows = [Order(order_id) for order_id in (999, 1_000, MAX_ASSIGNED_ID + 1, INT64_MAX)]
    reserved = [ImportOutcome.RESERVED] * 3
    assert [ImportOutcome.CREATED, *reserved] == await store.orders.import_batch(rows, "import:1", BY)
    assert [errors.IdentifierReserved] * 3 == [type(each) for each in await request(store, *map(put, rows[1:]))]
    assert 999 == await store.orders.last_identifier()
    imported = await store.orders.import_batch(rows, "import:2", BY, assigned=True)
    assert [ImportOutcome.UNCHANGED, *[ImportOutcome.CREATED] * 3] == imported
    assert 1_000 == await store.orders.last_identifier()
    store.orders.first_assigned = 1
    again = [Order(INT64_MAX - number) for number in range(3)]
    changed = await store.orders.import_batch(again, "import:3", BY, assigned=True)
    assert [ImportOutcome.UNCHANGED, ImportOutcome.CREATED, ImportOutcome.CREATED] == changed
    assert {True} == {each.created for each in await request(store, put(Order(INT64_MAX - 3)))}
    assert 1_000 == await store.orders.last_identifier()
