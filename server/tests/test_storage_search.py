"""Searching orders in the store: pages follow every change at once, whatever the index contains already."""

import asyncio
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from petstore_server.domain.errors import OrderNotFound, ServiceUnavailable
from petstore_server.domain.orders import CANCEL, Order, Status, order_from_fields, ship
from petstore_server.domain.search import (
    Filters,
    IndexEntry,
    Position,
    Query,
    Sort,
    SortField,
    TrackedOrder,
    microseconds,
    sort_key,
)
from petstore_server.ports import Actor, Store
from petstore_server.storage import search, search_sql, statements
from petstore_server.storage.postgres.engine import PostgresEngine
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.search import SEARCH
from support.open_stores import BY, Stores
from support.search_model import position_of

pytestmark = pytest.mark.anyio

SHIP_DATES = (
    None,
    "2026-11-01T10:00:00Z",
    "2026-11-01T10:00:00.000001Z",
    "1969-12-31T23:59:59.250000Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)
SORTS = [Sort(field, descending) for field in SortField for descending in (False, True)]
UPDATED = Sort(SortField.UPDATED_AT)


def some_order(number: int, chance: random.Random) -> Order:
    return Order(
        number,
        chance.choice((None, 0, 1, -(2**63), 2**63 - 1)),
        1,
        chance.choice(SHIP_DATES),
        chance.choice((None, True, False)),
        chance.choice(tuple(Status)),
    )


def some_filters(chance: random.Random) -> Filters:
    def maybe(*values: int) -> int | None:
        return chance.choice((None, None, *values))

    day = microseconds(datetime(2026, 11, 1, 10, tzinfo=UTC))
    return Filters(
        frozenset(chance.sample(tuple(Status), chance.randrange(4))),
        maybe(0, 1, 2**63 - 1),
        chance.choice((None, True, False)),
        maybe(day, day + 1),
        maybe(day + 1, day + 2),
    )


async def walk(store: Store, filters: Filters, sort: Sort, limit: int = 7) -> list[TrackedOrder]:
    found: list[TrackedOrder] = []
    query = Query(filters, sort, limit)
    for _ in range(1000):
        page = await store.search.page(query)
        found += page.orders
        if page.next is None:
            return found
        query = query._replace(after=page.next)
    raise AssertionError("the walk does not end")


def order_of(tracked: TrackedOrder) -> Order:
    return order_from_fields({**json.loads(tracked.record), "status": str(tracked.status)})


def entry_of(tracked: TrackedOrder) -> IndexEntry:
    order = order_of(tracked)
    ship_date = None if order.ship_date is None else microseconds(datetime.fromisoformat(order.ship_date))
    complete = bool(order.complete)
    return IndexEntry(order.id, order.status, order.pet_id, complete, ship_date, tracked.updated_at, tracked.created_at)


async def everything(store: Store) -> list[TrackedOrder]:
    """All orders, each read for itself."""
    return [await store.search.find(order.id) async for batch in store.orders.scan() for order in batch]


async def test_pages_equal_a_brute_force_search_at_every_state_of_the_index(each_backend: Stores) -> None:
    chance = random.Random(7)
    async with each_backend.opened() as store:
        for round_number in range(6):
            ids = chance.sample(range(-30, 60), 12)
            await store.orders.import_batch([some_order(number, chance) for number in ids], "import:1", BY)
            for number in chance.sample(range(-30, 60), 10):
                transition = chance.choice((CANCEL, ship(datetime(2026, 11, 1, 10, tzinfo=UTC))))
                await asyncio.gather(store.orders.change(number, transition, BY), return_exceptions=True)
            orders = await everything(store)
            if round_number % 2:
                while await store.search.update_index():
                    pass
                assert orders == await everything(store)
            for sort in SORTS:
                since = chance.choice((None, None, chance.choice(orders).updated_at))
                filters = replace(some_filters(chance), updated_from=since)
                expected = sorted(
                    (order for order in orders if filters.matches(entry_of(order))),
                    key=lambda order: sort_key(position_of(entry_of(order), sort), sort),
                )
                assert expected == await walk(store, filters, sort)


async def test_an_order_has_its_creation_and_last_change(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
        one = await store.search.find(1)
        assert order_of(one) == Order(1)
        assert one.created_at == one.updated_at == (await store.search.find(2)).updated_at
        for _ in range(2):  # the second time from the index
            while await store.search.update_index():
                pass
            assert one == await store.search.find(1)
        await store.orders.change(1, CANCEL, BY)
        cancelled = await store.search.find(1)
        assert order_of(cancelled) == Order(1, status=Status.CANCELLED)
        assert cancelled.created_at == one.created_at
        assert cancelled.updated_at > one.updated_at
        with pytest.raises(OrderNotFound):
            await store.search.find(3)


async def follow(store: Store, done: asyncio.Event) -> dict[int, Status]:
    """The last status seen of each order by a reader that follows the changes until `done`, and then to the end."""
    seen: dict[int, Status] = {}
    query = Query(Filters(), UPDATED, 20)
    while True:
        last = done.is_set()
        page = await store.search.page(query)
        for tracked in page.orders:
            seen[entry_of(tracked).id] = tracked.status
            query = query._replace(after=position_of(entry_of(tracked), UPDATED))
        if last and page.next is None:
            return seen
        await asyncio.sleep(0)  # a short page is read without waiting


async def update_index_until(store: Store, done: asyncio.Event) -> None:
    while not done.is_set():
        await store.search.update_index()
        await asyncio.sleep(0.005)


async def cancel_in_chunks(store: Store, numbers: range) -> None:
    for start in range(0, len(numbers), 5):
        await asyncio.gather(*(store.orders.change(number, CANCEL, BY) for number in numbers[start : start + 5]))


async def test_a_reader_that_follows_the_last_changes_misses_none(each_backend: Stores) -> None:
    """Two processes change orders at the same time, one of them updates the index, and a third follows the pages."""
    async with each_backend.opened() as one, each_backend.opened() as two, each_backend.opened() as reader:
        await one.orders.import_batch([Order(number) for number in range(200)], "import:1", BY)
        done = asyncio.Event()
        background = asyncio.gather(follow(reader, done), update_index_until(one, done))
        await asyncio.gather(cancel_in_chunks(one, range(0, 200, 2)), cancel_in_chunks(two, range(1, 200, 2)))
        done.set()
        seen, _ = await background
        assert dict.fromkeys(range(200), Status.CANCELLED) == seen


async def test_a_change_is_later_than_all_before_it_even_after_the_clock_was_set_back(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1), Order(2)], "import:1", Actor("operator:test", 2_000_000_000.0))
        await store.orders.change(2, CANCEL, Actor("operator:test", 1_000.0))
        assert [1, 2] == [entry_of(tracked).id for tracked in await walk(store, Filters(), UPDATED)]


async def test_a_read_waits_for_an_index_that_is_far_behind(each_backend: Stores) -> None:
    count = search.RECENT_LIMIT + 1
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(number, pet_id=number % 3) for number in range(count)], "import:1", BY)
        page = await store.search.page(Query(Filters(pet_id=2), Sort(), 2))
        assert [2, 5] == [entry_of(tracked).id for tracked in page.orders]


async def test_every_match_is_found_after_a_range_was_wide_and_became_narrow(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_sql, "NARROW_RANGE", 5)
    probes: list[Query] = []

    def probe(query: Query, *, unless_behind: bool) -> statements.Query:
        probes.append(query)
        return search_sql.wide_ranges(query, unless_behind=unless_behind)

    monkeypatch.setattr(search, "wide_ranges", probe)
    day, days = datetime(2026, 11, 1, tzinfo=UTC), [f"2026-11-{number:02}T00:00:00Z" for number in range(1, 31)]
    dated = Filters(ship_date_from=microseconds(day))
    async with each_backend.opened() as store:
        orders = [Order(number, ship_date=date) for number, date in enumerate(days)]
        await store.orders.import_batch(orders, "import:1", BY)
        while await store.search.update_index():
            pass
        assert list(range(30)) == [entry_of(order).id for order in await walk(store, dated, Sort())]
        moved = [Order(number, ship_date="2026-10-01T00:00:00Z") for number in range(27)]
        await store.orders.import_batch(moved, "import:2", BY)
        while await store.search.update_index():
            pass
        assert [27, 28, 29] == [entry_of(order).id for order in await walk(store, dated, Sort())]
        assert len(probes) == 1


async def test_a_read_is_refused_in_time_while_an_update_of_the_index_takes_long(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WAIT_SECONDS", 0.05)
    never = asyncio.Event()
    async with each_backend.opened() as store:
        monkeypatch.setattr(store.search, "update_index", never.wait)
        await store.orders.import_batch([Order(number) for number in range(search.RECENT_LIMIT + 1)], "import:1", BY)
        with pytest.raises(ServiceUnavailable):
            await store.search.page(Query(Filters(), Sort()))


async def test_an_order_is_exact_however_far_behind_the_index_is(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(7), Order(-77)], "import:1", BY)
        while await store.search.update_index():
            pass
        monkeypatch.setattr(search, "RECENT_LIMIT", 0)
        monkeypatch.setattr(search, "WAIT_SECONDS", -1.0)
        await store.orders.import_batch([Order(number) for number in range(-80, 80)], "import:1", BY)
        await store.orders.change(7, CANCEL, BY)
        await store.orders.change(8, CANCEL, BY)
        before = [await store.search.find(number) for number in (7, -7, -77, 77, 8)]
        seven, minus_seven, same, other, eight = before
        with pytest.raises(OrderNotFound):
            await store.search.find(800)
        assert (seven.status, eight.status, other.status) == (Status.CANCELLED, Status.CANCELLED, Status.PENDING)
        assert same.updated_at == same.created_at == seven.created_at  # the import left it as it was
        assert minus_seven == other._replace(record=minus_seven.record)
        assert minus_seven.created_at == minus_seven.updated_at == eight.created_at
        assert eight.updated_at > seven.updated_at > minus_seven.updated_at > same.updated_at
        while await store.search.update_index():
            pass
        assert before == [await store.search.find(number) for number in (7, -7, -77, 77, 8)]


async def test_closing_the_store_finishes_an_update_of_the_index(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1)], "import:1", BY)
        others = asyncio.all_tasks()
        update = asyncio.create_task(store.search.update_index())
        await asyncio.sleep(0)
        update.cancel()
    assert asyncio.all_tasks() <= others
    async with each_backend.opened() as store:
        assert not await store.search.update_index()
        assert (await store.search.count_by_status())[Status.PENDING] == 1


def entries_read(node: dict[str, Any]) -> float:
    """The rows that the nodes of a plan of PostgreSQL have read, each loop counted."""
    own: float = node["Actual Rows"] * node["Actual Loops"]
    return own + sum(entries_read(part) for part in node.get("Plans", ()))


async def entries_read_for(url: str, query: Query) -> float:
    """The rows that PostgreSQL reads for a page."""
    pool = Pool(url)
    try:
        sql, parameters, in_order = search_sql.page_statement(query, None, SEARCH.with_records)
        [(plans,)] = await PostgresEngine(pool).query(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters, in_order)
        return entries_read(plans[0]["Plan"])
    finally:
        await pool.close()


async def import_orders(store: Store, orders: list[Order]) -> None:
    for start in range(0, len(orders), 5_000):
        await store.orders.import_batch(orders[start : start + 5_000], "i", BY)
    while await store.search.update_index():
        pass


def analyze(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("ANALYZE")


async def test_postgresql_reads_a_deep_page_without_the_orders_before_it(postgres_stores: Stores) -> None:
    async with postgres_stores.opened() as store:
        await import_orders(store, [Order(number, 1, 1) for number in range(20_000)])
    analyze(postgres_stores.url)
    for descending in (False, True):
        query = Query(Filters(), Sort(SortField.ID, descending), 10, Position(10_000, 10_000))
        assert await entries_read_for(postgres_stores.url, query) < 150


async def test_postgresql_reads_a_common_status_without_the_orders_of_another_before_it(
    postgres_stores: Stores,
) -> None:
    """Statistics do not show that no old order is pending any more."""
    old, new = (Status.SHIPPED, Status.CANCELLED), (Status.PENDING, Status.CANCELLED)
    async with postgres_stores.opened() as store:
        orders = [Order(number, status=(old if number < 10_000 else new)[number % 2]) for number in range(20_000)]
        await import_orders(store, orders)
    analyze(postgres_stores.url)
    for field in SortField:
        query = Query(Filters(frozenset({Status.PENDING})), Sort(field), 100)
        assert await entries_read_for(postgres_stores.url, query) < 1500


@pytest.mark.parametrize("sort", SORTS)
async def test_postgresql_reads_no_more_than_a_page_of_orders_that_are_newer_than_its_statistics(
    postgres_stores: Stores, sort: Sort
) -> None:
    """By its statistics, a few orders remain after the position, which could as well be read at once and sorted."""
    day = "2026-11-{:02}T00:00:00Z"
    async with postgres_stores.opened() as store:
        with psycopg.connect(postgres_stores.url, autocommit=True) as other:
            other.execute("ALTER TABLE petstore.order_index SET (autovacuum_enabled = off)")
        await import_orders(store, [Order(number, number % 20, 1, day.format(10)) for number in range(2_000)])
        last = (await store.search.page(Query(Filters(pet_id=7), sort, 95))).next
        analyze(postgres_stores.url)
        dates = (day.format(20), day.format(1))
        newer = [Order(number, 7, 1, dates[sort.descending]) for number in range(2_000, 20_000)]
        if sort.descending:
            newer = [Order(-order.id, 7, 1, order.ship_date) for order in newer]
        await import_orders(store, newer)
        assert last is not None
        for filters in (Filters(pet_id=7), Filters()):
            assert await entries_read_for(postgres_stores.url, Query(filters, sort, 100, last)) < 1500
