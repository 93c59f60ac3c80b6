"""Planning one page of orders: which ranges of which indexes of the search index are read, and how they are merged.

Everything here is a rule or a generator of statements, the same for every engine; `storage.search` runs them.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from petstore_server.domain.orders import Status
from petstore_server.domain.search import (
    Filters,
    IndexEntry,
    Position,
    Query,
    Sort,
    SortField,
    SortKey,
    position_of,
    sort_key,
)
from petstore_server.storage import statements
from petstore_server.storage.statements import Row, Work

WORK_LIMIT = 3000
"""Index entries examined for one page at most. A page that would need more is returned short, with a next position."""

NARROW_RANGE = 1500
"""Orders in a range up to which they are read and sorted, instead of scanning in sort order and filtering."""

ENTRY_COLUMNS = "id, status, pet_id, complete, ship_date, updated_at, created_at"
_INDEX = "petstore.order_index"
STATUS = {str(status): status for status in Status}

_COLUMN = {SortField.ID: "id", SortField.SHIP_DATE: "ship_date", SortField.UPDATED_AT: "updated_at"}

Condition = tuple[str, tuple[int | str, ...]]
"""A condition with its parameters."""


class Scan(NamedTuple):
    """Index entries in the order of `column` and id, through the index on the equal column and `column`.

    `low` is included, `high` is not. `missing` selects the entries without a value in the column instead. The scan
    begins after the position `after`, and ends with the position `last`.
    """

    equal: tuple[str, int | str] | None
    column: str
    descending: bool = False
    low: int | None = None
    high: int | None = None
    missing: bool = False
    after: Position | None = None
    last: Position | None = None


class Found(NamedTuple):
    """The entries of one page, in order, and the position after which the list goes on."""

    entries: list[IndexEntry]
    next: Position | None


Recent = Mapping[int, IndexEntry | None]
"""The orders that changed since the index was updated, by id; None for a deleted one."""


def find(query: Query, recent: Recent) -> Work[Found]:
    """Find one page. `recent` has the orders changed since the index was updated, None for a deleted one."""
    sort = query.sort
    page, end = yield from _indexed(query, recent)
    fresh = [entry for entry in recent.values() if entry is not None and query.filters.matches(entry)]
    if fresh:
        page = _in_order([*page, *fresh], query, end)
    if len(page) > query.limit:
        page = page[: query.limit]
        return Found(page, position_of(page[-1], sort))
    return Found(page, end)


def whole_scans(query: Query) -> list[Scan]:
    """The scans that have the page, one after the other, if they answer all filters; else none."""
    segments = _segments(query)
    if any(len(segment) > 1 or _others(segment[0], query.filters) for segment in segments):
        return []
    return [segment[0] for segment in segments]


def select(
    scans: Sequence[Scan],
    columns: str,
    limit: int,
    *,
    offset: int = 0,
    others: Sequence[Condition] = (),
) -> statements.Query:
    """The SELECT of the first entries of scans, one after the other, that meet other conditions too.

    Both engines read the parts of UNION ALL in turn.
    """
    parts = [_part(scan, [*conditions, *others], columns) for scan in scans for conditions in _conditions(scan)]
    if len(parts) == 1:
        text, values = parts[0]
        return statements.Query(f"{text} LIMIT %s OFFSET %s", (*values, limit, offset))
    selects = [f"SELECT * FROM ({text} LIMIT %s) AS part{number}" for number, (text, _) in enumerate(parts)]  # noqa: S608
    bound = [value for _, values in parts for value in (*values, limit + offset)]
    return statements.Query(f"{' UNION ALL '.join(selects)} LIMIT %s OFFSET %s", (*bound, limit, offset))


def _part(scan: Scan, conditions: Sequence[Condition], columns: str) -> Condition:
    where = " AND ".join([text for text, _ in conditions])
    direction = " DESC" if scan.descending else ""
    order = f"order_index.id{direction}"
    if scan.column != "id":
        order = f"order_index.{scan.column}{direction}, {order}"
    sql = f"SELECT {columns} FROM {_INDEX} WHERE {where} ORDER BY {order}"  # noqa: S608
    return sql, tuple([value for _, values in conditions for value in values])


def entry_of(row: Row) -> IndexEntry:
    """An index entry from the columns ENTRY_COLUMNS."""
    order_id, status, pet_id, complete, ship_date, updated_at, created_at = row
    return IndexEntry(order_id, STATUS[status], pet_id, bool(complete), ship_date, updated_at, created_at)


def _conditions(scan: Scan) -> list[list[Condition]]:
    """The conditions of each part of a scan. The index bounds all of them.

    After a position come the other entries with its value, and then those with later values. As one condition, SQLite
    would read all entries with its value again.
    """
    column, equal, after = f"order_index.{scan.column}", scan.equal, scan.after
    base: list[Condition] = [(f"{column} IS NULL" if scan.missing else f"{column} IS NOT NULL", ())]
    if equal is not None:
        base.append((f"order_index.{equal[0]} = %s", (equal[1],)))
    if scan.last is not None:
        base.append(_up_to(scan, scan.last))
    sign = "<" if scan.descending else ">"
    if after is not None and (scan.column == "id" or scan.missing):
        return [[*base, (f"order_index.id {sign} %s", (after.id,))]]
    low, high = scan.low, scan.high
    if after is None or after.value is None:
        return [[*base, *_range(column, low, high)]]
    tied = (f"{column} = %s AND order_index.id {sign} %s", (after.value, after.id))
    later = (f"{column} {sign} %s", (after.value,))
    rest = _range(column, low, None) if scan.descending else _range(column, None, high)
    return [[*base, tied], [*base, later, *rest]]


def _range(column: str, low: int | None, high: int | None) -> list[Condition]:
    bounds = ((">=", low), ("<", high))
    return [(f"{column} {sign} %s", (value,)) for sign, value in bounds if value is not None]


def _up_to(scan: Scan, last: Position) -> Condition:
    sign = ">=" if scan.descending else "<="
    if scan.column == "id" or last.value is None:
        return f"order_index.id {sign} %s", (last.id,)
    return f"(order_index.{scan.column}, order_index.id) {sign} (%s, %s)", (last.value, last.id)


def _others(scan: Scan, filters: Filters) -> list[Condition]:
    """The filters that the scan does not answer. As expressions, so that no engine looks for another index."""
    equal = None if scan.equal is None else scan.equal[0]
    conditions: list[Condition] = []
    if equal != "status" and filters.statuses and len(filters.statuses) < len(Status):
        marks = ", ".join(["%s"] * len(filters.statuses))
        conditions.append((f"status || '' IN ({marks})", tuple(map(str, filters.statuses))))
    if equal != "pet_id" and filters.pet_id is not None:
        conditions.append(("pet_id + 0 = %s", (filters.pet_id,)))
    if equal != "complete" and filters.complete is not None:
        conditions.append(("complete + 0 = %s", (int(filters.complete),)))
    if scan.column != "ship_date" and filters.ship_date_from is not None:
        conditions.append(("ship_date + 0 >= %s", (filters.ship_date_from,)))
    if scan.column != "ship_date" and filters.ship_date_to is not None:
        conditions.append(("ship_date + 0 < %s", (filters.ship_date_to,)))
    if scan.column != "updated_at" and filters.updated_from is not None:
        conditions.append(("updated_at + 0 >= %s", (filters.updated_from,)))
    return conditions


def _indexed(query: Query, recent: Recent) -> Work[tuple[list[IndexEntry], Position | None]]:
    """Matching entries of the index that did not change since, in order, and the position up to which they are all."""
    narrow = yield from _narrow_range(query)
    if narrow is not None:
        return _in_order([entry for entry in narrow if entry.id not in recent], query, None), None
    found: list[IndexEntry] = []
    for segment in _segments(query):
        scans = yield from _bounded(segment, query)
        while True:
            entries, end = yield from _merged(scans, query)
            found += [entry for entry in entries if entry.id not in recent]
            if end is None:
                break
            if len(found) > query.limit or any(end == scan.last for scan in scans):
                return found, end
            scans = [scan._replace(after=end) for scan in scans]
    return found, None


def _bounded(scans: list[Scan], query: Query) -> Work[list[Scan]]:
    """The scans; those that do not answer all filters end after their part of WORK_LIMIT entries."""
    bounded = list(scans)
    work, column = WORK_LIMIT // len(scans), _COLUMN[query.sort.field]
    for number, scan in enumerate(scans):
        if _others(scan, query.filters):
            for value, order_id in (yield select([scan], f"{column}, id", 1, offset=work - 1)):
                bounded[number] = scan._replace(last=Position(value, order_id))
    return bounded


def _in_order(entries: list[IndexEntry], query: Query, end: Position | None) -> list[IndexEntry]:
    """The entries after the start of the page, up to `end`, sorted."""
    sort = query.sort
    start = None if query.after is None else sort_key(query.after, sort)
    last = None if end is None else sort_key(end, sort)
    keyed = sorted(((_key(entry, sort), entry) for entry in entries), key=itemgetter(0))
    return [entry for key, entry in keyed if (start is None or key > start) and (last is None or key <= last)]


def _merged(scans: list[Scan], query: Query) -> Work[tuple[list[IndexEntry], Position | None]]:
    """The next entries of several scans in sort order, and the position up to which all of them were read.

    The position is None when all scans have ended.
    """
    sort, size = query.sort, query.limit + 1
    keyed: list[tuple[SortKey, IndexEntry]] = []
    ends: list[tuple[SortKey, Position]] = []
    for scan in scans:
        entries = yield from _read(scan, query, size)
        keyed += [(_key(entry, sort), entry) for entry in entries]
        end = position_of(entries[-1], sort) if len(entries) == size else scan.last
        if end is not None:
            ends.append((sort_key(end, sort), end))
    keyed.sort(key=itemgetter(0))
    if not ends:
        return [entry for _, entry in keyed], None
    last, position = min(ends, key=itemgetter(0))
    return [entry for key, entry in keyed if key <= last], position


def _read(scan: Scan, query: Query, limit: int) -> Work[list[IndexEntry]]:
    rows = yield select([scan], ENTRY_COLUMNS, limit, others=_others(scan, query.filters))
    return [entry_of(row) for row in rows]


def _narrow_range(query: Query) -> Work[list[IndexEntry] | None]:
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
        scans = [Scan(equal, column, low=low, high=high) for equal in _equalities(filters)]
        for scan in scans:
            if (yield select([scan], "1", 1, offset=NARROW_RANGE)):
                break
        else:
            entries: list[IndexEntry] = []
            for scan in scans:
                entries += yield from _read(scan, query, NARROW_RANGE)
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
