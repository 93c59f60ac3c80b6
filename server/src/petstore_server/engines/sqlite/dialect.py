"""SQLite's own statements (`store.engine.Dialect`), and the translation of shared ones."""

import json
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import apsw
import msgspec

from petstore_server.domain.errors import StatementFailed
from petstore_server.domain.lists import NO_OWNER
from petstore_server.domain.orders import MAX_ASSIGNED_ID, PLACE
from petstore_server.engines.sqlite.connections import ENVIRONMENT, plain_words
from petstore_server.store.audit import INSERT_ENTRY
from petstore_server.store.engine import Named, PlacementKeys, last_assigned
from petstore_server.store.statements import NOW, Execute, ExecuteMany, ExecuteRows, Query, Result, Row, Statement, Work

epoch = history = "epoch"
connections = "NULL, NULL"
covering = True
# The largest identifier of an account, also of one that a restore has removed, in this `schema` of a connection.
LAST_ACCOUNT = """
    SELECT max(id) AS id FROM (
        SELECT 0 AS id UNION ALL SELECT max(id) FROM {schema}.accounts
        UNION ALL SELECT max("after" ->> 'lastAccount') FROM {schema}.audit
            WHERE action = 'store.restore' AND substr(action, 1, 6) <> 'order.'
    )
"""
# Of an account that a restore has removed, there may still be counts, and orders that were placed just after it.
new_account = f"(SELECT 1 + id FROM ({LAST_ACCOUNT.format(schema='main')}))"
probe = "SELECT 1 FROM petstore.clock"
heartbeat = "UPDATE petstore.store SET heartbeat = heartbeat + 1"
# Statements that engines share are written for PostgreSQL.
_DIFFERENCES = (
    (" = ANY(%s::bigint[])", " IN (SELECT value FROM json_each(?))"),
    ("%s", "?"),
    ("%%", "%"),
    ("petstore.", ""),
    ("::json ->>", " ->>"),
    (NOW, "unixepoch('subsec')"),
)
_LOCKS = re.compile(r" FOR (UPDATE|NO KEY UPDATE|SHARE)( SKIP LOCKED)?")  # a transaction locks the whole store
_NEW_ROWS = re.compile(r"unnest\([^)]*\) AS new \(([^)]*)\)")  # of `ExecuteRows`
_ONLY_VALUE = re.compile(r" = ANY\(ARRAY\[([^\]]+)\]\)")
_ADVANCE = """
    UPDATE clock SET change = change + 1, at = max(at + 1, ?), last_order_id = max(last_order_id, ?)
    RETURNING change, at
"""
_ASSIGN = """
    UPDATE clock SET change = change + 1, at = max(at + 1, ?1), last_order_id = max(last_order_id, ?4 - 1) + ?2
    WHERE max(last_order_id, ?4 - 1) <= ?3 - ?2 RETURNING change, at, last_order_id - ?2
"""
# SQLite rewrites each index of the columns that an UPDATE names, changed or not. Most changes are of the status.
_SET_STATUS = "UPDATE orders SET status = ?, updated_at = ?, imported = coalesce(?, imported) WHERE id = ?"
_SET_ALL = """
    UPDATE orders
    SET status = ?2, pet_id = ?3, complete = ?4, ship_date = ?5, reference = ?6, record = ?7, updated_at = ?8,
        imported = coalesce(?9, imported), revision = CASE WHEN record = ?7 THEN revision ELSE ?10 END
    WHERE id = ?1
"""
_SET_OWNER = "UPDATE orders SET account_id = ? WHERE id = ? AND account_id IS NULL"
_INSERT = """
    INSERT INTO orders
        (id, status, pet_id, complete, ship_date, reference, record, account_id, created_at, updated_at, revision,
        placed, imported)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12)
"""
# A restore may just have removed the account.
_INSERT_PLACED = _INSERT.replace("?8", "(SELECT id FROM accounts WHERE id = ?8)")
_USED_KEYS = """
    SELECT known.account_id, known.key, digest, order_id, created_at
    FROM json_each(?) AS wanted
    CROSS JOIN idempotency_keys AS known ON known.account_id = wanted.value ->> 0 AND known.key = wanted.value ->> 1
    CROSS JOIN orders ON orders.id = order_id
    WHERE at > ?
"""
_USED_REFERENCES = """
    SELECT account_id, reference, min(orders.id), max(orders.id)
    FROM json_each(?) AS wanted
    CROSS JOIN orders ON account_id = wanted.value ->> 0 AND reference = wanted.value ->> 1
    GROUP BY account_id, reference
"""
_USED_WITHOUT_OWNER = f"""
    SELECT {NO_OWNER}, reference, min(id), max(id) FROM orders
    WHERE account_id IS NULL AND reference IN (SELECT value FROM json_each(?)) GROUP BY reference
"""
_REMEMBER = "INSERT OR REPLACE INTO idempotency_keys (account_id, key, digest, order_id, at) VALUES (?, ?, ?, ?, ?)"


# All orders in one row: SQLite makes the array, and one call reads it.
_READ = """
    SELECT json_group_array(json_array(record, status, id, reference, account_id, updated_at, created_at, placed))
    FROM orders WHERE id IN (SELECT value FROM json_each(?))
"""


def require_schema(version: int) -> Work[None]:
    [(required,)] = yield Query("PRAGMA user_version")
    yield Execute(f"PRAGMA user_version = {max(required, version)}")


def lock_orders(ids: Sequence[int], owned: Sequence[tuple[int, int]]) -> Work[list[Row]]:
    [(text,)] = yield Query(_READ, ([*ids, *(order_id for order_id, _ in owned)],))
    orders: list[Row] = msgspec.json.decode(text)
    return orders


def change_orders(
    changed: Sequence[Row], created: Sequence[Row], audit: Sequence[Row], now: float
) -> Work[tuple[int, Collection[int]]]:
    at = yield from write_orders(changed, created, now)
    yield ExecuteMany(INSERT_ENTRY, audit)
    return at, ()


def write_orders(changed: Sequence[Row], created: Sequence[Row], now: float, batch: int | None = None) -> Work[int]:
    [(change, at)] = yield Query(_ADVANCE, (_microseconds(now), last_assigned(created)))
    yield ExecuteMany(_SET_STATUS, [(row[1], at, batch, row[0]) for row in changed if row[6] is None])
    yield ExecuteMany(_SET_ALL, [(*row[:7], at, batch, change) for row in changed if row[6] is not None])
    yield ExecuteMany(_SET_OWNER, [(row[7], row[0]) for row in changed if row[7] is not None])
    yield ExecuteMany(_INSERT, [(*row, at, change, 0, batch) for row in created])
    return int(at)


def find_keys(keys: Sequence[Named], references: Sequence[Named], since: float) -> Work[PlacementKeys]:
    used = yield Query(_USED_KEYS, (json.dumps(keys), since))
    with_references = (yield Query(_USED_REFERENCES, (json.dumps(references),))) if references else []
    if without_owner := [reference for owner, reference in references if owner == NO_OWNER]:
        with_references += yield Query(_USED_WITHOUT_OWNER, (without_owner,))
    return PlacementKeys.found(used, with_references)


def wait_for_references(references: Sequence[Named]) -> Work[None]:
    yield from ()  # no other transaction is under way


def place_orders(rows: Sequence[Row], first: int, now: float) -> Work[list[tuple[int, int]]]:
    assigned = yield Query(_ASSIGN, (_microseconds(now), len(rows), MAX_ASSIGNED_ID, first))
    if not assigned:
        return []
    [(change, at, last_id)] = assigned
    orders, keys, audit = [], [], []
    for order_id, row in enumerate(rows, last_id + 1):
        pet_id, ship_date, reference, record, account_id, key, digest, placed_at, actor, entry = row
        record = f'{{"id":{order_id}{record}'
        orders.append((order_id, "pending", pet_id, 0, ship_date, reference, record, account_id, at, change, 1, None))
        keys.append((account_id, key, digest, order_id, placed_at))
        after = f'{{"id":{order_id}{entry}'
        audit.append((placed_at, actor, PLACE, f"order:{order_id}", None, after))
    yield ExecuteMany(_INSERT_PLACED, orders)
    yield ExecuteMany(_REMEMBER, keys)
    yield ExecuteMany(INSERT_ENTRY, audit)
    return [(order[0], at) for order in orders]


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)


def run_work(connection: apsw.Connection, work: Work[Result]) -> Result:
    try:
        statement = next(work)
        while True:
            try:
                rows = _perform(connection, statement)
            except ENVIRONMENT:
                raise
            except Exception as error:
                raise StatementFailed(plain_words(error)) from error
            statement = work.send(rows)
    except StopIteration as stop:
        result: Result = stop.value
        return result


def _perform(connection: apsw.Connection, statement: Statement) -> list[Any]:
    if isinstance(statement, (ExecuteMany, ExecuteRows)):
        if statement.parameters:
            connection.executemany(translated(statement.sql), statement.parameters)
        return []
    if isinstance(statement, list):
        return [rows_of(connection, query) for query in statement]
    return rows_of(connection, statement)


def rows_of(connection: apsw.Connection | apsw.Cursor, statement: Query | Execute) -> list[Row]:
    bound = [
        msgspec.json.encode(value).decode() if isinstance(value, list) else value for value in statement.parameters
    ]
    return connection.execute(translated(statement.sql), bound).fetchall()


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """Return PostgreSQL's text of a statement as SQLite accepts it."""
    sql = _NEW_ROWS.sub(lambda new: f"(SELECT {', '.join(f'? AS {name}' for name in new[1].split(', '))}) AS new", sql)
    sql = _LOCKS.sub("", _ONLY_VALUE.sub(r" = \1", sql))
    for theirs, ours in _DIFFERENCES:
        sql = sql.replace(theirs, ours)
    return sql
