"""What an installation consists of, as commands and health checks see it: its store, its Redis, its server."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
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
    """The installation that the settings name, as seen from this machine. Implements `health.examine.Installation`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def store_file(self) -> Path | None:
        if not engines.is_sqlite(self.settings.database_url):
            return None
        return engines.sqlite_path(self.settings.database_url).resolve()

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
        return await engines.open_store(self.settings.database_url, composition.timeline_sharing(self.settings))

    async def redis_info(self) -> Mapping[str, Any]:
        return await composition.redis_info(self.settings)

    async def postgres_settings(self) -> Mapping[str, str]:
        return await engines.durability_settings(
            self.settings.database_url, composition.timeline_sharing(self.settings)
        )

    @property
    def admin_url(self) -> str:
        return admin_url(self.settings)

    def ask_server(self, path: str) -> tuple[int, bytes]:
        return admin_port.ask_server(self.settings, path)

    def store_problems(self) -> list[str]:
        return engines.check_store(self.settings.database_url, composition.timeline_sharing(self.settings))

    async def account_usage(self, store: Store, account_id: int) -> Usage | None:
        """The usage of an account, or None if it is counted in a Redis that the settings do not name.

        Raises SettingsError, ServiceUnavailable.
        """
        if self._counted_elsewhere():
            return None
        return await composition.account_usage(self.settings, store, account_id)

    async def all_usage(self, store: Store) -> Mapping[int, Usage] | None:
        """The usage of all accounts by their ids, or None if it is counted in a Redis that the settings do not name.

        Raises SettingsError, ServiceUnavailable.
        """
        if self._counted_elsewhere():
            return None
        return await composition.all_usage(self.settings, store)

    def _counted_elsewhere(self) -> bool:
        return self.settings.redis_url is None and (self.store_file is None or self._served_with_redis())

    def _served_with_redis(self) -> bool:
        """Whether a server that counts in Redis holds the lock: it shares the lock, others do not (D12)."""
        return self._is_locked(shared=False) and not self._is_locked(shared=True)

    def _is_locked(self, *, shared: bool) -> bool:
        return self.store_file is not None and sqlite.is_served(self.store_file, shared=shared)


def copying(
    settings: Settings, target: str, announce: Callable[[str], None], actor: Actor
) -> "AbstractAsyncContextManager[Copy]":
    """Copy a SQLite store to the PostgreSQL database `target` (a URL), whose audit log names the actor.

    Raises SettingsError if the driver is missing or the settings name no SQLite store, StoreUnusable, Conflict.
    """
    engines.require_driver(target, "--to")
    from petstore_server.engines.copy import copying  # needs the driver, which is an extra

    return copying(engines.sqlite_path(settings.database_url), target, announce, actor)
