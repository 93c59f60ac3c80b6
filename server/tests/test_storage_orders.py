"""Orders and pets in the store: changes that share commits, imports, and reads of all orders."""

import asyncio
import tracemalloc
from datetime import UTC, datetime
from itertools import pairwise

import apsw
import psycopg
import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import DamagedRecord, PetNotFound
from petstore_server.domain.imports import ImportOutcome
from petstore_server.domain.orders import CANCEL, COMPLETE, INT64_MAX, INT64_MIN, Order, Status, ship
from petstore_server.domain.pets import Pet
from petstore_server.store import Store
from testing.damage import execute, set_record
from testing.forked_work import import_many
from testing.preloaded import forking
from testing.stores import BY, Stores, all_orders, batches, log

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))


async def test_a_change_is_written_with_what_it_changed(store: Store) -> None:
    await store.orders.import_batch([Order(7, 3), Order(8)], "import:1", BY)
    await store.orders.change(7, CANCEL, Actor("key:key_a", 5.5))
    await store.orders.change(8, SHIP, Actor("operator:ann", 6.0))
    await store.orders.change(8, COMPLETE, Actor("operator:ann", 7.0))
    assert Order(7, 3, status=Status.CANCELLED) == await store.orders.find(7)
    shipped = Order(8, ship_date="2026-11-01T00:00:00Z", complete=True, status=Status.SHIPPED)
    assert shipped == await store.orders.find(8)
    recorded = [entry[1:7] for entry in await log(store) if entry.action != "orders.import"]
    assert [
        (5.5, "key:key_a", "order.cancel", "order:7", {"status": "pending"}, {"status": "cancelled"}),
        (
            6.0,
            "operator:ann",
            "order.ship",
            "order:8",
            {"status": "pending"},
            {"status": "shipped", "shipDate": "2026-11-01T00:00:00Z"},
        ),
        (7.0, "operator:ann", "order.complete", "order:8", {}, {"complete": True}),
    ] == recorded


async def test_a_damaged_record_fails_only_its_own_change(each_backend: Stores, store: Store) -> None:
    await store.orders.import_batch([Order(number) for number in range(10)], "import:1", BY)
    set_record(each_backend, 5, '{"id":3}')
    commits: list[int] = []
    store.engine.stats.committed = commits.append
    changes = (store.orders.change(number, CANCEL, BY) for number in range(10))
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert [Order] * 5 + [DamagedRecord] + [Order] * 4 == [type(outcome) for outcome in outcomes]
    assert "order 5 " in str(outcomes[5])
    assert len(commits) <= 2
    for asked in (store.orders.find(5), store.orders.import_batch([Order(5), Order(11)], "import:2", BY)):
        with pytest.raises(DamagedRecord):
            await asked
    assert (await store.orders.import_batch([Order(11)], "import:2", BY)) == [ImportOutcome.CREATED]


async def test_a_store_refuses_an_unknown_status(each_backend: Stores, store: Store) -> None:
    await store.orders.import_batch([Order(1)], "import:1", BY)
    for status in (*map(str, Status), "pending"):
        execute(each_backend, "UPDATE petstore.orders SET status = %s", status)
    for unknown in ("lost", "", None):
        with pytest.raises((apsw.ConstraintError, psycopg.IntegrityError)):
            execute(each_backend, "UPDATE petstore.orders SET status = %s", unknown)
    assert Order(1) == await store.orders.find(1)


async def test_orders_can_be_looked_at_with_an_sql_shell(each_backend: Stores, store: Store) -> None:
    await store.orders.import_batch([Order(1, 2**63 - 1, 3, "2026-11-01T00:00:00Z", True), Order(2)], "i", BY)
    columns = "id, status, pet_id, complete, ship_date, placed, record"
    record = '{"id":1,"petId":9223372036854775807,"quantity":3,"shipDate":"2026-11-01T00:00:00Z","complete":true}'
    assert [
        (1, "pending", 2**63 - 1, 1, 1793491200000000, 0, record),
        (2, "pending", None, 0, None, 0, '{"id":2}'),
    ] == execute(each_backend, f"SELECT {columns} FROM petstore.orders ORDER BY id")


async def test_an_import_has_an_outcome_for_each_order(store: Store) -> None:
    before = [Order(1, 1, reference="A-7"), Order(2, 2), Order(3, 3), Order(4, 4, status=Status.SHIPPED)]
    await store.orders.import_batch(before, "import:1", BY)
    await store.orders.change(3, CANCEL, BY)
    decisions = await store.orders.import_batch(
        [before[0], Order(2, 20), Order(3, 30), Order(4, 4, status=Status.SHIPPED), Order(5)], "import:2", BY
    )
    assert [
        ImportOutcome.UNCHANGED,
        ImportOutcome.REPLACED,
        ImportOutcome.REJECTED,
        ImportOutcome.UNCHANGED,
        ImportOutcome.CREATED,
    ] == decisions
    after = [before[0], Order(2, 20), before[2]._replace(status=Status.CANCELLED), before[3], Order(5)]
    assert after == await all_orders(store)
    assert [] == await store.orders.import_batch([], "import:3", BY)  # changes nothing, and is not in the audit log
    assert [ImportOutcome.UNCHANGED] == await store.orders.import_batch([Order(5)], "import:4", BY)
    entry = (await log(store))[-1]
    assert (entry.action, entry.subject) == ("orders.import", "import:2")
    assert (entry.before, entry.after) == (None, {"created": 1, "replaced": 1, "unchanged": 2})
    [entry] = await batches(store, "import:2")
    assert {"orders": [{"id": 2, "petId": 2, "status": "pending"}]} == entry.before
    assert {
        "created": 1,
        "unchanged": 2,
        "replaced": 1,
        "rejected": 1,
        "orders": [{"id": 2, "petId": 20, "status": "pending"}],
        "createdIds": [[5, 5]],
    } == entry.after


async def test_orders_that_release_1_0_0_left_with_one_reference_can_be_imported_again(
    each_backend: Stores, store: Store
) -> None:
    await store.accounts.create("zoo", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    await store.orders.import_batch([Order(1, reference="A"), Order(2, reference="A")], "import:1", BY)
    execute(each_backend, "UPDATE petstore.orders SET account_id = 1")
    first, second = [Order(order_id, reference="A", account="zoo") for order_id in (1, 2)]
    again = [first, second, second._replace(quantity=3), first._replace(id=3), first._replace(id=4, account=None)]
    assert [
        ImportOutcome.UNCHANGED,
        ImportOutcome.UNCHANGED,
        ImportOutcome.REPLACED,
        ImportOutcome.REFERENCE_IN_USE,
        ImportOutcome.CREATED,
    ] == await store.orders.import_batch(again, "import:2", BY)


async def test_a_cancel_gets_in_between_the_batches_of_an_importer(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(number) for number in range(200)], "import:1", BY)
        importer = forking().Process(target=import_many, args=(each_backend.url, 40, BY))
        importer.start()
        while len(await log(store)) < 2:  # noqa: ASYNC110 - the importer is another process
            await asyncio.sleep(0.01)
        cancelled = 0
        while cancelled < 200 and importer.is_alive():
            await store.orders.change(cancelled, CANCEL, BY)
            cancelled += 1
        await asyncio.to_thread(importer.join)
        assert 0 == importer.exitcode
        actions = [entry.action for entry in await log(store)]
    assert cancelled >= 10
    cancels = [place for place, action in enumerate(actions) if action == "order.cancel"]
    batches_before = sorted(later - earlier - 1 for earlier, later in pairwise(cancels))
    # The importer makes no pauses. Only a cancel that this process was too late to ask for has to wait for more.
    assert batches_before[len(batches_before) // 2] <= 2


async def test_a_scan_is_one_snapshot_and_its_memory_is_bounded(store: Store) -> None:
    for start in range(0, 15_000, 5_000):
        await store.orders.import_batch(
            [Order(start + number, 1, 1, "2026-11-01T00:00:00Z", False) for number in range(5_000)], "i", BY
        )
    tracemalloc.start()
    seen, last = 0, -1
    async for batch in store.orders.scan(batch_size=500):
        if seen == 0:
            await store.orders.change(14_999, SHIP, BY)
        seen += len(batch)
        assert last + 1 == batch[0].id
        last = batch[-1].id
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (seen, batch[-1].status) == (15_000, Status.PENDING)
    assert peak < 1_000_000, "15,000 orders take several megabytes"


async def test_a_large_import_has_one_entry_in_the_audit_log_and_several_batches(store: Store) -> None:
    orders = [Order(number % 2500) for number in range(3000)]
    outcomes = await store.orders.import_batch(orders, "import:1", BY)
    assert [ImportOutcome.CREATED] * 2500 + [ImportOutcome.UNCHANGED] * 500 == outcomes
    assert [{"created": 2500, "unchanged": 500}] == [entry.after for entry in await log(store)]
    created = [entry.after["createdIds"] for entry in await batches(store, "import:1")]
    assert [[[0, 999]], [[1000, 1999]], [[2000, 2499]]] == created


async def test_pets_are_created_left_unchanged_or_replaced(store: Store) -> None:
    assert [] == await store.pets.import_batch([], "import:0", BY)
    first = [Pet(INT64_MIN, "Ada\x00\ud800", "cat"), Pet(2), Pet(INT64_MAX, "Bo")]
    assert [ImportOutcome.CREATED] * 3 == await store.pets.import_batch(first, "import:1", BY)
    second = [Pet(2), Pet(INT64_MAX, None, "dog"), Pet(INT64_MAX, None, "dog"), Pet(4)]
    expected = [ImportOutcome.UNCHANGED, ImportOutcome.REPLACED, ImportOutcome.UNCHANGED, ImportOutcome.CREATED]
    assert expected == await store.pets.import_batch(second, "import:2", BY)
    assert [first[0], *second[1:]] == [await store.pets.find(pet.id) for pet in (first[0], *second[1:])]
    with pytest.raises(PetNotFound):
        await store.pets.find(3)
    recorded = [(entry.action, entry.subject, entry.before, entry.after) for entry in await log(store)]
    assert [
        ("pets.import", "import:1", None, {"created": 3}),
        ("pets.import", "import:2", None, {"created": 1, "replaced": 1, "unchanged": 2}),
    ] == recorded
    [batch] = await batches(store, "import:2")
    assert {"pets": [{"id": INT64_MAX, "name": "Bo"}]} == batch.before
    assert [{"id": INT64_MAX, "tag": "dog"}] == batch.after["pets"]
