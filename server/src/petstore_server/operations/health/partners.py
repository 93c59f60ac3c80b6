"""Checks of what the store holds: accounts, keys, bans, identifiers, and the record of its backups."""

from collections.abc import AsyncIterator, Iterator, Sequence
from math import inf

from petstore_server.domain.keys import VALID, ApiKey
from petstore_server.domain.orders import INT64_MAX
from petstore_server.domain.timestamps import DAY, format_unix
from petstore_server.operations.health import CheckResult
from petstore_server.store import Store

_SOON = 7 * DAY  # seconds
_FEW_IDENTIFIERS = 1 << 32
_BACKUP_AGE = 2 * DAY  # seconds


async def check_partners(store: Store, now: float) -> AsyncIterator[CheckResult]:
    """Whether partners have keys that work at `now` (Unix seconds), will expire soon, or are banned."""
    accounts, keys = await store.accounts.list(), await store.keys.list()
    working = [key for key in keys if key.state(now) in VALID]
    suspended = sum(account.suspended_at is not None for account in accounts)
    if not accounts:
        remedy = "Create one for each partner."
        yield CheckResult("accounts", "warn", "There are no accounts yet.", remedy, "create account")
    elif not working:
        yield CheckResult("keys", "warn", "No account has a key that works.", "Create a key.", "create key")
    else:
        message = (
            f"{_plural(len(accounts), 'account')} ({suspended:,} suspended); {_plural(len(working), 'working key')}."
        )
        yield CheckResult("accounts", "ok", message)
    for result in (*_expiring(working, now), *_banned(working, now)):
        yield result


async def check_backups(store: Store, now: float) -> CheckResult:
    """Whether a backup of a SQLite store was made lately, at `now` (Unix seconds)."""
    last = await store.audit.last_backup()
    remedy = "Make one every night; deploy/ has a timer for it."
    if last is None:
        return CheckResult("backup", "warn", "No backup of this store has been made.", remedy, "back up")
    message = f"The last backup was made at {format_unix(last)}."
    if last < now - _BACKUP_AGE:
        return CheckResult("backup", "warn", message, remedy, "back up")
    return CheckResult("backup", "ok", message)


async def check_identifiers(store: Store) -> AsyncIterator[CheckResult]:
    """Whether many identifiers are left for new orders, which get larger ones than all orders have."""
    last = await store.orders.last_identifier()
    left = INT64_MAX - last
    if left < _FEW_IDENTIFIERS:
        message = f"Order {last} leaves {left:,} identifiers for orders that are placed."
        remedy = "If it was imported by mistake, restore the backup from before the import."
        yield CheckResult("identifiers", "warn" if left else "fail", message, remedy)


def _expiring(keys: Sequence[ApiKey], now: float) -> Iterator[CheckResult]:
    ending = [key for key in keys if key.rotated_to is None]
    soon = sorted((key.expires_at, key.id, key.account) for key in ending if (key.expires_at or inf) < now + _SOON)
    if soon:
        at, key_id, account = soon[0]
        first = f"{key_id} of {account} expires at {format_unix(at)}"
        message = f"Key {first}." if len(soon) == 1 else f"{len(soon):,} keys expire within 7 days; {first}."
        yield CheckResult("keys", "warn", message, "Replace it by a new one.", "rotate key", key_id)


def _banned(keys: Sequence[ApiKey], now: float) -> Iterator[CheckResult]:
    bans = sorted((-key.ban.until, key.id, key.account) for key in keys if key.ban is not None and key.is_banned(now))
    if bans:
        until, key_id, account = bans[0]
        message = f"Key {key_id} of {account} is banned until {format_unix(-until)}."
        if len(bans) > 1:
            message = f"{len(bans):,} keys are banned; {key_id} of {account} longest, until {format_unix(-until)}."
        remedy = f"Ask {account} to wait as Retry-After says, or lift the ban."
        yield CheckResult("bans", "warn", message, remedy, "lift ban", key_id)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
