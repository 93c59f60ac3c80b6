"""The statements in which PostgreSQL differs: one for each batch of changes. Implements `store.engine.Dialect`.

A statement that writes orders advances the clock itself, and the commit follows in the same message: the clock's row is
locked while the server writes and commits, not while it waits for this process.
"""

from collections.abc import Collection, Sequence

from petstore_server.domain.lists import NO_OWNER
from petstore_server.domain.orders import MAX_ASSIGNED_ID, PLACE
from petstore_server.store.engine import Named, PlacementKeys, last_assigned
from petstore_server.store.statements import Execute, Query, Row, Work

epoch = "concat_ws('/', epoch, 'petstore.orders'::regclass::oid)"
# Identifies one history of one store. A restart, a failover (the timeline changes), a restore and another database in
# the place of this one (the table has another file) each begin another one: changes seen before may be gone, and their
# numbers may be given again.
history = """
    concat_ws('/', epoch, extract(epoch FROM pg_postmaster_start_time()),
        left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), pg_relation_filepath('petstore.orders'))
"""
connections = "(SELECT sum(numbackends) FROM pg_stat_database), current_setting('max_connections')::bigint"
covering = False  # PostgreSQL reads the orders that have changed since the last VACUUM all the same
new_account = "DEFAULT"
# In ascending order, as in every transaction, so that two of them never wait for each other.
_LOCK = """
    SELECT record, status, id, reference, account_id, updated_at, created_at, placed
    FROM petstore.orders WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
"""
# The second part is carried out only if orders are missing in the first.
_LOCK_IF_FREE = f"""
    WITH free AS MATERIALIZED ({_LOCK})
    SELECT record, status, id, reference, account_id, updated_at, created_at, placed FROM free
    UNION ALL SELECT NULL, NULL, id, NULL, account_id, NULL, NULL, NULL FROM petstore.orders
    WHERE (SELECT count(*) FROM free) < %s AND id = ANY(%s::bigint[]) AND id NOT IN (SELECT id FROM free)
"""
# Of the owned ones, others' orders are not found, so none of them is locked.
_MAY_BE_LOCKED = """
    id = ANY(%s::bigint[]) OR (id, account_id) IN (
        SELECT * FROM unnest(%s::bigint[], %s::bigint[]) AS owned (order_id, owner)
    )
"""
_OF_THESE = "id = ANY(%s::bigint[])"
_LOCK_OWNED_IF_FREE = _LOCK_IF_FREE.replace(_OF_THESE, f"{_OF_THESE} AND ({_MAY_BE_LOCKED})")
# The clock of the server, which all hosts share.
_LATER = "greatest(at + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
_NEW = """
    unnest(
        %s::bigint[], %s::text[], %s::bigint[], %s::smallint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[]
    ) AS new (id, status, pet_id, complete, ship_date, reference, record, owner)
"""
# For rows without records, which change the status only: as most changes do.
_SET_STATUS = """
    UPDATE petstore.orders SET status = new.status, updated_at = tick.at
    FROM tick, unnest(%s::bigint[], %s::text[]) AS new (id, status)
    WHERE orders.id = new.id
"""
# A row without a record changes the status only.
_UPDATED = f"""
    UPDATE petstore.orders SET
        status = new.status,
        pet_id = CASE WHEN new.record IS NULL THEN orders.pet_id ELSE new.pet_id END,
        complete = CASE WHEN new.record IS NULL THEN orders.complete ELSE new.complete END,
        ship_date = CASE WHEN new.record IS NULL THEN orders.ship_date ELSE new.ship_date END,
        reference = CASE WHEN new.record IS NULL THEN orders.reference ELSE new.reference END,
        record = coalesce(new.record, orders.record),
        updated_at = tick.at,
        imported = coalesce(%s::bigint, orders.imported),
        account_id = coalesce(orders.account_id, new.owner),
        revision = CASE
            WHEN new.record IS NULL OR new.record = orders.record THEN orders.revision ELSE tick.change
        END
    FROM tick, {_NEW}
    WHERE orders.id = new.id
"""
_TICK = f"UPDATE petstore.clock SET change = change + 1, at = {_LATER} WHERE one = 1 RETURNING change, at"
_ENTRIES = """
    unnest(
        %s::double precision[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[]
    ) AS entries (at, actor, action, subject, before, after)
"""
_RECORDED = f"""
    INSERT INTO petstore.audit (at, actor, action, subject, before, after)
    SELECT at, actor, action, subject, before, after FROM {_ENTRIES}
"""
_CHANGE = f"WITH tick AS ({_TICK}), changed AS ({_UPDATED}), recorded AS ({_RECORDED}) SELECT at FROM tick"
_CHANGE_STATUS = _CHANGE.replace(_UPDATED, _SET_STATUS)
_INSERTED = f"""
    INSERT INTO petstore.orders
        (id, status, pet_id, complete, ship_date, reference, record, created_at, updated_at, revision, placed, imported,
        account_id)
    SELECT id, status, pet_id, complete, ship_date, reference, record, tick.at, tick.at, tick.change, 0, %s::bigint,
        owner
    FROM tick, {_NEW}
    ORDER BY id
"""
_NUMBERED_TICK = _TICK.replace(" WHERE", ", last_order_id = greatest(last_order_id, %s) WHERE")
# The clock's row is locked first, so no other transaction adds an order meanwhile; one that was added before stays.
_CREATE = f"""
    WITH tick AS ({_NUMBERED_TICK}), changed AS ({_UPDATED}),
    inserted AS ({_INSERTED} ON CONFLICT (id) DO NOTHING RETURNING id),
    recorded AS ({_RECORDED} WHERE subject <> ALL(%s::text[]) OR subject IN (SELECT 'order:' || id FROM inserted))
    SELECT at, ARRAY(SELECT id FROM inserted) FROM tick
"""
_WRITE = f"WITH tick AS ({_NUMBERED_TICK}), changed AS ({_UPDATED}) {_INSERTED}"
# One lock for each account and key: the first request holds it until its commit, on whichever host it is.
_LOCK_KEYS = """
    SELECT pg_try_advisory_xact_lock(hashtextextended(account_id || ' ' || key, 4801))
    FROM unnest(%s::bigint[], %s::text[]) WITH ORDINALITY AS wanted (account_id, key, place)
    ORDER BY place
"""
# The SHA-256 first: a partner could choose a reference whose lock is that of another's, wait for it, and keep it. Keys
# are stored as theirs.
_LOCK_REFERENCES = _LOCK_KEYS.replace("|| key, 4801", "|| encode(sha256(convert_to(key, 'UTF8')), 'hex'), 4802")
_WAIT_FOR_REFERENCES = _LOCK_REFERENCES.replace("pg_try_advisory", "pg_advisory")
# Separate statements, so that they see what was committed before the locks were taken.
_USED_REFERENCES = """
    SELECT account_id, reference, min(id), max(id) FROM petstore.orders
    WHERE (account_id, reference) IN (SELECT * FROM unnest(%s::bigint[], %s::text[]) AS wanted (owner, text))
    GROUP BY account_id, reference
"""
_USED_WITHOUT_OWNER = f"""
    SELECT {NO_OWNER}, reference, min(id), max(id) FROM petstore.orders
    WHERE account_id IS NULL AND reference = ANY(%s::text[]) GROUP BY reference
"""
_USED_KEYS = """
    SELECT known.account_id, known.key, digest, order_id, created_at
    FROM unnest(%s::bigint[], %s::text[]) AS wanted (account_id, key)
    JOIN petstore.idempotency_keys AS known ON known.account_id = wanted.account_id AND known.key = wanted.key
    JOIN petstore.orders ON orders.id = order_id
    WHERE at > %s
"""
_PLACE = f"""
    WITH tick AS (
        UPDATE petstore.clock SET
            change = change + 1, at = {_LATER}, last_order_id = greatest(last_order_id, %s - 1) + %s
        WHERE one = 1 AND greatest(last_order_id, %s - 1) <= {MAX_ASSIGNED_ID} - %s
        RETURNING change, at, last_order_id - %s AS last_id
    ), placed AS (
        SELECT last_id + place AS id, tick.change, tick.at AS placed_at, new.*
        FROM tick, unnest(
            %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::bytea[],
            %s::double precision[], %s::text[], %s::text[]
        ) WITH ORDINALITY
            AS new (pet_id, ship_date, reference, record, account_id, key, digest, at, actor, entry, place)
    ), inserted AS (
        INSERT INTO petstore.orders
            (id, status, pet_id, complete, ship_date, reference, record, created_at, updated_at, revision, placed,
            account_id)
        SELECT id, 'pending', pet_id, 0, ship_date, reference, '{{"id":' || id || record,
            placed_at, placed_at, change, 1, account_id
        FROM placed
    ), remembered AS (
        INSERT INTO petstore.idempotency_keys (account_id, key, digest, order_id, at)
        SELECT account_id, key, digest, id, at FROM placed
        ON CONFLICT (account_id, key) DO UPDATE SET
            digest = excluded.digest, order_id = excluded.order_id, at = excluded.at
    ), recorded AS (
        INSERT INTO petstore.audit (at, actor, action, subject, after)
        SELECT at, actor, '{PLACE}', 'order:' || id, '{{"id":' || id || entry FROM placed
    )
    SELECT id, placed_at FROM placed ORDER BY place
"""
# Locks and privileges as for each change, without any: the statements are planned, and the clock is locked briefly. A
# commit that does not wait for the disk releases it; `heartbeat` is one that does, and keeps no row locked.
probe = (
    f"SELECT set_config('synchronous_commit', 'off', true); EXPLAIN {_CHANGE}; EXPLAIN {_PLACE}; "
    "SELECT 1 FROM petstore.clock WHERE one = 1 FOR NO KEY UPDATE"
).replace("%s", "NULL")
heartbeat = "SELECT pg_logical_emit_message(true, 'petstore', '')"  # which is only written to the log


def require_schema(version: int) -> Work[None]:
    yield Execute("UPDATE petstore.store SET schema_version = greatest(schema_version, %s) WHERE one = 1", (version,))


def lock_orders(ids: Sequence[int], owned: Sequence[tuple[int, int]]) -> Work[list[Row]]:
    if not owned:
        return (yield Query(_LOCK_IF_FREE, (ids, len(ids), ids)))
    wanted = sorted({*ids, *(order_id for order_id, _ in owned)})
    some = wanted, ids, *_columns(owned, 2)
    return (yield Query(_LOCK_OWNED_IF_FREE, (*some, len(wanted), *some)))


def change_orders(
    changed: Sequence[Row], created: Sequence[Row], audit: Sequence[Row], now: float
) -> Work[tuple[int, Collection[int]]]:
    if not created and all(row[6] is None for row in changed):
        statuses = _columns([row[:2] for row in changed], 2)
        [(at,)] = yield Query(_CHANGE_STATUS, [*statuses, *_columns(audit, 6)], last=True)
        return at, ()
    values = [None, *_columns(changed, 8)]
    if not created:
        [(at,)] = yield Query(_CHANGE, [*values, *_columns(audit, 6)], last=True)
        return at, ()
    ids = [row[0] for row in created]
    subjects = [f"order:{order_id}" for order_id in ids]
    parameters = [last_assigned(created), *values, None, *_columns(created, 8), *_columns(audit, 6), subjects]
    [(at, inserted)] = yield Query(_CREATE, parameters, last=True)
    return at, set(ids).difference(inserted)


def write_orders(changed: Sequence[Row], created: Sequence[Row], now: float, batch: int | None = None) -> Work[None]:
    yield Execute(_WRITE, [last_assigned(created), batch, *_columns(changed, 8), batch, *_columns(created, 8)])


def find_keys(keys: Sequence[Named], references: Sequence[Named], since: float) -> Work[PlacementKeys]:
    wanted, named = _columns(keys, 2), _columns(references, 2)
    locks, used = [Query(_LOCK_KEYS, wanted)], [Query(_USED_KEYS, (*wanted, since))]
    if references:
        locks.append(Query(_LOCK_REFERENCES, named))
        used.append(Query(_USED_REFERENCES, named))
        if without_owner := [reference for owner, reference in references if owner == NO_OWNER]:
            used.append(Query(_USED_WITHOUT_OWNER, [without_owner]))
    results = yield [*locks, *used]
    busy = [_busy(names, rows) for names, rows in zip((keys, references), results[: len(locks)], strict=False)]
    keys_used, *found = results[len(locks) :]
    return PlacementKeys.found(keys_used, [row for rows in found for row in rows], *busy)


def wait_for_references(references: Sequence[Named]) -> Work[None]:
    if references:
        yield Query(_WAIT_FOR_REFERENCES, _columns(references, 2))


def _busy(names: Sequence[Named], locks: Sequence[Row]) -> set[Named]:
    """Those that another transaction has locked."""
    return {name for name, (locked,) in zip(names, locks, strict=True) if not locked}


def place_orders(rows: Sequence[Row], first: int, now: float) -> Work[list[tuple[int, int]]]:
    count = len(rows)
    parameters = [first, count, first, count, count, *_columns(rows, 10)]
    placed: list[tuple[int, int]] = yield Query(_PLACE, parameters, last=True)
    return placed


def _columns(rows: Sequence[Row], count: int) -> list[list[object]]:
    """The columns of the rows, `count` of them also without rows."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]
