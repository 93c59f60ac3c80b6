"""API keys in PostgreSQL. Implements `ports.Keys`."""

import builtins
from dataclasses import replace

from petstore_server.domain.errors import KeyNotBanned, KeyNotFound, KeyNotUsable
from petstore_server.domain.keys import ApiKey, Environment, KeyState, Principal
from petstore_server.ports import Actor
from petstore_server.storage.entries import key_fields
from petstore_server.storage.postgres.accounts import access_changed, find_account
from petstore_server.storage.postgres.audit import record
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import SNAPSHOT, Row, Session
from petstore_server.storage.rows import key_of, principal_of

# Unknown, expired, revoked and other-environment keys all take this one look-up (D9).
_GRANT = """
    SELECT keys.id, accounts.id, accounts.name, plan, per_minute, per_day, scopes, expires_at
    FROM petstore.keys JOIN petstore.accounts ON accounts.id = account_id
    WHERE digest = %s AND environment = %s AND revoked_at IS NULL AND suspended_at IS NULL
        AND (expires_at IS NULL OR expires_at > %s)
"""
_SELECT = """
    SELECT keys.id, accounts.name, digest, environment, scopes, note, keys.created_at, expires_at, revoked_at,
        rotated_from, began, until, level
    FROM petstore.keys JOIN petstore.accounts ON accounts.id = account_id LEFT JOIN petstore.bans ON key_id = keys.id
"""
_SELECT_ONE = f"{_SELECT} WHERE keys.id = %s"
_LOCK = "SELECT 1 FROM petstore.keys WHERE id = %s FOR UPDATE"
_ORDER = "ORDER BY keys.created_at, keys.number"
_INSERT = """
    INSERT INTO petstore.keys
        (id, account_id, digest, environment, scopes, note, created_at, expires_at, rotated_from)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


class PostgresKeys:
    """The keys of one store."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | None:
        """What the key with this SHA-256 allows at `now`; None unless it is valid in this environment."""
        rows = await self._pool.rows(_GRANT, (digest, str(environment), now))
        return principal_of(rows[0]) if rows else None

    async def create(self, key: ApiKey, actor: Actor) -> ApiKey:
        """Store a key of the account `key.account`. Raises AccountNotFound."""

        async def create(session: Session) -> ApiKey:
            account = await find_account(session, key.account)
            await _insert(session, key, account.id)
            await record(session, actor, "key.create", f"key:{key.id}", None, key_fields(key))
            await access_changed(session)
            return key

        return await self._pool.transaction(create)

    async def find(self, key_id: str) -> ApiKey:
        """Raises KeyNotFound."""
        return _one(await self._pool.rows(_SELECT_ONE, (key_id,)), key_id)

    async def list(self, account: str | None = None) -> list[ApiKey]:
        """The keys of one account or of all, oldest first. Raises AccountNotFound."""

        async def read(session: Session) -> builtins.list[Row]:
            if account is None:
                return await session.rows(f"{_SELECT} {_ORDER}")
            account_id = (await find_account(session, account)).id
            return await session.rows(f"{_SELECT} WHERE account_id = %s {_ORDER}", (account_id,))

        return [key_of(row) for row in await self._pool.transaction(read, SNAPSHOT)]

    async def rotate(self, key_id: str, new: ApiKey, grace_ends: float, actor: Actor) -> ApiKey:
        """Store `new` in place of the key, which ends at `grace_ends` (or earlier, if it was to); it inherits the ban.

        A key has one successor: rotating it again would give a key that ends with this one's grace.
        Raises KeyNotFound, KeyNotUsable.
        """

        async def rotate(session: Session) -> ApiKey:
            old = await _lock(session, key_id)
            await _require_usable(session, old, actor.at)
            ends = grace_ends if old.expires_at is None else min(old.expires_at, grace_ends)
            successor = replace(
                old,
                id=new.id,
                digest=new.digest,
                created_at=new.created_at,
                rotated_from=old.id,
                ban=replace(old.ban, key_id=new.id) if old.ban else None,
            )
            await _insert(session, successor, (await find_account(session, old.account)).id)
            await session.execute(
                "INSERT INTO petstore.bans SELECT %s, began, until, level FROM petstore.bans WHERE key_id = %s",
                (new.id, old.id),
            )
            await session.execute("UPDATE petstore.keys SET expires_at = %s WHERE id = %s", (ends, old.id))
            was, now = {"expires_at": old.expires_at}, {"expires_at": ends, "rotated_to": new.id}
            await record(session, actor, "key.rotate", f"key:{old.id}", was, now)
            await access_changed(session)
            return successor

        return await self._pool.transaction(rotate)

    async def revoke(self, key_id: str, actor: Actor) -> ApiKey:
        """End the key now; revoking twice changes nothing. Raises KeyNotFound."""

        async def revoke(session: Session) -> ApiKey:
            key = await _lock(session, key_id)
            if key.revoked_at is not None:
                return key
            await session.execute("UPDATE petstore.keys SET revoked_at = %s WHERE id = %s", (actor.at, key_id))
            await record(session, actor, "key.revoke", f"key:{key_id}", {"revoked_at": None}, {"revoked_at": actor.at})
            await access_changed(session)
            return replace(key, revoked_at=actor.at)

        return await self._pool.transaction(revoke)

    async def unban(self, key_id: str, actor: Actor) -> ApiKey:
        """Lift the key's ban and forget it. Raises KeyNotFound, KeyNotBanned."""

        async def unban(session: Session) -> ApiKey:
            key = await _lock(session, key_id)
            if key.ban is None or not key.ban.holds(actor.at):
                raise KeyNotBanned(key_id)
            await session.execute("DELETE FROM petstore.bans WHERE key_id = %s", (key_id,))
            was = {"began": key.ban.began, "until": key.ban.until, "level": key.ban.level}
            await record(session, actor, "key.unban", f"key:{key_id}", was, None)
            await access_changed(session)
            return replace(key, ban=None)

        return await self._pool.transaction(unban)


async def _require_usable(session: Session, key: ApiKey, now: float) -> None:
    """Raise KeyNotUsable unless the key is valid and has no successor."""
    state = key.state(now)
    if state in (KeyState.EXPIRED, KeyState.REVOKED):
        raise KeyNotUsable(key.id, str(state))
    successors = await session.rows("SELECT id FROM petstore.keys WHERE rotated_from = %s", (key.id,))
    if successors:
        raise KeyNotUsable(key.id, f"already rotated to {successors[0][0]}")


async def _insert(session: Session, key: ApiKey, account_id: int) -> None:
    await session.execute(
        _INSERT,
        (
            key.id,
            account_id,
            key.digest,
            str(key.environment),
            " ".join(sorted(key.scopes)),
            key.note,
            key.created_at,
            key.expires_at,
            key.rotated_from,
        ),
    )


async def _lock(session: Session, key_id: str) -> ApiKey:
    """The key as it is, which nobody else changes before the transaction ends. Raises KeyNotFound."""
    await session.execute(_LOCK, (key_id,))
    return _one(await session.rows(_SELECT_ONE, (key_id,)), key_id)


def _one(rows: builtins.list[Row], key_id: str) -> ApiKey:
    if not rows:
        raise KeyNotFound(key_id)
    return key_of(rows[0])
