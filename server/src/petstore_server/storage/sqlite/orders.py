"""Orders in SQLite. Implements `ports.Orders`, `storage.orders.OrderTable` and `storage.listing.ListReader`."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Sequence
from itertools import islice
from typing import Any, NamedTuple

import apsw

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.imports import Reversal, Undo
from petstore_server.domain.orders import Import, Order, Status
from petstore_server.domain.placement import largest_assigned
from petstore_server.domain.transitions import Transition
from petstore_server.ports import Actor, OrderList
from petstore_server.storage.audit import INSERT_ENTRY
from petstore_server.storage.listing import STARTS_PIECE, Range, read_list
from petstore_server.storage.orders import (
    ImportedOrders,
    OrderChange,
    StoredOrder,
    Updated,
    change_orders,
    import_orders,
    known_ids,
    read_order,
    undo_orders,
)
from petstore_server.storage.sqlite.engine import run
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.search import json_ids, log_change
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.statements import Command, Commands, Query, Row, Work
from petstore_server.storage.stats import Stats

IMPORT_GAP_SECONDS = 0.003
"""The time between batches of an import in which others can write. A waiting writer tries every millisecond."""

_FIND = "SELECT id, record, status FROM orders WHERE id = ?"
_FIND_MANY = "SELECT id, record, status FROM orders WHERE id IN (SELECT value FROM json_each(?))"
_SCAN = "SELECT id, record, status FROM orders ORDER BY id"
_SET_STATUS = "UPDATE orders SET status = ?, changed = ? WHERE id = ?"
_SET_ALL = "UPDATE orders SET status = ?, changed = ?, record = ?, revision = ? WHERE id = ?"
# One statement inserts a batch from its records, so it needs the interpreter lock only once.
# A record begins with `{"id":`, and CAST reads the number that follows.
_INSERT = """
    INSERT INTO orders (id, status, revision, changed, record)
    SELECT CAST(substr(value, 7, 20) AS INTEGER), ?, ?, ?, value FROM carray(?)
"""
_DELETE = "DELETE FROM orders WHERE id IN (SELECT value FROM json_each(?))"
NOT_AGAIN = "UPDATE order_index_state SET last_order_id = max(last_order_id, ?)"
_NEW_EPOCH = "UPDATE store SET epoch = lower(hex(randomblob(16)))"
_NEXT_REVISION = "SELECT coalesce(max(revision), 0) + 1 FROM orders"

MARK = "SELECT epoch, (SELECT coalesce(max(revision), 0) FROM orders) FROM store"
CHANGED = "SELECT id FROM orders WHERE revision > ? LIMIT ?"
STARTS = f"SELECT id FROM orders WHERE {STARTS_PIECE} ORDER BY id"  # noqa: S608 - a constant
_RECORDS = """
    SELECT CAST(coalesce(',' || group_concat(record, ','), '') AS BLOB)
    FROM (SELECT record FROM orders WHERE id BETWEEN ? AND ? ORDER BY id)
"""


class Mark(NamedTuple):
    """Identifies a list: the store's history, and the number of the newest change that affects the list."""

    epoch: str
    revision: int


class SqliteOrders:
    """The orders of one store."""

    def __init__(self, reader: Reader, writer: Writer, stats: Stats) -> None:
        self._reader = reader
        self._writer = writer
        self._stats = stats
        self._imported_at = 0.0

    def is_current(self, held: OrderList) -> bool:
        return bool(self._reader.now(MARK)[0] == held.mark)

    async def snapshot(self, held: OrderList | None = None) -> OrderList:
        if held is not None and self.is_current(held):
            return held
        began = time.perf_counter()
        latest = await self._reader.run(lambda connection: run(connection, read_list(_ListReader(), held)))
        self._stats.rebuilt(time.perf_counter() - began)
        return latest

    async def change(self, order_id: int, transition: Transition[Order], actor: Actor) -> Order:
        return await self._writer.submit(_change, OrderChange(order_id, transition, actor))

    async def find(self, order_id: int) -> Order:
        found = self._reader.now(_FIND, (order_id,))
        if not found:
            raise OrderNotFound(order_id)
        return read_order(found[0])

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        found: list[Row] = await self._reader.run(
            lambda connection: connection.execute(_FIND_MANY, (json_ids(ids),)).fetchall()
        )
        return [read_order(row) for row in found]

    async def scan(self, batch_size: int = 1000) -> AsyncGenerator[list[Order]]:
        """Yield all orders of one snapshot, ascending by id. The read transaction lasts until the last batch."""
        scan = await self._reader.call(_Scan, self._reader)
        try:
            while batch := await self._reader.call(scan.take, batch_size):
                yield batch
        finally:
            scan.close()

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Import the orders in one transaction with one audit entry, and return the outcome of each.

        A few thousand orders keep the transaction well below 100 ms. A batch begins at least IMPORT_GAP_SECONDS after
        the commit of the one before, so that others can write in between (D6).
        """
        if not orders:
            return []
        imported = ImportedOrders(orders)
        await asyncio.sleep(self._imported_at + IMPORT_GAP_SECONDS - time.monotonic())
        try:
            return await self._writer.run(
                lambda connection: run(connection, import_orders(OrderRows(), imported, import_id, actor))
            )
        finally:
            self._imported_at = time.monotonic()

    async def undo_batch(self, reversals: Sequence[Reversal], import_id: str, actor: Actor) -> list[Undo]:
        return await self._writer.run(
            lambda connection: run(connection, undo_orders(OrderRows(), reversals, import_id, actor))
        )


def _change(connection: apsw.Connection, changes: Sequence[OrderChange]) -> list[Order | Exception]:
    return run(connection, change_orders(OrderRows(), changes))


class OrderRows:
    """Writes orders. A transaction has the whole store locked."""

    def lock(self, ids: Sequence[int], *, wait: bool) -> Work[Sequence[StoredOrder]]:
        known = yield from known_ids(ids)
        return (yield Query(_FIND_MANY, (json_ids(known),))) if known else ()

    def exist(self, ids: Sequence[int]) -> Work[Collection[int]]:
        """What was not found does not exist."""
        yield from ()
        return ()

    def update(self, updated: Sequence[Updated], audit: Sequence[Row], at: float) -> Work[None]:
        """Write existing orders and audit entries. Orders that the list shows differently get a new revision."""
        change = yield from log_change([after.id for _, after in updated], at)
        statuses = [(str(one.after.status), change, one.after.id) for one in updated if not one.changes_record]
        if statuses:
            yield Commands(_SET_STATUS, statuses)
        if len(statuses) < len(updated):
            [(revision,)] = yield Query(_NEXT_REVISION)
            shown = [one.after for one in updated if one.changes_record]
            yield Commands(
                _SET_ALL, [(str(order.status), change, order.record(), revision, order.id) for order in shown]
            )
        if audit:
            yield Commands(INSERT_ENTRY, audit)

    def insert(self, orders: Sequence[Order], records: Sequence[str], at: float) -> Work[None]:
        [(revision,)] = yield Query(_NEXT_REVISION)
        change = yield from log_change([order.id for order in orders], at)
        by_status: dict[Status, list[str]] = defaultdict(list)
        for order, text in zip(orders, records, strict=True):
            by_status[order.status].append(text)
        for status, chosen in by_status.items():
            yield Command(_INSERT, (str(status), revision, change, apsw.carray(tuple(chosen))))

    def delete(self, ids: Sequence[int], at: float) -> Work[None]:
        """The newest revision may be among those deleted, and would be given again."""
        yield from log_change(ids, at)
        yield Command(_DELETE, (json_ids(ids),))
        yield Command(NOT_AGAIN, (largest_assigned(ids),))
        yield Command(_NEW_EPOCH)


class _ListReader:
    """Reads the list."""

    def mark(self) -> Work[Mark]:
        [row] = yield Query(MARK)
        return Mark(*row)

    def changed_since(self, mark: Mark, now: Mark, limit: int) -> Work[list[int] | None]:
        """A restore begins another history, and may go back in this one."""
        if mark.epoch != now.epoch or mark.revision > now.revision:
            return None
        return [row[0] for row in (yield Query(CHANGED, (mark.revision, limit)))]

    def piece_starts(self) -> Work[list[int]]:
        return [row[0] for row in (yield Query(STARTS))]

    def records(self, ranges: Sequence[Range]) -> Work[list[bytes]]:
        found: list[bytes] = []
        for one in ranges:
            [(records,)] = yield Query(_RECORDS, one)
            found.append(records)
        return found


class _Scan:
    """All orders of one snapshot, on a separate connection."""

    def __init__(self, reader: Reader) -> None:
        self._connection = reader.connect()
        self._lock = threading.Lock()  # a consumer that stops early closes while a thread may still read
        self._rows: Any = self._connection.execute(_SCAN)

    def take(self, count: int) -> list[Order]:
        with self._lock:
            return [read_order(row) for row in islice(self._rows, count)]

    def close(self) -> None:
        with self._lock:
            self._connection.close()
