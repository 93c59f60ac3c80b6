"""Placing orders in PostgreSQL: those that come together share a commit. Implements `ports.OrderPlacement`."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from petstore_server.batching import Batcher
from petstore_server.domain.errors import IdempotencyKeyInUse, IdempotencyKeyReused, ServiceUnavailable
from petstore_server.domain.orders import INT64_MAX, Order
from petstore_server.domain.placement import KEY_LIFETIME, NO_IDENTIFIER_LEFT, Placed, Placement
from petstore_server.domain.search import TrackedOrder
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, audit_row
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import Session

# One lock for each account and key: the first request holds it until its commit, on whichever host it is.
_LOCK = """
    SELECT pg_try_advisory_xact_lock(hashtextextended(account_id || ' ' || key, 4801))
    FROM unnest(%s::bigint[], %s::text[]) WITH ORDINALITY AS wanted (account_id, key, place) ORDER BY place
"""
_KNOWN = """
    SELECT known.account_id, known.key, digest, order_id, body
    FROM petstore.idempotency_keys AS known
    JOIN unnest(%s::bigint[], %s::text[]) AS wanted (account_id, key) USING (account_id, key) WHERE at > %s
"""
# Locked before the largest identifier is read: no other transaction adds an order between that and the commit.
_LOCK_HEAD = "SELECT last_order_id FROM petstore.order_changes_head FOR UPDATE"
_LARGEST = "SELECT max(id) FROM petstore.orders"
_INSERT = """
    INSERT INTO petstore.orders (id, status, record) SELECT id, 'pending', record
    FROM unnest(%s::bigint[], %s::text[]) AS new (id, record)
"""
_ADVANCE = "UPDATE petstore.order_changes_head SET last_order_id = %s RETURNING at"
_REMEMBER = """
    WITH remembered AS (
        INSERT INTO petstore.idempotency_keys (account_id, key, digest, order_id, body, at)
        SELECT account_id, key, decode(digest, 'hex'), order_id, body, at
        FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::double precision[])
            AS placed (account_id, key, digest, order_id, body, at)
        ON CONFLICT (account_id, key) DO UPDATE SET
            digest = excluded.digest, order_id = excluded.order_id, body = excluded.body, at = excluded.at
    )
    INSERT INTO petstore.audit (at, actor, action, subject, after)
    SELECT at, actor, action, subject, after::json
    FROM unnest(%s::double precision[], %s::text[], %s::text[], %s::text[], %s::text[])
        AS entry (at, actor, action, subject, after)
"""
_FORGET = """
    DELETE FROM petstore.idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM petstore.idempotency_keys WHERE at <= %s LIMIT %s
    )
"""


class _Job(NamedTuple):
    placement: Placement
    actor: Actor

    @property
    def name(self) -> tuple[int, str]:
        return self.placement.account_id, self.placement.key


class PostgresPlacements:
    """Placed orders of one store, and their idempotency keys."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._batcher: Batcher[_Job, Placed] = Batcher(self._perform)

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order. Raises IdempotencyKeyReused, IdempotencyKeyInUse, ServiceUnavailable."""
        return await self._batcher.submit(_Job(placement, actor))

    async def forget(self, before: float, limit: int) -> None:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
        await self._pool.transaction(lambda session: session.execute(_FORGET, (before, limit)))

    async def close(self) -> None:
        """Finish what was submitted."""
        await self._batcher.close()

    async def _perform(self, jobs: list[_Job]) -> Sequence[Placed | Exception]:
        return await self._pool.transaction(partial(_place, jobs=jobs))


async def _place(session: Session, jobs: list[_Job]) -> list[Placed | Exception]:
    """Within a transaction: place the orders whose keys are free, and return what was placed under the others."""
    accounts, keys = numbers(job.name[0] for job in jobs), texts(job.name[1] for job in jobs)
    locked = [row[0] for row in await session.rows(_LOCK, (accounts, keys))]
    oldest = min(job.actor.at for job in jobs) - KEY_LIFETIME
    known = {(row[0], row[1]): row[2:] for row in await session.rows(_KNOWN, (accounts, keys, oldest))}
    first = {job.name: job for job, free in zip(reversed(jobs), reversed(locked), strict=True) if free}
    new = {name: job for name, job in first.items() if name not in known}
    placed = await _insert(session, list(new.values())) if new else {}

    def outcome(job: _Job, free: bool) -> Placed | Exception:
        if not free:
            return IdempotencyKeyInUse()
        if job is new.get(job.name):
            return placed[job.name]
        try:
            if job.name in known:
                digest, order_id, body = known[job.name]
                return job.placement.replay(digest, order_id, body.encode())
            earlier = placed[job.name]
            return job.placement.replay(new[job.name].placement.digest, earlier.order_id, earlier.body)
        except IdempotencyKeyReused as error:
            return error

    return [outcome(job, free) for job, free in zip(jobs, locked, strict=True)]


async def _insert(session: Session, jobs: list[_Job]) -> dict[tuple[int, str], Placed]:
    """Store one new order for each job, with its audit entry and its idempotency key."""
    [(mark,)] = await session.rows(_LOCK_HEAD)
    [(largest,)] = await session.rows(_LARGEST)
    last = max(mark, largest or 0, 0)
    if last > INT64_MAX - len(jobs):
        raise ServiceUnavailable(NO_IDENTIFIER_LEFT)
    orders = [job.placement.order(number) for number, job in enumerate(jobs, last + 1)]
    await session.execute(_INSERT, (_ids(orders), texts(order.record() for order in orders)))
    [(at,)] = await session.rows(_ADVANCE, (orders[-1].id,))
    bodies = [TrackedOrder(order.record(), order.status, at, at).text() for order in orders]
    entries = [
        audit_row(job.actor, "order.place", f"order:{order.id}", Change(None, order.fields()))
        for job, order in zip(jobs, orders, strict=True)
    ]
    times, actors, actions, subjects, _, after = zip(*entries, strict=True)
    await session.execute(
        _REMEMBER,
        (
            numbers(job.name[0] for job in jobs),
            texts(job.name[1] for job in jobs),
            texts(job.placement.digest.hex() for job in jobs),
            _ids(orders),
            texts(bodies),
            numbers(times),
            numbers(times),
            texts(actors),
            texts(actions),
            texts(subjects),
            texts(after),
        ),
    )
    return {job.name: Placed(order.id, body.encode()) for job, order, body in zip(jobs, orders, bodies, strict=True)}


def _ids(orders: Sequence[Order]) -> str:
    return numbers(order.id for order in orders)
