"""The composition root: from the settings to the adapters that they select."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines import sqlite
from petstore_server.limits.activity import NoUsageRecorder, UsageRecorder
from petstore_server.limits.fallback import CountersUnavailable, FallbackLimiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.runtime import engines
from petstore_server.runtime.backend import Backend
from petstore_server.runtime.counters import ban_policy, redis_counters, require_redis_driver
from petstore_server.settings import Settings, SettingsError

_SET_REDIS = "set PETSTORE_REDIS_URL=redis://HOST:6379/0"


@asynccontextmanager
async def opened_backend(
    settings: Settings,
    clock: Callable[[], float],
    announce: engines.Announce,
    redis_clock: Callable[[], float] | None = None,
) -> AsyncIterator[Backend]:
    """What a server needs, closed at the end; a missing store is created, an older one migrated.

    Times are Unix seconds from `clock`, and Redis's own where limits are counted in Redis, unless a test gives
    `redis_clock`.

    Raises SettingsError, StoreUnusable, ServiceUnavailable.
    """
    require_servable(settings)
    limiter = MemoryLimiter(ban_policy(settings), clock)
    if settings.redis_url is not None:
        limiter = FallbackLimiter(redis_counters(settings, redis_clock), ban_policy(settings), clock)
    try:
        try:
            await limiter.start()
        except CountersUnavailable as error:
            reason = error.reason.rstrip(".")
            raise SettingsError(f"PETSTORE_REDIS_URL names a Redis that cannot be used: {reason}.") from None
        share = limiter.newest_timeline if isinstance(limiter, FallbackLimiter) else None
        url, usage = settings.database_url, UsageRecorder() if settings.usage_days_days else NoUsageRecorder()
        async with engines.opened_store(url, share, create=True, migrate=True, announce=announce) as store:
            backend = Backend(store, limiter, usage)
            await backend.start()
            try:
                yield backend
            finally:
                with suppress(ServiceUnavailable):
                    await backend.save()
    finally:
        await limiter.close()


def require_servable(settings: Settings) -> None:
    """Reject settings under which processes would count limits separately, or a driver is missing.

    Raises SettingsError.
    """
    if settings.redis_url is not None:
        require_redis_driver()
    elif not engines.is_sqlite(settings.database_url):
        raise SettingsError(f"PostgreSQL needs Redis to count limits: {_SET_REDIS}.")
    elif settings.workers > 1:
        raise SettingsError(f"More than one worker needs Redis to count limits: {_SET_REDIS}, or PETSTORE_WORKERS=1.")


_LOCK_SECONDS = 1.0  # `petstore doctor` and `accounts show` take the lock briefly to see whether a server has it


def lock_for_serving(settings: Settings) -> AbstractContextManager[object]:
    """Hold the store's serving lock, which excludes another process that counts limits in its memory (D12).

    Raises StoreUnusable if such a process runs.
    """
    if not engines.is_sqlite(settings.database_url):
        return nullcontext()  # never served without Redis
    shared = settings.redis_url is not None
    return sqlite.lock_for_serving(
        engines.sqlite_path(settings.database_url), shared=shared, wait_seconds=_LOCK_SECONDS
    )
