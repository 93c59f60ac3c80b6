"""Orders in PostgreSQL. Implements `ports.Orders`."""

from collections.abc import AsyncIterator, Sequence

import psycopg

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.orders import INT64_MAX, INT64_MIN, Import, Order, Transition
from petstore_server.ports import Actor
from petstore_server.storage.entries import evaluate_orders, orders_entry
from petstore_server.storage.listing import EncodedList
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.audit import record
from petstore_server.storage.postgres.changes import Changes
from petstore_server.storage.postgres.freshness import FreshList
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import BATCH, SCAN, Session
from petstore_server.storage.stats import Stats

_FIND = "SELECT record, status FROM petstore.orders WHERE id = %s"
_FIND_MANY = "SELECT record, status FROM petstore.orders WHERE id = ANY(%s::bigint[])"
_LOCK = "SELECT record, status FROM petstore.orders WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE"
_SCAN = "SELECT record, status FROM petstore.orders WHERE id >= %s ORDER BY id LIMIT %s"
_INSERT = """
    INSERT INTO petstore.orders (id, status, revision, record)
    SELECT id, status, pg_current_xact_id()::text::bigint, record
    FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS new (id, status, record)
    ORDER BY id
"""
_REPLACE = """
    UPDATE petstore.orders SET
        status = new.status,
        revision = CASE WHEN orders.record = new.record THEN revision ELSE pg_current_xact_id()::text::bigint END,
        record = new.record
    FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS new (id, status, record)
    WHERE orders.id = new.id
"""
_TRIES = 3


class PostgresOrders:
    """The orders of one store."""

    def __init__(self, pool: Pool, stats: Stats) -> None:
        self._pool = pool
        self._changes = Changes(pool, stats)
        self._list = FreshList(pool, stats)

    async def snapshot(self) -> EncodedList:
        """The list, never older than any change acknowledged before this call, by any process."""
        return await self._list.newest()

    async def change(self, order_id: int, transition: Transition, actor: Actor) -> Order:
        """Apply the transition and return the order after it. Raises OrderNotFound, OrderConflict."""
        return await self._changes.apply(order_id, transition, actor)

    async def find(self, order_id: int) -> Order:
        """The order as it is. Raises OrderNotFound."""
        found = await self._pool.rows(_FIND, (order_id,))
        if not found:
            raise OrderNotFound(order_id)
        return Order.from_record(*found[0])

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers."""
        return [Order.from_record(*row) for row in await self._pool.rows(_FIND_MANY, (numbers(ids),))]

    async def scan(self, batch_size: int = 1000) -> AsyncIterator[list[Order]]:
        """All orders of one snapshot, ascending by id. The read transaction lasts until the last one is taken."""
        async with self._pool.long_read(SCAN) as session:
            first: int | None = INT64_MIN
            while first is not None:
                batch = [Order.from_record(*row) for row in await session.rows(_SCAN, (first, batch_size))]
                if batch:
                    yield batch
                more = len(batch) == batch_size and batch[-1].id < INT64_MAX
                first = batch[-1].id + 1 if more else None

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Take the orders in, in one transaction with one audit entry; say of each what became of it.

        Only the orders of the batch are locked, so others can go on changing the rest (D6).
        """
        if not orders:
            return []
        wanted = numbers(sorted({order.id for order in orders}))

        async def take_in(session: Session) -> list[Import]:
            found = [Order.from_record(*row) for row in await session.rows(_LOCK, (wanted,))]
            existing = {order.id: order for order in found}
            decisions, changed = evaluate_orders(existing, orders)
            await _write(session, _INSERT, [order for order in changed.values() if order.id not in existing])
            await _write(session, _REPLACE, [order for order in changed.values() if order.id in existing])
            await record(session, actor, "orders.import", import_id, *orders_entry(existing, changed, decisions))
            return decisions

        for _ in range(_TRIES - 1):
            try:
                return await self._pool.transaction(take_in, BATCH)
            except psycopg.errors.UniqueViolation:  # another import has brought some of them in meanwhile
                continue
        return await self._pool.transaction(take_in, BATCH)

    async def close(self) -> None:
        """Finish what is queued."""
        await self._changes.close()
        await self._list.close()


async def _write(session: Session, sql: str, orders: Sequence[Order]) -> None:
    if orders:
        columns = zip(*((order.id, str(order.status), order.record()) for order in orders), strict=True)
        ids, statuses, records = columns
        await session.execute(sql, (numbers(ids), texts(statuses), texts(records)))
