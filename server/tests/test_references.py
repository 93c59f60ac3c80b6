"""References: one order of an owner has each, however many place or import it at the same time (D21)."""

import asyncio
from collections.abc import Sequence
from itertools import count

import psycopg
import pytest

from petstore_server.domain.errors import (
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    NoIdentifierLeft,
    ReferenceInUse,
)
from petstore_server.domain.orders import CANCEL, MAX_ASSIGNED_ID, ImportOutcome, Order, Placed, Placement
from petstore_server.engines.postgres import connections, engine
from petstore_server.store import Store
from testing.partners import ORDERS, partner
from testing.service import Service, embedded
from testing.stores import BY, Stores, add_key, reason

LOCK = """
    SELECT pg_advisory_xact_lock(
        hashtextextended(%s || ' ' || encode(sha256(convert_to(%s::text, 'UTF8')), 'hex'), 4802)
    )
"""
OWN_ORDER = """
    INSERT INTO petstore.orders (id, status, complete, reference, record, created_at, updated_at, revision, placed,
        account_id)
    VALUES (%s, 'pending', 0, %s, %s, 0, 0, 0, 0, %s)
"""


async def owner_of(store: Store, name: str = "zoo") -> int:
    await add_key(store, name, name)
    return (await store.accounts.find(name)).id


def placement(owner: int, key: str | int, reference: str | None = "R") -> Placement:
    return Placement(owner, str(key), 7, 1, None, reference)


async def place(stores: Sequence[Store], placements: Sequence[Placement]) -> list[Placed | BaseException]:
    """Place all at the same time, in turn by each of the processes."""
    placing = [stores[number % len(stores)].orders.place(each, BY) for number, each in enumerate(placements)]
    return await asyncio.gather(*placing, return_exceptions=True)


async def owned(store: Store, reference: str = "R") -> list[tuple[int, str | None]]:
    """The orders with a reference, and their owners."""
    orders = [order async for batch in store.orders.scan() for order in batch]
    return [(order.id, order.account) for order in orders if order.reference == reference]


async def test_of_50_placements_with_one_reference_by_two_processes_one_places_the_order(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await owner_of(one)
        for first in range(0, 150, 50):
            reference = f"R {first}"
            outcomes = await place((one, two), [placement(owner, first + key, reference) for key in range(50)])
            [placed] = [each for each in outcomes if isinstance(each, Placed)]
            refused = [each for each in outcomes if isinstance(each, ReferenceInUse)]
            assert (49, {(placed.order_id,)}) == (len(refused), {each.values for each in refused})
            assert [(placed.order_id, "zoo")] == await owned(one, reference)


async def test_repeated_requests_are_replayed_while_others_want_the_reference(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await owner_of(one)
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


async def test_each_owner_has_its_own_references(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as two:
        owners = [await owner_of(one, name) for name in ("zoo", "acme")]
        await one.orders.import_batch([Order(1, reference="R")], "import:1", BY)
        outcomes = await place((one, two), [placement(owners[key % 2], key // 2) for key in range(20)])
        assert 2 == sum(isinstance(each, Placed) for each in outcomes)
        assert ["acme", "zoo"] == sorted(str(owner) for order_id, owner in await owned(one) if order_id != 1)
        without = await place((one, two), [placement(owners[0], f"without {key}", None) for key in range(10)])
        assert {Placed} == {type(each) for each in without}


async def test_a_reference_stays_in_use_after_a_cancel_and_after_the_key_is_forgotten(store: Store) -> None:
    owner = await owner_of(store)
    placed = await store.orders.place(placement(owner, "a"), BY)
    await store.orders.change(placed.order_id, CANCEL, BY, owner=owner)
    await store.orders.forget(BY.at + 1, 10)
    for key in ("a", "b"):
        with pytest.raises(ReferenceInUse) as refused:
            await store.orders.place(placement(owner, key), BY)
        assert (placed.order_id,) == refused.value.values


async def test_a_request_whose_reference_was_refused_keeps_nothing_of_its_key(store: Store) -> None:
    owner = await owner_of(store)
    await store.orders.place(placement(owner, "a"), BY)
    with pytest.raises(ReferenceInUse):
        await store.orders.place(placement(owner, "b"), BY)
    assert not (await store.orders.place(placement(owner, "b", "other"), BY)).replayed


async def test_where_no_identifier_is_left_a_reference_is_not_in_use(store: Store) -> None:
    owner = await owner_of(store)
    await store.orders.import_batch([Order(MAX_ASSIGNED_ID)], "import:1", BY)
    outcomes = await place((store,), [placement(owner, key) for key in range(3)])
    assert [NoIdentifierLeft] * 3 == [type(each) for each in outcomes]
    assert [] == await owned(store)


async def test_a_reference_that_another_transaction_is_placing_is_waited_for(postgres_stores: Stores) -> None:
    async with postgres_stores.opened() as store:
        owner = await owner_of(store)
        for order_id in (None, 40):
            with psycopg.connect(postgres_stores.url) as other:
                other.execute(LOCK, [owner, "R"])
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


async def test_a_reference_that_stays_locked_is_a_503_and_places_nothing(
    postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WRITE", connections.WRITE._replace(total=0.3))
    async with postgres_stores.opened() as store:
        owner = await owner_of(store)
        with psycopg.connect(postgres_stores.url) as other:
            other.execute(LOCK, [owner, "R"])
            cause = await reason(store.orders.place(placement(owner, "a"), BY))
            assert "another program is placing an order with this reference" == cause
        assert [] == await owned(store)


async def test_an_import_and_placements_of_one_reference_make_one_order(each_backend: Stores) -> None:
    ids, keys = count(1_000, 10), count()
    async with each_backend.opened() as one, each_backend.opened() as two:
        owner = await owner_of(one)
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


@embedded
@pytest.mark.usefixtures("each_deployment")
async def test_a_client_is_led_to_the_order_with_its_reference_and_to_no_other(service: Service) -> None:
    client, another = await partner(service), await partner(service)
    first, theirs = await client.placed("a", "R"), await another.placed("a", "R")
    assert first != theirs
    for path, expected in ((f"{ORDERS}?reference=R", first), (f"{ORDERS}/{first}", first)):
        assert f'"id":{expected},' in (await client.get(path)).text
        assert f'"id":{theirs},' not in (await client.get(path)).text
    assert [] == (await client.get(ORDERS, reference="S")).json()["data"]
    await another.placed("b", "S")
    assert [] == (await client.get(ORDERS, reference="S")).json()["data"]
    assert await client.placed("b", "S") > theirs
