"""The list on many hosts: never stale, however transactions overlap, and read again in another history (D8)."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from petstore_server.api.list_cache import ListCache
from petstore_server.domain.orders import CANCEL, Order, Placement, ship
from petstore_server.engines.postgres import dialect
from petstore_server.store import Store
from petstore_server.store.engine import Command, Work
from petstore_server.store.listing import starts_piece
from petstore_server.store.records import order_row
from testing.engines import PostgresEngine
from testing.stores import BY, Stores, body, served
from testing.subprocesses import PATIENCE
from testing.watched_engine import watched_listing

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))
_VISIBLE = "SELECT '[' || coalesce(string_agg(record, ',' ORDER BY id), '') || ']' FROM petstore.orders"
_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


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
        assert isinstance(statement, Command)
        connection.execute(statement.sql.encode(), statement.parameters)


def insert(connection: psycopg.Connection, *orders: Order) -> None:
    """Insert orders as the service does, in a transaction that goes on."""
    perform(connection, dialect.insert_orders([(*order_row(order), None) for order in orders], orders[-1].id, 0.0, 1))


def replace(connection: psycopg.Connection, order: Order) -> None:
    """Replace an order as the service does, in a transaction that goes on."""
    perform(connection, dialect.update_orders([(*order_row(order), None)], 0.0))


async def until_waiting(connection: psycopg.Connection, number: int = 1) -> None:
    """Wait until so many transactions wait for a lock."""
    async with asyncio.timeout(PATIENCE):
        while connection.execute(_WAITING).fetchone() != (number,):  # noqa: ASYNC110 - PostgreSQL reports no event
            await asyncio.sleep(0.01)


async def test_a_transaction_that_began_before_another_and_commits_after_it_is_seen(
    postgres_stores: Stores, others: list[psycopg.Connection]
) -> None:
    async with postgres_stores.opened() as one, postgres_stores.opened() as other:
        await one.orders.import_batch([Order(1), Order(2)], "import:1", BY)
        cache = ListCache(other.listing)
        assert b'[{"id":1},{"id":2}]' == await served(cache)
        others[0].execute("SELECT FROM petstore.orders WHERE id = 1 FOR UPDATE")
        slow = asyncio.create_task(one.orders.import_batch([Order(1, 7), Order(3)], "import:2", BY))
        await until_waiting(others[0])
        await other.orders.import_batch([Order(2, 5)], "import:3", BY)
        assert b'[{"id":1},{"id":2,"petId":5}]' == await served(cache)
        others[0].rollback()
        await slow
        assert b'[{"id":1,"petId":7},{"id":2,"petId":5},{"id":3}]' == await served(cache)


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


# Deferred to the commit, when the changes have their numbers.
_SLOW_COMMITS = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(random() * 0.005); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON petstore.audit DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slow()
"""


class Version(NamedTuple):
    """What one snapshot shows of an order: the two numbers of its last change, and what they are the numbers of."""

    revision: int
    record: str
    updated_at: int
    status: str


Seen = dict[int, Version]
"""A snapshot of all orders, by identifier."""


async def look(url: str, done: Callable[[], bool]) -> list[Seen]:
    """Look at the orders again and again."""
    seen = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while not done():
            rows = await connection.execute("SELECT id, revision, record, updated_at, status FROM petstore.orders")
            seen.append({row[0]: Version(*row[1:]) for row in await rows.fetchall()})
    return seen


def hidden(before: Seen, after: Seen) -> list[int]:
    """The orders with a change that only the later snapshot shows, though the earlier one shows a change after it."""
    revision = max(version.revision for version in before.values())
    at = max(version.updated_at for version in before.values())
    return [
        order_id
        for order_id, version in after.items()
        if version != before.get(order_id)
        and (version.updated_at <= at or (version.revision <= revision and version.record != _record(before, order_id)))
    ]


def _record(seen: Seen, order_id: int) -> str | None:
    return seen[order_id].record if order_id in seen else None


class Writer:
    """A host that changes orders and looks for each acknowledged change in the list of another one."""

    def __init__(self, store: Store, cache: ListCache) -> None:
        self._store = store
        self._cache = cache

    async def ship(self, order_ids: Sequence[int]) -> None:
        for order_id in order_ids:
            await self._store.orders.change(order_id, SHIP, BY)
            assert f'{{"id":{order_id},"shipDate"'.encode() in await served(self._cache)

    async def cancel(self, order_ids: Sequence[int]) -> None:
        for order_id in order_ids:
            await self._store.orders.change(order_id, CANCEL, BY)

    async def add(self, order_ids: Sequence[int], replaced: Sequence[int]) -> None:
        for start, known in zip(range(0, len(order_ids), 10), replaced, strict=True):
            batch = [Order(order_id, 1) for order_id in (known, *order_ids[start : start + 10])]
            await self._store.orders.import_batch(batch, "import:2", BY)
            shown = await served(self._cache)
            assert all(order.record().encode() in shown for order in batch)

    async def place(self, name: str) -> None:
        for number in range(20):
            placed = await self._store.orders.place(Placement(1, f"{name}-{number}", 1, 1, None), BY)
            assert f'{{"id":{placed.order_id},'.encode() in await served(self._cache)


async def test_a_snapshot_that_shows_one_change_shows_all_before_it(postgres_stores: Stores) -> None:
    """Each order has a piece of its own and changes in the list once: a change that was missed stays missing.

    Each commit takes a random time after its changes were numbered.
    """
    ids = list(islice(filter(starts_piece, count(1)), 600))
    known, new = ids[:300], ids[300:]
    async with (
        postgres_stores.opened() as one,
        postgres_stores.opened() as two,
        postgres_stores.opened() as three,
        watched_listing(postgres_stores.url) as (listing, _),
    ):
        await one.orders.import_batch([Order(order_id) for order_id in known], "import:1", BY)
        with psycopg.connect(postgres_stores.url) as other:
            other.execute(_SLOW_COMMITS)
        cache = ListCache(listing)
        writers = [Writer(store, cache) for store in (one, two, three)]
        jobs = [writers[number % 3].ship(known[100 + number : 200 : 6]) for number in range(6)]
        jobs += [writers[number % 3].cancel(known[200 + number :: 6]) for number in range(6)]
        jobs += [writers[number].add(new[number::3], known[number:30:3]) for number in range(3)]
        jobs += [writers[number].place(str(number)) for number in range(3)]
        working = asyncio.gather(*jobs)
        seen = await look(postgres_stores.url, working.done)
        await working
        assert len(seen) > 5
        assert [] == [orders for before, after in pairwise(seen) if (orders := hidden(before, after))]
        assert await body(one) == await served(cache)


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
