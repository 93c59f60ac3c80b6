"""Searching orders in the store: single orders, readers that follow the changes, and the work for a page."""

import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import apsw
import pytest

from petstore_server.domain.audit import Actor, AuditFilters
from petstore_server.domain.lists import Filters, Page, PageQuery, Position, Sort, SortField
from petstore_server.domain.orders import CANCEL, Order, Status, TrackedOrder, order_from_fields
from petstore_server.engines.postgres.engine import PostgresEngine
from petstore_server.engines.sqlite import dialect
from petstore_server.engines.sqlite.dialect import run_work
from petstore_server.store import Store, audit, search
from petstore_server.store.statements import ExecuteMany, Query, Work
from testing.damage import execute
from testing.search_model import SORTS, Entry, Model, all_filters, import_orders, in_order, instant, position_of, walk
from testing.stores import BY, Stores, all_orders, opened_file

DAY = "2026-11-{:02}T00:00:00Z"
UPDATED = Sort(SortField.UPDATED_AT)


def order_of(tracked: TrackedOrder) -> Order:
    return order_from_fields({**json.loads(tracked.record), "status": str(tracked.status)})


async def test_a_change_is_later_than_all_before_it_even_after_the_clock_was_set_back(
    each_backend: Stores, store: Store
) -> None:
    await store.orders.import_batch([Order(1), Order(2), Order(3), Order(4)], "import:1", BY)
    execute(each_backend, "UPDATE petstore.clock SET at = at + %s", 3_600_000_000)  # as if it were an hour earlier
    for number in (3, 1, 2):
        await store.orders.change(number, CANCEL, BY)
    await store.orders.import_batch([Order(4, 7), Order(5)], "import:2", BY)
    found = await walk(store, Filters(), UPDATED)
    assert [3, 1, 2] == [order_of(tracked).id for tracked in found[:3]]
    assert len({tracked.updated_at for tracked in found[:4]}) == 4
    assert found[0].updated_at > found[0].created_at + 3_600_000_000


async def test_orders_are_counted_up_to_a_maximum_which_says_whether_there_are_more(store: Store) -> None:
    await store.orders.import_batch([Order(1), Order(2), Order(3, 7)], "import:1", BY)
    counts = [await store.search.count(Filters(), most) for most in (1, 2, 3, 4)]
    assert [(1, True), (2, True), (3, False), (3, False)] == counts
    assert (1, False) == await store.search.count(Filters(pet_id=7), 1)


# The work for a page


MANY = 6_000


@pytest.fixture(name="bounded")
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page walks 200 orders, and sorts 100, at most."""
    monkeypatch.setattr(search, "MAX_WORK", 200)
    monkeypatch.setattr(search, "NARROW", 100)


async def change_many(store: Store) -> Model:
    """Have few and many orders of each status, of few times."""
    orders = sorted(await all_orders(store))
    await import_orders(store, [order._replace(status=Status.CANCELLED) for order in orders[1_000:4_000]])
    await import_orders(store, [order._replace(complete=True) for order in orders[4_200:4_220]])
    return await listed(store)


def orders_of_one_day() -> list[Order]:
    """Many orders of two pets, most of them with the same ship date."""
    return [Order(number, number % 2, 1, DAY.format(1) if number < 5_000 else None) for number in range(MANY)]


async def listed(store: Store) -> Model:
    """All orders, as pages have them: to read each for itself takes long."""
    found = await walk(store, Filters(), Sort(), 1000)
    return {order.id: Entry(order, each.updated_at, each.created_at) for each in found for order in [order_of(each)]}


def hostile_queries(model: Model, owners: tuple[int, ...] = ()) -> list[PageQuery]:
    """Every combination of filters in every sort, from the start and from the middle."""
    day, since = instant(DAY.format(1)), min(entry.updated_at for entry in model.values())
    assert day is not None
    queries = []
    for sort in SORTS:
        middle = position_of(in_order(model.values(), sort)[MANY // 2], sort)
        for filters in all_filters(1, (day, day + 1), since, (Status.CANCELLED, Status.SHIPPED), (), owners):
            queries += [PageQuery(filters, sort), PageQuery(filters, sort, after=middle)]
    return queries


def deep_queries(model: Model) -> list[PageQuery]:
    """Pages of one index late in a list: nearly all orders are before them, most with the same value."""
    places = (1, MANY // 2, 4_900, MANY - 200)
    sorted_orders = [(sort, in_order(model.values(), sort)) for sort in SORTS]
    return [
        PageQuery(Filters(), sort, after=position_of(orders[place], sort))
        for sort, orders in sorted_orders
        for place in places
    ]


def instructions(url: str, queries: Sequence[PageQuery]) -> list[int]:
    """The instructions that SQLite executes for each page."""
    counts: list[int] = []

    def count(event: dict[str, Any]) -> None:
        counts[-1] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    with opened_file(url) as connection:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        for query in queries:
            counts.append(0)
            run_work(connection, search.read_page(query, dialect))
    return counts


@pytest.mark.usefixtures("bounded")
async def test_sqlite_executes_a_bounded_number_of_instructions_for_any_page(file_store: Stores) -> None:
    async with file_store.opened() as store:
        await import_orders(store, orders_of_one_day(), MANY)
        deep = deep_queries(await listed(store))
        # Without the orders before the page, nearly all of which have the same value: 30 for each order of the page.
        assert max(instructions(file_store.url, deep)) < 3_000
        queries = hostile_queries(await change_many(store))
    assert max(instructions(file_store.url, queries)) < 25_000  # to examine every order would take twice as many


@pytest.mark.usefixtures("bounded")
async def test_sqlite_reads_only_the_orders_of_the_page_from_the_file(file_store: Stores) -> None:
    """Pet 5 has few orders, which are sorted; for the other filters, the index of the sort order is walked."""
    orders = [Order(number, number * 7 % 60, 1, DAY.format(1 + number * 7 % 29), number < 9) for number in range(MANY)]
    async with file_store.opened() as store:
        await import_orders(store, orders, 100)
    open_orders = Filters(frozenset({Status.PENDING, Status.SHIPPED}), complete=True)
    for filters, sort in (*product([Filters(pet_id=5)], SORTS[2:4]), *product([open_orders], SORTS[2:])):
        with opened_file(file_store.url) as connection:
            run_work(connection, search.read_page(PageQuery(filters, sort, 5), dialect))
            assert connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0] < 40, (filters, sort)


async def test_a_cancel_rewrites_only_the_sqlite_indexes_of_the_status_and_of_the_time(file_store: Stores) -> None:
    work = dialect.write_orders([(1, "cancelled", *[None] * 6)], [], 0.0)
    next(work)
    statement = work.send([(1, 1)])
    assert isinstance(statement, ExecuteMany)
    async with file_store.opened():
        program = execute(file_store, f"EXPLAIN {statement.sql}", *statement.parameters[0])
        roots = execute(file_store, "SELECT rootpage, name FROM sqlite_schema WHERE tbl_name = 'orders'")
    written = {root for _, operation, _, root, *_ in program if operation == "OpenWrite"}
    of_the_time = {"orders_by_updated_at", "own_orders_by_updated_at"}
    assert {"orders", "orders_by_status", *of_the_time} == {name for root, name in roots if root in written}


class Plan(NamedTuple):
    """What PostgreSQL did for a page: the rows that it read, those that filters removed included, and how."""

    rows: float
    methods: set[str]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for part in node.get("Plans", ()):
        yield from nodes(part)


async def explained(url: str, queries: Sequence[PageQuery]) -> AsyncIterator[tuple[PageQuery, Plan]]:
    """Read pages as the store does, and explain each of their statements."""
    database = PostgresEngine(url)
    for query in queries:
        yield query, await explained_page(database, search.read_page(query, database.dialect))
    await database.close()


async def explained_page(database: PostgresEngine, work: Work[Page]) -> Plan:
    read, methods = 0.0, set[str]()
    with suppress(StopIteration):
        statement = next(work)
        while True:
            assert isinstance(statement, Query)
            sql, parameters, in_order, *_ = statement
            [(plans,)] = await database.query(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters, in_order)
            for node in nodes(plans[0]["Plan"]):
                methods.add(node["Node Type"])
                if "Plans" not in node:
                    read += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            statement = work.send(await database.query(sql, parameters, in_order))
    return Plan(read, methods)


def analyze(stores: Stores) -> None:
    """Have PostgreSQL take its statistics now, and not again."""
    execute(stores, "ALTER TABLE petstore.orders SET (autovacuum_enabled = off)")
    execute(stores, "ANALYZE")


@pytest.mark.usefixtures("bounded")
async def test_postgresql_reads_few_rows_for_any_page_whatever_its_statistics_say(postgres_stores: Stores) -> None:
    """By its statistics, all orders are pending and incomplete, and have one time."""
    async with postgres_stores.opened() as store:
        await import_orders(store, orders_of_one_day(), MANY)
        analyze(postgres_stores)
        async for query, plan in explained(postgres_stores.url, deep_queries(await listed(store))):
            assert plan.rows < 110, query
        queries = hostile_queries(await change_many(store))
    async for query, plan in explained(postgres_stores.url, random.Random(7).sample(queries, 60)):
        assert plan.rows < 1_300, query
        assert not plan.methods & {"Seq Scan", "Bitmap Heap Scan"}


@pytest.mark.usefixtures("bounded")
async def test_postgresql_walks_a_status_and_a_pet_that_all_orders_have_left_since_its_statistics(
    postgres_stores: Stores,
) -> None:
    async with postgres_stores.opened() as store:
        orders = [Order(number, 1, 1) for number in range(MANY)]
        await import_orders(store, orders)
        analyze(postgres_stores)
        await import_orders(store, [order._replace(pet_id=2, status=Status.CANCELLED) for order in orders])
    left = (
        Filters(frozenset({Status.PENDING})),
        Filters(frozenset({Status.CANCELLED})),
        Filters(frozenset({Status.PENDING}), complete=False),
        Filters(pet_id=1),
        Filters(pet_id=2),
        Filters(frozenset({Status.CANCELLED}), 1),
    )
    queries = [PageQuery(filters, Sort(), 100, after) for filters in left for after in (None, Position(10, 10))]
    async for query, plan in explained(postgres_stores.url, queries):
        assert plan.rows < 110, query
        assert {"Index Scan", "Limit"} <= plan.methods
        assert not plan.methods & {"Sort", "Seq Scan", "Bitmap Heap Scan"}


async def test_postgresql_reads_a_common_status_or_pet_without_the_orders_of_another_before_it(
    postgres_stores: Stores,
) -> None:
    """Statistics do not show that no old order is pending any more, or of the new pet."""
    old, new = (Status.SHIPPED, Status.CANCELLED), (Status.PENDING, Status.CANCELLED)
    half = MANY // 2
    orders = [
        Order(number, number // half, status=(new if number >= half else old)[number % 2]) for number in range(MANY)
    ]
    async with postgres_stores.opened() as store:
        await import_orders(store, orders)
    analyze(postgres_stores)
    queries = [PageQuery(filters, Sort(), 100) for filters in (Filters(frozenset({Status.PENDING})), Filters(pet_id=1))]
    async for query, plan in explained(postgres_stores.url, queries):
        assert plan.rows < 110, query


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("descending", [False, True])
async def test_postgresql_reads_no_more_than_a_page_of_orders_that_are_newer_than_its_statistics(
    postgres_stores: Stores, descending: bool
) -> None:
    """By its statistics, a few orders remain after the position, which could as well be read at once and sorted.

    This is why the store turns sorting and bitmaps off for a page.
    """
    sorts = [Sort(field, descending) for field in SortField]
    sign, date = (-1, DAY.format(1)) if descending else (1, DAY.format(20))
    async with postgres_stores.opened() as store:
        await import_orders(store, [Order(sign * number, number % 20, 1, DAY.format(10)) for number in range(2_000)])
        model = await listed(store)
        analyze(postgres_stores)
        await import_orders(store, [Order(sign * number, 7, 1, date) for number in range(2_000, 8_000)])
    queries = []
    for sort in sorts:
        of_pet = [entry for entry in in_order(model.values(), sort) if entry.order.pet_id == 7]
        last = position_of(of_pet[94], sort)
        queries += [PageQuery(filters, sort, 100, last) for filters in (Filters(pet_id=7), Filters())]
    async for query, plan in explained(postgres_stores.url, queries):
        assert plan.rows < 1_000, query


async def test_each_batch_of_a_scan_examines_a_bounded_number_of_orders(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_WORK", 10)
    orders = [Order(number, complete=number == 44) for number in range(50)]
    await store.orders.import_batch(orders, "import:1", BY)
    batches = [[order.id for order in batch] async for batch in store.orders.scan(Filters(complete=True))]
    assert [[], [], [], [], [44]] == batches[:5]
    assert [] == [order_id for batch in batches[5:] for order_id in batch]


async def test_each_page_of_the_audit_log_examines_a_bounded_number_of_entries(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        actor = Actor("operator:ann" if number else "key:one", BY.at + number)
        await store.orders.import_batch([Order(number)], f"import:{number}", actor)
    for limit, more in ((24, True), (25, False)):
        page = await store.audit.page(AuditFilters(), limit)
        assert (limit, more) == (len(page.entries), page.next is not None)
    monkeypatch.setattr(audit, "MAX_SCAN", 10)
    filters = AuditFilters(actor="key:one")
    first = await store.audit.page(filters, 5)
    assert ([], True) == ([*first.entries], first.next is not None)
    assert ["key:one"] == [entry.actor async for entry in store.audit.entries(filters, newest_first=True)]
    following = AuditFilters(actor="key:one", since=BY.at, until=BY.at + 11)  # the eleventh is the one that matches
    assert ["key:one"] == [entry.actor async for entry in store.audit.entries(following, newest_first=True)]
