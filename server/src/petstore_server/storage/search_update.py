"""Bringing the search index up to date with the change log, in transactions that do not delay a cancel for long.

Usually each transaction applies the changes of some orders to `order_index`, whose indexes follow. After a large import
into a small store that would cost several times as much as to build the indexes again, so the index is rebuilt:

    drop the indexes → copy the orders, in batches → create the indexes, one by one → record the last change

Until the end, no change is removed from the log, so reads wait for the index, or are answered with 503. How far a
rebuild has come is in the store: any process can go on with it, and it survives a crash.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from petstore_server.storage.statements import Command, Query, Row, Work

BATCH = 2000
"""Orders that one transaction brings into the index, while reads do not wait for it."""

LARGE_BATCH = 5000
"""The same while more orders than these are waiting, so that reads wait."""

COPY_BATCH = 10_000
"""Orders that one transaction copies in a rebuild: they have no indexes to be written."""

REBUILD_FROM = 50_000
"""Changed orders from which the index may be rebuilt: at least as many as it contains."""

REBUILD_MOST = 1_500_000
"""Orders up to which the index may be rebuilt: creating one index takes about half a second per million of them."""

INDEXES = {
    "order_index_by_updated_at": "updated_at",
    "order_index_by_ship_date": "ship_date",
    "order_index_by_status": "status",
    "order_index_by_status_updated_at": "status, updated_at",
    "order_index_by_status_ship_date": "status, ship_date",
    "order_index_by_pet": "pet_id",
    "order_index_by_pet_updated_at": "pet_id, updated_at",
    "order_index_by_pet_ship_date": "pet_id, ship_date",
    "order_index_by_complete": "complete",
    "order_index_by_complete_updated_at": "complete, updated_at",
    "order_index_by_complete_ship_date": "complete, ship_date",
}
"""The indexes of `order_index` by name; each ends with the id."""

_WAITING_ROWS = 1000

_STATE = "SELECT change, copied FROM petstore.order_index_state FOR UPDATE SKIP LOCKED"
_SIZE = "SELECT count(*) FROM (SELECT 1 FROM petstore.order_index LIMIT %s) AS entries"
_SET_COPIED = "UPDATE petstore.order_index_state SET copied = %s"
_REMOVE_CHANGES = "DELETE FROM petstore.order_changes WHERE change <= %s"


class UpdateStatements(NamedTuple):
    """The statements in which the engines differ."""

    waiting: str
    """The changes after one (first parameter), at most so many (second): (number, number of orders), ascending.
    The number of orders of a large change may be an estimate."""

    write_entries: Sequence[str]
    """Statements that write the orders of the changes from one to another (the parameters of each) into the index."""

    copy_entries: str
    """The same in one statement, for a table that has no indexes."""

    remove_deleted: str
    """Remove from the index the orders of these changes that no longer exist."""

    advance: str
    """Record the last change that the index contains."""

    drop_indexes: Callable[[], Work[bool]]
    """Drop all of INDEXES; return whether that was possible."""

    index_names: str
    """The names of the indexes that exist."""

    create_index: str
    """Create an index, in which `{name}` and `{columns}` are replaced."""


def update_index(sql: UpdateStatements, *, may_create: bool = True) -> Work[bool]:
    """Take the next step; return whether there are more. One process at a time takes steps.

    Without `may_create`, a rebuild that has copied everything creates no indexes yet: an import may still go on.
    """
    state = yield Query(_STATE)
    if not state:
        return False
    [(change, copied)] = state
    if copied is not None:
        return (yield from _rebuild(sql, max(copied, change), may_create))
    waiting = yield Query(sql.waiting, (change, _WAITING_ROWS))
    if not waiting:
        return False
    orders = sum(size for _, size in waiting)
    if orders >= REBUILD_FROM and (yield from _is_small(orders)) and (yield from sql.drop_indexes()):
        yield Command(_SET_COPIED, (change,))
        return True
    taken = _first_changes(waiting, LARGE_BATCH if orders > LARGE_BATCH else BATCH)
    yield from _write(sql, sql.write_entries, taken)
    yield from _record(sql, taken[-1][0])
    return len(taken) < len(waiting) or len(waiting) == _WAITING_ROWS


def _rebuild(sql: UpdateStatements, copied: int, may_create: bool) -> Work[bool]:
    waiting = yield Query(sql.waiting, (copied, _WAITING_ROWS))
    if waiting:
        taken = _first_changes(waiting, COPY_BATCH)
        yield from _write(sql, (sql.copy_entries,), taken)
        yield Command(_SET_COPIED, (taken[-1][0],))
        return True
    existing = {name for (name,) in (yield Query(sql.index_names))}
    missing = [name for name in INDEXES if name not in existing]
    if not missing:
        yield from _record(sql, copied)
        yield Command(_SET_COPIED, (None,))
        return False
    if len(missing) == len(INDEXES) and not may_create:
        return False
    yield Command(sql.create_index.format(name=missing[0], columns=INDEXES[missing[0]]))
    return True


def _is_small(orders: int) -> Work[bool]:
    """Whether the index has no more orders than these."""
    [(size,)] = yield Query(_SIZE, (orders + 1,))
    return bool(size <= orders and size + orders <= REBUILD_MOST)


def _write(sql: UpdateStatements, entries: Iterable[str], changes: Sequence[Row]) -> Work[None]:
    bounds = changes[0][0], changes[-1][0]
    for statement in entries:
        yield Command(statement, bounds)
    yield Command(sql.remove_deleted, bounds)


def _record(sql: UpdateStatements, change: int) -> Work[None]:
    yield Command(sql.advance, (change,))
    yield Command(_REMOVE_CHANGES, (change,))


def _first_changes(waiting: Sequence[Row], most: int) -> Sequence[Row]:
    """The first of these changes, (number, number of orders), that together have at least so many orders."""
    orders = 0
    for count, (_, size) in enumerate(waiting, 1):
        orders += size
        if orders >= most:
            return waiting[:count]
    return waiting
