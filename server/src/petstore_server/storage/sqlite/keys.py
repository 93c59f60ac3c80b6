"""API keys in SQLite. Implements `ports.Keys`."""

from dataclasses import replace
from typing import Any

import apsw

from petstore_server.domain.errors import KeyNotBanned, KeyNotFound, KeyNotUsable
from petstore_server.domain.keys import ApiKey, Environment, KeyState, Principal
from petstore_server.ports import Actor
from petstore_server.storage.entries import key_fields
from petstore_server.storage.rows import key_of, principal_of
from petstore_server.storage.sqlite.accounts import access_changed, find_account
from petstore_server.storage.sqlite.audit import record
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.writer import Writer

# Unknown, expired, revoked and other-environment keys all take this one look-up (D9).
_GRANT = """
    SELECT keys.id, accounts.id, accounts.name, plan, per_minute, per_day, scopes, expires_at
    FROM keys JOIN accounts ON accounts.id = account_id
    WHERE digest = ? AND environment = ? AND revoked_at IS NULL AND suspended_at IS NULL
        AND (expires_at IS NULL OR expires_at > ?)
"""
_SELECT = """
    SELECT keys.id, accounts.name, digest, environment, scopes, note, keys.created_at, expires_at, revoked_at,
        rotated_from, began, until, level
    FROM keys JOIN accounts ON accounts.id = account_id LEFT JOIN bans ON key_id = keys.id
"""
_SELECT_ONE = f"{_SELECT} WHERE keys.id = ?"
_ORDER = "ORDER BY keys.created_at, keys.rowid"


class SqliteKeys:
    """The keys of one store."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | None:
        """What the key with this SHA-256 allows at `now`; None unless it is valid in this environment."""
        rows: list[tuple[Any, ...]] = self._reader.now(_GRANT, (digest, str(environment), now))
        return principal_of(rows[0]) if rows else None

    async def create(self, key: ApiKey, actor: Actor) -> ApiKey:
        """Store a key of the account `key.account`. Raises AccountNotFound."""

        def create(connection: apsw.Connection) -> ApiKey:
            account = find_account(connection, key.account)
            _insert(connection, key, account.id)
            access_changed(connection)
            record(connection, actor, "key.create", f"key:{key.id}", None, key_fields(key))
            return key

        return await self._writer.run(create)

    async def find(self, key_id: str) -> ApiKey:
        """Raises KeyNotFound."""
        return _one(self._reader.now(_SELECT_ONE, (key_id,)), key_id)

    async def list(self, account: str | None = None) -> list[ApiKey]:
        """The keys of one account or of all, oldest first. Raises AccountNotFound."""

        def read(connection: apsw.Connection) -> list[ApiKey]:
            if account is None:
                return [key_of(row) for row in connection.execute(f"{_SELECT} {_ORDER}")]
            account_id = find_account(connection, account).id
            return [
                key_of(row) for row in connection.execute(f"{_SELECT} WHERE account_id = ? {_ORDER}", (account_id,))
            ]

        return await self._reader.run(read)

    async def rotate(self, key_id: str, new: ApiKey, grace_ends: float, actor: Actor) -> ApiKey:
        """Store `new` in place of the key, which ends at `grace_ends` (or earlier, if it was to); it inherits the ban.

        A key has one successor: rotating it again would give a key that ends with this one's grace.
        Raises KeyNotFound, KeyNotUsable.
        """

        def rotate(connection: apsw.Connection) -> ApiKey:
            old = _find(connection, key_id)
            _require_usable(connection, old, actor.at)
            ends = grace_ends if old.expires_at is None else min(old.expires_at, grace_ends)
            successor = replace(
                old,
                id=new.id,
                digest=new.digest,
                created_at=new.created_at,
                rotated_from=old.id,
                ban=replace(old.ban, key_id=new.id) if old.ban else None,
            )
            _insert(connection, successor, find_account(connection, old.account).id)
            connection.execute(
                "INSERT INTO bans SELECT ?, began, until, level FROM bans WHERE key_id = ?", (new.id, old.id)
            )
            connection.execute("UPDATE keys SET expires_at = ? WHERE id = ?", (ends, old.id))
            access_changed(connection)
            was, now = {"expires_at": old.expires_at}, {"expires_at": ends, "rotated_to": new.id}
            record(connection, actor, "key.rotate", f"key:{old.id}", was, now)
            return successor

        return await self._writer.run(rotate)

    async def revoke(self, key_id: str, actor: Actor) -> ApiKey:
        """End the key now; revoking twice changes nothing. Raises KeyNotFound."""

        def revoke(connection: apsw.Connection) -> ApiKey:
            key = _find(connection, key_id)
            if key.revoked_at is not None:
                return key
            connection.execute("UPDATE keys SET revoked_at = ? WHERE id = ?", (actor.at, key_id))
            access_changed(connection)
            record(connection, actor, "key.revoke", f"key:{key_id}", {"revoked_at": None}, {"revoked_at": actor.at})
            return replace(key, revoked_at=actor.at)

        return await self._writer.run(revoke)

    async def unban(self, key_id: str, actor: Actor) -> ApiKey:
        """Lift the key's ban and forget it. Raises KeyNotFound, KeyNotBanned."""

        def unban(connection: apsw.Connection) -> ApiKey:
            key = _find(connection, key_id)
            if key.ban is None or not key.ban.holds(actor.at):
                raise KeyNotBanned(key_id)
            connection.execute("DELETE FROM bans WHERE key_id = ?", (key_id,))
            access_changed(connection)
            was = {"began": key.ban.began, "until": key.ban.until, "level": key.ban.level}
            record(connection, actor, "key.unban", f"key:{key_id}", was, None)
            return replace(key, ban=None)

        return await self._writer.run(unban)


def _require_usable(connection: apsw.Connection, key: ApiKey, now: float) -> None:
    """Raise KeyNotUsable unless the key is valid and has no successor."""
    state = key.state(now)
    if state in (KeyState.EXPIRED, KeyState.REVOKED):
        raise KeyNotUsable(key.id, str(state))
    successors = connection.execute("SELECT id FROM keys WHERE rotated_from = ?", (key.id,)).fetchall()
    if successors:
        raise KeyNotUsable(key.id, f"already rotated to {successors[0][0]}")


def _insert(connection: apsw.Connection, key: ApiKey, account_id: int) -> None:
    connection.execute(
        "INSERT INTO keys (id, account_id, digest, environment, scopes, note, created_at, expires_at, rotated_from)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
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


def _find(connection: apsw.Connection, key_id: str) -> ApiKey:
    return _one(connection.execute(_SELECT_ONE, (key_id,)).fetchall(), key_id)


def _one(rows: list[tuple[Any, ...]], key_id: str) -> ApiKey:
    if not rows:
        raise KeyNotFound(key_id)
    return key_of(rows[0])
