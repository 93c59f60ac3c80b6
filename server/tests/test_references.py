"""References: one order of an owner has each, however many place or import it at the same time (D21)."""

import asyncio
from collections.abc import Sequence
from itertools import count

import psycopg
import pytest

from petstore_server.domain.changes import OrderChange, Put
from petstore_server.domain.errors import (
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    NoIdentifierLeft,
    ReferenceInUse,
)
from petstore_server.domain.imports import ImportOutcome
from petstore_server.domain.orders import MAX_ASSIGNED_ID, Order, correct
from petstore_server.domain.placements import Placed, Placement
from petstore_server.store import Store
from testing.postgres_locks import LOCK_REFERENCE
from testing.stores import BY, Stores, add_owner, all_orders

OWN_ORDER = """
    INSERT INTO petstore.orders (id, status, complete, reference, record, created_at, updated_at, revision, placed,
        account_id)
    VALUES (%s, 'pending', 0, %s, %s, 0, 0, 0, 0, %s)
"""


def placement(owner: int, key: str | int, reference: str | None = "R") -> Placement:
    return Placement(owner, str(key), 7, 1, None, reference)


async def place(stores: Sequence[Store], placements: Sequence[Placement]) -> list[Placed | BaseException]:
    """Place all at the same time, in turn by each of the processes."""
    placing = [stores[number % len(stores)].orders.place(each, BY) for number, each in enumerate(placements)]
    return await asyncio.gather(*placing, return_exceptions=True)


async def owned(store: Store, reference: str = "R") -> list[tuple[int, str | None]]:
    """The orders with a reference, and their owners."""
    orders = await all_orders(store)
    return [(order.id, order.account) for order in orders if order.reference == reference]


async def test_repeated_requests_are_replayed_while_others_want_the_reference(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await add_owner(one)
        outcomes = await place((one, two), [placement(owner, key % 5) for key in range(50)])
        placed = [each for each in outcomes if isinstance(each, Placed)]
        assert 1 == len({each.order_id for each in placed}) == sum(not each.replayed for each in placed)
        assert {Placed, ReferenceInUse} <= {type(each) for each in outcomes}
        assert {type(each) for each in outcomes} <= {Placed, ReferenceInUse, IdempotencyKeyInUse}
        again = await place((two, one), [placement(owner, key) for key in range(5)])
        assert 1 == sum(isinstance(each, Placed) and each.replayed for each in again)
        assert 4 == sum(isinstance(each, ReferenceInUse) for each in again)
        [key] = [number for number, each in enumerate(again) if isinstance(each, Placed)]
        assert {key} == {number % 5 for number, each in enumerate(outcomes) if isinstance(each, Placed)}
        [reused] = await place((one,), [placement(owner, key, "other")])
        assert isinstance(reused, IdempotencyKeyReused)
        assert 1 == len(await owned(one))


async def test_the_message_for_a_reference_in_use_says_what_to_do_after_each_operation(store: Store) -> None:
    await store.orders.import_batch([Order(7)], "import-1", BY)
    await store.orders.request(OrderChange(8, Put(Order(8, reference="R")), BY))
    same = "if it is the same order, put it under its number 8"
    for number, transition, step in (
        (9, Put(Order(9, reference="R")), same),
        (7, Put(Order(7, reference="R")), same),
        (7, correct({"reference": "R"}), "give this order another one"),
    ):
        with pytest.raises(ReferenceInUse, match=f"^Order 8 already has this reference; {step}.$"):
            await store.orders.request(OrderChange(number, transition, BY))


async def test_a_request_whose_reference_was_refused_keeps_nothing_of_its_key(store: Store) -> None:
    owner = await add_owner(store)
    await store.orders.place(placement(owner, "a"), BY)
    with pytest.raises(ReferenceInUse):
        await store.orders.place(placement(owner, "b"), BY)
    assert not (await store.orders.place(placement(owner, "b", "other"), BY)).replayed


async def test_where_no_identifier_is_left_a_reference_is_not_in_use(store: Store) -> None:
    owner = await add_owner(store)
    await store.orders.import_batch([Order(MAX_ASSIGNED_ID)], "import:1", BY)
    outcomes = await place((store,), [placement(owner, key) for key in range(3)])
    assert [NoIdentifierLeft] * 3 == [type(each) for each in outcomes]
    assert [] == await owned(store)


async def test_a_reference_that_another_transaction_is_placing_is_waited_for(postgres_stores: Stores) -> None:
    async with postgres_stores.opened() as store:
        owner = await add_owner(store)
        for order_id in (None, 40):
            with psycopg.connect(postgres_stores.url) as other:
                other.execute(LOCK_REFERENCE, [owner, "R"])
                waiting = asyncio.create_task(store.orders.place(placement(owner, f"{order_id}"), BY))
                unrelated = await store.orders.place(placement(owner, f"with {order_id}", f"other {order_id}"), BY)
                assert not unrelated.replayed
                assert not waiting.done()
                if order_id is not None:
                    other.execute("UPDATE petstore.orders SET reference = NULL WHERE reference = 'R'")
                    other.execute(OWN_ORDER, [order_id, "R", f'{{"id":{order_id}}}', owner])
                other.commit()
            if order_id is None:
                assert [((await waiting).order_id, "zoo")] == await owned(store)
            else:
                with pytest.raises(ReferenceInUse) as refused:
                    await waiting
                assert (order_id,) == refused.value.values
        assert [(40, "zoo")] == await owned(store)


async def test_an_import_and_placements_of_one_reference_make_one_order(each_backend: Stores) -> None:
    ids, keys = count(1_000, 10), count()
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await add_owner(one)
        for number in range(8):
            reference = f"R {number}"
            rows = [Order(next(ids), reference=reference, account="zoo") for _ in range(2)]
            placing = [placement(owner, next(keys), reference) for _ in range(6)]
            imported, outcomes = await asyncio.gather(
                two.orders.import_batch(rows, "import:1", BY), place((one, two), placing)
            )
            made = [row.id for row, outcome in zip(rows, imported, strict=True) if outcome is ImportOutcome.CREATED]
            assert {*imported} <= {ImportOutcome.CREATED, ImportOutcome.REFERENCE_IN_USE}
            made += [each.order_id for each in outcomes if isinstance(each, Placed)]
            assert [(made[0], "zoo")] == await owned(one, reference)
            assert 1 == len(made)
            refused = [each for each in outcomes if isinstance(each, ReferenceInUse)]
            assert {each.values for each in refused} <= {(made[0],)}
            assert len(placing) == len(refused) + len(made) - len([*filter(lambda row: row.id in made, rows)])
