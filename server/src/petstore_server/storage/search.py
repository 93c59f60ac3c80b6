"""Searching orders, the same on every engine: pages, single orders, and the search index behind both.

The index (`order_index`) follows the orders behind the writes, so that a change costs no more than before. What is read
is always current: the index, where it contains every change, or else the index merged with the changes that it does not
contain yet, in one snapshot.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from petstore_server.batching import SharedCall
from petstore_server.domain.errors import OrderNotFound, ServiceUnavailable
from petstore_server.domain.orders import Status
from petstore_server.domain.search import Page, Position, Query, SortField, TrackedOrder
from petstore_server.storage import statements
from petstore_server.storage.search_plan import (
    ENTRY_COLUMNS,
    STATUS,
    Recent,
    entry_of,
    find,
    select,
    whole_scans,
)
from petstore_server.storage.search_update import UpdateStatements, update_index
from petstore_server.storage.statements import Engine, Row, Work

RECENT_LIMIT = 2000
"""Changed orders that a read merges with the index; while more are waiting, reads wait for the index."""

WAIT_SECONDS = 3.0
"""How long a read waits for an index that is behind."""

IMPORTED_ORDERS = 1000
"""New changes of so many orders show that an import is under way."""

QUIET_SECONDS = 0.3
"""How long after an import a rebuild of the index begins to create indexes; until then more may follow."""

GAP_SECONDS = 0.005
"""The pause after a step of an update, in which other programs can write: a waiting one tries every millisecond."""

SHORT_PAGE = 200
"""Orders on a page that is read as one short query: on SQLite it takes less time than passing it to a thread."""

_PAUSE_SECONDS = 0.01

_COUNT_BY_STATUS = "SELECT status, count(*) FROM petstore.order_index GROUP BY status"
_UP_TO_DATE = """NOT EXISTS (
    SELECT 1 FROM petstore.order_changes WHERE change > (SELECT change FROM petstore.order_index_state)
)"""
_ENTRY = f"SELECT {ENTRY_COLUMNS} FROM petstore.order_index WHERE id = %s"  # noqa: S608 - constants

# The columns of a TrackedOrder, and then those of its position.
# A subquery for the record, not a join: PostgreSQL would merge both tables from the first order to the page.
_TRACKED_COLUMNS = (
    "(SELECT orders.record FROM petstore.orders WHERE orders.id = order_index.id) AS record, "
    "order_index.status, updated_at, created_at, order_index.id, ship_date"
)
_TRACKED = f"""
    SELECT {_TRACKED_COLUMNS} FROM petstore.order_index WHERE order_index.id = %s AND {_UP_TO_DATE}
"""  # noqa: S608 - constants

# A page builds a hundred of them: without the constructor, which runs in Python, that takes half the time.
_build: Callable[[tuple[Any, ...]], TrackedOrder] = partial(tuple.__new__, TrackedOrder)

Result = TypeVar("Result")


class SearchStatements(NamedTuple):
    """The statements in which the engines differ."""

    pending: str
    """The orders of the changes from one to another (the parameters): id, and ENTRY_COLUMNS as the index would hold
    them, all NULL for an order that was deleted."""

    records: str
    """The id and record of orders. Parameter: `ids`."""

    ids: Callable[[Iterable[int]], str]
    """Identifiers as one parameter."""

    looks_first: bool
    """Whether to look for waiting changes before a page is read at once. SQLite would read first: the page, and the
    whole index while a rebuild has left it without indexes."""

    update: UpdateStatements


class IndexBehind(Exception):
    """More orders changed since the index was updated than one read merges: update it first."""


class Search:
    """Searches of one store's orders. Implements `ports.OrderSearch`."""

    def __init__(self, engine: Engine, sql: SearchStatements) -> None:
        self._engine = engine
        self._sql = sql
        self._update = SharedCall(self._update_index)
        self._seen = 0  # the last change
        self._imported_at = -QUIET_SECONDS

    async def page(self, query: Query) -> Page:
        """One page, which shows every change acknowledged before this call. Raises ServiceUnavailable."""
        if query.limit <= SHORT_PAGE and not (self._sql.looks_first and await self._is_behind()):
            statement = one_statement(query)
            rows = await self._engine.query(*statement) if statement else []
            if rows:  # without any, the list has ended, or the index is behind
                return _page_of(rows, query)
        return await self._current(lambda: self._page(query))

    async def find(self, order_id: int) -> TrackedOrder:
        """One order. Raises OrderNotFound, ServiceUnavailable."""
        rows = await self._engine.query(_TRACKED, (order_id,))
        if rows:
            return _tracked(rows[0])
        return await self._current(lambda: self._find(order_id))

    async def count_by_status(self) -> dict[Status, int]:
        """The number of orders with each status in the index. Raises ServiceUnavailable."""
        rows = await self._engine.read(_count_by_status)
        return dict.fromkeys(Status, 0) | {STATUS[status]: count for status, count in rows}

    async def update_index(self) -> bool:
        """Bring the next changes into the index; return whether more are waiting. Raises ServiceUnavailable.

        Concurrent calls share the work.
        """
        return await self._update()

    async def close(self) -> None:
        """Finish an update of the index that is under way."""
        await self._update.close()

    async def _update_index(self) -> bool:
        waiting = await self._waiting(self._seen)
        if not waiting and self._seen:  # everything is in the index, or the numbers began again after a restore
            self._seen = 0
            waiting = await self._waiting(0)
        if not waiting:
            return False
        new = sum(size for change, size in waiting if change > self._seen)
        self._seen = waiting[-1][0]
        now = monotonic()
        if new >= IMPORTED_ORDERS:
            self._imported_at = now
        may_create = now - self._imported_at > QUIET_SECONDS
        more = await self._engine.transaction(lambda: update_index(self._sql.update, may_create=may_create), bulk=True)
        if more:  # whoever waits for the next step, another program must be able to write first
            await asyncio.sleep(GAP_SECONDS)
        return more

    async def _waiting(self, since: int) -> list[Row]:
        """The changes that the index lacks, from the one with this number on."""
        return await self._engine.query(self._sql.update.waiting, (since - 1, RECENT_LIMIT))

    async def _current(self, work: Callable[[], Work[Result]]) -> Result:
        """Read one snapshot, updating the index first where too many changes are waiting.

        Raises ServiceUnavailable when that takes longer than WAIT_SECONDS.
        """
        deadline = monotonic() + WAIT_SECONDS
        while True:
            try:
                return await self._engine.read(work)
            except IndexBehind:
                if monotonic() > deadline:
                    raise ServiceUnavailable("the search index is being updated after a large change") from None
            if not await self._update_until(deadline):
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _update_until(self, deadline: float) -> bool:
        """Update the index, and wait for that until `deadline`; return whether there is more to do at once."""
        update = asyncio.ensure_future(self.update_index())
        try:
            await asyncio.wait([update], timeout=max(deadline - monotonic(), 0))
            return update.result() if update.done() else False
        finally:
            update.cancel()  # which does not stop the update, but only the wait for it

    async def _is_behind(self) -> bool:
        return bool(await self._engine.query(self._sql.update.waiting, (0, 1)))

    def _page(self, query: Query) -> Work[Page]:
        recent = yield from self._recent()
        statement = None if recent else one_statement(query)
        if statement is not None:
            return _page_of((yield statement), query)
        found = yield from find(query, recent)
        records: dict[int, str] = dict(
            (yield statements.Query(self._sql.records, (self._sql.ids(entry.id for entry in found.entries),)))
        )
        orders = [
            TrackedOrder(records[entry.id], entry.status, entry.updated_at, entry.created_at) for entry in found.entries
        ]
        return Page(orders, found.next)

    def _find(self, order_id: int) -> Work[TrackedOrder]:
        recent = yield from self._recent()
        entry = recent.get(order_id)
        if order_id not in recent:
            entry = next(map(entry_of, (yield statements.Query(_ENTRY, (order_id,)))), None)
        if entry is None:
            raise OrderNotFound(order_id)
        [(_, record)] = yield statements.Query(self._sql.records, (self._sql.ids([order_id]),))
        return TrackedOrder(record, entry.status, entry.updated_at, entry.created_at)

    def _recent(self) -> Work[Recent]:
        """The orders that changed since the index was updated. Raises IndexBehind when they are too many to merge."""
        waiting = yield statements.Query(self._sql.update.waiting, (0, RECENT_LIMIT + 1))
        if sum(size for _, size in waiting) > RECENT_LIMIT:
            raise IndexBehind
        if not waiting:
            return {}
        rows = yield statements.Query(self._sql.pending, (waiting[0][0], waiting[-1][0]))
        return {row[0]: None if row[1] is None else entry_of(row[1:]) for row in rows}


def _count_by_status() -> Work[list[Row]]:
    return (yield statements.Query(_COUNT_BY_STATUS))


def one_statement(query: Query) -> statements.Query | None:
    """One statement that reads the page, and nothing while the index lacks a change; None if one is not enough."""
    scans = whole_scans(query)
    if not scans:
        return None
    rows = select(scans, _TRACKED_COLUMNS, query.limit + 1)
    # Around the LIMIT: as a condition of each row, SQLite would go through the whole index for none.
    sql = f"SELECT * FROM ({rows.sql}) AS page WHERE {_UP_TO_DATE}"  # noqa: S608 - constants and marks
    return statements.Query(sql, rows.parameters)


def _page_of(rows: Sequence[Row], query: Query) -> Page:
    """The page from the rows of `one_statement`."""
    shown = rows[: query.limit]
    following = _position(shown[-1], query.sort.field) if len(rows) > query.limit else None
    return Page([_tracked(row) for row in shown], following)


def _tracked(row: Row) -> TrackedOrder:
    return _build((row[0], STATUS[row[1]], row[2], row[3]))


def _position(row: Row, field: SortField) -> Position:
    value = {SortField.ID: row[4], SortField.SHIP_DATE: row[5], SortField.UPDATED_AT: row[2]}[field]
    return Position(value, row[4])
