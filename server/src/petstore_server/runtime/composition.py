"""The composition root: from the settings to the adapters that they select."""

import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import Unreachable
from petstore_server.engines import sqlite
from petstore_server.limits.activity import NoUsageRecorder, UsageRecorder
from petstore_server.limits.fallback import CountersUnavailable, FallbackLimiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.runtime import engines
from petstore_server.runtime.backend import Backend
from petstore_server.settings import Settings, SettingsError, describe_url

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters

_SET_REDIS = "set PETSTORE_REDIS_URL=redis://HOST:6379/0"

Announce = Callable[[str], None]


async def open_backend(
    settings: Settings,
    clock: Callable[[], float],
    announce: Announce,
    redis_clock: Callable[[], float] | None = None,
) -> Backend:
    """Open what a server needs; create a missing store, migrate an older one.

    Times are Unix seconds from `clock`, and Redis's own where limits are counted in Redis, unless a test gives
    `redis_clock`.

    Raises SettingsError, StoreUnusable, ServiceUnavailable.
    """
    require_servable(settings)
    limiter = _limiter(settings, clock, redis_clock)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(limiter.close)
        try:
            await limiter.start()
        except CountersUnavailable as error:
            reason = error.reason.rstrip(".")
            raise SettingsError(f"PETSTORE_REDIS_URL names a Redis that cannot be used: {reason}.") from None
        share = limiter.newest_timeline if isinstance(limiter, FallbackLimiter) else None
        store = await engines.open_store(settings.database_url, share, create=True, migrate=True, announce=announce)
        opened.push_async_callback(store.close)
        backend = Backend(store, limiter, UsageRecorder() if settings.usage_days_days else NoUsageRecorder())
        await backend.start()
        opened.pop_all()  # the backend closes them from now on
        return backend


def require_servable(settings: Settings) -> None:
    """Reject settings under which processes would count limits separately, or a driver is missing.

    Raises SettingsError.
    """
    if settings.redis_url is not None:
        _require_driver()
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


def timeline_sharing(settings: Settings) -> engines.Share | None:
    """How a command learns that a server of PostgreSQL was replaced: from the servers, through their Redis.

    While Redis does not respond, a command knows only what it sees itself. Raises SettingsError.
    """
    if settings.redis_url is None or engines.is_sqlite(settings.database_url):
        return None

    async def share(store_id: str, timeline: int) -> int:
        with suppress(Unreachable):
            async with read_counters(settings) as counters:
                return await counters.newest_timeline(store_id, timeline)
        return timeline

    return share


def _limiter(
    settings: Settings, clock: Callable[[], float], redis_clock: Callable[[], float] | None
) -> MemoryLimiter | FallbackLimiter:
    local = MemoryLimiter(_policy(settings), clock)
    return local if settings.redis_url is None else FallbackLimiter(_redis(settings, redis_clock), local)


def _policy(settings: Settings) -> BanPolicy:
    return BanPolicy(settings.ban_strikes, settings.ban_seconds, settings.ban_max_seconds, settings.ban_grace_seconds)


@asynccontextmanager
async def read_counters(settings: Settings) -> AsyncIterator["RedisCounters"]:
    """Connect to the counters in Redis to read them. Raises SettingsError, ServiceUnavailable."""
    counters = _redis(settings)
    try:
        await counters.connect()
        yield counters
    except CountersUnavailable as error:
        problem = f"The usage cannot be read from Redis at {describe_url(settings.redis_url or '')}"
        raise Unreachable(problem, error.reason, "Check PETSTORE_REDIS_URL, and that Redis runs.") from None
    finally:
        await counters.close()


def _redis(settings: Settings, clock: Callable[[], float] | None = None) -> "RedisCounters":
    _require_driver()
    from petstore_server.limits.redis import RedisCounters

    return RedisCounters(settings.redis_url or "", _policy(settings), clock)


def _require_driver() -> None:
    if importlib.util.find_spec("redis") is None:
        raise SettingsError(
            "PETSTORE_REDIS_URL is set, but its driver is missing; install the drivers with "
            "pip install --require-hashes -r requirements/scale-out.lock"
        )
