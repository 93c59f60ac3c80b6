"""Searching orders in SQLite: the change log, the search index that follows it, and pages read from both."""

import json
from collections.abc import Iterable
from typing import NamedTuple

import apsw

from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.orders import Status
from petstore_server.domain.search import Page, Query, TrackedOrder
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
from petstore_server.storage.sqlite.connections import rows
from petstore_server.storage.sqlite.engine import translated
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.statements import Query as Select
from petstore_server.storage.statements import Work

# What the index holds of an order, as columns of `orders`. A damaged record must not stop the index.
_COLUMNS = """
    orders.id AS id, orders.status AS status,
    iif(json_valid(orders.record), orders.record ->> 'petId', NULL) AS pet_id,
    iif(json_valid(orders.record), coalesce(orders.record ->> 'complete', 0), 0) AS complete,
    iif(json_valid(orders.record),
        unixepoch(substr(orders.record ->> 'shipDate', 1, 19)) * 1000000
        + CAST(substr(rtrim(substr(orders.record ->> 'shipDate', 21), 'Z') || '000000', 1, 6) AS INTEGER), NULL
    ) AS ship_date
"""
_LAST_AT = """
    SELECT max(at, coalesce((SELECT at FROM order_changes ORDER BY change DESC LIMIT 1), 0)) FROM order_index_state
"""
_LOG = "INSERT INTO order_changes (at, ids) VALUES (?, ?) RETURNING change"

# The orders that changed since the index was updated, each with its first and last change, as the index would hold it.
_PENDING = f"""
    SELECT pending.id AS pending_id, {_COLUMNS}, pending.last_at AS updated_at,
        iif(order_index.id IS NULL, pending.first_at, order_index.created_at) AS created_at
    FROM (
        SELECT id.value AS id, min(log.at) AS first_at, max(log.at) AS last_at
        FROM order_changes AS log, json_each(log.ids) AS id
        WHERE log.change > (SELECT change FROM order_index_state) AND log.change <= ?
        GROUP BY id.value
    ) AS pending
    LEFT JOIN orders ON orders.id = pending.id
    LEFT JOIN order_index ON order_index.id = pending.id
"""  # noqa: S608 - constants
_WAITING = """
    SELECT change, json_array_length(ids) FROM order_changes
    WHERE change > (SELECT change FROM order_index_state) ORDER BY change LIMIT ?
"""
_UPDATE_INDEX = f"""
    INSERT INTO order_index ({ENTRY_COLUMNS}) SELECT {ENTRY_COLUMNS} FROM ({_PENDING}) WHERE id IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET
        status = excluded.status, pet_id = excluded.pet_id, complete = excluded.complete,
        ship_date = excluded.ship_date, updated_at = excluded.updated_at
"""  # noqa: S608 - constants
_REMOVE_DELETED = """
    DELETE FROM order_index WHERE id IN (
        SELECT id.value FROM order_changes AS log, json_each(log.ids) AS id WHERE log.change <= ?
    ) AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = order_index.id)
"""
_ADVANCE = (
    "UPDATE order_index_state SET change = log.change, at = log.at FROM order_changes AS log WHERE log.change = ?"
)
_RECORDS = "SELECT id, record FROM orders WHERE id IN (SELECT value FROM json_each(?))"
_TRACKED = f"SELECT {ENTRY_COLUMNS} FROM order_index WHERE id = ?"  # noqa: S608 - constants
_EVERYTHING = (1 << 63) - 1


class LoggedChange(NamedTuple):
    """The number of a change, for the column `changed` of its orders, and its time in Unix microseconds."""

    number: int
    at: int


def log_change(ids: Iterable[int], at: float) -> Work[LoggedChange]:
    """Log within its transaction that these orders change at `at` (Unix seconds), or just after the last change."""
    [(last,)] = yield Select(_LAST_AT)
    logged_at = max(int(at * 1_000_000), last + 1)
    [(number,)] = yield Select(_LOG, (logged_at, json.dumps(list(ids))))
    return LoggedChange(number, logged_at)


class SqliteSearch:
    """Searches of one store's orders."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def page(self, query: Query) -> Page:
        """One page, which shows every change acknowledged before this call. Raises ServiceUnavailable."""
        return await read_indexed(
            lambda: self._reader.run(lambda connection: _page(connection, query)), self.update_index
        )

    async def find(self, order_id: int) -> TrackedOrder:
        """One order. Raises OrderNotFound, ServiceUnavailable."""
        return await read_indexed(
            lambda: self._reader.run(lambda connection: _find(connection, order_id)), self.update_index
        )

    async def count_by_status(self) -> dict[Status, int]:
        """The number of orders with each status in the index. Raises ServiceUnavailable."""
        return await self._reader.run(lambda connection: counts_of(rows(connection, translated(COUNT_BY_STATUS))))

    async def update_index(self) -> bool:
        """Bring the next changes into the index; return whether more are waiting."""
        if not self._reader.now(_WAITING, (1,)):
            return False
        return await self._writer.run(update_index)


def _page(connection: apsw.Connection, query: Query) -> Page:
    recent = _recent(connection)
    found = _run(connection, query, recent)
    ids = json.dumps([entry.id for entry in found.entries])
    return found.page(dict(rows(connection, _RECORDS, (ids,))))


def _run(connection: apsw.Connection, query: Query, recent: Recent) -> Found:
    reads = find(query, recent)
    try:
        read = next(reads)
        while True:
            read = reads.send([entry_of(row) for row in rows(connection, *statement(read, "order_index", "?"))])
    except StopIteration as stop:
        found: Found = stop.value
        return found


def _find(connection: apsw.Connection, order_id: int) -> TrackedOrder:
    recent = _recent(connection)
    entry = recent.get(order_id)
    if order_id not in recent:
        entry = next(map(entry_of, rows(connection, _TRACKED, (order_id,))), None)
    if entry is None:
        raise OrderNotFound(order_id)
    [(_, record)] = rows(connection, _RECORDS, (json.dumps([order_id]),))
    return tracked(entry, record)


def _recent(connection: apsw.Connection) -> Recent:
    """The orders that changed since the index was updated. Raises IndexBehind when they are too many for one read."""
    waiting = rows(connection, _WAITING, (RECENT_LIMIT + 1,))
    if sum(size for _, size in waiting) > RECENT_LIMIT:
        raise IndexBehind
    if not waiting:
        return {}
    return {row[0]: None if row[1] is None else entry_of(row[1:]) for row in rows(connection, _PENDING, (_EVERYTHING,))}


def update_index(connection: apsw.Connection) -> bool:
    """Apply waiting changes until about INDEX_BATCH orders are done; return whether more are waiting."""
    waiting = rows(connection, _WAITING, (INDEX_BATCH,))
    taken = take_changes(waiting)
    if not taken:
        return False
    change = taken[-1][0]
    connection.execute(_UPDATE_INDEX, (change,))
    connection.execute(_REMOVE_DELETED, (change,))
    connection.execute(_ADVANCE, (change,))
    connection.execute("DELETE FROM order_changes WHERE change <= ?", (change,))
    return len(taken) < len(waiting) or len(waiting) == INDEX_BATCH
