"""From the URL of a store to its engine; and empty stores that are deleted after use."""

import importlib.util
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from petstore_server.domain.timestamps import DAY
from petstore_server.engines import sqlite
from petstore_server.settings import SettingsError
from petstore_server.store import Store

Announce = Callable[[str], None]
Share = Callable[[str, int], Awaitable[int]]
"""`postgres.session.Share`: shares the newest timeline of a store, so that an old primary is refused."""

_SQLITE = "sqlite:///"
_SCRATCH = "petstore-scratch-"


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
    """An empty SQLite store for a dry run, in the system's directory for temporary files; deleted at the end.

    What processes that were killed left there is deleted a day later.
    """
    _delete_abandoned()
    with TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True) as directory:
        url = f"sqlite:///{Path(directory) / 'scratch.db'}"
        async with opened_store(url, create=True, migrate=True) as store:
            yield store


def _delete_abandoned() -> None:
    for left in Path(gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - DAY:
                shutil.rmtree(left, ignore_errors=True)
