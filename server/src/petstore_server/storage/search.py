"""Searching orders, the same on every engine: pages, single orders, and the search index behind both.

The index (`order_index`) follows the orders behind the writes, so that a change costs no more than before. What is read
is always current: the index, where it contains every change, or else the index merged with the changes that it does not
contain yet, in one snapshot.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from time import monotonic
from typing import NamedTuple, TypeVar

from petstore_server.batching import SharedCall
from petstore_server.domain.errors import OrderNotFound, ServiceUnavailable
from petstore_server.domain.orders import Status
from petstore_server.domain.search import Filters, Page, Position, Query, SortField, TrackedOrder
from petstore_server.storage import statements
from petstore_server.storage.search_plan import Range, is_answered_by_indexes, other_ranges
from petstore_server.storage.search_sql import (
    STATUS,
    UP_TO_DATE,
    Changed,
    entry_of,
    narrow_range,
    page_of,
    page_statement,
    wide_ranges,
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

WIDE_SECONDS = 60.0
"""How long a range that was found to be wide is taken to be, so that the pages of a walk need one statement each.

If it has become narrow meanwhile, pages may be shorter than their limit.
"""

SHORT_PAGE = 200
"""Orders on a page that indexes answer at once: on SQLite to read it takes less time than to pass it to a thread."""

_PAUSE_SECONDS = 0.01
_MOST_WIDE = 512  # ranges remembered

_COUNT_BY_STATUS = "SELECT status, count(*) FROM petstore.order_index GROUP BY status"
# The first is exact unless the index lacks a change, the second always.
_ORDER = f"""
    SELECT orders.record, orders.status, order_index.updated_at, order_index.created_at, {UP_TO_DATE} AS up_to_date
    FROM petstore.orders LEFT JOIN petstore.order_index ON order_index.id = orders.id WHERE orders.id = %s
"""  # noqa: S608 - constants
_ORDER_AND_CHANGES = """
    SELECT
        orders.record, orders.status, coalesce(log.last_at, order_index.updated_at),
        CASE WHEN order_index.id IS NULL THEN log.first_at ELSE order_index.created_at END
    FROM petstore.orders
    LEFT JOIN petstore.order_index ON order_index.id = orders.id
    CROSS JOIN (
        SELECT min(at) AS first_at, max(at) AS last_at FROM petstore.order_changes
        WHERE change > (SELECT change FROM petstore.order_index_state) AND {contains}
    ) AS log
    WHERE orders.id = %s
"""

Result = TypeVar("Result")


class SearchStatements(NamedTuple):
    """The statements in which the engines differ."""

    pending: str
    """The orders of the changes from one to another (the parameters): id, the record, and ENTRY_COLUMNS as the index
    would hold them, all NULL for an order that was deleted."""

    contains: str
    """The condition that a change in the log is one of an order (the parameter)."""

    excluding: str
    """The condition that an entry of the index is not one of `ids` (the parameter)."""

    with_records: str
    """The SELECT of the record and PAGE_COLUMNS from `({}) AS page`, in the same order."""

    ids: Callable[[Iterable[int]], str]
    """Identifiers as one parameter."""

    update: UpdateStatements


class IndexBehind(Exception):
    """The index lacks a change, or more changes than one read merges."""


class Search:
    """Searches of one store's orders. Implements `ports.OrderSearch`."""

    def __init__(self, engine: Engine, sql: SearchStatements) -> None:
        self._engine = engine
        self._sql = sql
        self._order_and_changes = _ORDER_AND_CHANGES.format(contains=sql.contains)
        self._update = SharedCall(self._update_index)
        self._seen = 0  # the last change
        self._imported_at = -QUIET_SECONDS
        self._wide: dict[tuple[Filters, SortField], float] = {}  # until when

    async def page(self, query: Query) -> Page:
        """One page, which shows every change acknowledged before this call. Raises ServiceUnavailable."""
        try:
            return await self._page_of_index(query)
        except IndexBehind:
            return await self._current(lambda: self._page(query))

    async def find(self, order_id: int) -> TrackedOrder:
        """One order, however far behind the index is. Raises OrderNotFound, ServiceUnavailable."""
        rows = await self._engine.query(_ORDER, (order_id,))
        if rows and not rows[0][4]:
            rows = await self._engine.query(self._order_and_changes, (order_id, order_id), short=False)
        if not rows:
            raise OrderNotFound(order_id)
        record, status, updated_at, created_at = rows[0][:4]
        return TrackedOrder(record, STATUS[status], updated_at, created_at)

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

    async def _page_of_index(self, query: Query) -> Page:
        """A page of an index that contains every change. Raises IndexBehind."""
        narrow = await self._narrow_range(query) if other_ranges(query) else None
        (sql, parameters, in_order), short = _statement(_without_position(query), narrow, self._sql.with_records)
        if query.after is not None:
            position = {_VALUE: query.after.value, _ID: query.after.id}
            parameters = [position.get(parameter, parameter) for parameter in parameters]
        rows = await self._engine.query(sql, parameters, in_order, short=short)
        if not rows:
            raise IndexBehind
        return page_of(rows, query)

    async def _narrow_range(self, query: Query) -> Range | None:
        """The range to be sorted, if there is one, from an index that contains every change. Raises IndexBehind."""
        ranges = query.filters, query.sort.field
        if self._wide.get(ranges, 0.0) > monotonic():
            return None
        found = await self._engine.query(*wide_ranges(query, unless_behind=True))
        if not found:
            raise IndexBehind
        narrow = narrow_range(query, found)
        if narrow is None:
            if len(self._wide) >= _MOST_WIDE:
                del self._wide[next(iter(self._wide))]
            self._wide[ranges] = monotonic() + WIDE_SECONDS
        return narrow

    def _page(self, query: Query) -> Work[Page]:
        """A page of the index and of the changes that it lacks. Raises IndexBehind when they are too many to merge."""
        waiting = yield statements.Query(self._sql.update.waiting, (0, RECENT_LIMIT + 1))
        if sum(size for _, size in waiting) > RECENT_LIMIT:
            raise IndexBehind
        pending: list[Row] = []
        if waiting:
            pending = yield statements.Query(self._sql.pending, (waiting[0][0], waiting[-1][0]))
        wide = (yield wide_ranges(query, unless_behind=False)) if other_ranges(query) else []
        excluded = self._sql.excluding, (self._sql.ids(row[0] for row in pending),)
        rows = yield page_statement(query, narrow_range(query, wide), self._sql.with_records, excluded)
        return page_of(rows, query, [Changed(entry_of(row[2:]), row[1]) for row in pending if row[2] is not None])


_VALUE, _ID = 2**64, 2**64 + 1  # stand for a position, as no store has such numbers


def _without_position(query: Query) -> Query:
    """The query that the pages of a walk share."""
    if query.after is None:
        return query
    return Query(query.filters, query.sort, query.limit, Position(None if query.after.value is None else _VALUE, _ID))


@lru_cache(maxsize=512)
def _statement(query: Query, narrow: Range | None, with_records: str) -> tuple[statements.Query, bool]:
    """The statement that reads a page of a current index, and whether that takes so little that it is read at once."""
    short = query.limit <= SHORT_PAGE and is_answered_by_indexes(query)
    return page_statement(query, narrow, with_records), short


def _count_by_status() -> Work[list[Row]]:
    return (yield statements.Query(_COUNT_BY_STATUS))
