"""The list on many hosts: never stale, whatever the order of commits, and renewed only where it changed (D8)."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, Order, ship
from petstore_server.http.list_cache import ListCache
from petstore_server.storage.listing import starts_piece
from petstore_server.storage.postgres.listing import ANY_CHANGED, CHANGED, STARTS, ListReader, Mark
from petstore_server.storage.statements import Work
from support.engines import PostgresEngine
from support.open_stores import BY, SqlitePlaces, Stores, pieces_of, served

pytestmark = pytest.mark.anyio

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))
_INSERT = """
    INSERT INTO petstore.orders (id, status, record) VALUES (%(id)s, 'pending', %(record)s)
    ON CONFLICT (id) DO UPDATE SET record = excluded.record, revision = excluded.revision
"""
_VISIBLE = "SELECT '[' || coalesce(string_agg(record, ',' ORDER BY id), '') || ']' FROM petstore.orders"


@pytest.fixture(name="others")
def _others(postgres_stores: Stores) -> Iterator[list[psycopg.Connection]]:
    """Connections of other hosts; each statement is in a transaction until `commit`.

    The triggers of the change log, which make such transactions wait for each other, are off: the list does not rely
    on them.
    """
    asyncio.run(_made(postgres_stores))
    with psycopg.connect(postgres_stores.url) as connection:
        connection.execute("ALTER TABLE petstore.orders DISABLE TRIGGER USER")
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(postgres_stores.url)) for _ in range(3)]


async def _made(stores: Stores) -> None:
    async with stores.opened():
        pass


def put(connection: psycopg.Connection, order: Order) -> None:
    """Change the list, in a transaction that goes on."""
    connection.execute(_INSERT, {"id": order.id, "record": order.record()})


async def test_transactions_that_commit_in_the_other_order_than_they_were_numbered_are_both_seen(
    postgres_stores: Stores, others: list[psycopg.Connection]
) -> None:
    async with postgres_stores.opened() as store:
        cache = ListCache(store.orders)
        assert b"[]" == await served(cache)
        first, second, _ = others
        put(first, Order(1))
        put(second, Order(2))
        numbers = [other.execute("SELECT pg_current_xact_id()::text::bigint").fetchall() for other in others[:2]]
        assert numbers[0] < numbers[1]
        second.commit()
        assert b'[{"id":2}]' == await served(cache)
        first.commit()
        assert b'[{"id":1},{"id":2}]' == await served(cache)
        rebuilds = store.stats.rebuilds
        assert b'[{"id":1},{"id":2}]' == await served(cache)
        assert rebuilds == store.stats.rebuilds


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.just("commit"), st.just("rollback"), st.integers(0, 2))),
    max_size=14,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_whatever_is_visible_is_shown_however_transactions_overlap(
    postgres_stores: Stores, others: list[psycopg.Connection], steps: list[tuple[int, str | int]]
) -> None:
    """Each of three connections changes orders of its own, so that none waits for another."""

    async def run() -> None:
        async with postgres_stores.opened() as store:
            cache = ListCache(store.orders)
            with psycopg.connect(postgres_stores.url, autocommit=True) as looker:
                for number, (which, step) in enumerate(steps):
                    if step == "commit":
                        others[which].commit()
                    elif step == "rollback":
                        others[which].rollback()
                    else:
                        put(others[which], Order(which * 3 + int(step), number))
                    assert looker.execute(_VISIBLE).fetchall()[0][0].encode() == await served(cache)

    try:
        asyncio.run(run())
    finally:
        for other in others:
            other.rollback()


async def test_a_long_transaction_causes_no_further_reading_of_the_list(
    postgres_stores: Stores, others: list[psycopg.Connection]
) -> None:
    async with postgres_stores.opened() as store:
        cache = ListCache(store.orders)
        put(others[0], Order(-1))
        for number in range(5):
            await store.orders.import_batch([Order(number)], "import:1", BY)
            await cache.current()
        rebuilds = store.stats.rebuilds
        for _ in range(5):
            await cache.current()
        assert rebuilds == store.stats.rebuilds
        others[0].commit()
        assert (await served(cache)).startswith(b'[{"id":-1},')


async def test_rows_of_another_cluster_with_numbers_still_to_come_are_not_read_again_and_again(
    postgres_stores: Stores, others: list[psycopg.Connection]
) -> None:
    async with postgres_stores.opened() as store:
        cache = ListCache(store.orders)
        await store.orders.import_batch([Order(number) for number in range(10)], "import:1", BY)
        others[0].execute("UPDATE petstore.orders SET revision = 1000000000000")
        others[0].commit()
        await served(cache)
        rebuilds = store.stats.rebuilds
        await cache.current()
        assert rebuilds == store.stats.rebuilds
        await store.orders.change(3, SHIP, BY)
        assert b'{"id":3,"shipDate":"2026-11-01T00:00:00Z"}' in await served(cache)


async def test_a_restore_is_noticed_and_the_list_read_anew(
    postgres_stores: Stores, postgres: PostgresEngine, tmp_path: Path
) -> None:
    dump = tmp_path / "store.dump"
    async with postgres_stores.opened() as store:
        cache = ListCache(store.orders)
        await store.orders.import_batch([Order(1)], "import:1", BY)
        access = await store.access_version()
        postgres.tool("pg_dump", "--format=custom", "--schema=petstore", f"--file={dump}", postgres_stores.url)
        await store.orders.import_batch([Order(2)], "import:2", BY)
        assert b'[{"id":1},{"id":2}]' == await served(cache)
        postgres.tool("pg_restore", "--clean", "--if-exists", f"--dbname={postgres_stores.url}", str(dump))
        assert b'[{"id":1}]' == await served(cache)
        assert access != await store.access_version()
        await store.orders.import_batch([Order(3)], "import:3", BY)
        assert b'[{"id":1},{"id":3}]' == await served(cache)


async def test_both_engines_give_the_same_pieces_to_the_same_orders(postgres_stores: Stores, tmp_path: Path) -> None:
    starts = [order_id for order_id in range(-50_000, 50_000) if starts_piece(order_id)]
    ids = [INT64_MIN, *starts, *(number for start in starts for number in (start - 1, start + 7)), INT64_MAX]
    orders = [Order(number, number, 1, "2026-11-01T00:00:00Z", number % 2 == 0) for number in sorted(set(ids))]
    async with Stores(SqlitePlaces(tmp_path)).opened() as one, postgres_stores.opened() as other:
        assert pieces_of(await one.orders.snapshot()) == pieces_of(await other.orders.snapshot()) == [b""]
        for store in (one, other):
            for start in range(0, len(orders), 50):
                await store.orders.import_batch(orders[start : start + 50], "import:1", BY)
        lists = await one.orders.snapshot(), await other.orders.snapshot()
        assert len(starts) < len(lists[0].pieces)
        assert (lists[0].starts, pieces_of(lists[0])) == (lists[1].starts, pieces_of(lists[1]))


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_a_request_asks_is_answered_by_indexes_whatever_is_known_of_the_table(
    postgres_stores: Stores, postgres: PostgresEngine, analyzed: bool
) -> None:
    async def fill() -> None:
        async with postgres_stores.opened() as store:
            await store.orders.import_batch([Order(number) for number in range(20_000)], "import:1", BY)

    asyncio.run(fill())
    with postgres.admin(postgres_stores.url.rpartition("/")[2]) as admin:
        if analyzed:
            admin.execute("ANALYZE petstore.orders")
        mark = Mark("", 10_000_000, (5, 6)).changed_since(1)
        plans = []
        for query, parameters in ((ANY_CHANGED, mark), (CHANGED, mark), (STARTS, None)):
            plans.append(str(admin.execute(f"EXPLAIN {query}", parameters).fetchall()))
        assert ["orders_by_revision" in plan for plan in plans] == [True, True, False]
        assert "orders_starting_pieces" in plans[2]
        assert not any("Seq Scan on orders" in plan for plan in plans)


async def test_the_list_is_read_in_one_snapshot(
    postgres_stores: Stores, others: list[psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What commits while the pieces are read is not in the list, and the list does not claim to show it."""
    read_starts = ListReader.piece_starts

    def meanwhile(reader: ListReader) -> Work[list[int]]:
        put(others[0], Order(10_000))
        others[0].commit()
        return (yield from read_starts(reader))

    async with postgres_stores.opened() as store:
        cache = ListCache(store.orders)
        await store.orders.import_batch([Order(number) for number in range(5_000)], "import:1", BY)
        monkeypatch.setattr(ListReader, "piece_starts", meanwhile)
        assert b"10000" not in await served(cache)
        monkeypatch.undo()
        assert b"10000" in await served(cache)
