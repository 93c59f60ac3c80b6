"""Planning one page of orders: which ranges of which indexes of the search index have it.

Everything here is a rule on values, the same for every engine; `storage.search_sql` writes the statements.
"""

from typing import NamedTuple

from petstore_server.domain.orders import Status
from petstore_server.domain.search import Filters, Position, Query, SortField

WORK_LIMIT = 3000
"""Index entries examined for one page at most. A page that would need more is returned short, with a next position."""

NARROW_RANGE = 1500
"""Orders in a range up to which they are read and sorted, instead of scanning in sort order and filtering."""

COLUMN = {SortField.ID: "id", SortField.SHIP_DATE: "ship_date", SortField.UPDATED_AT: "updated_at"}

Condition = tuple[str, tuple[int | str, ...]]
"""A condition with its parameters."""


class Scan(NamedTuple):
    """Index entries in the order of `column` and id, through the index on the equal column and `column`.

    `low` is included, `high` is not. `missing` selects the entries without a value in the column instead. The scan
    begins after the position `after`.
    """

    equal: tuple[str, int | str] | None
    column: str
    descending: bool = False
    low: int | None = None
    high: int | None = None
    missing: bool = False
    after: Position | None = None


class Range(NamedTuple):
    """The orders whose value in `column` is at least `low` and less than `high`; None means no bound."""

    column: str
    low: int | None
    high: int | None


def segments(query: Query) -> list[list[Scan]]:
    """The scans of a list: segments one after another, the scans of a segment merged."""
    filters, (field, descending), after = query.filters, query.sort, query.after
    column, equals = COLUMN[field], equalities(filters)
    if field is SortField.UPDATED_AT:
        return [[Scan(equal, column, descending, low=filters.updated_from, after=after) for equal in equals]]
    if field is SortField.ID:
        return [[Scan(equal, column, descending, after=after) for equal in equals]]
    low, high = filters.ship_date_from, filters.ship_date_to
    dated = [Scan(equal, column, descending, low, high, after=after) for equal in equals]
    undated = [Scan(equal, column, descending, missing=True) for equal in equals]
    if low is not None or high is not None:
        return [dated]
    if after is not None and after.value is None:
        return [[scan._replace(after=after) for scan in undated]]
    return [dated, undated]


def other_ranges(query: Query) -> list[Range]:
    """The ranges of another column than the sort's: no index has their orders in sort order."""
    filters, field = query.filters, query.sort.field
    found = []
    if field is not SortField.UPDATED_AT and filters.updated_from is not None:
        found.append(Range("updated_at", filters.updated_from, None))
    dated = filters.ship_date_from is not None or filters.ship_date_to is not None
    if field is not SortField.SHIP_DATE and dated:
        found.append(Range("ship_date", filters.ship_date_from, filters.ship_date_to))
    return found


def range_scans(found: Range, filters: Filters) -> list[Scan]:
    """The scans that have the orders of a range."""
    return [Scan(equal, found.column, low=found.low, high=found.high) for equal in equalities(filters)]


def equalities(filters: Filters) -> list[tuple[str, int | str] | None]:
    """The equality that chooses the index: the most selective one; several statuses are scanned side by side."""
    if filters.pet_id is not None:
        return [("pet_id", filters.pet_id)]
    if filters.statuses and len(filters.statuses) < len(Status):
        return [("status", str(status)) for status in sorted(filters.statuses)]
    if filters.complete is not None:
        return [("complete", int(filters.complete))]
    return [None]


def is_answered_by_indexes(query: Query) -> bool:
    """Whether only entries of the page are examined for it."""
    return not any(other_conditions(segment[0], query.filters) for segment in segments(query))


def other_conditions(scan: Scan, filters: Filters) -> list[Condition]:
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
