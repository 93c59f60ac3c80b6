"""Orders in SQLite. Implements `ports.Orders`."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from itertools import islice

import apsw

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.orders import Import, Order, Transition
from petstore_server.ports import Actor
from petstore_server.storage.entries import difference, evaluate_orders, orders_entry
from petstore_server.storage.listing import (
    STARTS_PIECE,
    Assembly,
    EncodedList,
    ListKeeper,
    Range,
    Version,
    cut,
    cut_again,
)
from petstore_server.storage.sqlite.audit import record
from petstore_server.storage.sqlite.connections import Row, rows
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.search import log_change
from petstore_server.storage.sqlite.writer import Writer

IMPORT_GAP_SECONDS = 0.003
"""How long an importer leaves the store to others between batches. A waiting writer tries every millisecond."""

_MOST_CHANGED = 50_000  # beyond so many, reading the whole list anew is no slower
_VERSION = "SELECT epoch, (SELECT coalesce(max(revision), 0) FROM orders) FROM store"
_FIND = "SELECT record, status FROM orders WHERE id = ?"
_FIND_MANY = "SELECT record, status FROM orders WHERE id IN (SELECT value FROM json_each(?))"
_SCAN = "SELECT record, status FROM orders ORDER BY id"
_STARTS = f"SELECT id FROM orders WHERE {STARTS_PIECE} ORDER BY id"  # noqa: S608 - a constant
_CHANGED = "SELECT id FROM orders WHERE revision > ? LIMIT ?"
_NEXT_REVISION = "SELECT coalesce(max(revision), 0) + 1 FROM orders"
_RECORDS = "SELECT group_concat(record, ',') FROM (SELECT record FROM orders WHERE id BETWEEN ? AND ? ORDER BY id)"
_UPSERT = """
    INSERT INTO orders (id, status, revision, record, changed) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        status = excluded.status,
        revision = CASE WHEN record = excluded.record THEN revision ELSE excluded.revision END,
        record = excluded.record,
        changed = excluded.changed
"""


class SqliteOrders:
    """The orders of one store."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer
        self._keeper = ListKeeper(self._read_list)
        self._imported_at = 0.0

    async def snapshot(self) -> EncodedList:
        """The list, never older than any change acknowledged before this call, by any process."""
        return await self._keeper.at_least(Version(*self._reader.now(_VERSION)[0]))

    async def change(self, order_id: int, transition: Transition, actor: Actor) -> Order:
        """Apply the transition and return the order after it. Raises OrderNotFound, OrderConflict."""

        def change(connection: apsw.Connection) -> Order:
            before = _find(rows(connection, _FIND, (order_id,)), order_id)
            after = transition.apply(before)
            _update(connection, before, after, log_change(connection, [order_id], actor.at).number)
            record(connection, actor, transition.action, f"order:{order_id}", *difference(before, after))
            return after

        return await self._writer.run(change)

    async def find(self, order_id: int) -> Order:
        """The order as it is. Raises OrderNotFound."""
        return _find(self._reader.now(_FIND, (order_id,)), order_id)

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers, ascending by id."""
        found = await self._reader.run(lambda connection: rows(connection, _FIND_MANY, (json.dumps(list(ids)),)))
        return [Order.from_record(*row) for row in found]

    async def scan(self, batch_size: int = 1000) -> AsyncIterator[list[Order]]:
        """All orders of one snapshot, ascending by id. The read transaction lasts until the last one is taken."""
        scan = await self._reader.call(_Scan, self._reader)
        try:
            while batch := await self._reader.call(scan.take, batch_size):
                yield batch
        finally:
            scan.close()

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Take the orders in, in one transaction with one audit entry; say of each what became of it.

        Give it some thousands: that keeps the transaction well below 100 ms. Batches begin IMPORT_GAP_SECONDS
        after the last one's commit at the earliest, so that others can write in between (D6).
        """
        if not orders:
            return []
        await asyncio.sleep(self._imported_at + IMPORT_GAP_SECONDS - time.monotonic())
        wanted = json.dumps([order.id for order in orders])

        def take_in(connection: apsw.Connection) -> list[Import]:
            found = [Order.from_record(*row) for row in rows(connection, _FIND_MANY, (wanted,))]
            existing = {order.id: order for order in found}
            decisions, changed = evaluate_orders(existing, orders)
            if changed:
                revision = connection.execute(_NEXT_REVISION).get
                number = log_change(connection, changed, actor.at).number
                connection.executemany(
                    _UPSERT,
                    [(order.id, str(order.status), revision, order.record(), number) for order in changed.values()],
                )
            record(connection, actor, "orders.import", import_id, *orders_entry(existing, changed, decisions))
            return decisions

        try:
            return await self._writer.run(take_in)
        finally:
            self._imported_at = time.monotonic()

    async def _read_list(self, held: EncodedList | None) -> EncodedList:
        began = time.perf_counter()
        read = await self._reader.run(lambda connection: _read_list(connection, held, self._reader))
        if read is not held:
            self._writer.stats.rebuilt(time.perf_counter() - began)
        return read


def _find(found: list[Row], order_id: int) -> Order:
    if not found:
        raise OrderNotFound(order_id)
    return Order.from_record(*found[0])


def _read_list(connection: apsw.Connection, held: EncodedList | None, reader: Reader) -> EncodedList:
    """The list as it is now, of which only what has changed since the held one is read."""
    version = Version(*rows(connection, _VERSION)[0])
    if held is not None and held.version == version:
        return held
    changed = _changed_since(connection, held, version)
    if held is None or changed is None:
        ranges = cut(row[0] for row in rows(connection, _STARTS))
        stale = set(ranges)
    else:
        ranges, stale = cut_again(held, changed)
    assembly = Assembly(held)
    for one in ranges:
        if one in stale:
            assembly.add(one, _records(connection, one))
        else:
            assembly.keep(one)
    return assembly.finish(version, reader.compressor)


def _changed_since(connection: apsw.Connection, held: EncodedList | None, version: Version) -> list[int] | None:
    """The orders that changed in the list since the held one; None where that is unknown or too many."""
    if held is None or not version.covers(held.version):
        return None
    changed = rows(connection, _CHANGED, (held.version.revision, _MOST_CHANGED + 1))
    return [row[0] for row in changed] if len(changed) <= _MOST_CHANGED else None


def _records(connection: apsw.Connection, one: Range) -> str | None:
    records: str | None = connection.execute(_RECORDS, one).get
    return records


def _update(connection: apsw.Connection, before: Order, after: Order, change: int) -> None:
    """Write the order with the number of the change; it gets a new revision only where the list shows the change."""
    text = after.record()
    if text == before.record():
        connection.execute(
            "UPDATE orders SET status = ?, changed = ? WHERE id = ?", (str(after.status), change, after.id)
        )
    else:
        connection.execute(
            f"UPDATE orders SET status = ?, changed = ?, record = ?, revision = ({_NEXT_REVISION}) WHERE id = ?",  # noqa: S608
            (str(after.status), change, text, after.id),
        )


class _Scan:
    """All orders of one moment, on a connection of its own."""

    def __init__(self, reader: Reader) -> None:
        self._connection = reader.connect()
        self._lock = threading.Lock()  # who stops early may close while a thread still reads
        self._rows = self._connection.execute(_SCAN)

    def take(self, count: int) -> list[Order]:
        with self._lock:
            return [Order.from_record(*row) for row in islice(self._rows, count)]

    def close(self) -> None:
        with self._lock:
            self._connection.close()
