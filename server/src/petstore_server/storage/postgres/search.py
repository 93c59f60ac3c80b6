"""Searching orders in PostgreSQL: the search index that follows the change log, and pages read from both.

Triggers write the change log (migration 0003), so that writes need no change. See `storage.search`.
"""

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.orders import Status
from petstore_server.domain.search import Page, Query, TrackedOrder
from petstore_server.storage.postgres.arrays import numbers
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import BATCH, SNAPSHOT, Session
from petstore_server.storage.search import (
    COUNT_BY_STATUS,
    ENTRY_COLUMNS,
    INDEX_BATCH,
    RECENT_LIMIT,
    Found,
    IndexBehind,
    Recent,
    counts_of,
    entry_of,
    find,
    read_indexed,
    statement,
    take_changes,
    tracked,
)

# The orders that changed since the index was updated, each with its first and last change, as the index would hold it.
_PENDING = """
    SELECT
        pending.id AS pending_id,
        orders.id AS id,
        orders.status AS status,
        petstore.order_pet_id(orders.record) AS pet_id,
        petstore.order_complete(orders.record) AS complete,
        petstore.order_ship_date(orders.record) AS ship_date,
        pending.last_at AS updated_at,
        CASE WHEN order_index.id IS NULL THEN pending.first_at ELSE order_index.created_at END AS created_at
    FROM (
        SELECT changed.id AS id, min(log.at) AS first_at, max(log.at) AS last_at
        FROM petstore.order_changes AS log, unnest(log.ids) AS changed (id)
        WHERE log.change > (SELECT change FROM petstore.order_index_state) AND log.change <= %s
        GROUP BY changed.id
    ) AS pending
    LEFT JOIN petstore.orders ON orders.id = pending.id
    LEFT JOIN petstore.order_index ON order_index.id = pending.id
"""
_WAITING = """
    SELECT change, cardinality(ids) FROM petstore.order_changes
    WHERE change > (SELECT change FROM petstore.order_index_state) ORDER BY change LIMIT %s
"""
_UPDATE_INDEX = f"""
    INSERT INTO petstore.order_index ({ENTRY_COLUMNS})
    SELECT {ENTRY_COLUMNS} FROM ({_PENDING}) AS pending WHERE id IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET
        status = excluded.status, pet_id = excluded.pet_id, complete = excluded.complete,
        ship_date = excluded.ship_date, updated_at = excluded.updated_at
"""  # noqa: S608 - constants
_REMOVE_DELETED = """
    DELETE FROM petstore.order_index WHERE id IN (
        SELECT unnest(ids) FROM petstore.order_changes WHERE change <= %s
    ) AND NOT EXISTS (SELECT 1 FROM petstore.orders WHERE orders.id = order_index.id)
"""
# One process at a time updates the index; the others go on with their work.
_LOCK_STATE = "SELECT change FROM petstore.order_index_state FOR UPDATE SKIP LOCKED"
_RECORDS = "SELECT id, record FROM petstore.orders WHERE id = ANY(%s::bigint[])"
_TRACKED = f"SELECT {ENTRY_COLUMNS} FROM petstore.order_index WHERE id = %s"  # noqa: S608 - constants
_LARGEST = (1 << 63) - 1


class PostgresSearch:
    """Searches of one store's orders."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, query: Query) -> Page:
        """One page, which shows every change acknowledged before this call. Raises ServiceUnavailable."""
        return await read_indexed(lambda: self._page(query), self.update_index)

    async def find(self, order_id: int) -> TrackedOrder:
        """One order. Raises OrderNotFound, ServiceUnavailable."""
        return await read_indexed(lambda: self._find(order_id), self.update_index)

    async def count_by_status(self) -> dict[Status, int]:
        """The number of orders with each status in the index. Raises ServiceUnavailable."""
        return counts_of(await self._pool.rows(COUNT_BY_STATUS))

    async def update_index(self) -> bool:
        """Bring the next changes into the index; return whether more are waiting. Raises ServiceUnavailable."""
        if not await self._pool.rows(_WAITING, (1,)):
            return False
        return await self._pool.transaction(_update_index, BATCH)

    async def _page(self, query: Query) -> Page:
        async with self._pool.long_read(SNAPSHOT) as session:
            found = await _run(session, query, await _recent(session))
            ids = numbers(entry.id for entry in found.entries)
            return found.page(dict(await session.rows(_RECORDS, (ids,))))

    async def _find(self, order_id: int) -> TrackedOrder:
        async with self._pool.long_read(SNAPSHOT) as session:
            recent = await _recent(session)
            entry = recent.get(order_id)
            if order_id not in recent:
                entry = next(map(entry_of, await session.rows(_TRACKED, (order_id,))), None)
            if entry is None:
                raise OrderNotFound(order_id)
            [(_, record)] = await session.rows(_RECORDS, (numbers([order_id]),))
            return tracked(entry, record)


async def _run(session: Session, query: Query, recent: Recent) -> Found:
    reads = find(query, recent)
    try:
        read = next(reads)
        while True:
            rows = await session.rows(*statement(read, "petstore.order_index", "%s"))
            read = reads.send([entry_of(row) for row in rows])
    except StopIteration as stop:
        found: Found = stop.value
        return found


async def _recent(session: Session) -> Recent:
    """The orders that changed since the index was updated. Raises IndexBehind when they are too many for one read."""
    waiting = await session.rows(_WAITING, (RECENT_LIMIT + 1,))
    if sum(size for _, size in waiting) > RECENT_LIMIT:
        raise IndexBehind
    if not waiting:
        return {}
    rows = await session.rows(_PENDING, (_LARGEST,))
    return {row[0]: None if row[1] is None else entry_of(row[1:]) for row in rows}


async def _update_index(session: Session) -> bool:
    """Apply waiting changes until about INDEX_BATCH orders are done; return whether more are waiting."""
    if not await session.rows(_LOCK_STATE):
        return False
    waiting = await session.rows(_WAITING, (INDEX_BATCH,))
    taken = take_changes(waiting)
    if not taken:
        return False
    change = taken[-1][0]
    await session.execute(_UPDATE_INDEX, (change,))
    await session.execute(_REMOVE_DELETED, (change,))
    await session.execute("UPDATE petstore.order_index_state SET change = %s", (change,))
    await session.execute("DELETE FROM petstore.order_changes WHERE change <= %s", (change,))
    return len(taken) < len(waiting) or len(waiting) == INDEX_BATCH
