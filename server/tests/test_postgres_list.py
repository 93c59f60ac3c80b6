"""The list on many hosts: never stale, however transactions overlap, and read again in another history (D8)."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from petstore_server.api.list_cache import ListCache
from petstore_server.domain.orders import Order, ship
from petstore_server.engines.postgres import dialect
from petstore_server.store.records import order_row
from petstore_server.store.statements import Execute, Work
from testing.engines import PostgresEngine
from testing.postgres_locks import until_waiting
from testing.stores import BY, Stores, served

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))
_VISIBLE = "SELECT '[' || coalesce(string_agg(record, ',' ORDER BY id), '') || ']' FROM petstore.orders"


@pytest.fixture(name="others")
def _others(postgres_stores: Stores) -> Iterator[list[psycopg.Connection]]:
    """Connections of other hosts; each statement is in a transaction until `commit`."""
    asyncio.run(_made(postgres_stores))
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(postgres_stores.url)) for _ in range(3)]


async def _made(stores: Stores) -> None:
    async with stores.opened():
        pass


def perform(connection: psycopg.Connection, work: Work[None]) -> None:
    """Run statements without rows in the connection's transaction, which goes on."""
    for statement in work:
        assert isinstance(statement, Execute)
        connection.execute(statement.sql.encode(), statement.parameters)


def insert(connection: psycopg.Connection, *orders: Order) -> None:
    """Insert orders as the service does, in a transaction that goes on."""
    perform(connection, dialect.write_orders([], [order_row(order) for order in orders], 0.0))


def replace(connection: psycopg.Connection, order: Order) -> None:
    """Replace an order as the service does, in a transaction that goes on."""
    perform(connection, dialect.write_orders([order_row(order)], [], 0.0))


async def test_a_change_that_waits_for_another_transaction_gets_a_later_number(
    postgres_stores: Stores, others: list[psycopg.Connection]
) -> None:
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1)], "import:1", BY)
        cache = ListCache(store.listing)
        insert(others[0], Order(2))
        waiting = asyncio.create_task(store.orders.change(1, SHIP, BY))
        await until_waiting(others[0])
        assert b'[{"id":1}]' == await served(cache)
        others[0].commit()
        await waiting
        assert b'[{"id":1,"shipDate":"2026-11-01T00:00:00Z"},{"id":2}]' == await served(cache)
        numbers = "SELECT id FROM petstore.orders ORDER BY {}"
        for column in ("revision", "updated_at"):
            assert [(2,), (1,)] == others[0].execute(numbers.format(column).encode()).fetchall()


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["begin", "insert", "replace", "commit", "rollback"])), max_size=20
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
@example([(0, "insert"), (0, "rollback"), (1, "insert"), (1, "commit")])  # a number that is given again
def test_whatever_is_visible_is_shown_however_transactions_overlap(
    postgres_stores: Stores, others: list[psycopg.Connection], steps: list[tuple[int, str]]
) -> None:
    """Each connection changes an order of its own; one that would have to wait for another's commit does nothing."""

    async def run() -> None:
        async with postgres_stores.opened() as store:
            cache = ListCache(store.listing)
            largest = await store.orders.last_identifier()
            ids = [largest + 1, largest + 2, largest + 3]
            await store.orders.import_batch([Order(order_id) for order_id in ids], "import:1", BY)
            numbers = iter(range(largest + 4, largest + 100))
            writing: set[int] = set()
            with psycopg.connect(postgres_stores.url, autocommit=True) as looker:
                for which, step in steps:
                    if step in ("commit", "rollback"):
                        others[which].commit() if step == "commit" else others[which].rollback()
                        writing.discard(which)
                    elif step == "begin":
                        others[which].execute("SELECT pg_current_xact_id()")
                    elif writing <= {which}:
                        writing.add(which)
                        number = next(numbers)
                        insert(others[which], Order(number)) if step == "insert" else replace(
                            others[which], Order(ids[which], number)
                        )
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
        cache = ListCache(store.listing)
        others[0].execute("UPDATE petstore.store SET heartbeat = heartbeat + 1")
        for number in range(5):
            await store.orders.import_batch([Order(number)], "import:1", BY)
            await cache.current()
        rebuilds: list[float] = []
        store.engine.stats.rebuilt = rebuilds.append
        for _ in range(5):
            await cache.current()
        assert not rebuilds
        insert(others[0], Order(7))
        others[0].commit()
        assert (await served(cache)).endswith(b',{"id":7}]')


@pytest.mark.parametrize("copied", [False, True], ids=["pg_restore", "renamed copy"])
async def test_after_a_restore_the_list_is_read_again_though_revisions_are_given_again(
    postgres_stores: Stores, postgres: PostgresEngine, tmp_path: Path, copied: bool
) -> None:
    """A copy of a database that takes its place has the identifiers of all its tables."""
    url, dump = postgres_stores.url, tmp_path / "store.dump"
    name = url.rpartition("/")[2]
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(1)], "import:1", BY)
    if copied:
        saved = postgres.new_database(name)
    else:
        postgres.tool("pg_dump", "--format=custom", "--schema=petstore", f"--file={dump}", url)
    async with postgres_stores.opened() as store:
        await store.orders.import_batch([Order(2)], "import:2", BY)
        cache = ListCache(store.listing)
        assert b'[{"id":1},{"id":2}]' == await served(cache)
        lost, access = await store.listing.current(), await store.access_version()
        if copied:
            postgres.drop_database(name)
            with postgres.admin() as admin:
                admin.execute(f'ALTER DATABASE "{saved}" RENAME TO "{name}"'.encode())
        else:
            postgres.tool("pg_restore", "--clean", "--if-exists", f"--dbname={url}", str(dump))
        async with postgres_stores.opened() as other:
            await other.orders.import_batch([Order(3)], "import:3", BY)
        assert b'[{"id":1},{"id":3}]' == await served(cache)
        found = (await store.listing.current()).mark
        assert (lost.mark.change, False) == (found.change, found.history == lost.mark.history)
        assert access != await store.access_version()
