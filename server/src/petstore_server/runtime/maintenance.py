"""The store as a whole: migrate, check, back up, restore, copy. Raises SettingsError and StoreUnusable."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from petstore_server.domain.audit import Actor
from petstore_server.engines import sqlite
from petstore_server.engines.sqlite import maintenance
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.runtime.installation import is_sqlite, require_driver, share_newest, sqlite_path
from petstore_server.settings import Settings

__all__ = ["backup", "check", "copy", "migrate", "postgres_state", "restore"]


def migrate(settings: Settings, announce: Callable[[str], None]) -> tuple[int, int]:
    """Bring the store to this version's schema, creating a missing one; return its version before and after."""
    url = settings.database_url
    if is_sqlite(url):
        return sqlite.migrate(sqlite_path(url), announce)
    require_driver(url)
    from petstore_server.engines import postgres

    return asyncio.run(postgres.migrate(url, announce, partial(share_newest, settings)))


def check(settings: Settings) -> tuple[list[str], bool]:
    """Read the whole store; return what is wrong with it, an empty list if it is sound.

    Also whether indexes were verified: in PostgreSQL they are not without the extension amcheck.
    """
    url = settings.database_url
    if is_sqlite(url):
        return maintenance.check(sqlite_path(url)), True
    require_driver(url)
    from petstore_server.engines import postgres

    return asyncio.run(postgres.check(url, partial(share_newest, settings)))


async def postgres_state(settings: Settings) -> dict[str, str]:
    """What `engines.postgres.opening.state` returns, of a store that was opened."""
    from petstore_server.engines import postgres

    return await postgres.state(settings.database_url, partial(share_newest, settings))


def copy(
    path: Path, target: str, actor: Actor, announce: Callable[[str], None], progress: Callable[[int, int], None]
) -> dict[str, int]:
    """Copy a SQLite store to the PostgreSQL database `target` (a URL); return the number of rows by table.

    Its audit log names the actor; `progress` gets the rows copied and the total. Raises Conflict too.
    """
    require_driver(target, "The URL of the target")
    from petstore_server.engines.copy import copy_store

    return asyncio.run(copy_store(path, target, actor, announce, progress))
