"""Imports: one record for each run, its rejected rows, and its batches, which lead from an order to its imports."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from petstore_server.domain.audit import Actor, AuditEntry, Change
from petstore_server.domain.errors import ImportNotFound
from petstore_server.domain.imports import (
    MAX_KEPT_REJECTS,
    ImportOutcome,
    ImportPosition,
    ImportRun,
    ImportsPage,
    Rejected,
)
from petstore_server.store.audit import VERIFIED, as_json, audit_row, from_json, record
from petstore_server.store.engine import Part, snapshot, transaction
from petstore_server.store.statements import NOW, Execute, ExecuteMany, Query, Row, Work, one

BEAT_SECONDS = 3.0  # between two signs of life of a run
SILENT_SECONDS = 15.0  # after which a run without a sign of life was interrupted

_COUNTS = ("created", "replaced", "unchanged", "rejected")
# Also after a restore while the run goes on: from then on its record counts what the store has of it.
_UPDATE_RUN = f"""
    INSERT INTO petstore.imports (
        id, kind, file, actor, state, reasons, error, created, replaced, unchanged, rejected, began_at, seen_at
    ) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, {NOW}, {NOW})
    ON CONFLICT (id) DO UPDATE SET
        state = excluded.state, error = excluded.error, seen_at = excluded.seen_at,
        reasons = CASE WHEN excluded.rejected > 0 THEN excluded.reasons ELSE imports.reasons END,
        created = imports.created + excluded.created, replaced = imports.replaced + excluded.replaced,
        unchanged = imports.unchanged + excluded.unchanged, rejected = imports.rejected + excluded.rejected
    RETURNING created, replaced, unchanged, rejected
"""
_ADD_BATCH = """
    INSERT INTO petstore.import_batches (import_id, at, "before", "after", previous) VALUES (%s, %s, %s, %s, %s)
    RETURNING id
"""
_ADD_REJECT = "INSERT INTO petstore.import_rejects (import_id, number, reject) VALUES (%s, %s, %s)"
_UPDATE_ENTRY = 'UPDATE petstore.audit SET "after" = %s WHERE subject = %s AND action = %s RETURNING id'
_BEAT = f"UPDATE petstore.imports SET seen_at = {NOW} WHERE id = %s AND state = 'running'"
_RUNS = f"""
    SELECT id, kind, file, actor, began_at, seen_at,
        CASE WHEN state = 'running' AND abs({NOW} - seen_at) > {SILENT_SECONDS} THEN 'interrupted' ELSE state END,
        created, replaced, unchanged, rejected, reasons, error,
        (SELECT count(*) FROM petstore.import_rejects WHERE import_id = imports.id)
    FROM petstore.imports
"""
_PAGE = f"""
    {_RUNS} WHERE (began_at, id) < (%s, %s) AND (actor = %s OR CAST(%s AS text) IS NULL)
    ORDER BY began_at DESC, id DESC LIMIT %s
"""
_TOTAL = "SELECT count(*) FROM petstore.imports WHERE actor = %s OR CAST(%s AS text) IS NULL"
_FORGET = """
    DELETE FROM petstore.import_rejects WHERE (import_id, number) IN (
        SELECT import_id, number FROM petstore.import_rejects
        WHERE import_id IN (SELECT id FROM petstore.imports WHERE seen_at <= %s) LIMIT %s
    )
"""
_IS_VERIFIED = f"(audit.\"after\"::json ->> '{VERIFIED}') IS NOT NULL"
_ENTRIES = f"""
    SELECT audit.id, batches.at, audit.actor, audit.action, import_id, {_IS_VERIFIED},
        batches."before", batches."after", batches.id
    FROM petstore.import_batches AS batches
    JOIN petstore.imports ON imports.id = import_id
    JOIN petstore.audit ON audit.subject = import_id AND audit.action = kind || '.import'
"""
_OF_ORDER = f"""
    WITH RECURSIVE batches (number, import_id, at, previous) AS (
        SELECT import_batches.id, import_id, at, previous
        FROM petstore.orders JOIN petstore.import_batches ON import_batches.id = imported WHERE orders.id = %s
        UNION ALL
        SELECT import_batches.id, import_batches.import_id, import_batches.at, import_batches.previous
        FROM batches JOIN petstore.import_batches ON import_batches.id = CAST(batches.previous::json ->> %s AS bigint)
    )
    SELECT audit.id, batches.at, audit.actor, audit.action, import_id, {_IS_VERIFIED}, number FROM batches
    JOIN petstore.audit ON audit.subject = import_id AND audit.action = 'orders.import'
    ORDER BY number DESC
"""
_NEWEST = ImportPosition(float("inf"), "")
_NOTHING = Rejected()


def add_batch(
    import_id: str, actor: Actor, change: Change, previous: Mapping[int, int | None] | None = None
) -> Work[int]:
    """Keep what a batch changed, and return its number. `previous` are the batches of the same orders before, by id."""
    texts = as_json(change.before), as_json(change.after), as_json(previous or None)
    [(number,)] = yield Query(_ADD_BATCH, (import_id, actor.at, *texts))
    return int(number)


def update_run(
    kind: str,
    import_id: str,
    actor: Actor,
    file: str,
    outcomes: Sequence[ImportOutcome] = (),
    rejected: Rejected = _NOTHING,
    state: str = "running",
    error: str | None = None,
) -> Work[None]:
    """Add outcomes and rejected rows to the record of a run, and to its audit entry once it has changed something."""
    counted = Counter(outcomes)
    changes = [counted[each] for each in (ImportOutcome.CREATED, ImportOutcome.REPLACED, ImportOutcome.UNCHANGED)]
    counts = [*changes, rejected.number]
    texts = as_json(rejected.reasons), as_json(error)
    [totals] = yield Query(_UPDATE_RUN, (import_id, kind, file, actor.name, state, *texts, *counts))
    yield ExecuteMany(_ADD_REJECT, [(import_id, number, as_json(reject)) for number, reject in rejected.kept])
    if any(totals[:2]) and any(counts):
        named = {name: count for name, count in zip(_COUNTS, totals, strict=True) if count}
        entry = Change(None, {"file": file, **named} if file else named)
        action = f"{kind}.import"
        if not (yield Query(_UPDATE_ENTRY, (audit_row(actor, action, import_id, entry)[-1], import_id, action))):
            yield record(actor, action, import_id, entry)


class Imports(Part):
    @transaction
    def set_state(
        self, kind: str, import_id: str, actor: Actor, file: str, state: str = "running", error: str | None = None
    ) -> Work[None]:
        """Begin the record of a run, or end it with another state and an error."""
        yield from update_run(kind, import_id, actor, file, state=state, error=error)

    @transaction
    def beat(self, import_id: str) -> Work[None]:
        yield Execute(_BEAT, (import_id,))

    async def find(self, import_id: str) -> ImportRun:
        """Return the record of an import. Raises ImportNotFound."""
        rows = await self._engine.query(f"{_RUNS} WHERE id = %s", (import_id,))
        return _run(one(rows, ImportNotFound, import_id))

    @snapshot
    def page(self, limit: int, after: ImportPosition | None = None, actor: str | None = None) -> Work[ImportsPage]:
        """At most `limit` imports, newest first, of all actors or one, after a position or from the newest."""
        runs = [_run(row) for row in (yield Query(_PAGE, (*(after or _NEWEST), actor, actor, limit + 1)))]
        [(total,)] = yield Query(_TOTAL, (actor, actor))
        return ImportsPage(runs[:limit], total, runs[limit - 1].position if len(runs) > limit else None)

    async def rejects(self, import_id: str, limit: int = MAX_KEPT_REJECTS) -> list[str]:
        """The rejected rows that are kept, as JSON in ASCII with the fields of the file of rejects."""
        sql = "SELECT reject FROM petstore.import_rejects WHERE import_id = %s ORDER BY number LIMIT %s"
        return [row[0] for row in await self._engine.query(sql, (import_id, limit), short=False)]

    async def batches(self, import_id: str) -> AsyncIterator[AuditEntry]:
        """Yield an entry for each batch that changed something, in their order, with all orders before and after."""
        sql, number = f"{_ENTRIES} WHERE import_id = %s AND batches.id > %s ORDER BY batches.id LIMIT 1", 0
        while rows := await self._engine.query(sql, (import_id, number), short=False):
            *values, verified, before, after, number = rows[0]
            yield AuditEntry(*values, *map(from_json, (before, after)))._replace(verified=bool(verified))

    async def of_order(self, order_id: int) -> list[tuple[int, AuditEntry]]:
        """All batches of imports that created or changed the order, newest first, with an entry without states."""
        rows = await self._engine.query(_OF_ORDER, (order_id, str(order_id)), short=False)
        return [
            (number, AuditEntry(entry_id, at, actor, action, import_id, None, None, verified=bool(verified)))
            for entry_id, at, actor, action, import_id, verified, number in rows
        ]

    async def states(self, batch: int, order_id: int) -> tuple[Any, Any]:
        """The fields of an order before and after a batch that changed it; neither if the batch created it."""
        sql = 'SELECT "before", "after" FROM petstore.import_batches WHERE id = %s'
        [texts] = await self._engine.query(sql, (batch,), short=False)
        sides = [(from_json(text) or {}).get("orders", ()) for text in texts]
        before, after = (next((order for order in side if order["id"] == order_id), None) for side in sides)
        return before, after

    @transaction
    def forget(self, before: float, limit: int) -> Work[None]:
        """Delete at most `limit` rejected rows of imports that ended before `before` (Unix seconds)."""
        yield Execute(_FORGET, (before, limit))


def _run(row: Row) -> ImportRun:
    *columns, reasons, error, kept = row
    return ImportRun._make((*columns, from_json(reasons), from_json(error), kept))
