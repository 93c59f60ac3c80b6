"""Counting in Redis or Valkey, for any number of processes and hosts (D12).

One script, `count.lua`, does what must be one atomic step, on Redis's own clock. Requests that arrive at the same time
share one call of it, which saves each of them most of the cost of a round trip.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from petstore_server import deadlines
from petstore_server.batching import Batcher
from petstore_server.deadlines import Timeouts, expiring
from petstore_server.domain.bans import BAN_MEMORY, CLOCK_TOLERANCE, STRIKE_WINDOW, Ban, BanPolicy
from petstore_server.domain.keys import Principal
from petstore_server.domain.timestamps import DAY, MINUTE
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import ADDRESS_LIMIT, AddressDecision, Count, evaluate_address
from petstore_server.limits.counters import STEP_ADMITTED, Counted, CountersUnavailable
from petstore_server.limits.redis_client import (
    URL_FAULTS,
    RedisAddress,
    RedisClient,
    is_refusal,
    make_client,
    reason_of,
)

BAN_BRIDGE_SECONDS = 10  # for which Redis holds a new ban: until the store has it and every process has read it
_MAX_READ = 1000
_MAX_BATCH = 256  # a call of this size occupies Redis for about a millisecond
_SCRIPT = Path(__file__).with_name("count.lua").read_text("utf-8")
_NEWEST = """
    local newest = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1]))
    redis.call('SET', KEYS[1], newest, 'EX', ARGV[2])
    return newest
"""
_NEWEST_MEMORY = 90 * DAY
_FAILURES = (RedisError, OSError, ValueError, msgspec.DecodeError)

_RULES = {
    "minute": MINUTE,
    "day": DAY,
    "address_limit": ADDRESS_LIMIT,
    "strike_window": STRIKE_WINDOW,
    "ban_memory": BAN_MEMORY,
    "tolerance": CLOCK_TOLERANCE,
    "bridge": BAN_BRIDGE_SECONDS,
}
"""The rules of `count.lua` that are the same for all services; those of bans are settings."""

_decode = msgspec.msgpack.Decoder(tuple[float, list[Counted]]).decode
_decode_windows = msgspec.msgpack.Decoder(tuple[int, int, int, int]).decode


_Call = tuple[tuple[str, ...], tuple[int, ...]]
"""One request in a batch: the Redis keys that it needs, and its arguments for the script."""


class RedisCounters:
    """The counters in one Redis. Belongs to one event loop.

    `clock` is for tests; without one, times are Redis's own. Every method raises CountersUnavailable.
    """

    def __init__(
        self,
        address: str | RedisAddress,
        policy: BanPolicy,
        clock: Callable[[], float] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._address = RedisAddress(address) if isinstance(address, str) else address
        self._clock = clock
        self._timeouts = timeouts or deadlines.TIMEOUTS
        self._rules = msgspec.msgpack.encode(_RULES | policy._asdict())
        self._prefix = "petstore"
        self._made: RedisClient | None = None
        self._primary: tuple[str, int] | None = None  # that Sentinels named when this process connected
        self._digest = ""
        self._batcher: Batcher[_Call, tuple[float, Counted]] = Batcher(
            self._count_all, limit=_MAX_BATCH, outage=CountersUnavailable
        )

    def use_store(self, store_id: str) -> None:
        """Count for the store with this identity from now on: other stores may share the same Redis."""
        self._prefix = f"petstore:{store_id}"

    async def count(self, principal: Principal, ban: Ban | None, *, charge: bool = True) -> tuple[float, Counted]:
        """Charge both windows of the key's account, or neither; note a strike. `ban` is the store's latest of the key.

        Without `charge`, only read them. Returns the time of that in Unix seconds, and what was counted.
        """
        account = principal.account_id
        keys = self._account_key(account), f"{self._prefix}:key:{{{account}}}:{principal.key_id}"
        stored = (0, 0, 0) if ban is None else (ban.began, ban.until, ban.level)
        return await self._batcher.submit((keys, (*principal.limits, *stored, int(charge))))

    async def count_address(self, address: str, *, charge: bool) -> AddressDecision:
        """Charge the window of an address, or only read it."""
        keys = (f"{self._prefix}:address:{{{address}}}",)
        now, counted = await self._batcher.submit((keys, (int(charge),)))
        return evaluate_address(counted.step == STEP_ADMITTED, Count(counted.minute, counted.minute_used), now)

    async def usages(self, account_ids: Sequence[int]) -> dict[int, Usage]:
        """The usage of each of these accounts."""
        windows: list[Any] = []
        for first in range(0, len(account_ids), _MAX_READ):
            keys = [self._account_key(account_id) for account_id in account_ids[first : first + _MAX_READ]]
            async with self._connected() as client:
                windows += await client.mget(keys)
        return {account_id: _usage(stored) for account_id, stored in zip(account_ids, windows, strict=True)}

    async def newest(self, name: str, number: int) -> int:
        """Note a number under a name; return the largest one that any process has noted under it, for 90 days."""
        async with self._connected() as client, self._bounded():
            return int(await client.eval(_NEWEST, 1, f"petstore:{name}", number, _NEWEST_MEMORY))

    async def connect(self) -> None:
        """Connect again, without a trace in Redis."""
        await self.close()
        try:
            self._made = made = make_client(self._address, self._timeouts.counters_connect)
            async with asyncio.timeout(self._timeouts.counters_connect):
                self._primary = await made.primary()
                cluster = (await made.redis.info("cluster")).get("cluster_enabled")
                self._digest = await made.redis.script_load(_SCRIPT)
        except MasterNotFoundError as error:
            refusal = await made.refusal()
            await self.close()
            reason = reason_of(error) if refusal is None else f"the Sentinels cannot be used: {reason_of(refusal)}"
            raise CountersUnavailable(reason, refused=refusal is not None) from error
        except (RedisError, OSError, *URL_FAULTS) as error:
            await self.close()
            raise CountersUnavailable(reason_of(error), refused=is_refusal(error)) from error
        if cluster:  # requests for different slots could not share a call
            await self.close()
            raise CountersUnavailable("it is a cluster, and limits are counted in a single Redis", refused=True)

    async def prove(self) -> tuple[float, int]:
        """Write like a request, so that any fault of Redis shows. Call it after `use_store`.

        Returns the time of that in Unix seconds, and when Redis began to count for this store, in microseconds: another
        time than before means that it lost its counts.
        """
        if self._made is not None and await self._made.primary() not in (None, self._primary):
            raise CountersUnavailable("it is not the primary any more: the Sentinels name another one")
        now, counted = await self._batcher.submit(((f"{self._prefix}:since",), ()))
        return now, counted.minute

    async def info(self) -> dict[str, Any]:
        """What Redis reports about itself (INFO), with its setting `appendfsync` where this user may read it."""
        async with self._connected() as client:
            state: dict[str, Any] = await client.info()
            with suppress(ResponseError):
                state["appendfsync"] = (await client.config_get("appendfsync")).get("appendfsync")
        return state

    async def close(self) -> None:
        """Close the connection."""
        made, self._made = self._made, None
        if made is not None:
            with suppress(RedisError, OSError):  # OSError: also a TimeoutError
                async with asyncio.timeout(self._timeouts.counters):
                    await made.close()

    def _account_key(self, account_id: int) -> str:
        return f"{self._prefix}:account:{{{account_id}}}"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Redis]:
        """The connection, for calls that no request waits for."""
        if self._made is None:
            raise CountersUnavailable("not connected")
        try:
            async with asyncio.timeout(self._timeouts.counters_connect):
                yield self._made.redis
        except _FAILURES as error:
            raise CountersUnavailable(reason_of(error)) from error

    async def _count_all(self, calls: list[_Call]) -> Sequence[tuple[float, Counted]]:
        """Count a batch in one call of the script."""
        if self._made is None:
            raise CountersUnavailable("not connected")
        client = self._made.redis
        keys = [key for names, _ in calls for key in names]
        requests = msgspec.msgpack.encode([arguments for _, arguments in calls])
        timestamp = "" if self._clock is None else repr(self._clock())
        parameters: list[Any] = [len(keys), *keys, self._rules, requests, timestamp]
        try:
            async with self._bounded():
                try:
                    now, counted = _decode(await client.evalsha(self._digest, *parameters))
                except NoScriptError:  # scripts were flushed, or Redis restarted: nothing was counted
                    now, counted = _decode(await client.eval(_SCRIPT, *parameters))
        except TimeoutError:  # the driver has closed the connection: no late response is taken for another
            raise CountersUnavailable(f"no response within {self._timeouts.counters * 1000:g} ms") from None
        except _FAILURES as error:
            raise CountersUnavailable(reason_of(error)) from error
        return [(now, result) for result in counted]

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """Bound a block by the time for a response. Raises TimeoutError."""
        ends = asyncio.get_running_loop().time() + self._timeouts.counters
        async with asyncio.timeout(None) as limit:
            with expiring(ends, lambda: limit.reschedule(ends)):
                yield


def _usage(stored: bytes | None) -> Usage:
    minute, minute_used, day, day_used = _decode_windows(stored) if stored is not None else (0, 0, 0, 0)
    return Usage(Count(minute, minute_used), Count(day, day_used))
