"""Accounts and their keys: report the windows of accounts; issue, rotate and find keys."""

import secrets
from typing import NamedTuple

from petstore_server.domain import keys as key_rules
from petstore_server.domain.accounts import Account
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import InvalidInput, NotFound
from petstore_server.domain.keys import DEFAULT_SCOPES, ApiKey, Environment, Scope, Successor
from petstore_server.domain.texts import check_note
from petstore_server.domain.timestamps import DAY, MINUTE, format_unix
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import evaluate_account, roll_window
from petstore_server.store import Store


class WindowReport(NamedTuple):
    """A rate limit window of an account. `reset` is in Unix seconds, None if nothing has been charged to it."""

    name: str
    used: int
    limit: int
    remaining: int
    reset: int | None


class IssuedKey(NamedTuple):
    """A new key. `secret` is the key itself, which is stored nowhere; `old` is the key that it replaces, if any."""

    key: ApiKey
    secret: str
    old: ApiKey | None = None


def report_windows(account: Account, usage: Usage, now: float) -> tuple[WindowReport, ...]:
    """Both windows of the account at `now` (Unix seconds); one that has ended is reported as not open."""
    counts = roll_window(usage.minute, MINUTE, now), roll_window(usage.day, DAY, now)
    windows = evaluate_account(True, *counts, account.limits, now).windows
    return tuple(
        WindowReport(window.name, count.used, window.limit, window.remaining, window.reset if count.used else None)
        for window, count in zip(windows, counts, strict=True)
    )


async def issue_key(
    store: Store,
    account: str,
    *,
    environment: Environment,
    actor: Actor,
    note: str,
    scopes: frozenset[Scope] = DEFAULT_SCOPES,
    expires_at: float | None = None,
) -> IssuedKey:
    """Create a key; `expires_at` is in Unix seconds. Raises InvalidInput, and what `Keys.create` raises."""
    _check_expiry(expires_at, actor.at)
    secret = key_rules.new_key(environment, secrets.randbelow)
    key = ApiKey(
        id=key_rules.new_key_id(secrets.randbelow),
        account=account,
        digest=key_rules.digest(secret),
        environment=environment,
        scopes=scopes,
        note=check_note(note),
        created_at=actor.at,
        expires_at=expires_at,
    )
    return IssuedKey(await store.keys.create(key, actor), secret)


async def rotate_key(store: Store, key_id: str, *, grace: int, expires_at: float | None, actor: Actor) -> IssuedKey:
    """Replace a key by a successor with its scopes, note and ban.

    The old key ends after `grace` seconds, or earlier if it was to. The successor ends at `expires_at` (Unix seconds;
    None: when the old key was to end). Raises KeyNotFound, KeyNotUsable, InvalidInput.
    """
    _check_expiry(expires_at, actor.at)
    old = await store.keys.find(key_id)
    secret = key_rules.new_key(old.environment, secrets.randbelow)
    successor = Successor(key_rules.new_key_id(secrets.randbelow), key_rules.digest(secret), expires_at)
    old, new = await store.keys.rotate(key_id, successor, actor.at + grace, actor)
    return IssuedKey(new, secret, old)


async def find_key_by_secret(store: Store, secret: str) -> ApiKey:
    """Find the key that a text is, with its prefix or without.

    Raises InvalidInput if it is not an API key, NotFound if it is not of this store.
    """
    if not key_rules.is_well_formed(secret := key_rules.completed(secret)):
        raise InvalidInput("This is not an API key: its form or its checksum is wrong. Check that it is complete.")
    key = await store.keys.with_digest(key_rules.digest(secret))
    if key is None:
        raise NotFound("This key is not in this store.")
    return key


def _check_expiry(expires_at: float | None, now: float) -> None:
    if expires_at is not None and expires_at <= now:
        raise InvalidInput(f"A key cannot expire in the past ({format_unix(expires_at)}); give a time in the future.")
