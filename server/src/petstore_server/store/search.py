"""Searching orders: pages of version 2, by statements whose work is bounded whatever the store holds (D20), and counts.

Each index of orders is sorted by its column and the id. A page walks the index that has its sort order, or an
equality's if it is sorted by id. Other filters are applied to what is walked, MAX_WORK orders at most: the page then
ends short, with a position at which the list goes on. Where one of them has at most NARROW orders by an index, these
are sorted instead. SQLite's indexes also have the columns of most other filters: where they do, only the orders of the
page are read.

The orders of one owner have indexes by id, time of change, ship date and reference, which all begin with the owner. A
page of them walks only these, so others' orders cost nothing, and cannot end it (D21).
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.lists import (
    NO_OWNER,
    ChangeClock,
    Filters,
    MatchCount,
    Page,
    PageQuery,
    Position,
    SortField,
)
from petstore_server.domain.orders import STATUSES, Status, TrackedOrder
from petstore_server.store.engine import Dialect, Part
from petstore_server.store.statements import LAST_CHANGE, OWNER_NAME, Condition, Query, Row, Work, all_of, marks, one

SHORT_PAGE = 200  # orders of one index: SQLite reads so many in less time than it takes to pass them to a thread
MAX_WORK = 3000  # orders walked for one page at most
NARROW = 1500  # orders that are sorted instead of walking, at most

_COLUMN = {SortField.ID: "id", SortField.SHIP_DATE: "ship_date", SortField.UPDATED_AT: "updated_at"}
# Of a TrackedOrder, then of its position, and the owner.
_PAGE = "record, status, updated_at, created_at, reference, id, ship_date, account_id"
_FILTERED = ("status", "pet_id", "complete", "ship_date", "updated_at", "reference", "account_id")  # or sorted by
_OF_AN_OWNER = ("id", "updated_at", "ship_date", "reference")  # columns of the indexes of owned orders
_NOT_IN_INDEX = dict.fromkeys(("pet_id", "ship_date"), ("status", "updated_at"))  # so that a cancel need not write it


_FIND = "SELECT record, status, updated_at, created_at, reference, account_id FROM petstore.orders WHERE id = %s"
_FIND_WITH_ACCOUNT = _FIND.replace("reference,", f"reference, {OWNER_NAME},")


class Walk(NamedTuple):
    """Orders in the order of the index on `column` and id, after a position.

    They have the value `equal` or one of `among`, or lie from `low` to before `high`; `missing` selects those without a
    value instead. With an `owner`, they are those of this account, by the index that begins with it.
    """

    column: str
    equal: int | str | None = None
    low: int | None = None
    high: int | None = None
    missing: bool = False
    among: tuple[str, ...] = ()
    descending: bool = False
    after: Position | None = None
    owner: int | None = None

    @property
    def is_sorted_by_id(self) -> bool:
        """Whether all orders of the walk have the same value."""
        return self.column == "id" or self.equal is not None or self.missing


_NO_WALK = Walk("")  # answers no filter


class Search(Part):
    """Searches of one store's orders. Everything read shows every change acknowledged before the call."""

    async def change_clock(self) -> ChangeClock:
        """The clock of changes; it differs after every change of an order."""
        tables = "petstore.store JOIN petstore.clock USING (one) WHERE one = 1"
        [row] = await self._engine.query(f"SELECT {self._engine.dialect.epoch}, change, at FROM {tables}")
        return ChangeClock(*row)

    async def last_changes(self, owners: Collection[int]) -> Mapping[int, int]:
        """The time of the last change among the orders of each owner, in Unix microseconds; 0 without orders."""
        last = LAST_CHANGE.format("wanted.id")
        sql = f"SELECT id, coalesce(({last}), 0) FROM petstore.accounts AS wanted WHERE id = ANY(%s::bigint[])"
        return dict(await self._engine.query(sql, (sorted(owners),), in_order=True))

    async def page(self, query: PageQuery) -> Page:
        walks = _walks(query)
        if query.limit > SHORT_PAGE or len(walks) > 1 or _other_conditions(walks[0], query.filters):
            return await self._engine.read(lambda: read_page(query, self._engine.dialect))
        walk = _walk_statement(walks[0], query, query.limit + 1, self._engine.dialect)
        return page_of(await self._engine.query(walk.sql, walk.parameters, walk.in_order), query)

    async def text(self, page: Page, *, with_accounts: bool) -> str:
        """The orders of a page as JSON texts, separated by commas; with the names of their owners."""
        if not with_accounts:
            return page.text()
        owners = sorted({owner for owner in page.owners if owner is not None})
        sql = "SELECT id, name FROM petstore.accounts WHERE id = ANY(%s::bigint[])"
        return page.text(dict(await self._engine.query(sql, (owners,))) if owners else {})

    async def find(self, order_id: int, owner: int | None = None, *, with_account: bool = False) -> TrackedOrder:
        """One order, of this owner if one is given; with the name of its owner. Raises OrderNotFound."""
        sql = _FIND_WITH_ACCOUNT if with_account else _FIND
        rows = await self._engine.query(sql, (order_id,))
        record, status, *others, account_id = one(rows, OrderNotFound, order_id)
        if owner not in (None, account_id):
            raise OrderNotFound(order_id)
        return TrackedOrder(record, STATUSES[status], *others)

    async def count(self, filters: Filters, most: int) -> MatchCount:
        """The number of orders that match, counted up to `most`."""
        where, values = all_of(_other_conditions(_NO_WALK, filters))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM petstore.orders WHERE {where} LIMIT %s) AS matching"
        [(number,)] = await self._engine.query(sql, (*values, most + 1), short=False)
        return MatchCount(min(number, most), more=number > most)

    async def count_by_status(self) -> Mapping[Status, int]:
        """The number of orders with each status."""
        sql = "SELECT status, count(*) FROM petstore.orders GROUP BY status"
        rows = await self._engine.query(sql, short=False)
        return dict.fromkeys(Status, 0) | {Status(status): count for status, count in rows}


def page_of(rows: list[Row], query: PageQuery) -> Page:
    """The page from the rows of all walks: one more than the limit shows that the list goes on."""
    if len(rows) <= query.limit:
        return Page(rows, None)
    return Page(rows[: query.limit], position_of(rows[query.limit - 1], query.sort.field))


def read_page(query: PageQuery, dialect: Dialect) -> Work[Page]:
    """Read a page on one snapshot."""
    narrow = yield from _find_narrow(query)
    if narrow is not None:
        return page_of((yield _sort_statement(narrow, query, dialect)), query)
    rows: list[Row] = []
    for walk in _walks(query):
        rows += yield _walk_statement(walk, query, query.limit + 1 - len(rows), dialect)
        if rows and rows[-1][1] is None:  # the end of a walk that examined MAX_WORK orders
            return Page(rows[:-1], position_of(rows[-1], query.sort.field))
        if len(rows) > query.limit:
            break
    return page_of(rows, query)


def position_of(row: Row, field: SortField) -> Position:
    """Where the order of a page's row stands in a list that is sorted by the field."""
    _, _, updated_at, _, _, order_id, ship_date, _ = row
    return Position({SortField.SHIP_DATE: ship_date, SortField.UPDATED_AT: updated_at}.get(field, order_id), order_id)


def _walks(query: PageQuery) -> list[Walk]:
    """The walks that have the list in its order, one after the other."""
    (field, descending), after, indexed = query.sort, query.after, _indexed(query.filters)
    owner = _owner(query.filters)
    column = _COLUMN[field]
    if field is SortField.ID:
        walk = next((walk for walk in indexed if walk.equal is not None), Walk(column))
    else:
        walk = next((walk for walk in indexed if walk.column == column), Walk(column))
    first = walk._replace(descending=descending, after=after, owner=owner)
    if field is not SortField.SHIP_DATE or walk in indexed:
        return [first]
    undated = Walk(column, missing=True, descending=descending, owner=owner)  # last in both directions
    return [undated._replace(after=after)] if after is not None and after.value is None else [first, undated]


def _owner(filters: Filters) -> int | None:
    """The owner whose orders have indexes."""
    return None if filters.owner == NO_OWNER else filters.owner


def _indexed(filters: Filters) -> list[Walk]:
    """The walks of the filters on columns that are indexed for the owner, those of one value first."""
    owner = _owner(filters)
    return [walk for walk in _filter_walks(filters) if owner is None or walk.column in _OF_AN_OWNER]


def _filter_walks(filters: Filters) -> list[Walk]:
    """The walks of the filters on columns that are indexed for all orders, those of one value first."""
    references = tuple(sorted(filters.references))
    walks = [
        Walk("reference", equal=references[0]) if len(references) == 1 else Walk("reference", among=references),
        Walk("pet_id", equal=filters.pet_id),
        Walk("status", equal=str(*filters.statuses) if len(filters.statuses) == 1 else None),
        Walk("updated_at", low=filters.updated_from),
        Walk("ship_date", low=filters.ship_date_from, high=filters.ship_date_to),
    ]
    return [walk for walk in walks if walk != Walk(walk.column)]


def _find_narrow(query: PageQuery) -> Work[Walk | None]:
    """Find a filter with few orders among those that the walk of the list does not answer."""
    walked = _walks(query)[0]
    owner = _owner(query.filters)
    others = [walk._replace(owner=owner) for walk in _indexed(query.filters) if walk.column != walked.column]
    if not others:
        return None
    probes = [_select(walk, "1", 1, offset=NARROW) for walk in others]
    columns = ", ".join(f"EXISTS ({probe.sql})" for probe in probes)
    parameters = [value for probe in probes for value in probe.parameters]
    [wide] = yield Query(f"SELECT {columns}", parameters, in_order=True)
    return next((walk for walk, is_wide in zip(others, wide, strict=True) if not is_wide), None)


def _walk_statement(walk: Walk, query: PageQuery, limit: int, dialect: Dialect) -> Query:
    """The statement of the first orders of a walk that match.

    If these are fewer than the limit, and the walk has MAX_WORK orders or more, a row follows that has only the
    position at which the walk stops, and no status.
    """
    rest = _other_conditions(walk, query.filters)
    if not rest:
        return _select(walk, _PAGE, limit)
    found = _matching(dialect, walk, MAX_WORK, rest, limit)
    value = "id" if walk.is_sorted_by_id else walk.column
    ship_date = "ship_date" if walk.missing else f"{value} AS ship_date"
    position = f"{value} AS updated_at, {value} AS created_at, NULL AS reference, id, {ship_date}"
    columns = f"NULL AS record, NULL AS status, {position}, id AS account_id"
    stop = _select(walk, columns, 1, offset=MAX_WORK - 1)
    sql = f"SELECT * FROM ({found.sql}) AS found UNION ALL SELECT * FROM ({stop.sql}) AS ending LIMIT %s"
    return Query(sql, [*found.parameters, *stop.parameters, limit], in_order=True)


def _sort_statement(narrow: Walk, query: PageQuery, dialect: Dialect) -> Query:
    """The statement of the first orders of a narrow walk that match, sorted."""
    conditions = _other_conditions(narrow, query.filters) + _position_conditions(query)
    column, direction = _COLUMN[query.sort.field], " DESC" if query.sort.descending else ""
    order = f"ORDER BY {column}{direction} NULLS LAST, id{direction}"
    return _matching(dialect, narrow, NARROW, conditions, query.limit + 1, order)


def _matching(
    dialect: Dialect, walk: Walk, most: int, conditions: list[Condition], limit: int, order: str = ""
) -> Query:
    """The statement of the first orders that match, among the first `most` of the walk."""
    if dialect.covering:
        return _matching_by_index(walk, most, conditions, limit, order)
    where, values = all_of(conditions)
    entries = _select(walk, f"{_PAGE}, pet_id, complete", most)
    sql = f"SELECT {_PAGE} FROM ({entries.sql}) AS entries WHERE {where} {order} LIMIT %s"
    return Query(sql, [*entries.parameters, *values, limit], in_order=True)


def _matching_by_index(walk: Walk, most: int, conditions: list[Condition], limit: int, order: str) -> Query:
    """As `_matching`: the identifiers are found first, by the index, so the orders that do not match are not read.

    The columns that the index lacks are looked up in the orders that match otherwise, unless the sort needs one: then
    all orders of the walk are read.
    """
    lacking = () if walk.owner is not None else _NOT_IN_INDEX.get(walk.column, ())
    if any(column in order for column in lacking):
        lacking = ()
    late = [condition for condition in conditions if any(column in condition[0] for column in lacking)]
    where, values = all_of([condition for condition in conditions if condition not in late])
    used = [column for column in _FILTERED if column in where + order]
    if late:  # SQLite evaluates sub-selects last
        looked_up, late_values = all_of(late)
        where += f" AND (SELECT {looked_up} FROM petstore.orders WHERE id = entries.id)"
        values = [*values, *late_values]
    entries = _select(walk, ", ".join(["id", *used]), most)
    found = f"SELECT id AS entry FROM ({entries.sql}) AS entries WHERE {where} {order} LIMIT %s"
    sql = f"SELECT {_PAGE} FROM ({found}) AS found CROSS JOIN petstore.orders WHERE id = entry"
    return Query(sql, [*entries.parameters, *values, limit], in_order=True)


def _other_conditions(walk: Walk, filters: Filters) -> list[Condition]:
    """The filters that the walk does not answer."""
    others = [other for other in _filter_walks(filters) if other.column != walk.column]
    conditions = [condition for other in others for condition in _column_conditions(other)]
    if 1 < len(filters.statuses) < len(Status):
        conditions.append((f"status IN {marks(filters.statuses)}", sorted(map(str, filters.statuses))))
    if filters.complete is not None:
        conditions.append(("complete = %s", (int(filters.complete),)))
    if filters.owner == NO_OWNER:
        conditions.append(("account_id IS NULL", ()))
    elif filters.owner is not None and walk.owner is None:
        conditions.append(("account_id = %s", (filters.owner,)))
    return conditions


def _position_conditions(query: PageQuery) -> list[Condition]:
    """The condition that an order comes after the start of the page."""
    if query.after is None:
        return []
    value, order_id = query.after
    column, sign = _COLUMN[query.sort.field], "<" if query.sort.descending else ">"
    if query.sort.field is SortField.ID:
        return [(f"id {sign} %s", (order_id,))]
    if value is None:
        return [(f"{column} IS NULL AND id {sign} %s", (order_id,))]
    return [(f"(({column}, id) {sign} (%s, %s) OR {column} IS NULL)", (value, order_id))]


def _select(walk: Walk, columns: str, limit: int, offset: int = 0) -> Query:
    """The statement of orders of a walk, from an offset on."""
    direction = " DESC" if walk.descending else ""
    # With the table's name: otherwise a name in `columns` would be meant, and another index would have that order.
    sorting: list[str] = [walk.column, "id"]
    of_owner: list[Condition] = []
    if walk.owner is not None:  # in the order of the index, so that PostgreSQL reads no other
        sorting.insert(0, "account_id")
        of_owner.append(("account_id = ANY(ARRAY[%s])", (walk.owner,)))
    order = ", ".join([f"orders.{column}{direction}" for column in dict.fromkeys(sorting)])
    parts = [
        (f"SELECT {columns} FROM petstore.orders WHERE {where} ORDER BY {order} LIMIT %s", values)
        for where, values in (all_of([*of_owner, *conditions]) for conditions in _walk_conditions(walk))
    ]
    if len(parts) == 1:
        [(sql, values)] = parts
        return Query(f"{sql} OFFSET %s", [*values, limit, offset], in_order=True)
    # Both engines read the parts of UNION ALL in turn.
    sql = " UNION ALL ".join([f"SELECT * FROM ({part}) AS part" for part, _ in parts])
    parameters = [value for _, values in parts for value in (*values, limit + offset)]
    return Query(f"{sql} LIMIT %s OFFSET %s", [*parameters, limit, offset], in_order=True)


def _walk_conditions(walk: Walk) -> list[list[Condition]]:
    """The conditions of each part of a walk, which the index bounds.

    After a position come the other orders with its value, and then those with later values. As one condition, SQLite
    would read all orders with its value again.
    """
    sign, column, after = "<" if walk.descending else ">", walk.column, walk.after
    if walk.is_sorted_by_id:
        return [_column_conditions(walk) + ([] if after is None else [(f"id {sign} %s", (after.id,))])]
    if after is None or after.value is None:
        return [[(f"{column} IS NOT NULL", ()), *_column_conditions(walk)]]
    tied = [*_column_conditions(walk._replace(equal=after.value)), (f"id {sign} %s", (after.id,))]
    rest = walk._replace(high=None) if walk.descending else walk._replace(low=None)
    return [tied, [(f"{column} {sign} %s", (after.value,)), *_column_conditions(rest)]]


def _column_conditions(walk: Walk) -> list[Condition]:
    """The conditions on the walk's column.

    Not `=`: PostgreSQL would leave a constant column out of the order, and might read an index that does not begin with
    it, which has the orders of all other values too.
    """
    if walk.missing:
        return [(f"{walk.column} IS NULL", ())]
    if walk.equal is not None:
        return [(f"{walk.column} = ANY(ARRAY[%s])", (walk.equal,))]
    if walk.among:
        return [(f"{walk.column} IN {marks(walk.among)}", walk.among)]
    bounds = ((">=", walk.low), ("<", walk.high))
    return [(f"{walk.column} {sign} %s", (value,)) for sign, value in bounds if value is not None]
