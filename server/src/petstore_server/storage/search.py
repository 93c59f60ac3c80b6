"""Finding one page of orders through the search index; the same for every engine.

The index (`order_index`) follows the orders behind the writes, so that a change costs no more than before. A page is
read in one snapshot from the index and from the recent changes that the index does not contain yet. `find` decides
what to read and does no I/O: an engine runs each `Read` that it yields and sends the result back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import Status
from petstore_server.domain.search import (
    Filters,
    IndexEntry,
    Page,
    Position,
    Query,
    Sort,
    SortField,
    SortKey,
    TrackedOrder,
    position_of,
    sort_key,
)

WORK_LIMIT = 3000
"""Index entries examined for one page at most. A page that would need more is returned short, with a next position."""

NARROW_RANGE = 1500
"""Orders in a range up to which they are read and sorted, instead of scanning in sort order and filtering."""

RECENT_LIMIT = 2000
"""Changed orders that a read merges with the index; while more are waiting, reads wait for the index."""

WAIT_SECONDS = 3.0
"""How long a read waits for an index that is behind."""

INDEX_BATCH = 1000
"""Orders that one transaction brings into the index: it must not delay a cancel for long."""

COUNT_BY_STATUS = "SELECT status, count(*) FROM petstore.order_index GROUP BY status"

ENTRY_COLUMNS = "id, status, pet_id, complete, ship_date, updated_at, created_at"

_PAUSE_SECONDS = 0.01
_COLUMN = {SortField.ID: "id", SortField.SHIP_DATE: "ship_date", SortField.UPDATED_AT: "updated_at"}


Result = TypeVar("Result")


class Scan(NamedTuple):
    """Index entries in the order of `column` and id, through the index on the equal column and `column`.

    `low` is included, `high` is not. `missing` selects the entries without a value in the column instead.
    """

    equal: tuple[str, int | str] | None
    column: str
    descending: bool = False
    low: int | None = None
    high: int | None = None
    missing: bool = False
    after: Position | None = None


class Read(NamedTuple):
    """Asks for the first `limit` entries of a scan."""

    scan: Scan
    limit: int


class Found(NamedTuple):
    """The entries of one page, in order, and the position after which the list goes on."""

    entries: list[IndexEntry]
    next: Position | None

    def page(self, records: Mapping[int, str]) -> Page:
        """The page with its orders, whose records are given by id."""
        return Page([tracked(entry, records[entry.id]) for entry in self.entries], self.next)


Recent = Mapping[int, IndexEntry | None]
"""The orders that changed since the index was updated, by id; None for a deleted one."""


def tracked(entry: IndexEntry, record: str) -> TrackedOrder:
    """The order of an index entry."""
    return TrackedOrder(record, entry.status, entry.updated_at, entry.created_at)


def counts_of(rows: Iterable[tuple[Any, ...]]) -> dict[Status, int]:
    """The number of orders with each status, from the rows of COUNT_BY_STATUS."""
    return dict.fromkeys(Status, 0) | {Status(status): count for status, count in rows}


class IndexBehind(Exception):
    """More orders changed since the index was updated than one read merges: update it first."""


Reads = Generator[Read, list[IndexEntry], Found]


def find(query: Query, recent: Recent) -> Reads:
    """Find one page. `recent` has the orders changed since the index was updated, None for a deleted one."""
    filters, sort = query.filters, query.sort
    start = None if query.after is None else sort_key(query.after, sort)
    fresh = [entry for entry in recent.values() if entry is not None and filters.matches(entry)]
    old, end = yield from _indexed(query, recent)
    keyed = sorted((_key(entry, sort), entry) for entry in [*old, *fresh])
    page = [
        entry for key, entry in keyed if (start is None or key > start) and (end is None or key <= sort_key(end, sort))
    ]
    if len(page) > query.limit:
        page = page[: query.limit]
        return Found(page, position_of(page[-1], sort))
    return Found(page, end)


def take_changes(waiting: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The first of these changes, (number, orders), that together have INDEX_BATCH orders."""
    orders = 0
    for count, (_, size) in enumerate(waiting, 1):
        orders += size
        if orders >= INDEX_BATCH:
            return waiting[:count]
    return waiting


def statement(read: Read, table: str, placeholder: str) -> tuple[str, tuple[int | str, ...]]:
    """The SELECT of a read from the index table, and its parameters. `placeholder` marks a parameter."""
    scan = read.scan
    conditions = [condition for condition in _conditions(scan) if condition is not None]
    where = " AND ".join(text for text, _ in conditions).replace("?", placeholder)
    direction = " DESC" if scan.descending else ""
    order = f"id{direction}" if scan.column == "id" else f"{scan.column}{direction}, id{direction}"
    text = f"SELECT {ENTRY_COLUMNS} FROM {table} WHERE {where} ORDER BY {order} LIMIT {read.limit}"  # noqa: S608
    return text, tuple([value for _, values in conditions for value in values])


def entry_of(row: tuple[object, ...]) -> IndexEntry:
    """An index entry from the columns ENTRY_COLUMNS."""
    order_id, status, pet_id, complete, ship_date, updated_at, created_at = row
    return IndexEntry(order_id, Status(status), pet_id, bool(complete), ship_date, updated_at, created_at)  # type: ignore[arg-type]


async def read_indexed(read: Callable[[], Awaitable[Result]], update_index: Callable[[], Awaitable[bool]]) -> Result:
    """Read, updating the index first where too many changes are waiting. Raises ServiceUnavailable when that lasts."""
    deadline = monotonic() + WAIT_SECONDS
    while True:
        try:
            return await read()
        except IndexBehind:
            if monotonic() > deadline:
                raise ServiceUnavailable("the search index is being updated after a large change") from None
        if not await update_index():
            await asyncio.sleep(_PAUSE_SECONDS)


Condition = tuple[str, tuple[int | str, ...]]


def _conditions(scan: Scan) -> list[Condition | None]:
    """The conditions of a scan with their parameters; None for those that it lacks. The index bounds all of them."""
    column, equal = scan.column, scan.equal
    return [
        (f"{column} IS NULL" if scan.missing else f"{column} IS NOT NULL", ()),
        None if equal is None else (f"{equal[0]} = ?", (equal[1],)),
        None if scan.low is None else (f"{column} >= ?", (scan.low,)),
        None if scan.high is None else (f"{column} < ?", (scan.high,)),
        None if scan.after is None else _after(scan, scan.after),
    ]


def _after(scan: Scan, position: Position) -> Condition:
    sign = "<" if scan.descending else ">"
    if scan.column == "id" or scan.missing:
        return f"id {sign} ?", (position.id,)
    if position.value is None:  # only scans of missing values go on after such a position
        raise ValueError(position)
    return f"({scan.column}, id) {sign} (?, ?)", (position.value, position.id)


def _indexed(
    query: Query, recent: Recent
) -> Generator[Read, list[IndexEntry], tuple[list[IndexEntry], Position | None]]:
    """Matching entries of the index that did not change since, and the position up to which they are complete."""
    narrow = yield from _narrow_range(query)
    if narrow is not None:
        return [entry for entry in narrow if _counts(entry, query, recent)], None
    found: list[IndexEntry] = []
    work = 0
    for segment in _segments(query):
        after = segment[0].after
        size = query.limit + 1
        while True:
            entries, end = yield from _merged([scan._replace(after=after) for scan in segment], size, query.sort)
            work += len(entries)
            found += [entry for entry in entries if _counts(entry, query, recent)]
            if end is None:
                break
            if len(found) > query.limit or work >= WORK_LIMIT:
                return found, end
            after, size = end, min(2 * size, WORK_LIMIT - work)
    return found, None


def _counts(entry: IndexEntry, query: Query, recent: Recent) -> bool:
    return entry.id not in recent and query.filters.matches(entry)


def _merged(
    scans: list[Scan], size: int, sort: Sort
) -> Generator[Read, list[IndexEntry], tuple[list[IndexEntry], Position | None]]:
    """The next entries of several scans in sort order, and the position up to which all of them were read.

    The position is None when all scans have ended.
    """
    keyed: list[tuple[SortKey, IndexEntry]] = []
    ends: list[tuple[SortKey, Position]] = []
    for scan in scans:
        entries = yield Read(scan, size)
        keyed += [(_key(entry, sort), entry) for entry in entries]
        if len(entries) == size:
            ends.append((_key(entries[-1], sort), position_of(entries[-1], sort)))
    keyed.sort(key=itemgetter(0))
    if not ends:
        return [entry for _, entry in keyed], None
    last, position = min(ends, key=itemgetter(0))
    return [entry for key, entry in keyed if key <= last], position


def _narrow_range(query: Query) -> Generator[Read, list[IndexEntry], list[IndexEntry] | None]:
    """All entries in a range of another column than the sort's, if they are few; else None."""
    filters = query.filters
    ranges: list[tuple[str, int | None, int | None]] = []
    if query.sort.field is not SortField.UPDATED_AT:
        ranges.append(("updated_at", filters.updated_from, None))
    if query.sort.field is not SortField.SHIP_DATE:
        ranges.append(("ship_date", filters.ship_date_from, filters.ship_date_to))
    for column, low, high in ranges:
        if low is None and high is None:
            continue
        entries: list[IndexEntry] = []
        for equal in _equalities(filters):
            entries += yield Read(Scan(equal, column, low=low, high=high), NARROW_RANGE + 1 - len(entries))
            if len(entries) > NARROW_RANGE:
                break
        else:
            return entries
    return None


def _segments(query: Query) -> list[list[Scan]]:
    """The scans of a list: segments one after another, the scans of a segment merged."""
    filters, (field, descending), after = query.filters, query.sort, query.after
    column = _COLUMN[field]
    equalities = _equalities(filters)
    if field is SortField.UPDATED_AT:
        return [[Scan(equal, column, descending, low=filters.updated_from, after=after) for equal in equalities]]
    if field is SortField.ID:
        return [[Scan(equal, column, descending, after=after) for equal in equalities]]
    low, high = filters.ship_date_from, filters.ship_date_to
    dated = [Scan(equal, column, descending, low, high, after=after) for equal in equalities]
    undated = [Scan(equal, column, descending, missing=True) for equal in equalities]
    if low is not None or high is not None:
        return [dated]
    if after is not None and after.value is None:
        return [[scan._replace(after=after) for scan in undated]]
    return [dated, undated]


def _equalities(filters: Filters) -> list[tuple[str, int | str] | None]:
    """The equality that chooses the index: the most selective one; several statuses are scanned side by side."""
    if filters.pet_id is not None:
        return [("pet_id", filters.pet_id)]
    if filters.statuses and len(filters.statuses) < len(Status):
        return [("status", str(status)) for status in sorted(filters.statuses)]
    if filters.complete is not None:
        return [("complete", int(filters.complete))]
    return [None]


def _key(entry: IndexEntry, sort: Sort) -> SortKey:
    return sort_key(position_of(entry, sort), sort)
