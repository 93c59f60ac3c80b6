"""The counters in Redis, as commands and servers reach them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.errors import Unreachable
from petstore_server.runtime import engines
from petstore_server.settings import Settings, describe_url

if TYPE_CHECKING:
    from petstore_server.limits.redis import RedisCounters


def require_redis_driver() -> None:
    """Raises SettingsError if the driver of Redis is not installed."""
    engines.require_installed("redis", "PETSTORE_REDIS_URL is set")


def ban_policy(settings: Settings) -> BanPolicy:
    """The rules of bans that the settings make."""
    return BanPolicy(settings.ban_strikes, settings.ban_seconds, settings.ban_max_seconds, settings.ban_grace_seconds)


def redis_counters(settings: Settings, clock: Callable[[], float] | None = None) -> "RedisCounters":
    """The counters, not connected yet. Times are Redis's own unless a test gives a `clock`. Raises SettingsError."""
    require_redis_driver()
    from petstore_server.limits.redis import RedisCounters  # an extra, installed where it is needed

    return RedisCounters(settings.redis_url or "", ban_policy(settings), clock)


@asynccontextmanager
async def read_counters(settings: Settings) -> AsyncIterator["RedisCounters"]:
    """Connect to the counters in Redis to read them. Raises SettingsError, ServiceUnavailable."""
    counters = redis_counters(settings)
    from petstore_server.limits.fallback import CountersUnavailable

    try:
        await counters.connect()
        yield counters
    except CountersUnavailable as error:
        problem = f"The usage cannot be read from Redis at {describe_url(settings.redis_url or '')}"
        raise Unreachable(problem, error.reason, "Check PETSTORE_REDIS_URL, and that Redis runs.") from None
    finally:
        await counters.close()


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
