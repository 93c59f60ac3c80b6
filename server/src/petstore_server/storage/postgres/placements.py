"""Placing orders in PostgreSQL: those that come together share a commit. Implements `ports.OrderPlacement`."""

import asyncio
from collections.abc import Sequence

from petstore_server.batching import Batcher
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import Order
from petstore_server.domain.placement import KEY_LIFETIME, Placed, Placement
from petstore_server.ports import Actor
from petstore_server.storage.placements import Found, KeyName, PlacementRequest, Remembered, forget_keys, place_orders
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.engine import run
from petstore_server.storage.postgres.failures import NO_RESPONSE
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import WRITE
from petstore_server.storage.statements import Command, Queries, Query, Row, Work

# One lock for each account and key: the first request holds it until its commit, on whichever host it is. The row of
# the head is locked before the largest identifier is read: no order is added between that and the commit. So the time
# of the change can be chosen here, too (migration 0008).
_LOCK = """
    SELECT
        pg_try_advisory_xact_lock(hashtextextended(account_id || ' ' || key, 4801)),
        last_order_id,
        set_config('petstore.change_at', changed_at::text, true)
    FROM (
        SELECT last_order_id, greatest(at + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS changed_at
        FROM petstore.order_changes_head FOR UPDATE
    ) AS head, unnest(%s::bigint[], %s::text[]) WITH ORDINALITY AS wanted (account_id, key, place)
    ORDER BY place
"""
# A separate statement, so that it sees what was committed before the locks were taken. At least one row.
_KNOWN = """
    SELECT newest.id, known.account_id, known.key, digest, order_id, body
    FROM (SELECT max(id) AS id FROM petstore.orders) AS newest
    LEFT JOIN (
        petstore.idempotency_keys AS known
        JOIN unnest(%s::bigint[], %s::text[]) AS wanted (account_id, key) USING (account_id, key)
    ) ON at > %s
"""
# One statement for all tables: the server's work for each is small next to that for a statement.
_WRITE = """
    WITH placed AS (
        SELECT * FROM unnest(
            %s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::double precision[]
        ) AS placed (order_id, record, account_id, key, digest, body, at)
    ), inserted AS (
        INSERT INTO petstore.orders (id, status, record) SELECT order_id, 'pending', record FROM placed
    ), advanced AS (
        UPDATE petstore.order_changes_head SET last_order_id = (SELECT max(order_id) FROM placed)
    ), remembered AS (
        INSERT INTO petstore.idempotency_keys (account_id, key, digest, order_id, body, at)
        SELECT account_id, key, decode(digest, 'hex'), order_id, body, at FROM placed
        ON CONFLICT (account_id, key) DO UPDATE SET
            digest = excluded.digest, order_id = excluded.order_id, body = excluded.body, at = excluded.at
    )
    INSERT INTO petstore.audit (at, actor, action, subject, after)
    SELECT at, actor, action, subject, after::json
    FROM unnest(%s::double precision[], %s::text[], %s::text[], %s::text[], %s::text[])
        AS entry (at, actor, action, subject, after)
"""


class PostgresPlacements:
    """Placed orders of one store, and their idempotency keys."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._batcher: Batcher[PlacementRequest, Placed] = Batcher(self._perform)

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        ends = asyncio.get_running_loop().time() + WRITE.total
        try:
            return await self._batcher.submit(PlacementRequest(placement, actor), ends)
        except TimeoutError:
            raise ServiceUnavailable(NO_RESPONSE) from None

    async def forget(self, before: float, limit: int) -> None:
        await self._pool.transaction(lambda session: run(session, forget_keys(before, limit)))

    async def close(self) -> None:
        await self._batcher.close()

    async def _perform(self, requests: list[PlacementRequest]) -> Sequence[Placed | Exception]:
        return await self._pool.transaction(lambda session: run(session, place_orders(_PlacementTable(), requests)))


class _PlacementTable:
    """Locks and writes placed orders."""

    def find(self, keys: Sequence[KeyName], at: float) -> Work[Found]:
        wanted = numbers(account_id for account_id, _ in keys), texts(key for _, key in keys)
        locked, found = yield Queries((Query(_LOCK, wanted), Query(_KNOWN, (*wanted, at - KEY_LIFETIME))))
        known = {(row[1], row[2]): Remembered(*row[3:]) for row in found if row[1] is not None}
        _, last_id, changed_at = locked[0]
        return Found([row[0] for row in locked], known, max(last_id, found[0][0] or 0, 0), int(changed_at))

    def write(
        self, orders: Sequence[Order], records: Sequence[str], keys: Sequence[Row], audit: Sequence[Row]
    ) -> Work[None]:
        accounts, names, digests, ids, bodies, used_at = zip(*keys, strict=True)
        times, actors, actions, subjects, _, after = zip(*audit, strict=True)
        yield Command(
            _WRITE,
            (
                numbers(ids),
                texts(records),
                numbers(accounts),
                texts(names),
                texts(digest.hex() for digest in digests),
                texts(bodies),
                numbers(used_at),
                numbers(times),
                texts(actors),
                texts(actions),
                texts(subjects),
                texts(after),
            ),
        )
