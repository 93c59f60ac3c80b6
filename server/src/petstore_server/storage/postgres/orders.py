"""Orders in PostgreSQL. Implements `ports.Orders` and `storage.orders.OrderTable`."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from math import inf

from psycopg.errors import UniqueViolation

from petstore_server.batching import Batcher
from petstore_server.domain.errors import OrderNotFound, ServiceUnavailable
from petstore_server.domain.imports import Reversal, Undo
from petstore_server.domain.orders import INT64_MAX, INT64_MIN, Import, Order
from petstore_server.domain.placement import largest_assigned
from petstore_server.domain.transitions import Transition
from petstore_server.ports import Actor, OrderList
from petstore_server.storage.orders import (
    ImportedOrders,
    Locked,
    OrderChange,
    StoredOrder,
    Updated,
    change_orders,
    import_orders,
    known_ids,
    read_order,
    undo_orders,
)
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.engine import run
from petstore_server.storage.postgres.failures import CONFLICT, NO_RESPONSE
from petstore_server.storage.postgres.listing import newest_list
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import BATCH, SCAN, WRITE
from petstore_server.storage.statements import Command, Query, Row, Work
from petstore_server.storage.stats import Stats

CONCURRENCY = 2
"""Transactions of changes at the same time: while one waits for the disk, the next is filled."""

# How long a change waits before it tries again an order that another program has locked: 1.5 s in all. The pauses grow,
# so that many waiting changes leave the processor to the one that they wait for.
_LOCK_RETRY_SECONDS = (0.01, 0.02, 0.04, 0.08, *[0.15] * 9, inf)
# Another import may insert some of the orders meanwhile.
_IMPORT_CONFLICTS = (*CONFLICT, UniqueViolation)

_FIND = "SELECT id, record, status FROM petstore.orders WHERE id = %s"
_FIND_MANY = "SELECT id, record, status FROM petstore.orders WHERE id = ANY(%s::bigint[])"
_SCAN = "SELECT id, record, status FROM petstore.orders WHERE id >= %s ORDER BY id LIMIT %s"
# In ascending order, as in every transaction, so that two of them never wait for each other.
_LOCK = "SELECT id, record, status FROM petstore.orders WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE"
_EXIST = "SELECT id FROM petstore.orders WHERE id = ANY(%s::bigint[])"

# One statement for both tables. `revision` changes only where the list shows the change; otherwise no index is touched.
_UPDATE = """
    WITH changed AS (
        UPDATE petstore.orders SET
            status = new.status,
            record = coalesce(new.record, orders.record),
            revision = CASE WHEN new.record IS NULL THEN revision ELSE pg_current_xact_id()::text::bigint END
        FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS new (id, status, record)
        WHERE orders.id = new.id
    )
    INSERT INTO petstore.audit (at, actor, action, subject, before, after)
    SELECT at, actor, action, subject, before::json, after::json
    FROM unnest(%s::double precision[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
        AS entry (at, actor, action, subject, before, after)
"""
# Neither a status nor a record contains a newline, so lines need no quoting. COPY takes as long, and has no pipeline.
_INSERT = r"""
    INSERT INTO petstore.orders (id, status, revision, record)
    SELECT id, status, pg_current_xact_id()::text::bigint, record
    FROM unnest(%s::bigint[], string_to_array(%s, E'\n'), string_to_array(%s, E'\n')) AS new (id, status, record)
    ORDER BY id
"""
_DELETE = "DELETE FROM petstore.orders WHERE id = ANY(%s::bigint[])"
_NOT_AGAIN = "UPDATE petstore.order_changes_head SET last_order_id = greatest(last_order_id, %s)"
_NEW_EPOCH = "UPDATE petstore.store SET epoch = replace(gen_random_uuid()::text, '-', '')"


class PostgresOrders:
    """The orders of one store."""

    def __init__(self, pool: Pool, stats: Stats) -> None:
        self._pool = pool
        self._stats = stats
        self._batcher: Batcher[OrderChange, Order] = Batcher(self._change_all, concurrency=CONCURRENCY)
        self._closed = False

    def is_current(self, held: OrderList) -> bool:
        """Always False: it would take a query."""
        return False

    async def snapshot(self, held: OrderList | None = None) -> OrderList:
        return await newest_list(self._pool, self._stats, held)

    async def change(self, order_id: int, transition: Transition[Order], actor: Actor) -> Order:
        """An order that another program has locked is tried again on its own, and so does not delay the others.

        All attempts share the time limit of the call. It does not bound their transactions, which others share.
        """
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        clock = asyncio.get_running_loop().time
        ends = clock() + WRITE.total
        change = OrderChange(order_id, transition, actor)
        reason = NO_RESPONSE
        for pause in _LOCK_RETRY_SECONDS:
            try:
                return await self._batcher.submit(change, ends)
            except TimeoutError:
                break
            except Locked:
                reason = "another program keeps the order locked"
            if clock() + pause >= ends:
                break
            await asyncio.sleep(pause)
        raise ServiceUnavailable(reason)

    async def find(self, order_id: int) -> Order:
        found = await self._pool.rows(_FIND, (order_id,))
        if not found:
            raise OrderNotFound(order_id)
        return read_order(found[0])

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        return [read_order(row) for row in await self._pool.rows(_FIND_MANY, (numbers(ids),))]

    async def scan(self, batch_size: int = 1000) -> AsyncGenerator[list[Order]]:
        """Yield all orders of one snapshot, ascending by id. The read transaction lasts until the last batch."""
        async with self._pool.long_read(SCAN) as session:
            first: int | None = INT64_MIN
            while first is not None:
                batch = [read_order(row) for row in await session.rows(_SCAN, (first, batch_size))]
                if batch:
                    yield batch
                more = len(batch) == batch_size and batch[-1].id < INT64_MAX
                first = batch[-1].id + 1 if more else None

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Import the orders in one transaction with one audit entry, and return the outcome of each.

        Only the orders of the batch are locked, so others can change the rest (D6).
        """
        if not orders:
            return []
        imported = ImportedOrders(orders)
        return await self._pool.transaction(
            lambda session: run(session, import_orders(_OrderTable(), imported, import_id, actor)),
            BATCH,
            _IMPORT_CONFLICTS,
        )

    async def undo_batch(self, reversals: Sequence[Reversal], import_id: str, actor: Actor) -> list[Undo]:
        return await self._pool.transaction(
            lambda session: run(session, undo_orders(_OrderTable(), reversals, import_id, actor)), BATCH
        )

    async def close(self) -> None:
        self._closed = True
        await self._batcher.close()

    async def _change_all(self, changes: list[OrderChange]) -> list[Order | Exception]:
        outcomes = await self._pool.transaction(lambda session: run(session, change_orders(_OrderTable(), changes)))
        self._stats.committed(len(changes))
        return outcomes


class _OrderTable:
    """Reads orders under lock, and writes them."""

    def lock(self, ids: Sequence[int], *, wait: bool) -> Work[Sequence[StoredOrder]]:
        if not wait:
            return (yield Query(f"{_LOCK} SKIP LOCKED", (numbers(ids),)))
        known = yield from known_ids(ids)
        return (yield Query(_LOCK, (numbers(known),))) if known else ()

    def exist(self, ids: Sequence[int]) -> Work[Collection[int]]:
        return {row[0] for row in (yield Query(_EXIST, (numbers(ids),)))}

    def update(self, updated: Sequence[Updated], audit: Sequence[Row], at: float) -> Work[None]:
        """Write existing orders and audit entries. Orders that the list shows differently get a new revision."""
        columns = list(zip(*audit, strict=True)) or [()] * 6
        yield Command(
            _UPDATE,
            (
                numbers(after.id for _, after in updated),
                texts(str(after.status) for _, after in updated),
                texts(one.after.record() if one.changes_record else None for one in updated),
                numbers(columns[0]),
                *(texts(column) for column in columns[1:]),
            ),
        )

    def insert(self, orders: Sequence[Order], records: Sequence[str], at: float) -> Work[None]:
        ids = numbers(order.id for order in orders)
        yield Command(_INSERT, (ids, "\n".join([order.status for order in orders]), "\n".join(records)))

    def delete(self, ids: Sequence[int], at: float) -> Work[None]:
        """Rows that are gone do not show in any query for changes, so every copy of the list is read again."""
        yield Command(_DELETE, (numbers(ids),))
        yield Command(_NOT_AGAIN, (largest_assigned(ids),))
        yield Command(_NEW_EPOCH)
