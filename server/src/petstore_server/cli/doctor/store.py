"""The store's part of `petstore doctor`: the file, the disk under it, and what the store holds."""

import asyncio
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from petstore_server.cli.console import explain
from petstore_server.cli.doctor.results import CheckResult
from petstore_server.domain.errors import DomainError, StoreUnusable
from petstore_server.domain.keys import ApiKey, KeyState
from petstore_server.domain.timestamps import format_unix
from petstore_server.ports import Store
from petstore_server.runtime import backend
from petstore_server.settings import Settings, SettingsError
from petstore_server.storage import engines, sqlite

_MIB = 1 << 20
_LEAST_FREE = 64 * _MIB
_LARGE_LOG = 256 * _MIB
_QUICK_TO_CHECK = 200 * _MIB  # a file of this size is read in a few seconds
_EARLIEST_NOW = 1_767_225_600  # 2026-01-01: this program is younger
_CLOCK_TOLERANCE = 60
_SOON = 7 * 86_400


def examine_store(settings: Settings) -> Iterator[CheckResult]:
    """Check the store from the outside in; where it cannot be opened, what it holds is left out."""
    path = backend.store_path(settings).resolve() if engines.is_sqlite(settings.database_url) else None
    if path is not None:
        yield from _permissions(path)
        yield from _disk(path)
    yield _clock(path)
    try:
        yield from asyncio.run(_contents(settings))
    except (DomainError, SettingsError, OSError) as error:
        yield CheckResult("store", "fail", explain(error).message, "Set that right, then run petstore doctor again.")
        return
    yield _integrity(settings, path)


def server_runs(settings: Settings) -> bool:
    """Whether a server holds the lock of the store's file. Nothing tells it of a store in PostgreSQL."""
    if not engines.is_sqlite(settings.database_url):
        return False
    path = backend.store_path(settings).resolve()
    if not path.with_name(path.name + ".lock").exists():
        return False
    try:
        with sqlite.lock_for_serving(path, shared=False):
            return False
    except StoreUnusable:
        return True


def _permissions(path: Path) -> Iterator[CheckResult]:
    for place in (path.parent, path):
        if place.exists() and not os.access(place, os.R_OK | os.W_OK):
            remedy = f"Run as the owner of {place}, or give this user the right to read and write it."
            yield CheckResult("permissions", "fail", f"This user may not read and write {place}.", remedy)
    if path.exists() and path.stat().st_mode & stat.S_IWOTH:
        yield CheckResult("permissions", "warn", f"Every user of this machine may write {path}.", f"chmod o-w {path}")


def _disk(path: Path) -> Iterator[CheckResult]:
    if not path.parent.is_dir():
        return
    free = shutil.disk_usage(path.parent).free
    size = path.stat().st_size if path.exists() else 0
    told = f"{free // _MIB} MiB are free under {path.parent}; the store takes {size // _MIB} MiB"
    if free < _LEAST_FREE:
        yield CheckResult("disk", "fail", f"{told}.", "Free some space: changes fail on a full disk.")
    elif free < 2 * size:
        yield CheckResult("disk", "warn", f"{told}.", "Free some space: a backup beside the store needs as much again.")
    else:
        yield CheckResult("disk", "ok", f"{told}.")
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > _LARGE_LOG:
        remedy = "Look for an export or backup that never ends; the log shrinks once it has."
        yield CheckResult("log", "warn", f"The log beside the store has {log.stat().st_size // _MIB} MiB.", remedy)


def _clock(path: Path | None) -> CheckResult:
    now = time.time()
    remedy = "Set the clock and keep it right with NTP: limits and bans are counted by it."
    if now < _EARLIEST_NOW:
        return CheckResult("clock", "fail", f"The clock says {format_unix(now)}.", remedy)
    if path is not None and path.exists() and path.stat().st_mtime > now + _CLOCK_TOLERANCE:
        return CheckResult("clock", "warn", "The store was written at a moment still to come by this clock.", remedy)
    return CheckResult("clock", "ok", f"The clock says {format_unix(now)}.")


async def _contents(settings: Settings) -> list[CheckResult]:
    store = await backend.open_store(settings, announce=lambda _: None)
    try:
        await store.check()
        results = [CheckResult("store", "ok", "The store opens, has this version's schema, and can be written.")]
        return results + [result async for result in _partners(store)]
    finally:
        await store.close()


async def _partners(store: Store) -> AsyncIterator[CheckResult]:
    accounts, keys, now = await store.accounts.list(), await store.keys.list(), time.time()
    usable = [key for key in keys if key.state(now) in (KeyState.ACTIVE, KeyState.EXPIRING)]
    if not accounts:
        yield CheckResult("accounts", "warn", "There are no accounts yet.", "petstore accounts create NAME --plan free")
    elif not usable:
        yield CheckResult("keys", "warn", "No account has a key that works.", "petstore keys create ACCOUNT")
    else:
        yield CheckResult("accounts", "ok", f"{len(accounts)} accounts have {len(usable)} keys that work.")
    for key in usable:
        for result in _key_findings(key, now):
            yield result


def _key_findings(key: ApiKey, now: float) -> Iterator[CheckResult]:
    if key.expires_at is not None and key.expires_at < now + _SOON:
        message = f"Key {key.id} of {key.account} ends at {format_unix(key.expires_at)}."
        yield CheckResult("keys", "warn", message, f"petstore keys rotate {key.id}, unless its successor is in use.")
    if key.ban is not None and key.ban.holds(now):
        message = f"Key {key.id} of {key.account} is banned until {format_unix(key.ban.until)}."
        yield CheckResult(
            "bans", "warn", message, f"Ask {key.account} to honour Retry-After; petstore keys unban {key.id}"
        )


def _integrity(settings: Settings, path: Path | None) -> CheckResult:
    if path is None:
        return CheckResult("integrity", "ok", "Not read in full; `petstore db check` does so.")
    if path.stat().st_size > _QUICK_TO_CHECK:
        return CheckResult("integrity", "ok", "Not read in full, as the store is large; `petstore db check` does so.")
    problems = backend.check_store(settings)
    if not problems:
        return CheckResult("integrity", "ok", "The store is sound.")
    message = f"{len(problems)} problems, the first: {problems[0]}"
    return CheckResult("integrity", "fail", message, "petstore db restore FILE, with the latest backup that is sound.")
