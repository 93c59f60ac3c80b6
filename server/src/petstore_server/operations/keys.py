"""API keys: issue and rotate them, and find a key by its text."""

import secrets
from typing import NamedTuple

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import InvalidInput, NotFound
from petstore_server.domain.keys import (
    DEFAULT_SCOPES,
    ApiKey,
    Environment,
    Scope,
    Successor,
    digest,
    is_well_formed,
    new_key,
    new_key_id,
)
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import format_unix
from petstore_server.store import Store


class IssuedKey(NamedTuple):
    """A new key. `secret` is the key itself, which is stored nowhere; `old` is the key that it replaces, if any."""

    key: ApiKey
    secret: str
    old: ApiKey | None = None


async def issue_key(
    store: Store,
    account: str,
    *,
    environment: Environment,
    actor: Actor,
    scopes: frozenset[Scope] = DEFAULT_SCOPES,
    expires_at: float | None = None,
    note: str = "",
) -> IssuedKey:
    """Create a key of an account; `expires_at` is in Unix seconds.

    Raises AccountNotFound, AccountClosed, InvalidInput.
    """
    _check_expiry(expires_at, actor.at)
    secret = new_key(environment, secrets.randbelow)
    key = ApiKey(
        id=new_key_id(secrets.randbelow),
        account=account,
        digest=digest(secret),
        environment=environment,
        scopes=scopes,
        note=check_note(note),
        created_at=actor.at,
        expires_at=expires_at,
    )
    await store.keys.create(key, actor)
    return IssuedKey(await store.keys.find(key.id), secret)


async def rotate_key(store: Store, key_id: str, *, grace: int, expires_at: float | None, actor: Actor) -> IssuedKey:
    """Replace a key by a successor with its scopes, note and ban.

    The old key ends after `grace` seconds, or earlier if it was to. The successor ends at `expires_at` (Unix seconds;
    None: when the old key was to end). Raises KeyNotFound, KeyNotUsable, InvalidInput.
    """
    _check_expiry(expires_at, actor.at)
    old = await store.keys.find(key_id)
    secret = new_key(old.environment, secrets.randbelow)
    successor = Successor(new_key_id(secrets.randbelow), digest(secret), expires_at)
    rotated = await store.keys.rotate(key_id, successor, actor.at + grace, actor)
    return IssuedKey(rotated.new, secret, rotated.old)


async def find_key_by_secret(store: Store, secret: str) -> ApiKey:
    """Find the key that a text is, for example one that was found in a public place.

    Raises InvalidInput if it is not an API key, NotFound if it is not one of this store.
    """
    if not is_well_formed(secret):
        raise InvalidInput("This is not an API key: its form or its checksum is wrong. Check that it is complete.")
    key = await store.keys.with_digest(digest(secret))
    if key is None:
        raise NotFound("This key is not in this store.")
    return key


def _check_expiry(expires_at: float | None, now: float) -> None:
    if expires_at is not None and expires_at <= now:
        raise InvalidInput(f"A key cannot expire in the past ({format_unix(expires_at)}); give a time in the future.")
