"""From the URL of a store to its engine: open, migrate, check, back up and restore stores."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from petstore_server.domain.audit import Actor
from petstore_server.engines import sqlite
from petstore_server.settings import SettingsError
from petstore_server.store import Store

Announce = Callable[[str], None]
Share = Callable[[str, int], Awaitable[int]]
"""`postgres.timelines.Share`: shares the newest timeline of a store, so that an old primary is refused."""

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


def _silent(_: str) -> None:
    """Announce nothing."""


async def open_store(
    url: str,
    share: Share | None = None,
    *,
    create: bool = False,
    migrate: bool = False,
    announce: Announce = _silent,
) -> Store:
    """Open the store: create a missing one if `create`, migrate an older one if `migrate`.

    `announce` gets one line if a store is created. Raises SettingsError, StoreUnusable.
    """
    if is_sqlite(url):
        return await sqlite.open_store(sqlite_path(url), announce, create=create, upgrade=migrate)
    require_driver(url)
    from petstore_server.engines import postgres  # an extra, installed where it is needed

    return await postgres.open_store(url, announce, share, create=create, upgrade=migrate)


@asynccontextmanager
async def opened_store(
    url: str,
    share: Share | None = None,
    *,
    create: bool = False,
    migrate: bool = False,
    announce: Announce = _silent,
) -> AsyncIterator[Store]:
    """The store as `open_store` opens it, closed at the end. Raises SettingsError, StoreUnusable."""
    store = await open_store(url, share, create=create, migrate=migrate, announce=announce)
    try:
        yield store
    finally:
        await store.close()


def migrate_store(url: str, announce: Announce, share: Share | None = None) -> tuple[int, int]:
    """Migrate the store to this version's schema, creating a missing one; return its version before and after.

    Raises SettingsError, StoreUnusable.
    """
    if is_sqlite(url):
        return sqlite.migrate(sqlite_path(url), announce)
    require_driver(url)
    from petstore_server.engines import postgres

    return asyncio.run(postgres.migrate(url, announce, share))


def check_store(url: str, share: Share | None = None) -> list[str]:
    """Read the whole store and return what is wrong with it, an empty list if it is sound.

    Raises SettingsError, StoreUnusable.
    """
    if is_sqlite(url):
        return sqlite.check(sqlite_path(url))
    require_driver(url)
    from petstore_server.engines import postgres

    return asyncio.run(postgres.check(url, share))


async def durability_settings(url: str, share: Share | None = None) -> dict[str, str]:
    """Return PostgreSQL's settings that decide whether an acknowledged change is durable, by name.

    Raises SettingsError, StoreUnusable.
    """
    require_driver(url)
    from petstore_server.engines import postgres

    return await postgres.durability_settings(url, share)


def backup_store(url: str, target: Path, progress: Callable[[int, int], None]) -> None:
    """Copy a SQLite store to a file while others use it; `progress` gets the pages copied and the total.

    Raises StoreUnusable, Conflict, InvalidInput, and SettingsError for PostgreSQL, which has its own tool.
    """
    sqlite.backup(sqlite_path(url), target, progress)


def restore_store(url: str, source: Path, actor: Actor) -> Path | None:
    """Replace the content of a SQLite store by a backup; return the file that keeps the previous content, if any.

    Raises StoreUnusable when the backup is damaged or the store in use, and SettingsError for PostgreSQL.
    """
    return sqlite.restore(sqlite_path(url), source, actor)


def require_driver(url: str, setting: str = "PETSTORE_DATABASE_URL") -> None:
    """Raises SettingsError if the driver of PostgreSQL is not installed, or does not accept the URL in `setting`."""
    if importlib.util.find_spec("psycopg") is None:
        raise SettingsError(
            "A URL names PostgreSQL, but its driver is missing; install the drivers with "
            "pip install --require-hashes -r requirements/scale-out.lock"
        )
    from petstore_server.engines import postgres

    if problem := postgres.url_problem(url):
        raise SettingsError(f"{setting} {problem}.")
