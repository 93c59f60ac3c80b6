"""API keys: issue, rotate and revoke them, lift their bans, and report their states."""

from collections.abc import Callable
from hmac import compare_digest
from typing import NamedTuple

from petstore_server.domain.errors import InvalidInput, NotFound
from petstore_server.domain.keys import (
    ApiKey,
    Environment,
    KeyState,
    Scope,
    Successor,
    digest,
    is_well_formed,
    looks_like_key,
    new_key,
    new_key_id,
    revoke,
    unban,
)
from petstore_server.domain.timestamps import format_unix
from petstore_server.ports import Actor, Store

Randbelow = Callable[[int], int]
"""A source of uniform random integers below n, such as `secrets.randbelow`."""

SUSPENDED = "suspended"
"""The state of a key that would be valid if its account were not suspended."""

_LONGEST_NOTE = 200


class KeyReport(NamedTuple):
    """A key, and whether its account is suspended."""

    key: ApiKey
    suspended: bool

    def state(self, now: float) -> str:
        """active, expiring, expired, revoked, or suspended, at `now` (Unix seconds)."""
        state = self.key.state(now)
        return SUSPENDED if self.suspended and state in (KeyState.ACTIVE, KeyState.EXPIRING) else str(state)

    def works(self, now: float) -> bool:
        """Whether requests with the key are accepted at `now` (Unix seconds), a ban aside."""
        return not self.suspended and self.key.state(now) in (KeyState.ACTIVE, KeyState.EXPIRING)

    def is_banned(self, now: float) -> bool:
        """Whether a ban of the key is in force at `now` (Unix seconds)."""
        return self.key.ban is not None and self.key.ban.holds(now)


class IssuedKey(NamedTuple):
    """A new key. `secret` is the key itself, which is stored nowhere."""

    report: KeyReport
    secret: str


class Rotation(NamedTuple):
    """A key as it is after its rotation, and its successor."""

    old: ApiKey
    new: IssuedKey


async def issue_key(
    store: Store,
    account: str,
    *,
    environment: Environment,
    scopes: frozenset[Scope],
    expires_at: float | None,
    note: str,
    actor: Actor,
    randbelow: Randbelow,
) -> IssuedKey:
    """Create a key of an account; `expires_at` is in Unix seconds. Raises AccountNotFound, InvalidInput."""
    if expires_at is not None and expires_at <= actor.at:
        raise InvalidInput(f"A key cannot expire in the past ({format_unix(expires_at)}); give a time in the future.")
    secret = new_key(environment, randbelow)
    key = ApiKey(
        id=new_key_id(randbelow),
        account=account,
        digest=digest(secret),
        environment=environment,
        scopes=scopes,
        note=check_note(note),
        created_at=actor.at,
        expires_at=expires_at,
    )
    return IssuedKey(await _reported(store, await store.keys.create(key, actor)), secret)


async def rotate_key(store: Store, key_id: str, *, grace: int, actor: Actor, randbelow: Randbelow) -> Rotation:
    """Replace a key: its successor has its scopes, note and ban; it ends itself after `grace` seconds, or earlier.

    Raises KeyNotFound, KeyNotUsable.
    """
    old = await store.keys.find(key_id)
    secret = new_key(old.environment, randbelow)
    successor = Successor(new_key_id(randbelow), digest(secret))
    rotated = await store.keys.rotate(key_id, successor, actor.at + grace, actor)
    return Rotation(rotated.old, IssuedKey(await _reported(store, rotated.new), secret))


async def revoke_key(store: Store, key_id: str, actor: Actor) -> KeyReport:
    """End a key now; revoking twice changes nothing. Raises KeyNotFound."""
    return await _reported(store, await store.keys.change(key_id, revoke(actor.at), actor))


async def unban_key(store: Store, key_id: str, actor: Actor) -> KeyReport:
    """Lift a key's ban and forget it. Raises KeyNotFound, KeyNotBanned."""
    return await _reported(store, await store.keys.change(key_id, unban(actor.at), actor))


async def find_key(store: Store, key_id: str) -> KeyReport:
    """Raises KeyNotFound."""
    return await _reported(store, await store.keys.find(key_id))


async def find_key_by_secret(store: Store, secret: str) -> KeyReport:
    """Find the key that a text is, for example one that was found in a public place.

    Raises InvalidInput if it is not an API key, NotFound if it is not one of this store.
    """
    if not is_well_formed(secret):
        raise InvalidInput("This is not an API key: its form or its checksum is wrong. Check that it is complete.")
    wanted = digest(secret)
    for report in await list_keys(store):
        if compare_digest(report.key.digest, wanted):
            return report
    raise NotFound("This key is not in this store.")


async def list_keys(store: Store, account: str | None = None) -> list[KeyReport]:
    """The keys of one account or of all, oldest first. Raises AccountNotFound."""
    keys = await store.keys.list(account)
    suspended = {each.name for each in await store.accounts.list() if each.suspended_at is not None}
    return [KeyReport(key, key.account in suspended) for key in keys]


def check_note(note: str) -> str:
    """Return the note if it is usable: one line of text without a key in it. Raises InvalidInput."""
    if len(note) > _LONGEST_NOTE or not (note.isprintable() or not note):
        raise InvalidInput(f"A note is one line of at most {_LONGEST_NOTE} characters, without control characters.")
    if looks_like_key(note):
        raise InvalidInput("The note holds an API key; notes are shown in lists, so give the key's id instead.")
    return note


async def _reported(store: Store, key: ApiKey) -> KeyReport:
    account = await store.accounts.find(key.account)
    return KeyReport(key, account.suspended_at is not None)
