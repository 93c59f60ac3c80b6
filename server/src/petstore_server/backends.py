"""The composition root: from the settings to the adapters they name, and the upkeep that keeps these in step."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import structlog

from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.ratelimit.memory import MemoryLimiter
from petstore_server.settings import Settings, SettingsError
from petstore_server.storage import engines, sqlite

UPKEEP_SECONDS = 0.25
"""Counts are at most this old on disk, and changes of access this late; both are promised within a second (D9, D12)."""

_FORGET_EVERY = 240  # rounds of upkeep: a minute
_CHECK_SECONDS = 2.0
_SQLITE = "sqlite:///"

Announce = Callable[[str], None]


class Backend:
    """The store and the limiter of one serving process."""

    def __init__(self, store: engines.AnyStore, limiter: MemoryLimiter) -> None:
        self.store = store
        self.limiter = limiter
        self._access_version = -1
        self._saving = asyncio.Lock()
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Take up the counts where an earlier process left them. Raises ServiceUnavailable."""
        self._access_version = await self.store.access_version()
        self.limiter.load(await self.store.ledger.all_usage(), await self.store.ledger.bans())

    async def keep_up(self, confirm: Callable[[bool], None]) -> None:
        """Run until cancelled: write counts behind, and `confirm` what the store says of access (changed or not).

        The two go on side by side: a disk that is slow to write must not delay a revocation.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every_round(lambda: self.watch(confirm)))
            tasks.create_task(self._every_round(self.save))

    async def watch(self, confirm: Callable[[bool], None]) -> None:
        """See whether another process changed access since the last look, and say so. Raises ServiceUnavailable."""
        version = await self.store.access_version()
        changed = version != self._access_version
        if changed:
            self.limiter.replace_bans(await self.store.ledger.bans())
            self._access_version = version
        confirm(changed)

    async def save(self) -> None:
        """Write down what was counted since the last time. Raises ServiceUnavailable, and then keeps it to be saved."""
        async with self._saving:
            usage, bans = self.limiter.take_unsaved()
            if not usage and not bans:
                return
            try:
                await self.store.ledger.save(usage, bans)
            except BaseException:
                self.limiter.put_back(usage)
                raise
            self.limiter.saved(bans)
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
            await self.store.close()

    async def _every_round(self, work: Callable[[], Awaitable[None]]) -> None:
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
    if settings.redis_url is not None:
        raise SettingsError("PETSTORE_REDIS_URL is set, but this version counts limits in process alone; unset it.")
    if settings.workers > 1:
        raise SettingsError(f"PETSTORE_WORKERS is {settings.workers}, but limits are counted in process; set it to 1.")
    policy = BanPolicy(settings.ban_strikes, settings.ban_seconds, settings.ban_max_seconds, settings.ban_grace_seconds)
    store = await open_store(settings, create=True, migrate=True, announce=announce)
    backend = Backend(store, MemoryLimiter(policy, clock))
    try:
        await backend.start()
    except BaseException:
        await store.close()
        raise
    return backend


def lock_for_serving(settings: Settings) -> AbstractContextManager[object]:
    """Keep a second process that counts limits by itself off the store. Raises StoreUnusable where one runs (D12)."""
    return sqlite.lock_for_serving(store_path(settings), shared=settings.redis_url is not None)


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


def restore_store(settings: Settings, source: Path) -> None:
    """Put a backup in the place of a SQLite store. Raises StoreUnusable when it is damaged or the store in use."""
    engines.restore_store(settings.database_url, source)


def check_store(settings: Settings) -> list[str]:
    """Read all of the store and return what is wrong with it, nothing when it is sound."""
    return engines.check_store(settings.database_url)
