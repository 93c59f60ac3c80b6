"""The search index in PostgreSQL: `storage.search` says how it is used.

Triggers write the change log (migration 0003), so that writes need no change.
"""

from petstore_server.storage.postgres.arrays import numbers
from petstore_server.storage.search import SearchStatements
from petstore_server.storage.search_sql import ENTRY_COLUMNS, PAGE_COLUMNS
from petstore_server.storage.search_update import UpdateStatements
from petstore_server.storage.statements import Query, Work

# The orders that changed since the index was updated, each with its first and last change, as the index would hold it.
_PENDING = """
    SELECT
        pending.id AS pending_id,
        orders.record AS record,
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
        WHERE log.change BETWEEN %s AND %s
        GROUP BY changed.id
    ) AS pending
    LEFT JOIN petstore.orders ON orders.id = pending.id
    LEFT JOIN petstore.order_index ON order_index.id = pending.id
"""
_WAITING = """
    SELECT change, cardinality(ids) FROM petstore.order_changes WHERE change > %s ORDER BY change LIMIT %s
"""
_WRITE_ENTRIES = f"""
    INSERT INTO petstore.order_index ({ENTRY_COLUMNS})
    SELECT {ENTRY_COLUMNS} FROM ({_PENDING}) AS pending WHERE id IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET
        status = excluded.status, pet_id = excluded.pet_id, complete = excluded.complete,
        ship_date = excluded.ship_date, updated_at = excluded.updated_at
"""  # noqa: S608 - constants
# An array, so that the orders are looked up by id: the estimated number of changes would suggest to read all of them.
_REMOVE_DELETED = """
    DELETE FROM petstore.order_index WHERE id = ANY(ARRAY(
        SELECT unnest(ids) FROM petstore.order_changes WHERE change BETWEEN %s AND %s
    )) AND NOT EXISTS (SELECT 1 FROM petstore.orders WHERE orders.id = order_index.id)
"""


def _drop_indexes() -> Work[bool]:
    [(done,)] = yield Query("SELECT petstore.drop_order_index_indexes()")
    return bool(done)


UPDATE = UpdateStatements(
    waiting=_WAITING,
    write_entries=(_WRITE_ENTRIES,),
    copy_entries=_WRITE_ENTRIES,
    remove_deleted=_REMOVE_DELETED,
    advance="UPDATE petstore.order_index_state SET change = %s",
    drop_indexes=_drop_indexes,
    index_names="SELECT indexname FROM pg_indexes WHERE schemaname = 'petstore' AND tablename = 'order_index'",
    create_index="CREATE INDEX IF NOT EXISTS {name} ON petstore.order_index ({columns}, id)",
)
# Not a join: PostgreSQL would join a small store in another order than the page's.
_RECORD = "(SELECT orders.record FROM petstore.orders WHERE orders.id = page.id)"
SEARCH = SearchStatements(
    pending=_PENDING,
    contains="%s = ANY(ids)",
    excluding="order_index.id <> ALL(%s::bigint[])",
    with_records=f"SELECT {_RECORD} AS record, {PAGE_COLUMNS} FROM ({{}}) AS page",  # noqa: S608
    ids=numbers,
    update=UPDATE,
)
