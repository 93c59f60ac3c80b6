"""What an installation consists of, as commands and health checks see it: its store, its Redis, its server."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from petstore_server.domain.audit import Actor
from petstore_server.domain.usage import Usage
from petstore_server.engines import sqlite
from petstore_server.operations.admin_port import admin_url
from petstore_server.runtime import admin_port, composition, engines
from petstore_server.settings import Settings
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.engines.copy import Copy

_ROWS_AT_ONCE = 16_000


class LocalInstallation:
    """The installation that the settings name, as seen from this machine. Implements `health.examine.Installation`.

    Methods that use the store raise SettingsError and StoreUnusable; those that work on the file of a SQLite store
    raise SettingsError for PostgreSQL, which has its own tools.
    """

    def __init__(self, settings: Settings, *, serves: bool = False) -> None:
        """`serves`: this process is a server with these settings, so usage is counted where they say."""
        self.settings = settings
        self._serves = serves
        self._url = settings.database_url

    @property
    def store_file(self) -> Path | None:
        return engines.sqlite_path(self._url).resolve() if engines.is_sqlite(self._url) else None

    @property
    def admin_url(self) -> str:
        return admin_url(self.settings)

    def ask_server(self, path: str) -> tuple[int, bytes]:
        return admin_port.ask_server(self.settings, path)

    def require_servable(self) -> None:
        composition.require_servable(self.settings)

    def server_holds_store(self) -> bool:
        return self._is_locked(shared=False)

    def rows_at_once(self) -> int:
        """How many orders of an import one transaction should have: few where a request may wait for it.

        The pages of the indexes that they change are written once.
        """
        return 1 if self.store_file is None or self.server_holds_store() else _ROWS_AT_ONCE

    async def open_store(self) -> Store:
        return await engines.open_store(self._url, self._share)

    def opened_store(
        self, *, create: bool = False, announce: Callable[[str], None] = lambda _: None
    ) -> AbstractAsyncContextManager[Store]:
        """The store, closed at the end; a missing one is created if `create`, and `announce` says so."""
        return engines.opened_store(self._url, self._share, create=create, announce=announce)

    def migrate(self, announce: Callable[[str], None]) -> tuple[int, int]:
        """Bring the store to this version's schema, creating a missing one; return its version before and after."""
        if engines.is_sqlite(self._url):
            return sqlite.migrate(engines.sqlite_path(self._url), announce)
        before, after = asyncio.run(self._postgres.migrate(self._url, announce, self._share))
        return before, after

    def store_problems(self) -> list[str]:
        if engines.is_sqlite(self._url):
            return sqlite.check(engines.sqlite_path(self._url))
        return list(asyncio.run(self._postgres.check(self._url, self._share)))

    async def postgres_settings(self) -> Mapping[str, str]:
        return dict(await self._postgres.durability_settings(self._url, self._share))

    def backup(self, target: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Copy a SQLite store to a file while others use it; `progress` gets the pages copied and the total.

        Raises Conflict, InvalidInput too.
        """
        sqlite.backup(engines.sqlite_path(self._url), target, progress)

    def restore(self, source: Path, actor: Actor) -> Path | None:
        """Replace the content of a SQLite store by a backup; return the file that keeps the previous one, if any."""
        return sqlite.restore(engines.sqlite_path(self._url), source, actor)

    def copying(
        self, target: str, announce: Callable[[str], None], actor: Actor
    ) -> "AbstractAsyncContextManager[Copy]":
        """Copy a SQLite store to the PostgreSQL database `target` (a URL), whose audit log names the actor.

        Raises Conflict too.
        """
        engines.require_driver(target, "--to")
        from petstore_server.engines.copy import copying  # needs the driver, which is an extra

        return copying(engines.sqlite_path(self._url), target, announce, actor)

    async def redis_info(self) -> Mapping[str, Any]:
        async with composition.read_counters(self.settings) as counters:
            return await counters.info()

    async def account_usage(self, store: Store, account_id: int) -> Usage | None:
        """The usage of an account, or None if it is counted in a Redis that the settings do not name.

        Raises SettingsError, ServiceUnavailable.
        """
        if self.settings.redis_url is None:
            return None if self._counted_elsewhere() else await store.usage.find(account_id)
        async with composition.read_counters(self.settings) as counters:
            counters.use_store(await store.identity())
            return (await counters.usages([account_id]))[account_id]

    async def all_usage(self, store: Store) -> Mapping[int, Usage] | None:
        """The same for all accounts, by their ids."""
        if self.settings.redis_url is None:
            return None if self._counted_elsewhere() else await store.usage.all()
        accounts = [account.id for account in await store.accounts.list()]
        async with composition.read_counters(self.settings) as counters:
            counters.use_store(await store.identity())
            return await counters.usages(accounts)

    @property
    def _share(self) -> engines.Share | None:
        return composition.timeline_sharing(self.settings)

    @property
    def _postgres(self) -> ModuleType:
        engines.require_driver(self._url)
        from petstore_server.engines import postgres  # an extra, installed where it is needed

        return postgres

    def _counted_elsewhere(self) -> bool:
        """Whether a server counts in a Redis: it shares the lock, others do not (D12). With PostgreSQL all do."""
        if self._serves:
            return False
        return self.store_file is None or (self._is_locked(shared=False) and not self._is_locked(shared=True))

    def _is_locked(self, *, shared: bool) -> bool:
        return self.store_file is not None and sqlite.is_served(self.store_file, shared=shared)
