"""What an installation consists of, as commands and health checks see it: its store, its Redis, its server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType

from petstore_server.domain.audit import Actor
from petstore_server.domain.usage import Usage
from petstore_server.engines import sqlite
from petstore_server.runtime import engines
from petstore_server.runtime.engines import read_counters, timeline_sharing
from petstore_server.settings import Settings
from petstore_server.store import Store

_ROWS_AT_ONCE = 16_000


class LocalInstallation:
    """The installation that the settings name, as seen from this machine.

    Methods that use the store raise SettingsError and StoreUnusable; those that work on the file of a SQLite store
    raise SettingsError for PostgreSQL, which has its own tools.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._url = settings.database_url
        self._share = timeline_sharing(settings)

    @property
    def store_file(self) -> Path | None:
        """The file of a SQLite store; None for PostgreSQL."""
        return engines.sqlite_path(self._url).resolve() if engines.is_sqlite(self._url) else None

    def server_holds_store(self) -> bool:
        """Whether a server holds the lock of a SQLite store; always False for PostgreSQL."""
        return self._is_locked(shared=False)

    def rows_at_once(self) -> int:
        """How many orders of an import one transaction should have: few where a request may wait for it.

        The pages of the indexes that they change are written once.
        """
        return 1 if self.store_file is None or self.server_holds_store() else _ROWS_AT_ONCE

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
        """Read the whole store; return what is wrong with it, an empty list if it is sound."""
        if engines.is_sqlite(self._url):
            return sqlite.check(engines.sqlite_path(self._url))
        return list(asyncio.run(self._postgres.check(self._url, self._share)))

    async def postgres_settings(self) -> Mapping[str, str]:
        """PostgreSQL's settings that make an acknowledged change durable, by name."""
        return dict(await self._postgres.durability_settings(self._url, self._share))

    def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """Copy a SQLite store to a file while others use it; `progress` gets the pages copied and the total.

        Raises Conflict, InvalidInput too.
        """
        sqlite.backup(engines.sqlite_path(self._url), target, progress)

    def restore(self, source: Path, actor: Actor) -> Path | None:
        """Replace the content of a SQLite store by a backup; return the file that keeps the previous one, if any."""
        return sqlite.restore(engines.sqlite_path(self._url), source, actor)

    def copy(
        self, target: str, actor: Actor, announce: Callable[[str], None], progress: Callable[[int, int], None]
    ) -> dict[str, int]:
        """Copy a SQLite store to the PostgreSQL database `target` (a URL); return the number of rows by table.

        Its audit log names the actor; `progress` gets the rows copied and the total. Raises Conflict too.
        """
        engines.require_driver(target, "--to")
        from petstore_server.engines.copy import copy_store  # needs the driver, which is an extra

        return asyncio.run(copy_store(engines.sqlite_path(self._url), target, actor, announce, progress))

    def counts_elsewhere(self) -> bool:
        """Whether servers count usage in a Redis that the settings do not name, so that it cannot be read from here.

        With SQLite such a server shares the lock, others do not (D12). With PostgreSQL all count there.
        """
        if self.settings.redis_url is not None:
            return False
        return self.store_file is None or (self._is_locked(shared=False) and not self._is_locked(shared=True))

    async def account_usage(self, store: Store, account_id: int) -> Usage:
        """The usage of an account, from the store or from Redis. Raises SettingsError, ServiceUnavailable."""
        if self.settings.redis_url is None:
            return await store.usage.find(account_id)
        return (await self._usage_in_redis(store, [account_id]))[account_id]

    async def all_usage(self, store: Store) -> Mapping[int, Usage]:
        """The same for all accounts, by their ids; those without any may be missing."""
        if self.settings.redis_url is None:
            return await store.usage.all()
        return await self._usage_in_redis(store, [account.id for account in await store.accounts.list()])

    async def _usage_in_redis(self, store: Store, accounts: Sequence[int]) -> Mapping[int, Usage]:
        async with read_counters(self.settings) as counters:
            counters.use_store(await store.identity())
            return await counters.usages(accounts)

    @property
    def _postgres(self) -> ModuleType:
        engines.require_driver(self._url)
        from petstore_server.engines import postgres  # an extra, installed where it is needed

        return postgres

    def _is_locked(self, *, shared: bool) -> bool:
        return self.store_file is not None and sqlite.is_served(self.store_file, shared=shared)
