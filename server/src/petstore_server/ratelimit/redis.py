"""Counting in Redis or Valkey, for any number of processes and hosts (D12).

One script, `count.lua`, does all that must be one atomic step, on Redis's own clock. Requests that wait at the same
time go in one call of it: that takes the round trip off each of them, and most of its cost.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisError

from petstore_server.domain.bans import BAN_MEMORY, CLOCK_TOLERANCE, STRIKE_WINDOW, Ban, BanPolicy
from petstore_server.domain.keys import Grant
from petstore_server.domain.windows import ADDRESS_LIMIT, DAY, MINUTE, Count
from petstore_server.ports import Usage
from petstore_server.ratelimit.shared import (
    BAN_BRIDGE_SECONDS,
    AccountCount,
    AddressCount,
    CountersUnavailable,
    Latest,
    Step,
)

ANSWER_SECONDS = 0.2
"""How long a decision waits for Redis (D19)."""

CONNECT_SECONDS = 1.0
_LAST_LOOK_SECONDS = 0.02
_LARGEST_BATCH = 256  # a call of this size holds Redis up for about a millisecond
_SCRIPT = Path(__file__).with_name("count.lua").read_text("utf-8")
_REFUSALS = (AuthenticationError, NoPermissionError, ValueError)  # a ValueError is about the URL
_PROBE = (1 << 53, 1 << 53, 0, 0, 0)
_decode = msgspec.msgpack.Decoder(
    tuple[
        float,
        list[tuple[Step, int, int, int, int, bool, int, int, int]],
        list[tuple[Step, int, int]],
    ]
).decode
_decode_windows = msgspec.msgpack.Decoder(tuple[int, int, int, int]).decode


class _Request(NamedTuple):
    """What one request asks of the script. `figures` are its arguments: a tuple with a key, a number without."""

    keys: tuple[str, ...]
    figures: Any
    answer: asyncio.Future[Any]


class RedisCounters:
    """The counters in one Redis. Belongs to the event loop that it is used on.

    `clock` is for tests alone; without one the moments are Redis's own. Every method raises CountersUnavailable.
    """

    def __init__(self, url: str, policy: BanPolicy, clock: Callable[[], float] | None = None) -> None:
        self._url = url
        self._clock = clock
        self._rules = msgspec.msgpack.encode(_rules(policy))
        self._client: Redis | None = None
        self._digest = ""
        self._waiting: list[_Request] = []
        self._asked_at = 0.0
        self._sending: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    async def count(self, grant: Grant, ban: Latest) -> AccountCount:
        """Charge both windows of the key's account, or neither; note a strike. `ban` is what the store has of it."""
        account, (per_minute, per_day) = grant.account_id, grant.limits
        keys = (_windows_key(account), f"petstore:key:{{{account}}}:{grant.key_id}")
        now, counted = await self._ask(keys, (per_minute, per_day, *ban))
        step, minute, minute_used, day, day_used, struck, began, until, level = counted
        usage = Usage(Count(minute, minute_used), Count(day, day_used))
        return AccountCount(now, step, usage, struck, Ban(grant.key_id, began, until, level) if level else None)

    async def count_address(self, address: str, *, charge: bool) -> AddressCount:
        """Charge the window of an address, or only look at it."""
        now, (step, start, used) = await self._ask((f"petstore:address:{{{address}}}",), int(charge))
        return AddressCount(now, step, Count(start, used))

    async def usage(self, account_id: int) -> Usage:
        """What the account has used."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                held: Any = await self._connected().get(_windows_key(account_id))
        except (RedisError, OSError) as error:
            raise CountersUnavailable(_reason(error)) from error
        if held is None:
            return Usage()
        minute, minute_used, day, day_used = _decode_windows(held)
        return Usage(Count(minute, minute_used), Count(day, day_used))

    async def connect(self) -> None:
        """Connect anew, and prove with a request of our own that the script runs and may write."""
        await self.close()
        try:
            self._client = _client(self._url)
            async with asyncio.timeout(CONNECT_SECONDS):
                cluster = (await self._client.info("cluster")).get("cluster_enabled")
                self._digest = await self._client.script_load(_SCRIPT)
        except (RedisError, OSError, ValueError) as error:
            await self.close()
            raise CountersUnavailable(_reason(error), refused=isinstance(error, _REFUSALS)) from error
        if cluster:  # requests for different slots could not share a call
            await self.close()
            raise CountersUnavailable("it is a cluster, and limits are counted in a single Redis", refused=True)
        await self.prove()

    async def prove(self) -> None:
        """Count a request of nobody's, like any other: what is wrong with Redis would show."""
        await self._ask((_windows_key(0), "petstore:key:{0}:probe"), _PROBE)

    async def info(self) -> dict[str, Any]:
        """What Redis says of itself."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                told: dict[str, Any] = await self._connected().info()
        except (RedisError, OSError) as error:
            raise CountersUnavailable(_reason(error)) from error
        return told

    async def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await client.aclose()

    def _connected(self) -> Redis:
        if self._client is None:
            raise CountersUnavailable("not connected")
        return self._client

    async def _ask(self, keys: tuple[str, ...], figures: Any) -> tuple[float, Any]:
        """Have the script count one request, together with all others that wait."""
        self._connected()
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._asked_at = loop.time()
        request = _Request(keys, figures, loop.create_future())
        self._waiting.append(request)
        if self._sending is None:
            self._sending = loop.create_task(self._send_all())
        answer: tuple[float, Any] = await request.answer
        return answer

    async def _send_all(self) -> None:
        """Send what waits until nothing does, one call at a time: what comes meanwhile goes in the next.

        The first call that fails or is late ends it for all that wait.
        """
        loop = asyncio.get_running_loop()
        batch: list[_Request] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_LARGEST_BATCH], self._waiting[_LARGEST_BATCH:]
                late_at = self._asked_at + ANSWER_SECONDS - _LAST_LOOK_SECONDS
                self._late = loop.call_at(late_at, self._last_look)
                await self._send(batch)
                self._late.cancel()
        except (RedisError, OSError, ValueError, msgspec.DecodeError, CountersUnavailable) as error:
            await self._fail(batch, _reason(error))
        except asyncio.CancelledError:
            await self._fail(batch, f"no answer within {ANSWER_SECONDS * 1000:g} ms")
        finally:
            self._sending = None
            if self._late is not None:
                self._late.cancel()

    def _last_look(self) -> None:
        """Give up, unless it is this process that was held up, and the answer is there to be read."""
        self._late = asyncio.get_running_loop().call_later(_LAST_LOOK_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self, batch: Sequence[_Request]) -> None:
        with_key = [request for request in batch if len(request.keys) == 2]
        without = [request for request in batch if len(request.keys) == 1]
        keys = [key for request in (*with_key, *without) for key in request.keys]
        figures = [request.figures for request in with_key], [request.figures for request in without]
        moment = "" if self._clock is None else repr(self._clock())
        arguments: list[Any] = [*keys, self._rules, msgspec.msgpack.encode(figures), moment]
        try:
            reply = await self._connected().evalsha(self._digest, len(keys), *arguments)
        except NoScriptError:  # flushed, or restarted: nothing was counted yet
            reply = await self._connected().eval(_SCRIPT, len(keys), *arguments)
        now, counts, address_counts = _decode(reply)
        for request, count in zip((*with_key, *without), (*counts, *address_counts), strict=True):
            if not request.answer.done():  # else its client has gone away
                request.answer.set_result((now, count))

    async def _fail(self, batch: Sequence[_Request], reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        for request in (*batch, *waiting):
            if not request.answer.done():
                request.answer.set_exception(CountersUnavailable(reason))
        await self.close()


def _client(url: str) -> Redis:
    """One connection, without attempts of the library's own: a script that counts must not be sent twice."""
    pool: ConnectionPool = ConnectionPool.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=CONNECT_SECONDS,
        client_name="petstore",
        protocol=2,
    )
    return Redis.from_pool(pool)


def _rules(policy: BanPolicy) -> dict[str, float]:
    return {
        "minute": MINUTE,
        "day": DAY,
        "address_limit": ADDRESS_LIMIT,
        "strike_window": STRIKE_WINDOW,
        "ban_memory": BAN_MEMORY,
        "tolerance": CLOCK_TOLERANCE,
        "bridge": BAN_BRIDGE_SECONDS,
        "strikes": policy.strikes,
        "ban_seconds": policy.seconds,
        "ban_max_seconds": policy.max_seconds,
        "grace_seconds": policy.grace_seconds,
    }


def _windows_key(account_id: int) -> str:
    # All keys of an account have one hash tag, and so one slot, if there are ever several.
    return f"petstore:account:{{{account_id}}}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__
