"""Searching orders: pages found through the index and recent changes, compared to a brute-force model."""

from collections.abc import Mapping

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore_server.domain.orders import Status
from petstore_server.domain.search import (
    Filters,
    IndexEntry,
    Position,
    Query,
    Sort,
    SortField,
    position_of,
    sort_key,
)
from petstore_server.storage import search_plan, statements
from petstore_server.storage.search_plan import Found, find
from petstore_server.storage.sqlite.engine import translated

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
        "ship_date INTEGER, updated_at INTEGER, created_at INTEGER)"
    )
    rows = [(entry[0], str(entry[1]), *entry[2:]) for entry in entries]
    connection.executemany("INSERT INTO order_index VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return connection


def run(connection: apsw.Connection, query: Query, recent: Mapping[int, IndexEntry | None]) -> tuple[Found, int]:
    """The page and the number of index entries examined for it."""
    work, examined = find(query, recent), 0
    try:
        statement = next(work)
        while True:
            assert isinstance(statement, statements.Query)
            rows = connection.execute(translated(statement.sql), tuple(statement.parameters)).fetchall()
            examined += len(rows)
            statement = work.send(rows)
    except StopIteration as stop:
        return stop.value, examined


def walk(connection: apsw.Connection, query: Query, recent: Mapping[int, IndexEntry | None]) -> list[IndexEntry]:
    found: list[IndexEntry] = []
    for _ in range(1000):
        page, _ = run(connection, query, recent)
        assert len(page.entries) <= query.limit
        found += page.entries
        if page.next is None:
            return found
        query = query._replace(after=page.next)
    raise AssertionError("the walk does not end")


@settings(max_examples=300, deadline=None)
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
    assert expected == walk(index_of(indexed), Query(filters, sort, limit), recent)


def test_the_work_for_one_page_is_bounded_and_a_walk_still_finds_every_match() -> None:
    rare = 5 * search_plan.WORK_LIMIT - 1
    entries = [
        IndexEntry(number, Status.PENDING, 1, number == rare, None, number, None)
        for number in range(5 * search_plan.WORK_LIMIT)
    ]
    connection = index_of(entries)
    query = Query(Filters(pet_id=1, complete=True), Sort())
    page, _ = run(connection, query, {})
    last = search_plan.WORK_LIMIT - 1
    assert ([], Position(last, last)) == (page.entries, page.next)
    assert [entries[rare]] == walk(connection, query, {})
