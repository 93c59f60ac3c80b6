"""The statements that read one page of orders from the search index, and the page from their rows.

One statement reads a page. Its rows are orders in sort order, and then, unless there are more orders than fit the page,
a row without a status that says where the reading ended: at a position, because WORK_LIMIT entries have been examined,
or, without an id either, at the end of the list.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from petstore_server.domain.orders import Status
from petstore_server.domain.search import (
    IndexEntry,
    Page,
    Position,
    Query,
    Sort,
    SortField,
    SortKey,
    sort_key,
)
from petstore_server.storage import statements
from petstore_server.storage.search_plan import (
    COLUMN,
    NARROW_RANGE,
    WORK_LIMIT,
    Condition,
    Range,
    Scan,
    other_conditions,
    other_ranges,
    range_scans,
    segments,
)
from petstore_server.storage.statements import Row

ENTRY_COLUMNS = "id, status, pet_id, complete, ship_date, updated_at, created_at"
UP_TO_DATE = """NOT EXISTS (
    SELECT 1 FROM petstore.order_changes WHERE change > (SELECT change FROM petstore.order_index_state)
)"""
STATUS = {str(status): status for status in Status}

_INDEX = "petstore.order_index"
_COLUMNS = "id, status, ship_date, updated_at, created_at"
# A limit, so that no engine begins to read in vain. With a condition, SQLite would go through the whole index.
_UNLESS_BEHIND = f"(SELECT CASE WHEN {UP_TO_DATE} THEN %s ELSE 0 END)"
_FOUND = "SELECT * FROM ({}) AS found"

PAGE_COLUMNS = "page.status, updated_at, created_at, page.id, ship_date"
"""The columns of a row of a page after the record: the fields of a TrackedOrder, and then those of its position."""

_END = "SELECT NULL, NULL, NULL, NULL, NULL, NULL"


class Changed(NamedTuple):
    """An order that the index does not contain as it is: its entry, and its record."""

    entry: IndexEntry
    record: str


def page_statement(
    query: Query, narrow: Range | None, with_records: str, excluded: Condition | None = None
) -> statements.Query:
    """The statement that reads a page; `narrow` is a range of few orders, which are sorted.

    `with_records` is the engine's SELECT of the record and PAGE_COLUMNS from `({}) AS page`, in the same order.
    Without a condition for the orders that the index lacks, there are no rows at all while it lacks any.
    """
    if narrow is None:
        parts = [part for segment in segments(query) for part in _segment(segment, query, excluded, with_records)]
    else:
        parts = [_around(with_records, [_sorted_range(narrow, query, excluded)])]
    limit = _UNLESS_BEHIND if excluded is None else "%s"
    found = _around(f"{{}} LIMIT {limit}", [_union([*parts, statements.Query(_END)])], query.limit + 1)
    return found._replace(in_order=True)


def wide_ranges(query: Query, *, unless_behind: bool) -> statements.Query:
    """The statement that finds which of `other_ranges`, by number, have more than NARROW_RANGE orders.

    It has one more row in any case, so that with `unless_behind` there are none only while the index lacks a change.
    """
    probes = [
        _around(f"SELECT {number} FROM ({{}}) AS probe", [_select(scan, "1", 1, offset=NARROW_RANGE)])  # noqa: S608
        for number, each in enumerate(other_ranges(query))
        for scan in range_scans(each, query.filters)
    ]
    limit = _UNLESS_BEHIND if unless_behind else "%s"
    found = _around(f"{{}} LIMIT {limit}", [_union([statements.Query("SELECT -1"), *probes])], len(probes) + 1)
    return found._replace(in_order=True)


def narrow_range(query: Query, wide: Iterable[Row]) -> Range | None:
    """The range to be sorted, from the rows of `wide_ranges`."""
    numbers = {number for (number,) in wide}
    return next((each for number, each in enumerate(other_ranges(query)) if number not in numbers), None)


def page_of(rows: list[Row], query: Query, changed: Sequence[Changed] = ()) -> Page:
    """The page from the rows of `page_statement` and the changed orders that match."""
    found, end = _until_end(rows, query.sort.field)
    if changed:
        _insert(found, [_row(each) for each in changed if query.filters.matches(each.entry)], query, end)
    if len(found) > query.limit:
        found = found[: query.limit]
        end = _position(found[-1], query.sort.field)
    return Page(found, end)


def entry_of(row: Row) -> IndexEntry:
    """An index entry from the columns ENTRY_COLUMNS."""
    order_id, status, pet_id, complete, ship_date, updated_at, created_at = row
    return IndexEntry(order_id, STATUS[status], pet_id, bool(complete), ship_date, updated_at, created_at)


def _row(changed: Changed) -> Row:
    entry, record = changed
    return record, entry.status, entry.updated_at, entry.created_at, entry.id, entry.ship_date


def _until_end(rows: list[Row], field: SortField) -> tuple[list[Row], Position | None]:
    """The orders, and the position up to which they are all; None at the end of the list, or if there are more."""
    statuses = [row[1] for row in rows]
    if None not in statuses:
        return rows, None
    number = statuses.index(None)
    return rows[:number], None if rows[number][4] is None else _position(rows[number], field)


def _insert(found: list[Row], changed: Iterable[Row], query: Query, end: Position | None) -> None:
    """Insert the changed orders between the start of the page and its end, at their places."""
    sort, start, last = query.sort, None, None
    if query.after is not None:
        start = sort_key(query.after, sort)
    if end is not None:
        last = sort_key(end, sort)
    elif len(found) > query.limit:
        last = _key(found[-1], sort)
    between = [row for row in changed if _is_between(start, _key(row, sort), last)]
    if between:
        found += between
        found.sort(key=lambda row: _key(row, sort))


def _is_between(start: SortKey | None, key: SortKey, last: SortKey | None) -> bool:
    return (start is None or key > start) and (last is None or key <= last)


def _key(row: Row, sort: Sort) -> SortKey:
    return sort_key(_position(row, sort.field), sort)


def _position(row: Row, field: SortField) -> Position:
    if field is SortField.ID:
        return Position(row[4], row[4])
    return Position(row[5] if field is SortField.SHIP_DATE else row[2], row[4])


def _segment(
    scans: Sequence[Scan], query: Query, excluded: Condition | None, with_records: str
) -> list[statements.Query]:
    """The SELECTs of the orders of a segment, and of the position at which it ends if too many are examined."""
    work = WORK_LIMIT // len(scans)
    found = [_matching(scan, query, work, excluded) for scan in scans]
    ends = [_work_end(scan, work) for scan in scans if other_conditions(scan, query.filters)]
    if len(scans) == 1:
        return [_around(with_records, [part]) for part in (*found, *ends)]
    text = f"SELECT {_COLUMNS} FROM ({{}}) AS found ORDER BY {_order(scans[0], '')}, status IS NULL LIMIT %s"  # noqa: S608
    merged = _around(text, [_union([*[_around(_FOUND, [each]) for each in found], *ends])], query.limit + 1)
    return [_around(with_records, [merged])]


def _matching(scan: Scan, query: Query, work: int, excluded: Condition | None) -> statements.Query:
    """The SELECT of the first orders of a scan that meet all filters, among `work` entries."""
    conditions = other_conditions(scan, query.filters)
    more = [] if excluded is None else [excluded]
    if not conditions:
        return _select(scan, _COLUMNS, query.limit + 1, more=more)
    where, values = _all([*conditions, *more])
    text = f"SELECT {_COLUMNS} FROM ({{}}) AS order_index WHERE {where} LIMIT %s"  # noqa: S608
    return _around(text, [_select(scan, ENTRY_COLUMNS, work)], *values, query.limit + 1)


def _work_end(scan: Scan, work: int) -> statements.Query:
    """The SELECT of the position of the last entry that is examined, if the scan has so many."""
    column = scan.column
    columns = f"id, NULL AS status, {column} AS ship_date, {column} AS updated_at, {column} AS created_at"
    last = _select(scan, column if column == "id" else f"{column}, id", 1, offset=work - 1)
    return _around(f"SELECT {columns} FROM ({{}}) AS last", [last])  # noqa: S608


def _sorted_range(narrow: Range, query: Query, excluded: Condition | None) -> statements.Query:
    """The SELECT of the first orders of a narrow range, sorted. Expressions, so that no index is read in sort order."""
    scans = range_scans(narrow, query.filters)
    conditions = other_conditions(scans[0], query.filters)
    conditions += [condition for condition in (_after(query), excluded) if condition is not None]
    column, direction = COLUMN[query.sort.field], " DESC" if query.sort.descending else ""
    where, values = _all(conditions) if conditions else ("id IS NOT NULL", ())
    order = f"{column} IS NULL, {column} + 0{direction}, id + 0{direction}"
    text = f"SELECT {_COLUMNS} FROM ({{}}) AS order_index WHERE {where} ORDER BY {order} LIMIT %s"  # noqa: S608
    entries = [_entries(conditions, ENTRY_COLUMNS) for scan in scans for conditions in _conditions(scan)]
    return _around(text, [_union(entries)], *values, query.limit + 1)


def _after(query: Query) -> Condition | None:
    """The condition that an order comes after the start of the page."""
    if query.after is None:
        return None
    value, order_id = query.after
    column, sign = f"order_index.{COLUMN[query.sort.field]}", "<" if query.sort.descending else ">"
    if query.sort.field is SortField.ID:
        return f"{column} {sign} %s", (order_id,)
    if value is None:
        return f"{column} IS NULL AND order_index.id {sign} %s", (order_id,)
    return f"(({column}, order_index.id) {sign} (%s, %s) OR {column} IS NULL)", (value, order_id)


def _select(
    scan: Scan, columns: str, limit: int, *, offset: int = 0, more: Sequence[Condition] = ()
) -> statements.Query:
    """The SELECT of the first entries of a scan that meet more conditions too."""
    parts = [_entries([*conditions, *more], columns) for conditions in _conditions(scan)]
    ordered = [statements.Query(f"{part.sql} ORDER BY {_order(scan)}", part.parameters) for part in parts]
    if len(ordered) > 1:  # both engines read the parts of UNION ALL in turn
        ordered = [_union([_around("SELECT * FROM ({} LIMIT %s) AS part", [part], limit + offset) for part in ordered])]
    return _around("{} LIMIT %s OFFSET %s", ordered, limit, offset)


def _entries(conditions: Sequence[Condition], columns: str) -> statements.Query:
    where, values = _all(conditions)
    return statements.Query(f"SELECT {columns} FROM {_INDEX} WHERE {where}", values)  # noqa: S608


def _order(scan: Scan, table: str = "order_index.") -> str:
    """The order of a scan. The equal column is part of it: PostgreSQL then reads the index that begins with it."""
    equal = [scan.equal[0]] if scan.equal is not None and table else []
    names = [*equal, *dict.fromkeys((scan.column, "id"))]
    return ", ".join([f"{table}{name}{' DESC' if scan.descending else ''}" for name in names])


def _conditions(scan: Scan) -> list[list[Condition]]:
    """The conditions of each part of a scan. The index bounds all of them.

    After a position come the other entries with its value, and then those with later values. As one condition, SQLite
    would read all entries with its value again.
    """
    column, after = f"order_index.{scan.column}", scan.after
    base: list[Condition] = [(f"{column} IS NULL" if scan.missing else f"{column} IS NOT NULL", ())]
    if scan.equal is not None:
        base.append((_is(f"order_index.{scan.equal[0]}"), (scan.equal[1],)))
    sign = "<" if scan.descending else ">"
    if after is not None and (scan.column == "id" or scan.missing):
        return [[*base, (f"order_index.id {sign} %s", (after.id,))]]
    low, high = scan.low, scan.high
    if after is None or after.value is None:
        return [[*base, *_range(column, low, high)]]
    same = _is(column) if scan.equal is None else f"{column} = %s"
    tied = (f"{same} AND order_index.id {sign} %s", (after.value, after.id))
    later = (f"{column} {sign} %s", (after.value,))
    rest = _range(column, low, None) if scan.descending else _range(column, None, high)
    return [[*base, tied], [*base, later, *rest]]


def _is(column: str) -> str:
    """Equality with the first column of an index.

    Not `=`: PostgreSQL would leave a constant column out of the order, and might read an index that does not begin with
    it, which has the orders of all other values too.
    """
    return f"{column} = ANY(ARRAY[%s])"


def _range(column: str, low: int | None, high: int | None) -> list[Condition]:
    bounds = ((">=", low), ("<", high))
    return [(f"{column} {sign} %s", (value,)) for sign, value in bounds if value is not None]


def _all(conditions: Sequence[Condition]) -> Condition:
    """One condition, of these."""
    return " AND ".join([text for text, _ in conditions]), tuple([each for _, values in conditions for each in values])


def _union(parts: Sequence[statements.Query]) -> statements.Query:
    sql = " UNION ALL ".join([part.sql for part in parts])
    return statements.Query(sql, [value for part in parts for value in part.parameters])


def _around(text: str, parts: Sequence[statements.Query], *more: int | str) -> statements.Query:
    """A statement with others in the places `{}` of `text`, and more parameters after theirs."""
    values = [value for part in parts for value in part.parameters]
    return statements.Query(text.format(*[part.sql for part in parts]), [*values, *more])
