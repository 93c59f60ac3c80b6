"""From the URLs in the settings to the store and the counters in Redis; also stores that are deleted after use."""

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import Unreachable
from petstore_server.engines import sqlite
from petstore_server.settings import Settings, SettingsError, describe_url
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters


Announce = Callable[[str], None]
Share = Callable[[str, int], Awaitable[int]]
"""`postgres.connections.Share`: shares the newest timeline of a store, so that an old primary is refused."""

_SQLITE = "sqlite:///"


def is_sqlite(url: str) -> bool:
    """Whether the URL names a SQLite file rather than a PostgreSQL database."""
    return url.startswith(_SQLITE)


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite store, as an absolute path. Raises SettingsError for another engine."""
    if not is_sqlite(url):
        raise SettingsError(
            "PETSTORE_DATABASE_URL names PostgreSQL, and this command works on the file of a SQLite store. To back up "
            "PostgreSQL use pg_dump --schema=petstore; to restore it use pg_restore --clean while no server runs."
        )
    return Path(url.removeprefix(_SQLITE)).absolute()


@asynccontextmanager
async def opened_store(
    url: str,
    share: Share | None = None,
    *,
    create: bool = False,
    migrate: bool = False,
    announce: Announce = lambda _: None,
) -> AsyncIterator[Store]:
    """The store, closed at the end: a missing one is created if `create`, an older one migrated if `migrate`.

    `announce` gets one line if a store is created. Raises SettingsError, StoreUnusable.
    """
    if is_sqlite(url):
        store = await sqlite.open_store(sqlite_path(url), announce, create=create, upgrade=migrate)
    else:
        require_driver(url)
        from petstore_server.engines import postgres  # an extra, installed where it is needed

        store = await postgres.open_store(url, announce, share, create=create, upgrade=migrate)
    try:
        yield store
    finally:
        await store.close()


def require_installed(driver: str, reason: str) -> None:
    """Raises SettingsError if a driver that comes with an extra is not installed; `reason` says why it is needed."""
    if importlib.util.find_spec(driver) is None:
        raise SettingsError(
            f"{reason}, but its driver is missing; install the drivers with "
            "pip install --require-hashes -r requirements/scale-out.lock"
        )


def require_driver(url: str, setting: str = "PETSTORE_DATABASE_URL") -> None:
    """Raises SettingsError if the driver of PostgreSQL is not installed, or does not accept the URL in `setting`."""
    require_installed("psycopg", "A URL names PostgreSQL")
    from petstore_server.engines import postgres

    if problem := postgres.url_problem(url):
        raise SettingsError(f"{setting} {problem}.")


@asynccontextmanager
async def scratch_store() -> AsyncIterator[Store]:
    """An empty SQLite store for a dry run, in the system's directory for temporary files; deleted at the end."""
    with TemporaryDirectory(prefix="petstore-scratch-", ignore_cleanup_errors=True) as directory:
        url = f"sqlite:///{Path(directory) / 'scratch.db'}"
        async with opened_store(url, create=True, migrate=True) as store:
            yield store


def ban_policy(settings: Settings) -> BanPolicy:
    """The rules of bans that the settings make."""
    return BanPolicy(settings.ban_strikes, settings.ban_seconds, settings.ban_max_seconds, settings.ban_grace_seconds)


def redis_counters(settings: Settings, clock: Callable[[], float] | None = None) -> "RedisCounters":
    """The counters, not connected yet. Times are Redis's own unless a test gives a `clock`. Raises SettingsError."""
    require_installed("redis", "PETSTORE_REDIS_URL is set")
    from petstore_server.limits.redis import RedisCounters  # an extra, installed where it is needed

    return RedisCounters(settings.redis_url or "", ban_policy(settings), clock)


@asynccontextmanager
async def read_counters(settings: Settings) -> AsyncIterator["RedisCounters"]:
    """Connect to the counters in Redis to read them. Raises SettingsError, ServiceUnavailable."""
    counters = redis_counters(settings)
    from petstore_server.limits.fallback import CountersUnavailable

    try:
        await counters.connect()
        yield counters
    except CountersUnavailable as error:
        problem = f"The usage cannot be read from Redis at {describe_url(settings.redis_url or '')}"
        raise Unreachable(problem, error.reason, "Check PETSTORE_REDIS_URL, and that Redis runs.") from None
    finally:
        await counters.close()


def timeline_sharing(settings: Settings) -> Share | None:
    """How a command learns that a server of PostgreSQL was replaced: from the servers, through their Redis.

    While Redis does not respond, a command knows only what it sees itself. Raises SettingsError.
    """
    if settings.redis_url is None or is_sqlite(settings.database_url):
        return None

    async def share(store_id: str, timeline: int) -> int:
        with suppress(Unreachable):
            async with read_counters(settings) as counters:
                return await counters.newest_timeline(store_id, timeline)
        return timeline

    return share
