"""Opens the store and Redis that the settings name; migrates, checks, backs up, restores and copies the store.

Engines and drivers are imported by the functions that use them: loading takes longer than most commands, and drivers
are extras. What uses the store raises SettingsError and StoreUnusable.
"""

import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from petstore_server.domain.errors import ServiceUnavailable, Unreachable
from petstore_server.settings import Settings, SettingsError
from petstore_server.settings.values import SQLITE, describe_url
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.domain.audit import Actor
    from petstore_server.domain.bans import BanPolicy
    from petstore_server.engines.postgres.timelines import SharedMaximum
    from petstore_server.limits.redis import RedisCounters
    from petstore_server.operations.webhooks import WebhookService

_ROWS_AT_ONCE = 16_000
_LOCK_SECONDS = 1.0  # `petstore doctor` and `accounts show` take the lock briefly to see whether a server has it
_CHECKED_URLS = 8  # new URLs of webhooks whose names are looked up at the same time
_UNRESPONSIVE_SECONDS = 5.0  # for which connecting does not ask a Redis that has not responded

_unresponsive_until: dict[str, float] = {}  # by the URL of a Redis, a time of the monotonic clock


def is_sqlite(url: str) -> bool:
    """Whether the URL names a SQLite file rather than a PostgreSQL database."""
    return url.startswith(SQLITE)


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite store, as an absolute path. Raises SettingsError for another engine."""
    if not is_sqlite(url):
        raise SettingsError(
            "PETSTORE_DATABASE_URL names PostgreSQL, and this command works on the file of a SQLite store. To back up "
            'PostgreSQL use pg_dump --schema=petstore, and record it with --made; docs/operating.md, "Backups and '
            'restore", has the steps to restore it.'
        )
    return Path(url.removeprefix(SQLITE)).absolute()


@asynccontextmanager
async def opened_store(
    url: str,
    shared_maximum: "SharedMaximum | None" = None,
    *,
    create: bool = False,
    migrate: bool = False,
    serial: bool = False,
    first_assigned: int = 1,
) -> AsyncIterator[Store]:
    """The store, closed at the end; created or migrated if that is allowed. Raises SettingsError, StoreUnusable.

    `first_assigned` is as for `Orders`.
    `serial`: the store does one thing after the other, without an event loop. Only SQLite can.
    """
    if is_sqlite(url):
        from petstore_server.engines import sqlite

        store = await sqlite.open_store(sqlite_path(url), create=create, upgrade=migrate, serial=serial)
    else:
        require_driver(url)
        from petstore_server.engines import postgres

        store = await postgres.open_store(url, shared_maximum, create=create, upgrade=migrate)
    store.orders.first_assigned = first_assigned
    try:
        with suppress(ServiceUnavailable):  # what uses the store reports that
            await store.access_version()  # learns of damage
        yield store
    finally:
        await store.close()


def require_installed(driver: str, reason: str, lock: str = "scale-out") -> None:
    """Raises SettingsError if the driver of an extra is not installed; `reason` says why it is needed."""
    try:
        found = importlib.util.find_spec(driver)
    except ModuleNotFoundError:  # not even the package that it is in
        found = None
    if found is None:
        remedy = f"install the drivers with pip install --require-hashes -r requirements/{lock}.lock"
        raise SettingsError(f"{reason}, but its driver is missing; {remedy}")


def require_driver(url: str, setting: str = "PETSTORE_DATABASE_URL") -> None:
    """Raises SettingsError if the driver of PostgreSQL is not installed, or does not accept the URL in `setting`."""
    require_installed("psycopg", "A URL names PostgreSQL")
    from petstore_server.engines import postgres

    if problem := postgres.url_problem(url):
        raise SettingsError(f"{setting} {problem}.")


def webhook_service(settings: Settings, store: Store, clock: Callable[[], float]) -> "WebhookService":
    """The webhooks of a store. `clock` gives Unix seconds. Raises SettingsError."""
    from petstore_server.operations.webhooks import WebhookService
    from petstore_server.webhooks.addresses import Addresses

    checked = Addresses(settings.webhook_networks, _CHECKED_URLS)
    if settings.webhook_secret is None:
        return WebhookService(store, checked, None)
    require_installed("httpcore2", "PETSTORE_WEBHOOK_SECRET is set")
    from petstore_server.domain.webhooks import SigningSecrets
    from petstore_server.webhooks.sending import Sender

    addresses = Addresses(settings.webhook_networks)  # others, so that new URLs do not delay deliveries
    sender = Sender(SigningSecrets(settings.webhook_secret), addresses, settings.webhook_proxy, clock)
    return WebhookService(store, checked, sender)


def lock_for_serving(settings: Settings) -> AbstractContextManager[object]:
    """Hold the lock that excludes a process which counts limits in its memory (D12). Raises StoreUnusable."""
    if not is_sqlite(settings.database_url):
        return nullcontext()  # never served without Redis
    from petstore_server.engines import sqlite

    shared = settings.redis_url is not None
    return sqlite.lock_for_serving(sqlite_path(settings.database_url), shared=shared, wait_seconds=_LOCK_SECONDS)


def ban_policy(settings: Settings) -> "BanPolicy":
    """The rules of bans that the settings make."""
    from petstore_server.domain.bans import BanPolicy

    return BanPolicy(settings.ban_strikes, settings.ban_seconds, settings.ban_max_seconds, settings.ban_grace_seconds)


def redis_counters(settings: Settings, clock: Callable[[], float] | None = None) -> "RedisCounters":
    """The counters, not connected yet. Times are Redis's own unless a test gives a `clock`. Raises SettingsError."""
    require_installed("redis", "PETSTORE_REDIS_URL is set")
    from petstore_server.limits.redis import RedisCounters
    from petstore_server.limits.redis_client import RedisAddress

    if settings.redis_ca_file is not None:
        _require_certificates(settings.redis_ca_file)
    address = RedisAddress(settings.redis_url or "", settings.redis_ca_file, settings.redis_sentinel_password)
    return RedisCounters(address, ban_policy(settings), clock)


def _require_certificates(file: str) -> None:
    """Raises SettingsError if the file cannot be read, or has no certificates."""
    import ssl  # where it is needed

    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        raise SettingsError(f"PETSTORE_REDIS_CA_FILE names {file}, which has no certificates in PEM.") from None
    except OSError as error:
        raise SettingsError(f"PETSTORE_REDIS_CA_FILE names {file}, which cannot be read: {error.strerror}.") from None


@asynccontextmanager
async def read_counters(settings: Settings) -> AsyncIterator["RedisCounters"]:
    """Connect to the counters in Redis to read them. Raises SettingsError, ServiceUnavailable."""
    counters = redis_counters(settings)
    from petstore_server.limits.counters import CountersUnavailable

    try:
        await counters.connect()
        yield counters
    except CountersUnavailable as error:
        problem = f"The usage cannot be read from Redis at {describe_url(settings.redis_url or '')}"
        remedy = "Check PETSTORE_REDIS_URL, and that Redis runs."
        raise Unreachable(problem, error.reason, remedy, refused=error.refused) from None
    finally:
        await counters.close()


def named_store(settings: Settings, *, serial: bool = False) -> AbstractAsyncContextManager[Store]:
    """The store that the settings name, closed at the end."""
    maximum, first = partial(shared_maximum, settings), settings.assigned_ids_from
    return opened_store(settings.database_url, maximum, serial=serial, first_assigned=first)


async def shared_maximum(settings: Settings, name: str, number: int) -> int:
    """Store a number under a name in Redis, and return the largest one stored there; without Redis, this one.

    So a command learns from the servers that a server of PostgreSQL was replaced, or restored.

    While Redis does not respond, a command knows only what it sees itself: connecting to PostgreSQL, which has a second
    in all, must not wait for it again and again. Raises SettingsError.
    """
    import asyncio  # most commands start without it

    url = settings.redis_url
    if url is not None and monotonic() >= _unresponsive_until.get(url, 0.0):
        from petstore_server import deadlines

        try:
            async with asyncio.timeout(2 * deadlines.TIMEOUTS.counters), read_counters(settings) as counters:
                return await counters.newest(name, number)
        except (Unreachable, TimeoutError):
            _unresponsive_until[url] = monotonic() + _UNRESPONSIVE_SECONDS
    return number


def store_file(settings: Settings) -> Path | None:
    """The file of a SQLite store; None for PostgreSQL."""
    return sqlite_path(settings.database_url).resolve() if is_sqlite(settings.database_url) else None


def is_served(file: Path, *, shared: bool = False) -> bool:
    """Whether a server holds the lock of a SQLite store (if `shared`, exclusively)."""
    from petstore_server.engines import sqlite

    return sqlite.is_served(file, shared=shared)


def rows_at_once(settings: Settings) -> int:
    """How many orders an import should store at once, to write pages of indexes once: few where a request may wait."""
    file = store_file(settings)
    return 1 if file is None or is_served(file) else _ROWS_AT_ONCE


def migrate_store(settings: Settings, announce: Callable[[str], None]) -> tuple[int, int]:
    """Bring the store to this version's schema, creating a missing one; return its version before and after."""
    url = settings.database_url
    if is_sqlite(url):
        from petstore_server.engines import sqlite

        return sqlite.migrate(sqlite_path(url), announce)
    require_driver(url)
    import asyncio  # most commands start without it

    from petstore_server.engines import postgres

    return asyncio.run(postgres.migrate(url, announce, partial(shared_maximum, settings)))


def check_store(settings: Settings) -> tuple[list[str], bool]:
    """Read the whole store; return what is wrong with it, an empty list if it is sound.

    Also whether indexes were verified: in PostgreSQL they are not without the extension amcheck.
    """
    url = settings.database_url
    if is_sqlite(url):
        from petstore_server.engines.sqlite import maintenance

        return maintenance.check(sqlite_path(url)), True
    require_driver(url)
    import asyncio  # most commands start without it

    from petstore_server.engines import postgres

    return asyncio.run(postgres.check(url, partial(shared_maximum, settings)))


async def postgres_state(settings: Settings) -> dict[str, str]:
    """What `engines.postgres.opening.state` returns, of a store that was opened."""
    from petstore_server.engines import postgres

    return await postgres.state(settings.database_url, partial(shared_maximum, settings))


def backup_store(settings: Settings, target: Path, progress: Callable[[int, int], None]) -> None:
    """Copy the file of the SQLite store, as `engines.sqlite.maintenance.backup` does."""
    from petstore_server.engines.sqlite import maintenance

    maintenance.backup(sqlite_path(settings.database_url), target, progress)


def restore_store(settings: Settings, source: Path, actor: "Actor") -> Path | None:
    """Replace the content of the SQLite store, as `engines.sqlite.maintenance.restore` does; return the kept file."""
    from petstore_server.engines.sqlite import maintenance

    return maintenance.restore(sqlite_path(settings.database_url), source, actor)


def was_damaged(kept: Path) -> bool:
    """Whether the content that `restore_store` has replaced, and kept in this file, was known to be damaged."""
    from petstore_server.engines.sqlite import maintenance

    return maintenance.was_damaged(kept)


def copy_to_postgres(
    settings: Settings,
    target: str,
    actor: "Actor",
    announce: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> dict[str, int]:
    """Copy the SQLite store to the PostgreSQL database `target` (a URL); return the number of rows by table.

    Its audit log names the actor; `progress` gets the rows copied and the total. Raises Conflict too.
    """
    require_driver(target, "The URL of the target")
    import asyncio

    from petstore_server.engines.copy import copy_store

    return asyncio.run(copy_store(sqlite_path(settings.database_url), target, actor, announce, progress))
