"""The composition root: from the settings to the adapters they name, and the upkeep that keeps these in step."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.ports import Actor, Store, Usage
from petstore_server.ratelimit.fallback import CountersUnavailable, FallbackLimiter
from petstore_server.ratelimit.memory import MemoryLimiter
from petstore_server.settings import Settings, SettingsError
from petstore_server.storage import engines, sqlite

if TYPE_CHECKING:
    from petstore_server.ratelimit.redis import RedisCounters

UPKEEP_SECONDS = 0.25
"""Counts are at most this old on disk, and changes of access this late; both are promised within a second (D9, D12)."""

_FORGET_EVERY = 240  # rounds of upkeep: a minute
_CHECK_SECONDS = 2.0
_SET_REDIS = "set PETSTORE_REDIS_URL=redis://HOST:6379/0"

Announce = Callable[[str], None]


class Backend:
    """The store and the limiter of one serving process."""

    def __init__(self, store: engines.AnyStore, limiter: MemoryLimiter | FallbackLimiter) -> None:
        self.store = store
        self.limiter = limiter
        self._access_version = -1
        self._saving = asyncio.Lock()
        self._saves = 0
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Take up the counts where an earlier process left them. Raises ServiceUnavailable."""
        self._access_version = await self.store.access_version()
        self.limiter.load(await self.store.usage.all(), await self.store.usage.bans())

    async def run_background_tasks(self, confirm: Callable[[bool], None]) -> None:
        """Run until cancelled: write counts behind, and `confirm` what the store says of access (changed or not).

        They go on side by side: a disk that is slow to write must not delay a revocation.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every_round(self.limiter.check))
            tasks.create_task(self._every_round(lambda: self.watch(confirm)))
            tasks.create_task(self._every_round(self.save))

    async def watch(self, confirm: Callable[[bool], None]) -> None:
        """See whether another process changed access since the last look, and say so. Raises ServiceUnavailable."""
        version = await self.store.access_version()
        changed = version != self._access_version
        if changed:
            saves = self._saves
            bans = await self.store.usage.bans()
            if saves == self._saves:  # else the list may lack a ban that was saved meanwhile: the next round's has it
                self.limiter.replace_bans(bans)
                self._access_version = version
        confirm(changed)

    async def save(self) -> None:
        """Write down what was counted since the last time. Raises ServiceUnavailable, and then keeps it to be saved."""
        async with self._saving:
            usage, bans = self.limiter.take_unsaved()
            if not usage and not bans:
                return
            try:
                await self.store.usage.save(usage, bans)
            except BaseException:
                self.limiter.put_back(usage)
                raise
            self.limiter.saved(bans)
            self._saves += 1
            for ban in bans:
                self._log.warning("key banned", key=ban.key_id, seconds=ban.until - ban.began, level=ban.level)

    async def check(self) -> None:
        """Prove that requests can be served. Raises ServiceUnavailable with the reason."""
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self.store.check()
        except TimeoutError:
            raise ServiceUnavailable(f"the store did not answer within {_CHECK_SECONDS:g} seconds") from None

    async def close(self) -> None:
        """Write down the last counts, and let go of the store."""
        try:
            with suppress(ServiceUnavailable):
                await self.save()
        finally:
            await self.limiter.close()
            await self.store.close()

    async def _every_round(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work again and again; log the beginning and the end of a time in which the store cannot be used."""
        fault: str | None = None
        rounds = 0
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                await work()
            except ServiceUnavailable as error:
                if fault is None:
                    self._log.error("store unusable", reason=error.reason)
                fault = error.reason
            else:
                if fault is not None:
                    self._log.info("store usable again", after=fault)
                fault = None
            rounds += 1
            if rounds % _FORGET_EVERY == 0:
                self.limiter.forget()


async def open_backend(settings: Settings, clock: Callable[[], float], announce: Announce) -> Backend:
    """Open what a server needs; a missing store is made, an older one brought up to date.

    Raises SettingsError, StoreUnusable, ServiceUnavailable.
    """
    require_servable(settings)
    limiter = _limiter(settings, clock)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(limiter.close)
        try:
            await limiter.start()
        except CountersUnavailable as error:
            reason = error.reason.rstrip(".")
            raise SettingsError(f"PETSTORE_REDIS_URL names a Redis that cannot be used: {reason}.") from None
        store = await open_store(settings, create=True, migrate=True, announce=announce)
        opened.push_async_callback(store.close)
        backend = Backend(store, limiter)
        await backend.start()
        opened.pop_all()  # from here on the backend closes them
        return backend


def require_servable(settings: Settings) -> None:
    """Refuse settings under which processes would count limits apart, or lack a driver. Raises SettingsError."""
    if settings.redis_url is not None:
        _require_driver()
    elif not engines.is_sqlite(settings.database_url):
        raise SettingsError(f"PETSTORE_DATABASE_URL names PostgreSQL, so limits are counted in Redis: {_SET_REDIS}.")
    elif settings.workers > 1:
        raise SettingsError(
            f"PETSTORE_WORKERS is {settings.workers}, so limits are counted in Redis: {_SET_REDIS}, or 1 worker."
        )


def lock_for_serving(settings: Settings) -> AbstractContextManager[object]:
    """Keep a second process that counts limits by itself off the store. Raises StoreUnusable where one runs (D12)."""
    if not engines.is_sqlite(settings.database_url):
        return nullcontext()  # served with Redis alone
    return sqlite.lock_for_serving(store_path(settings), shared=settings.redis_url is not None)


async def account_usage(settings: Settings, store: Store, account_id: int) -> Usage:
    """What the account has used, from where it is counted. Raises SettingsError, ServiceUnavailable."""
    if settings.redis_url is None:
        return await store.usage.find(account_id)
    async with _counters(settings) as counters:
        return await counters.usage(account_id)


async def redis_info(settings: Settings) -> dict[str, Any]:
    """What the Redis of the settings says of itself. Raises SettingsError, ServiceUnavailable."""
    async with _counters(settings) as counters:
        return await counters.info()


def _limiter(settings: Settings, clock: Callable[[], float]) -> MemoryLimiter | FallbackLimiter:
    local = MemoryLimiter(_policy(settings), clock)
    return local if settings.redis_url is None else FallbackLimiter(_redis(settings), local)


def _policy(settings: Settings) -> BanPolicy:
    return BanPolicy(settings.ban_strikes, settings.ban_seconds, settings.ban_max_seconds, settings.ban_grace_seconds)


@asynccontextmanager
async def _counters(settings: Settings) -> AsyncIterator["RedisCounters"]:
    """The counters in Redis, to look at. Raises SettingsError, ServiceUnavailable."""
    counters = _redis(settings)
    try:
        await counters.connect()
        yield counters
    except CountersUnavailable as error:
        raise ServiceUnavailable(f"Redis: {error.reason}") from None
    finally:
        await counters.close()


def _redis(settings: Settings) -> "RedisCounters":
    _require_driver()
    from petstore_server.ratelimit.redis import RedisCounters

    return RedisCounters(settings.redis_url or "", _policy(settings))


def _require_driver() -> None:
    if importlib.util.find_spec("redis") is None:
        raise SettingsError(
            "PETSTORE_REDIS_URL is set, but its driver is missing: pip install 'petstore-server[redis]'"
        )


def store_path(settings: Settings) -> Path:
    """The file of the SQLite store, as an absolute path. Raises SettingsError for another engine."""
    return engines.sqlite_path(settings.database_url)


async def open_store(
    settings: Settings, *, create: bool = False, migrate: bool = False, announce: Announce
) -> engines.AnyStore:
    """Open the store that the settings name; `announce` is told of a store made or migrated.

    Raises SettingsError and StoreUnusable.
    """
    return await engines.open_store(settings.database_url, create=create, migrate=migrate, announce=announce)


def migrate_store(settings: Settings, announce: Announce) -> tuple[int, int]:
    """Bring the store to this version's schema, made if missing; return the schema's numbers before and after."""
    return engines.migrate_store(settings.database_url, announce)


def backup_store(settings: Settings, target: Path, progress: Callable[[int, int], None]) -> None:
    """Copy a SQLite store to a file while others use it; `progress` is told of pages copied and in all."""
    engines.backup_store(settings.database_url, target, progress)


def restore_store(settings: Settings, source: Path, actor: Actor) -> Path | None:
    """Replace the content of a SQLite store by a backup; return the file that keeps the previous content, if any.

    Raises StoreUnusable when the backup is damaged or the store in use.
    """
    return engines.restore_store(settings.database_url, source, actor)


def check_store(settings: Settings) -> list[str]:
    """Read all of the store and return what is wrong with it, nothing when it is sound."""
    return engines.check_store(settings.database_url)
