"""What the settings name: the store and the counters in Redis, and how servers and commands reach them."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING

from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import ServiceUnavailable, Unreachable
from petstore_server.domain.usage import Usage
from petstore_server.engines import sqlite
from petstore_server.limits.counters import CountersUnavailable
from petstore_server.settings import Settings, SettingsError, describe_url
from petstore_server.store import Store

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters

Share = Callable[[str, int], Awaitable[int]]
"""`postgres.connections.Share`: shares the newest state of a store, so that one that is older is noticed."""

_SQLITE = "sqlite:///"
_ROWS_AT_ONCE = 16_000
_LOCK_SECONDS = 1.0  # `petstore doctor` and `accounts show` take the lock briefly to see whether a server has it


def _say_nothing(_: str) -> None:
    """No one asked to create the store, or it is a temporary one."""


def is_sqlite(url: str) -> bool:
    """Whether the URL names a SQLite file rather than a PostgreSQL database."""
    return url.startswith(_SQLITE)


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite store, as an absolute path. Raises SettingsError for another engine."""
    if not is_sqlite(url):
        raise SettingsError(
            "PETSTORE_DATABASE_URL names PostgreSQL, and this command works on the file of a SQLite store. To back up "
            "PostgreSQL use pg_dump --schema=petstore, and record it with --made; to restore it use pg_restore --clean "
            "while no server runs."
        )
    return Path(url.removeprefix(_SQLITE)).absolute()


@asynccontextmanager
async def opened_store(
    url: str,
    share: Share | None = None,
    *,
    create: bool = False,
    migrate: bool = False,
) -> AsyncIterator[Store]:
    """The store, closed at the end: a missing one is created if `create`, an older one migrated if `migrate`.

    Raises SettingsError, StoreUnusable.
    """
    if is_sqlite(url):
        store = await sqlite.open_store(sqlite_path(url), _say_nothing, create=create, upgrade=migrate)
    else:
        require_driver(url)
        from petstore_server.engines import postgres  # an extra, installed where it is needed

        store = await postgres.open_store(url, _say_nothing, share, create=create, upgrade=migrate)
    try:
        with suppress(ServiceUnavailable):  # what uses the store reports that
            await store.access_version()  # learns of damage
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


def lock_for_serving(settings: Settings) -> AbstractContextManager[object]:
    """Hold the store's serving lock, which excludes another process that counts limits in its memory (D12).

    Raises StoreUnusable if such a process runs.
    """
    if not is_sqlite(settings.database_url):
        return nullcontext()  # never served without Redis
    shared = settings.redis_url is not None
    return sqlite.lock_for_serving(sqlite_path(settings.database_url), shared=shared, wait_seconds=_LOCK_SECONDS)


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
    try:
        await counters.connect()
        yield counters
    except CountersUnavailable as error:
        problem = f"The usage cannot be read from Redis at {describe_url(settings.redis_url or '')}"
        raise Unreachable(problem, error.reason, "Check PETSTORE_REDIS_URL, and that Redis runs.") from None
    finally:
        await counters.close()


class LocalInstallation:
    """The installation that the settings name, as seen from this machine.

    Methods that use the store raise SettingsError and StoreUnusable; those that work on the file of a SQLite store
    raise SettingsError for PostgreSQL, which has its own tools.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._url = settings.database_url

    @property
    def store_file(self) -> Path | None:
        """The file of a SQLite store; None for PostgreSQL."""
        return sqlite_path(self._url).resolve() if is_sqlite(self._url) else None

    def server_holds_store(self) -> bool:
        """Whether a server holds the lock of a SQLite store; always False for PostgreSQL."""
        return self._is_locked(shared=False)

    def rows_at_once(self) -> int:
        """How many orders of an import one transaction should have: few where a request may wait for it.

        The pages of the indexes that they change are written once.
        """
        return 1 if self.store_file is None or self.server_holds_store() else _ROWS_AT_ONCE

    def opened_store(self) -> AbstractAsyncContextManager[Store]:
        """The store, closed at the end."""
        return opened_store(self._url, self._share)

    def migrate(self, announce: Callable[[str], None]) -> tuple[int, int]:
        """Bring the store to this version's schema, creating a missing one; return its version before and after."""
        if is_sqlite(self._url):
            return sqlite.migrate(sqlite_path(self._url), announce)
        before, after = asyncio.run(self._postgres.migrate(self._url, announce, self._share))
        return before, after

    def store_problems(self) -> list[str]:
        """Read the whole store; return what is wrong with it, an empty list if it is sound."""
        if is_sqlite(self._url):
            return sqlite.check(sqlite_path(self._url))
        return list(asyncio.run(self._postgres.check(self._url, self._share)))

    async def postgres_state(self) -> Mapping[str, str]:
        """What `engines.postgres.opening.state` returns."""
        return dict(await self._postgres.state(self._url, self._share))

    def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """Copy a SQLite store to a file while others use it; `progress` gets the pages copied and the total.

        Raises Conflict, InvalidInput too.
        """
        sqlite.backup(sqlite_path(self._url), target, progress)

    def restore(self, source: Path, actor: Actor) -> Path | None:
        """Replace the content of a SQLite store by a backup; return the file that keeps the previous one, if any."""
        return sqlite.restore(sqlite_path(self._url), source, actor)

    def copy(
        self, target: str, actor: Actor, announce: Callable[[str], None], progress: Callable[[int, int], None]
    ) -> dict[str, int]:
        """Copy a SQLite store to the PostgreSQL database `target` (a URL); return the number of rows by table.

        Its audit log names the actor; `progress` gets the rows copied and the total. Raises Conflict too.
        """
        require_driver(target, "--to")
        from petstore_server.engines.copy import copy_store  # needs the driver, which is an extra

        return asyncio.run(copy_store(sqlite_path(self._url), target, actor, announce, progress))

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

    async def _share(self, name: str, number: int) -> int:
        """Learn that a server of PostgreSQL was replaced, or restored, from the servers, through their Redis.

        While Redis does not respond, a command knows only what it sees itself. Raises SettingsError.
        """
        if self.settings.redis_url is not None:
            with suppress(Unreachable):
                async with read_counters(self.settings) as counters:
                    return await counters.newest(name, number)
        return number

    @property
    def _postgres(self) -> ModuleType:
        require_driver(self._url)
        from petstore_server.engines import postgres  # an extra, installed where it is needed

        return postgres

    def _is_locked(self, *, shared: bool) -> bool:
        return self.store_file is not None and sqlite.is_served(self.store_file, shared=shared)
