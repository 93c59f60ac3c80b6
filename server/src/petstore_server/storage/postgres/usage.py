"""Usage and bans in PostgreSQL. Implements `ports.Ledger`.

With Redis the usage is counted there and stays empty here; for bans the store is the authority (D12).
"""

from collections.abc import Mapping, Sequence

from petstore_server.domain.bans import Ban
from petstore_server.ports import Usage
from petstore_server.storage.postgres.accounts import access_changed
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import Session
from petstore_server.storage.rows import usage_of

# After a restore an account or a key may be gone that a running limiter still knows: it is passed over. Everybody
# takes the rows in the same order, so that two who save at once do not wait for each other in a circle.
_SAVE_USAGE = """
    INSERT INTO petstore.usage (account_id, minute_start, minute_used, day_start, day_used)
    SELECT accounts.id, minute_start, minute_used, day_start, day_used
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
        AS saved (id, minute_start, minute_used, day_start, day_used)
    JOIN petstore.accounts ON accounts.id = saved.id
    ORDER BY accounts.id
    ON CONFLICT (account_id) DO UPDATE SET
        minute_start = excluded.minute_start, minute_used = excluded.minute_used,
        day_start = excluded.day_start, day_used = excluded.day_used
"""
_SAVE_BANS = """
    INSERT INTO petstore.bans (key_id, began, until, level)
    SELECT keys.id, began, until, level
    FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[]) AS saved (id, began, until, level)
    JOIN petstore.keys ON keys.id = saved.id
    ORDER BY keys.id
    ON CONFLICT (key_id) DO UPDATE SET began = excluded.began, until = excluded.until, level = excluded.level
    WHERE (bans.began, bans.until, bans.level) IS DISTINCT FROM (excluded.began, excluded.until, excluded.level)
    RETURNING key_id
"""
_USAGE = "SELECT minute_start, minute_used, day_start, day_used FROM petstore.usage WHERE account_id = %s"
_ALL_USAGE = "SELECT account_id, minute_start, minute_used, day_start, day_used FROM petstore.usage"


class PostgresUsage:
    """The usage and the bans of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, account_id: int) -> Usage:
        """What the account has used, as last saved."""
        found = await self._pool.rows(_USAGE, (account_id,))
        return usage_of(*found[0]) if found else Usage()

    async def all(self) -> Mapping[int, Usage]:
        """What each account (by id) has used, as last saved."""
        return {account_id: usage_of(*counts) for account_id, *counts in await self._pool.rows(_ALL_USAGE)}

    async def bans(self) -> Sequence[Ban]:
        """The latest ban of each key that has one."""
        found = await self._pool.rows("SELECT key_id, began, until, level FROM petstore.bans ORDER BY key_id")
        return [Ban(*row) for row in found]

    async def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban]) -> None:
        """Write down usage by account id and new bans, in one transaction."""
        counts = [(account_id, *minute, *day) for account_id, (minute, day) in usage.items()]
        latest = {ban.key_id: ban for ban in bans}.values()

        async def save(session: Session) -> None:
            if counts:
                await session.execute(_SAVE_USAGE, [numbers(column) for column in zip(*counts, strict=True)])
            if latest and await session.rows(
                _SAVE_BANS,
                (
                    texts(ban.key_id for ban in latest),
                    numbers(ban.began for ban in latest),
                    numbers(ban.until for ban in latest),
                    numbers(ban.level for ban in latest),
                ),
            ):
                await access_changed(session)

        await self._pool.transaction(save)
