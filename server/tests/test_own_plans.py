"""Own lists and changes read only indexes that begin with the owner, whatever PostgreSQL's statistics say (D21)."""

import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from typing import Any, NamedTuple, cast

import pytest

from petstore_server.domain.lists import Filters, PageQuery, Position
from petstore_server.domain.orders import Order, Status
from petstore_server.engines.postgres.engine import PostgresEngine
from petstore_server.engines.sqlite.dialect import translated
from petstore_server.engines.sqlite.engine import SqliteEngine
from petstore_server.runtime.opening import is_sqlite, sqlite_path
from petstore_server.store import search as search_module
from petstore_server.store.engine import Engine
from petstore_server.store.listing import Listing
from petstore_server.store.search import Search
from petstore_server.store.statements import Query
from testing.damage import execute
from testing.search_model import SORTS, all_filters, import_orders, instant
from testing.stores import Stores, add_key, opened_file
from testing.watched_engine import WatchedEngine

MANY = 4_000
FEW = 30
DAY = "2026-11-{:02}T00:00:00Z"
OWN_INDEXES = {f"own_orders_by_{column}" for column in ("id", "updated_at", "ship_date", "reference")}


class Plan(NamedTuple):
    """What an engine does for a statement: the indexes of orders that it reads, and PostgreSQL's rows and methods."""

    indexes: set[str]
    rows: float = 0.0
    methods: frozenset[str] = frozenset()


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[WatchedEngine]:
    engine: Engine = SqliteEngine(sqlite_path(url)) if is_sqlite(url) else PostgresEngine(url)
    try:
        yield WatchedEngine(engine)
    finally:
        await engine.close()


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
    async with watched(url) as engine:
        listing, search = Listing(cast(Engine, engine), owner), Search(cast(Engine, engine))
        held = await listing.current()
        listing._held = held.__class__(held.mark._replace(change=held.mark.change - 1), held.starts, held.pieces)
        await listing.current()
        await search.last_changes([owner])
        for chosen, sort, after in product(filters, SORTS, (None, Position(5, 5))):
            await search.page(PageQuery(chosen._replace(owner=owner), sort, 20, after))
        await listing.close()
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
    monkeypatch.setattr(search_module, "MAX_WORK", 60)
    monkeypatch.setattr(search_module, "NARROW", 40)
    async with each_backend.opened() as store:
        for name in ("zoo", "acme"):
            await add_key(store, name, name)
        owner = (await store.accounts.find("zoo")).id
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
        for name in ("zoo", "acme"):
            await add_key(store, name, name)
        await import_orders(store, [*orders_of("zoo", range(MANY)), *orders_of("acme", range(MANY, 2 * MANY))], 50)
        owners = [(await store.accounts.find(name)).id for name in ("zoo", "acme")]
        analyze(each_backend)
    async with watched(each_backend.url) as engine:
        listing = Listing(cast(Engine, engine), owners[0])
        await Search(cast(Engine, engine)).last_changes(owners)
        await listing.current()
        await listing.close()
        looks = engine.statements[:2]
    for statement, most in zip(looks, (2, 1), strict=True):
        plan = await plan_of(each_backend.url, statement)
        assert {"own_orders_by_updated_at"} == plan.indexes
        assert plan.rows <= most
