"""Counting in Redis or Valkey, for any number of processes and hosts (D12).

One script, `count.lua`, does all that must be one atomic step, on Redis's own clock. Requests that wait at the same
time go in one call of it: that takes the round trip off each of them, and most of its cost.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisError

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import BAN_MEMORY, CLOCK_TOLERANCE, STRIKE_WINDOW, Ban, BanPolicy
from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import ADDRESS_LIMIT, DAY, MINUTE, Count
from petstore_server.ports import Usage
from petstore_server.ratelimit.fallback import (
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
_PROBE = Principal("probe", 0, Plan.ENTERPRISE, Limits(1 << 53, 1 << 53), frozenset())
_NO_BAN = Latest()
_Answer = asyncio.Future[tuple[float, Any]]
_decode = msgspec.msgpack.Decoder(
    tuple[
        float,
        list[tuple[Step, int, int, int, int, bool, int, int, int]],
        list[tuple[Step, int, int]],
    ]
).decode
_decode_windows = msgspec.msgpack.Decoder(tuple[int, int, int, int]).decode


class _Batch:
    """Requests that go in one call of the script: with a key two Redis keys each, without one."""

    def __init__(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self.keys: list[str] = []
        self.figures: list[tuple[int, ...]] = []
        self.responses: list[_Answer] = []
        self.address_keys: list[str] = []
        self.charges: list[bool] = []
        self.address_answers: list[_Answer] = []

    def __len__(self) -> int:
        return len(self.responses) + len(self.address_answers)

    def fail(self, reason: str) -> None:
        for response in (*self.responses, *self.address_answers):
            if not response.done():
                response.set_exception(CountersUnavailable(reason))


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
        self._waiting: deque[_Batch] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    async def count(self, principal: Principal, ban: Latest) -> AccountCount:
        """Charge both windows of the key's account, or neither; note a strike. `ban` is what the store has of it."""
        account, (per_minute, per_day) = principal.account_id, principal.limits
        batch = self._batch()
        batch.keys += (f"petstore:account:{{{account}}}", f"petstore:key:{{{account}}}:{principal.key_id}")
        batch.figures.append((per_minute, per_day, *ban))
        now, counted = await self._respond(batch.responses)
        step, minute, minute_used, day, day_used, struck, began, until, level = counted
        usage = Usage(Count(minute, minute_used), Count(day, day_used))
        return AccountCount(now, step, usage, struck, Ban(principal.key_id, began, until, level) if level else None)

    async def count_address(self, address: str, *, charge: bool) -> AddressCount:
        """Charge the window of an address, or only look at it."""
        batch = self._batch()
        batch.address_keys.append(f"petstore:address:{{{address}}}")
        batch.charges.append(charge)
        now, (step, start, used) = await self._respond(batch.address_answers)
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
        await self.count(_PROBE, _NO_BAN)

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

    def _batch(self) -> _Batch:
        """The batch that a request joins: it goes out once all that is ready to run has joined it too."""
        self._connected()
        if self._waiting and len(self._waiting[-1]) < _LARGEST_BATCH:
            return self._waiting[-1]
        loop = asyncio.get_running_loop()
        self._waiting.append(_Batch(loop.time()))
        if self._sending is None:
            self._sending = loop.create_task(self._send_all())
        return self._waiting[-1]

    def _respond(self, responses: list[_Answer]) -> _Answer:
        response: _Answer = asyncio.get_running_loop().create_future()
        responses.append(response)
        return response

    async def _send_all(self) -> None:
        """Send what waits until nothing does, one call at a time: what comes meanwhile goes in the next.

        The first call that fails or is late ends it for all that wait.
        """
        loop = asyncio.get_running_loop()
        sent = None
        try:
            while self._waiting:
                sent = self._waiting.popleft()
                late_at = sent.asked_at + ANSWER_SECONDS - _LAST_LOOK_SECONDS
                self._late = loop.call_at(late_at, self._last_look)
                await self._send(sent)
                self._late.cancel()
        except (RedisError, OSError, ValueError, msgspec.DecodeError, CountersUnavailable) as error:
            await self._fail(sent, _reason(error))
        except asyncio.CancelledError:
            await self._fail(sent, f"no answer within {ANSWER_SECONDS * 1000:g} ms")
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

    async def _send(self, batch: _Batch) -> None:
        keys = batch.keys + batch.address_keys
        figures = msgspec.msgpack.encode((batch.figures, batch.charges))
        timestamp = "" if self._clock is None else repr(self._clock())
        arguments: list[Any] = [*keys, self._rules, figures, timestamp]
        try:
            reply = await self._connected().evalsha(self._digest, len(keys), *arguments)
        except NoScriptError:  # flushed, or restarted: nothing was counted yet
            reply = await self._connected().eval(_SCRIPT, len(keys), *arguments)
        now, counted, addresses = _decode(reply)
        for response, count in zip(batch.responses, counted, strict=True):
            if not response.done():  # else its client has gone away
                response.set_result((now, count))
        for response, window in zip(batch.address_answers, addresses, strict=True):
            if not response.done():
                response.set_result((now, window))

    async def _fail(self, sent: _Batch | None, reason: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for batch in (*([sent] if sent else []), *waiting):
            batch.fail(reason)
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
