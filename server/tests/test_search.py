"""Searching orders: pages found through the index and recent changes, compared to a brute-force model."""

import json
from collections.abc import Mapping

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petstore_server.domain.orders import Status
from petstore_server.domain.search import (
    Filters,
    IndexEntry,
    Page,
    Position,
    Query,
    Sort,
    SortField,
    sort_key,
)
from petstore_server.storage import search_sql, statements
from petstore_server.storage.search_plan import WORK_LIMIT, other_ranges
from petstore_server.storage.search_sql import Changed, narrow_range, page_of, page_statement, wide_ranges
from petstore_server.storage.sqlite.engine import translated
from petstore_server.storage.sqlite.search import SEARCH
from petstore_server.storage.statements import Row
from support.search_model import position_of

Recent = Mapping[int, IndexEntry | None]
"""The orders that changed since the index was updated, by id; None for a deleted one."""

SMALL = st.integers(0, 6)
MAYBE = st.none() | SMALL
ENTRIES = st.builds(
    IndexEntry, st.integers(-40, 40), st.sampled_from(Status), MAYBE, st.booleans(), MAYBE, SMALL, MAYBE
)
FILTERS = st.builds(
    Filters, st.frozensets(st.sampled_from(Status)), MAYBE, st.none() | st.booleans(), MAYBE, MAYBE, MAYBE
)
SORTS = st.builds(Sort, st.sampled_from(SortField), st.booleans())


def index_of(entries: list[IndexEntry]) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE order_index (id INTEGER PRIMARY KEY, status TEXT, pet_id INTEGER, complete INTEGER, "
        "ship_date INTEGER, updated_at INTEGER, created_at INTEGER);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, record TEXT);"
        "CREATE TABLE order_changes (change INTEGER PRIMARY KEY);"
        "CREATE TABLE order_index_state (change INTEGER); INSERT INTO order_index_state VALUES (0)"
    )
    rows = [(entry[0], str(entry[1]), *entry[2:]) for entry in entries]
    connection.executemany("INSERT INTO order_index VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.executemany("INSERT INTO orders VALUES (?, ?)", [(entry.id, str(entry.id)) for entry in entries])
    return connection


def read(connection: apsw.Connection, statement: statements.Query) -> list[Row]:
    return connection.execute(translated(statement.sql), tuple(statement.parameters)).fetchall()


def page(connection: apsw.Connection, query: Query, recent: Recent) -> Page:
    """A page, in which the record of an order is its id."""
    wide = read(connection, wide_ranges(query, unless_behind=not recent)) if other_ranges(query) else []
    narrow = narrow_range(query, wide)
    excluded = ("order_index.id NOT IN (SELECT value FROM json_each(%s))", (json.dumps(list(recent)),))
    rows = read(connection, page_statement(query, narrow, SEARCH.with_records, excluded if recent else None))
    changed = [Changed(entry, str(entry.id)) for entry in recent.values() if entry is not None]
    return page_of(rows, query, changed)


def walk(connection: apsw.Connection, query: Query, recent: Recent) -> list[int]:
    found: list[int] = []
    for _ in range(1000):
        following = page(connection, query, recent)
        assert len(following.orders) <= query.limit
        found += [int(order.record) for order in following.orders]
        if following.next is None:
            return found
        query = query._replace(after=following.next)
    raise AssertionError("the walk does not end")


@pytest.fixture(params=[(3000, 1500), (4, 2), (5, -1)], ids=str)
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries examined for a page, and the orders in a range that is sorted, at most."""
    work, narrow = request.param
    monkeypatch.setattr(search_sql, "WORK_LIMIT", work)
    monkeypatch.setattr(search_sql, "NARROW_RANGE", narrow)


@pytest.mark.usefixtures("bounds")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(ENTRIES, unique_by=lambda entry: entry.id, max_size=40),
    st.lists(ENTRIES, unique_by=lambda entry: entry.id, max_size=6),
    st.frozensets(st.integers(-40, 40), max_size=3),
    FILTERS,
    SORTS,
    st.integers(1, 7),
)
def test_a_walk_returns_what_a_brute_force_search_returns(
    indexed: list[IndexEntry],
    changed: list[IndexEntry],
    deleted: frozenset[int],
    filters: Filters,
    sort: Sort,
    limit: int,
) -> None:
    recent: dict[int, IndexEntry | None] = {entry.id: entry for entry in changed} | dict.fromkeys(deleted)
    current = {entry.id: entry for entry in indexed} | recent
    expected = sorted(
        (entry for entry in current.values() if entry is not None and filters.matches(entry)),
        key=lambda entry: sort_key(position_of(entry, sort), sort),
    )
    assert [entry.id for entry in expected] == walk(index_of(indexed), Query(filters, sort, limit), recent)


def test_the_work_for_one_page_is_bounded_and_a_walk_still_finds_every_match() -> None:
    rare = 5 * WORK_LIMIT - 1
    entries = [
        IndexEntry(number, Status.PENDING, 1, number == rare, None, number, None) for number in range(5 * WORK_LIMIT)
    ]
    connection = index_of(entries)
    query = Query(Filters(pet_id=1, complete=True), Sort())
    last = WORK_LIMIT - 1
    assert Page([], Position(last, last)) == page(connection, query, {})
    assert [rare] == walk(connection, query, {})
