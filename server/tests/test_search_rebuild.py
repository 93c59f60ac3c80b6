"""Rebuilding the search index after a large import: reads are exact or refused at every step."""

import asyncio
import itertools
import random
from contextlib import suppress
from pathlib import Path

import apsw
import psycopg
import pytest

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.search import Filters, Query, Sort, SortField, TrackedOrder
from petstore_server.ports import Store
from petstore_server.storage import search, search_sql, search_update
from petstore_server.storage.sqlite import opening
from petstore_server.storage.sqlite.engine import translated
from petstore_server.storage.sqlite.search import SEARCH, UPDATE
from support.open_stores import BY, SqlitePlaces, Stores

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild after imports of 40 orders, in batches of 15; reads merge 5 changes and do not wait."""
    monkeypatch.setattr(search_update, "REBUILD_FROM", 40)
    monkeypatch.setattr(search_update, "COPY_BATCH", 15)
    monkeypatch.setattr(search_update, "BATCH", 15)
    monkeypatch.setattr(search, "RECENT_LIMIT", 5)
    monkeypatch.setattr(search, "WAIT_SECONDS", -1.0)
    monkeypatch.setattr(search, "QUIET_SECONDS", -1.0)


def index_names(stores: Stores) -> set[str]:
    if stores.is_sqlite:
        connection = apsw.Connection(stores.url.removeprefix("sqlite:///"))
        rows = connection.execute("SELECT name FROM sqlite_schema WHERE tbl_name = 'order_index' AND type = 'index'")
        names = {str(name) for (name,) in rows}
        connection.close()
        return names
    with psycopg.connect(stores.url) as other:
        found = other.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'order_index'").fetchall()
    return {name for (name,) in found} - {"order_index_pkey"}


async def import_orders(store: Store, first: int, count: int) -> None:
    chance = random.Random(first)
    for start in range(first, first + count, 10):
        orders = [
            Order(number, chance.randrange(3), 1, None, None, chance.choice(tuple(Status)))
            for number in range(start, start + 10)
        ]
        await store.orders.import_batch(orders, "import:1", BY)


async def listed(store: Store, filters: Filters, sort: Sort) -> list[TrackedOrder] | None:
    """The orders of all pages; None where the store refuses them for the time being."""
    found: list[TrackedOrder] = []
    query = Query(filters, sort, 30)
    with suppress(ServiceUnavailable):
        while True:
            page = await store.search.page(query)
            found += page.orders
            if page.next is None:
                return found
            query = query._replace(after=page.next)
    return None


async def assert_exact(store: Store) -> bool:
    """Whether pages were served; they must then show the orders as they are."""
    current = [order async for batch in store.orders.scan() for order in batch]
    served = []
    for sort in (Sort(), Sort(SortField.UPDATED_AT)):
        for pet_id in (None, 1):
            found = await listed(store, Filters(pet_id=pet_id), sort)
            served.append(found is not None)
            if found is not None:
                expected = {(order.record(), order.status) for order in current if pet_id in (None, order.pet_id)}
                assert expected == {(tracked.record, tracked.status) for tracked in found}
                assert len(expected) == len(found)
    assert len(set(served)) == 1
    return served[0]


async def test_pages_are_exact_or_refused_at_every_step_of_a_rebuild(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await import_orders(store, 0, 60)
        steps, dropped = 0, False
        while await store.search.update_index():
            steps += 1
            names = index_names(each_backend)
            dropped = dropped or not names
            if steps == 3:  # while orders are being copied
                await store.orders.change(next(iter(await pending(store))), CANCEL, BY)
                await import_orders(store, 60, 10)
            if steps == 9:  # while indexes are being created
                assert 0 < len(names) < len(search_update.INDEXES)
                await store.orders.change(next(iter(await pending(store))), CANCEL, BY)
            assert not await assert_exact(store)
        assert dropped
        assert index_names(each_backend) == set(search_update.INDEXES)
        assert await assert_exact(store)
        await import_orders(store, 100, 20)  # too few for another rebuild
        while await store.search.update_index():
            assert index_names(each_backend) == set(search_update.INDEXES)
        assert await assert_exact(store)


async def pending(store: Store) -> list[int]:
    return [order.id async for batch in store.orders.scan() for order in batch if order.status is Status.PENDING]


async def test_another_process_goes_on_with_a_rebuild(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await import_orders(store, 0, 60)
        for _ in range(3):
            assert await store.search.update_index()
    async with each_backend.opened() as one, each_backend.opened() as two:
        while await one.search.update_index():
            await two.search.update_index()
        while await two.search.update_index():
            pass
        assert index_names(each_backend) == set(search_update.INDEXES)
        assert await assert_exact(one)
        assert await assert_exact(two)


async def test_another_process_can_import_between_two_steps_whoever_waits_for_the_next_one(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "GAP_SECONDS", 3.0)
    async with each_backend.opened() as one, each_backend.opened() as two:
        await import_orders(one, 0, 60)
        steps = [asyncio.create_task(one.search.update_index()) for _ in range(2)]
        while index_names(each_backend):  # noqa: ASYNC110 - the first step has not been committed
            await asyncio.sleep(0.01)
        await import_orders(two, 60, 10)
        assert not any(step.done() for step in steps)
        monkeypatch.setattr(search, "GAP_SECONDS", 0.0)
        assert await asyncio.gather(*steps)


async def test_no_index_is_created_while_an_import_goes_on(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "IMPORTED_ORDERS", 20)
    monkeypatch.setattr(search, "QUIET_SECONDS", 3600.0)
    async with each_backend.opened() as store:
        await import_orders(store, 0, 60)
        while await store.search.update_index():
            pass
        assert not index_names(each_backend)
        monkeypatch.setattr(search, "QUIET_SECONDS", -1.0)
        while await store.search.update_index():
            pass
        assert index_names(each_backend) == set(search_update.INDEXES)
        assert await assert_exact(store)


async def test_an_import_into_a_large_store_keeps_the_indexes(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        for first in (0, 30, 60):
            await import_orders(store, first, 30)
            while await store.search.update_index():
                pass
        await import_orders(store, 200, 60)
        while await store.search.update_index():
            assert index_names(each_backend) == set(search_update.INDEXES)
        assert await assert_exact(store)


async def test_sqlite_reads_nothing_of_an_index_that_is_behind(tmp_path: Path) -> None:
    stores = Stores(SqlitePlaces(tmp_path))
    async with stores.opened() as store:
        for start in range(0, 20_000, 5_000):
            orders = [Order(number, number, 1) for number in range(start, start + 5_000)]
            await store.orders.import_batch(orders, "import:1", BY)
            while await store.search.update_index():
                pass
        await store.orders.change(7, CANCEL, BY)
        connection = apsw.Connection(stores.url.removeprefix("sqlite:///"))
        for name in search_update.INDEXES:  # as in a rebuild
            connection.execute(f"DROP INDEX {name}")
        hundreds = itertools.count()  # of SQLite's instructions
        connection.set_progress_handler(lambda: next(hundreds) < 0, 100)
        for sort in (Sort(), Sort(SortField.SHIP_DATE), Sort(SortField.UPDATED_AT, True)):
            queries = Query(Filters(), sort), Query(Filters(ship_date_from=0, updated_from=0), sort)
            pages = [search_sql.page_statement(query, None, SEARCH.with_records) for query in queries]
            probes = [search_sql.wide_ranges(query, unless_behind=True) for query in queries]
            for statement in (*pages, *probes):
                before = next(hundreds)
                assert connection.execute(translated(statement.sql), tuple(statement.parameters)).fetchall() == []
                assert next(hundreds) - before < 10  # the index has 20,000 rows
        connection.close()


async def test_a_cancel_rewrites_only_the_sqlite_indexes_of_the_status_and_of_the_time(tmp_path: Path) -> None:
    stores = Stores(SqlitePlaces(tmp_path))
    async with stores.opened() as store:
        await import_orders(store, 0, 10)
    connection = apsw.Connection(stores.url.removeprefix("sqlite:///"))
    program = connection.execute(f"EXPLAIN {UPDATE.write_entries[0]}", (0, 1)).fetchall()
    written = [root for _, operation, _, root, *_ in program if operation == "OpenWrite"]
    roots = connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE tbl_name = 'order_index'").fetchall()
    connection.close()
    changed = {
        name for name, columns in search_update.INDEXES.items() if {"status", "updated_at"} & set(columns.split(", "))
    }
    assert {"order_index", *changed} == {name for name, root in roots if root in written}


def test_a_rebuild_creates_the_indexes_of_the_migrations() -> None:
    migrations = Path(opening.__file__).parents[1] / "migrations"
    ours = (migrations / "sqlite" / "0003_search.sql").read_text()
    theirs = (migrations / "postgres" / "0003_search.sql").read_text()
    for name, columns in search_update.INDEXES.items():
        assert f"CREATE INDEX {name} ON order_index ({columns});" in ours
        assert f"CREATE INDEX {name} ON petstore.order_index ({columns}, id);" in theirs
    for text in (ours, theirs):
        assert text.count("CREATE INDEX order_index_by_") == len(search_update.INDEXES)
