"""The change log and the search index in SQLite: `storage.search` says how they are used."""

from collections.abc import Iterable

import msgspec

from petstore_server.storage.search import SearchStatements
from petstore_server.storage.search_sql import ENTRY_COLUMNS, PAGE_COLUMNS
from petstore_server.storage.search_update import INDEXES, UpdateStatements
from petstore_server.storage.statements import Command, Query, Work

# What the index holds of an order, as columns of `orders`. The fields are found by their names, not by a JSON parser:
# that takes half the time, and a damaged record does not stop the index.
_SHIP_DATE = """substr(orders.record, instr(orders.record, '"shipDate":"') + 12)"""
_COLUMNS = f"""
    orders.id AS id, orders.status AS status,
    iif(instr(orders.record, '"petId":'),
        CAST(substr(orders.record, instr(orders.record, '"petId":') + 8, 20) AS INTEGER), NULL) AS pet_id,
    instr(orders.record, '"complete":true') > 0 AS complete,
    iif(instr(orders.record, '"shipDate":"'),
        unixepoch(substr({_SHIP_DATE}, 1, 19)) * 1000000 + iif(instr(orders.record, '.'), CAST(substr(
            substr({_SHIP_DATE}, 21, instr({_SHIP_DATE}, 'Z') - 21) || '000000', 1, 6
        ) AS INTEGER), 0), NULL) AS ship_date
"""
_LAST_AT = """
    SELECT max(at, coalesce((SELECT at FROM order_changes ORDER BY change DESC LIMIT 1), 0)) FROM order_index_state
"""
_LOG = "INSERT INTO order_changes (at, ids) VALUES (?, ?) RETURNING change"

# The orders that changed since the index was updated, each with its first and last change, as the index would hold it.
_PENDING = f"""
    SELECT pending.id AS pending_id, orders.record AS record, {_COLUMNS}, pending.last_at AS updated_at,
        iif(order_index.id IS NULL, pending.first_at, order_index.created_at) AS created_at
    FROM (
        SELECT id.value AS id, min(log.at) AS first_at, max(log.at) AS last_at
        FROM order_changes AS log, json_each(log.ids) AS id
        WHERE log.change BETWEEN ? AND ?
        GROUP BY id.value
    ) AS pending
    LEFT JOIN orders ON orders.id = pending.id
    LEFT JOIN order_index ON order_index.id = pending.id
"""  # noqa: S608 - constants
# Of a large change the number of orders is estimated, as more than 2,000: counting them would read all of it.
_WAITING = """
    SELECT change, iif(octet_length(ids) > 16000, octet_length(ids) / 7, json_array_length(ids))
    FROM order_changes WHERE change > ? ORDER BY change LIMIT ?
"""
_CHANGED_ORDERS = """
    order_changes AS log CROSS JOIN json_each(log.ids) AS changed CROSS JOIN orders ON orders.id = changed.value
    WHERE log.change BETWEEN ? AND ?
"""
# SQLite rewrites every index of the columns that an UPDATE names, changed or not. Most changes are of the status.
_UPDATE_STATUSES = f"""
    UPDATE order_index SET status = new.status, updated_at = new.at
    FROM (SELECT {_COLUMNS}, max(log.at) AS at FROM {_CHANGED_ORDERS} GROUP BY orders.id) AS new
    WHERE order_index.id = new.id AND order_index.complete = new.complete
        AND order_index.pet_id IS new.pet_id AND order_index.ship_date IS new.ship_date
"""  # noqa: S608 - constants
# Change by change: the first one of an order inserts it, and any other one updates it.
_WRITE_ENTRIES = f"""
    INSERT INTO order_index ({ENTRY_COLUMNS})
    SELECT {_COLUMNS}, log.at, log.at FROM {_CHANGED_ORDERS} {{condition}} ORDER BY log.change
    ON CONFLICT (id) DO UPDATE SET
        status = excluded.status, pet_id = excluded.pet_id, complete = excluded.complete,
        ship_date = excluded.ship_date, updated_at = excluded.updated_at
"""  # noqa: S608 - constants
# An entry that _UPDATE_STATUSES updated has the time of the order's last change.
_NOT_UPDATED = """
    AND NOT EXISTS (SELECT 1 FROM order_index AS entry WHERE entry.id = orders.id AND entry.updated_at >= log.at)
"""
_REMOVE_DELETED = """
    DELETE FROM order_index WHERE id IN (
        SELECT id.value FROM order_changes AS log, json_each(log.ids) AS id
        WHERE log.change BETWEEN ? AND ? AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = id.value)
    )
"""
_ADVANCE = (
    "UPDATE order_index_state SET change = log.change, at = log.at FROM order_changes AS log WHERE log.change = ?"
)


def json_ids(ids: Iterable[int]) -> str:
    """Identifiers as a JSON array, for `json_each`."""
    return msgspec.json.encode(list(ids)).decode()


def _drop_indexes() -> Work[bool]:
    for name in INDEXES:
        yield Command(f"DROP INDEX IF EXISTS {name}")
    return True


UPDATE = UpdateStatements(
    waiting=_WAITING,
    write_entries=(_UPDATE_STATUSES, _WRITE_ENTRIES.format(condition=_NOT_UPDATED)),
    copy_entries=_WRITE_ENTRIES.format(condition=""),
    remove_deleted=_REMOVE_DELETED,
    advance=_ADVANCE,
    drop_indexes=_drop_indexes,
    index_names="SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'order_index'",
    create_index="CREATE INDEX IF NOT EXISTS {name} ON order_index ({columns})",
)
SEARCH = SearchStatements(
    pending=_PENDING,
    # The text is searched first, for it takes far less time than to read it as JSON.
    contains="instr(ids, ?1) AND EXISTS (SELECT 1 FROM json_each(ids) WHERE value = ?1)",
    excluding="order_index.id NOT IN (SELECT value FROM json_each(%s))",
    with_records=f"SELECT record, {PAGE_COLUMNS} FROM ({{}}) AS page LEFT JOIN orders ON orders.id = page.id",  # noqa: S608
    ids=json_ids,
    update=UPDATE,
)


def time_of_change(at: float) -> Work[int]:
    """The time in Unix microseconds that a change at `at` (Unix seconds) has: after that of the last change."""
    [(last,)] = yield Query(_LAST_AT)
    return max(int(at * 1_000_000), int(last) + 1)


def log_change(ids: Iterable[int], at: float) -> Work[int]:
    """Log within its transaction that these orders change at `at` (Unix seconds).

    Returns the number of the change, for the column `changed` of the orders.
    """
    [(number,)] = yield Query(_LOG, ((yield from time_of_change(at)), json_ids(ids)))
    return int(number)
