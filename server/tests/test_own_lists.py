"""Version 1's list of accounts that see only their own orders: the promises of any list, and what others cost (D21)."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import product
from typing import Any, NamedTuple, cast

import pytest

from petstore_server.api import list_cache
from petstore_server.api.list_cache import EncodedList, OwnLists
from petstore_server.api.representation import Representation
from petstore_server.domain.accounts import VisibleOrders, edit
from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.lists import Filters, PageQuery, Position
from petstore_server.domain.orders import CANCEL, COMPLETE, Order, Status, ship
from petstore_server.domain.placements import Placement
from petstore_server.engines.postgres.engine import PostgresEngine
from petstore_server.engines.sqlite.dialect import translated
from petstore_server.runtime.backend import opened_backend
from petstore_server.runtime.opening import is_sqlite
from petstore_server.store import Store, search
from petstore_server.store.engine import Engine
from petstore_server.store.listing import Listing, Mark, OrderList, Piece
from petstore_server.store.search import Search
from petstore_server.store.statements import Query
from testing.damage import execute
from testing.partners import LIST, ORDERS, partner
from testing.search_model import SORTS, all_filters, expected, import_orders, instant, model_of
from testing.search_model import pages as all_pages
from testing.service import Service
from testing.stores import BY, Stores, add_owner, opened_file
from testing.subprocesses import PATIENCE, until
from testing.watched_engine import WatchedEngine, watched_listing

ACCOUNTS = ("zoo", "acme", "shop")
TRANSITIONS = {"cancel": CANCEL, "ship": ship(datetime(2026, 11, 1, tzinfo=UTC)), "complete": COMPLETE}


def bytes_of(form: Representation) -> bytes:
    return b"".join(form.whole.chunks)


async def plain(lists: OwnLists, owner: int) -> bytes:
    return bytes_of(await lists.form(owner, zipped=False))


async def accounts_of(store: Store) -> dict[str, int]:
    return {name: await add_owner(store, name) for name in ACCOUNTS}


@asynccontextmanager
async def host(stores: Stores) -> AsyncIterator[tuple[OwnLists, WatchedEngine]]:
    """A process that serves own lists, and the engine that it asks."""
    async with watched_listing(stores.url) as (listing, engine):
        yield OwnLists(listing), engine


async def test_a_change_of_others_orders_reads_nothing(each_backend: Stores) -> None:
    async with each_backend.opened() as store, host(each_backend) as (lists, engine):
        accounts = await accounts_of(store)
        await store.orders.import_batch([Order(1, account="zoo"), Order(2, account="acme"), Order(3)], "i", BY)
        before = await lists.form(accounts["zoo"], zipped=False)
        readings, looks = engine.readings, len(engine.statements)
        await store.orders.change(2, TRANSITIONS["ship"], BY)
        await store.orders.import_batch([Order(3, 7), Order(4), Order(5, account="acme")], "i", BY)
        await store.orders.place(Placement(accounts["shop"], "a", 1, 1, None), BY)
        with pytest.raises(OrderNotFound):
            await store.orders.change(2, CANCEL, BY, owner=accounts["zoo"])
        assert before is await lists.form(accounts["zoo"], zipped=False)
        assert (readings, looks + (0 if each_backend.is_sqlite else 1)) == (
            engine.readings,
            len(engine.statements),
        )


async def test_lists_of_several_owners_share_a_look_at_the_store(each_backend: Stores) -> None:
    async with each_backend.opened() as store, host(each_backend) as (lists, engine):
        accounts = await accounts_of(store)
        owners = [accounts[name] for name in ACCOUNTS]
        unknown = max(owners) + 1
        await store.orders.import_batch([Order(1, account="zoo")], "i", BY)
        before = [await lists.form(owner, zipped=False) for owner in owners]
        await lists.form(unknown, zipped=False)
        looks = len(engine.statements)
        assert before == await asyncio.gather(*(lists.form(owner, zipped=False) for owner in owners))
        assert looks + (0 if each_backend.is_sqlite else 1) == len(engine.statements)
        await store.orders.change(1, TRANSITIONS["ship"], BY)
        after = await asyncio.gather(*(lists.form(owner, zipped=False) for owner in (*owners, unknown)))
        assert [True, False, False, False] == [b"shipDate" in bytes_of(form) for form in after]


# Over HTTP


@pytest.mark.usefixtures("each_deployment")
async def test_what_an_account_sees_is_in_force_with_the_next_look_at_accounts(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(Order(1, account=client.account), Order(2), Order(3))
    shown = {
        VisibleOrders.ALL: (b'[{"id":1},{"id":2},{"id":3}]', 404, 200),
        VisibleOrders.OWN: (b'[{"id":1}]', 404, 404),
    }
    etags = set()
    async with opened_backend(service.settings, service.clock) as other:  # another process, such as a command
        for orders in (VisibleOrders.ALL, VisibleOrders.OWN, VisibleOrders.ALL, VisibleOrders.OWN):
            await other.store.accounts.change(client.account, edit(None, None, orders), service.actor)
            await service.background_round()
            listed, missing, of_others = [await client.get(path) for path in (LIST, f"{ORDERS}/9", f"{ORDERS}/2")]
            assert shown[orders] == (listed.content, missing.status_code, of_others.status_code)
            etags.add((orders, listed.headers["etag"]))
            same = {"If-None-Match": listed.headers["etag"]}
            assert 304 == (await client.send("GET", LIST, headers=same)).status_code
            head = await client.send("HEAD", LIST)
            assert (b"", listed.headers["etag"]) == (head.content, head.headers["etag"])
    assert 2 == len(etags) == len({etag for _, etag in etags})


# Memory


def kept(encoded: EncodedList) -> int:
    """The bytes of all bodies and parts of bodies that a list keeps."""
    gzip = [] if encoded._gzip is None else encoded._gzip.whole.chunks
    blocks = [data for data, _ in encoded._deflated.values()]
    parts = [piece.data for piece in encoded.source.pieces] + blocks
    return sum({id(data): len(data) for data in (*parts, *encoded.plain.whole.chunks, *gzip)}.values())


@pytest.mark.parametrize("sizes", [[], [10], [3000] * 5, [list_cache.JOINED_BYTES, 10], [10, list_cache.JOINED_BYTES]])
async def test_the_size_of_a_list_is_what_it_keeps(sizes: list[int]) -> None:
    source = [Piece(b"," + f'"{number}"'.encode() + b" " * size) for number, size in enumerate(sizes)]
    encoded = EncodedList(OrderList(Mark("one", 1), tuple(range(len(sizes))), tuple(source)))
    plain_size = encoded.size
    small = 100  # the ends of both forms and the head of gzip
    assert kept(encoded) - small < plain_size - list_cache._LIST_BYTES <= kept(encoded)
    await encoded.gzip()
    assert plain_size < encoded.size
    assert kept(encoded) - small < encoded.size - list_cache._LIST_BYTES <= kept(encoded)


async def test_own_lists_take_bounded_memory_and_are_read_again_where_they_were_forgotten(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with each_backend.opened() as store, host(each_backend) as (lists, engine):
        accounts = await accounts_of(store)
        owners = list(accounts.values())
        orders = [Order(number, account=ACCOUNTS[number % 3]) for number in range(600)]
        await store.orders.import_batch(orders, "i", BY)
        shown = [await plain(lists, owner) for owner in owners]
        size = lists._lists[owners[0]].size
        monkeypatch.setattr(list_cache, "MAX_OWN_BYTES", 2 * size + size // 2)
        for number, owner in enumerate(owners * 3):
            assert shown[number % 3] == await plain(lists, owner)
            held = {each: cache.size for each, cache in lists._lists.items()}
            assert sum(held.values()) == lists._total <= list_cache.MAX_OWN_BYTES
            assert owner in held
            assert 2 == len(held) or not number
        readings = engine.readings
        assert shown[2] == await plain(lists, owners[2])
        assert readings == engine.readings
        monkeypatch.setattr(list_cache, "MAX_OWN_BYTES", 1)
        assert shown[0] == await plain(lists, owners[0])
        assert [owners[0]] == [*lists._lists]
        await lists.form(owners[0], zipped=True)
        assert lists._lists[owners[0]].size == lists._total


async def test_lists_that_are_read_at_the_same_time_are_right_although_they_are_forgotten(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_cache, "MAX_OWN_BYTES", 1)
    async with each_backend.opened() as store, host(each_backend) as (lists, _):
        accounts = await accounts_of(store)
        await store.orders.import_batch([Order(number, account=ACCOUNTS[number % 3]) for number in range(9)], "i", BY)
        found = await asyncio.gather(*(plain(lists, owner) for owner in [*accounts.values()] * 5))
        assert 3 == len(set(found))
        assert [3] * 15 == [shown.count(b'"id"') for shown in found]
        assert 1 == len(lists._lists)
        assert set(lists._sizes) <= set(lists._lists)


async def test_closing_the_list_waits_for_the_own_lists_that_are_read(each_backend: Stores) -> None:
    async with each_backend.opened() as store, watched_listing(each_backend.url) as (listing, engine):
        owner = (await accounts_of(store))["zoo"]
        engine.gate.clear()
        reading = asyncio.create_task(OwnLists(listing).form(owner, zipped=False))
        await until(lambda: engine.readings == 1)
        reading.cancel()
        closing = asyncio.create_task(listing.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            await closing


# Pages of version 2


async def test_no_page_ends_short_because_of_others_orders(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two own orders there are a hundred of others."""
    monkeypatch.setattr(search, "MAX_WORK", 40)
    monkeypatch.setattr(search, "NARROW", 30)
    dates = [None, *[f"2026-11-{day:02}T00:00:00Z" for day in range(1, 29)]]
    statuses = (Status.PENDING, Status.SHIPPED)
    accounts = await accounts_of(store)
    orders = [
        Order(number, number % 2, 1, dates[number % 29], None, statuses[number % 2], account=owner)
        for number in range(2_000)
        for owner in ["acme" if number % 100 else "zoo"]
    ]
    await import_orders(store, orders, 250)
    model = await model_of(store)
    since = sorted({entry.updated_at for entry in model.values()})[2]
    queries = (
        Filters(),
        Filters(frozenset(statuses[:1])),
        Filters(pet_id=0, complete=False),
        Filters(ship_date_from=instant("2026-11-03T00:00:00Z"), ship_date_to=instant("2026-11-25T00:00:00Z")),
        Filters(updated_from=since),
    )
    for filters, sort in product(queries, SORTS):
        asked = filters._replace(owner=accounts["zoo"])
        found = [page async for page in all_pages(store, PageQuery(asked, sort, 7))]
        assert all(len(page.rows) == 7 for page in found[:-1])
        assert expected(model, asked, sort) == [order for page in found for order in page.orders]


# Own lists and changes read only indexes that begin with the owner, whatever PostgreSQL's statistics say

MANY = 4_000
FEW = 30
DAY = "2026-11-{:02}T00:00:00Z"
OWN_INDEXES = {f"own_orders_by_{column}" for column in ("id", "updated_at", "ship_date", "reference")}


class Plan(NamedTuple):
    """What an engine does for a statement: the indexes of orders that it reads, and PostgreSQL's rows and methods."""

    indexes: set[str]
    rows: float = 0.0
    methods: frozenset[str] = frozenset()


async def plan_of(url: str, statement: Query) -> Plan:
    """How the engine carries the statement out now."""
    return sqlite_plan(url, statement) if is_sqlite(url) else await postgres_plan(url, statement)


def sqlite_plan(url: str, statement: Query) -> Plan:
    bound = [json.dumps(value) if isinstance(value, list) else value for value in statement.parameters]
    with opened_file(url) as connection:
        rows = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {translated(statement.sql)}", bound)]
    indexes = {found for row in rows for found in re.findall(r"INDEX (\w+)", row) if "orders" in found}
    scanned = {"orders" for row in rows if re.match("SCAN orders($| USING INTEGER PRIMARY KEY)", row)}
    return Plan(indexes | scanned)  # without the search of an order that the index has found


async def postgres_plan(url: str, statement: Query) -> Plan:
    engine = PostgresEngine(url)
    sql, parameters, in_order, *_ = statement
    [(plans,)] = await engine.query(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters, in_order)
    await engine.close()
    found = [node for node in nodes(plans[0]["Plan"]) if "orders" in str(node.get("Relation Name"))]
    indexes = {str(node.get("Index Name", "orders")) for node in found}
    rows = sum((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in found)
    return Plan(indexes, rows, frozenset(node["Node Type"] for node in found))


def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for part in node.get("Plans", ()) for each in nodes(part))]


async def own_statements(url: str, owner: int, filters: Sequence[Filters]) -> list[Query]:
    """All that is read for the own list at first and after a change, its changes, and its pages."""
    async with watched_listing(url) as (_, engine):
        listing, orders = Listing(cast(Engine, engine), owner), Search(cast(Engine, engine))
        held = await listing.current()
        listing._held = held.__class__(held.mark._replace(change=held.mark.change - 1), held.starts, held.pieces)
        await listing.current()
        await orders.last_changes([owner])
        for chosen, sort, after in product(filters, SORTS, (None, Position(5, 5))):
            await orders.page(PageQuery(chosen._replace(owner=owner), sort, 20, after))
        return engine.statements


def orders_of(account: str, ids: range) -> list[Order]:
    """Orders of few pets and days; each has a reference."""
    return [
        Order(number, number % 3, 1, DAY.format(1 + number % 9), None, Status.PENDING, f"{number % 40}", account)
        for number in ids
    ]


def analyze(stores: Stores) -> None:
    """Have the engine take its statistics now, and not again."""
    if not stores.is_sqlite:
        execute(stores, "ALTER TABLE petstore.orders SET (autovacuum_enabled = off)")
    execute(stores, "ANALYZE")


@pytest.mark.parametrize("statistics", ["missing", "of before", "fresh"])
async def test_own_lists_pages_and_changes_read_only_indexes_of_the_owner(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    """Another account has the newer half of all orders; by the statistics of before, this one had nearly none."""
    monkeypatch.setattr(search, "MAX_WORK", 60)
    monkeypatch.setattr(search, "NARROW", 40)
    async with each_backend.opened() as store:
        owner, _ = [await add_owner(store, name) for name in ("zoo", "acme")]
        await import_orders(store, orders_of("zoo", range(FEW)))
        if statistics == "of before":
            analyze(each_backend)
        await import_orders(store, orders_of("zoo", range(FEW, MANY)))
        await import_orders(store, orders_of("acme", range(MANY, 2 * MANY)))
        day = instant(DAY.format(2))
        assert day is not None
        filters = all_filters(1, (day, day + 1), 1, (Status.PENDING, Status.SHIPPED), (("7",), ("7", "8")))
        if statistics == "fresh":
            analyze(each_backend)
    statements = await own_statements(each_backend.url, owner, random.Random(7).sample(filters, 20))
    assert len(statements) > 20 * len(SORTS) * 2
    for statement in statements:
        plan = await plan_of(each_backend.url, statement)
        assert plan.indexes <= OWN_INDEXES, statement
        assert not plan.methods & {"Seq Scan", "Bitmap Heap Scan"}, statement


async def test_a_look_for_own_changes_reads_one_order_of_each_owner(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        owners = [await add_owner(store, name) for name in ("zoo", "acme")]
        await import_orders(store, [*orders_of("zoo", range(MANY)), *orders_of("acme", range(MANY, 2 * MANY))], 50)
        analyze(each_backend)
    async with watched_listing(each_backend.url) as (_, engine):
        listing = Listing(cast(Engine, engine), owners[0])
        await Search(cast(Engine, engine)).last_changes(owners)
        await listing.current()
        await listing.close()
        looks = engine.statements[:2]
    for statement, most in zip(looks, (2, 1), strict=True):
        plan = await plan_of(each_backend.url, statement)
        assert {"own_orders_by_updated_at"} == plan.indexes
        assert plan.rows <= most
