"""The connection to Redis without a Redis: how long a call may take, how faults are named, what is closed (D19)."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Count
from petstore_server.limits.counters import CountersUnavailable
from petstore_server.limits.redis import RedisCounters
from petstore_server.limits.redis_client import RedisAddress, RedisClient, is_refusal, make_client, reason_of

URL = "redis://localhost:1/0"


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time tests set."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.run_until_complete(work)
        finally:
            self.close()


@pytest.mark.parametrize(
    ("times", "ends"),
    [
        ([0.199], False),
        ([0.179, 0.199], False),
        ([0.181, 0.2], False),  # held up a little: 20 ms from then
        ([0.181, 0.2011], True),
        ([0.18, 0.2001], True),
        ([0.5, 0.519], False),  # held up itself: the response has 20 ms to be read
        ([0.5, 0.5201], True),
    ],
)
def test_a_call_of_redis_gets_200_ms_and_a_process_that_was_held_up_20_more(times: list[float], ends: bool) -> None:
    loop = Loop()

    async def call() -> bool:
        try:
            async with RedisCounters(URL, BanPolicy())._bounded():
                for loop.now in times:
                    for _ in range(3):
                        await asyncio.sleep(0)
        except TimeoutError:
            return True
        loop.now += 10.0
        await asyncio.sleep(0)  # nothing is left of the timer
        return False

    assert ends is loop.run(call())


def after(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def during(error: Exception, context: BaseException) -> Exception:
    error.__context__ = context
    return error


NOT_TRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")
NOT_TRUSTED.verify_message = "self-signed certificate"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "no response in time"),
        (TimeoutError("Timeout reading from socket."), "Timeout reading from socket"),
        (RedisError(), "RedisError"),
        (RedisError("WRONGPASS invalid."), "WRONGPASS invalid"),
        (after(RedisError("Error 111 connecting"), ConnectionRefusedError(111, "x")), "Connection refused"),
        (during(RedisError("Error 111 connecting"), ConnectionRefusedError(111, "x")), "Connection refused"),
        (after(RedisError("Error -2"), OSError(-2, "Name or service not known")), "Name or service not known"),
        (after(RedisError("Error 1"), NOT_TRUSTED), "its certificate is not trusted: self-signed certificate"),
        (
            after(RedisError("Error 1"), ssl.SSLError(1, "[SSL] wrong version number")),
            "TLS failed: [SSL] wrong version number",
        ),
        (MasterNotFoundError("No master found for 'shop'"), "no Sentinel that responds names a primary"),
        (after(RedisError("Closed"), OSError("no number")), "Closed"),
        (after(RedisError("Closed"), ValueError()), "Closed"),
    ],
)
def test_a_fault_is_named_by_its_cause(error: Exception, reason: str) -> None:
    assert reason == reason_of(error)


def test_only_a_fault_that_waiting_cannot_fix_is_a_refusal() -> None:
    untrusted = after(RedisError("Error 1"), NOT_TRUSTED)
    faults = NoPermissionError(), ValueError(), untrusted, ResponseError("LOADING"), OSError(), MasterNotFoundError("x")
    assert [True, True, True, False, False, False] == [is_refusal(fault) for fault in faults]


def test_the_driver_repeats_no_call_and_bounds_only_connecting() -> None:
    found = make_client(RedisAddress(URL), 1.0).redis.connection_pool.connection_kwargs
    assert 0 == found["retry"]._retries
    assert (1.0, None, "petstore", 2) == tuple(
        found[name] for name in ("socket_connect_timeout", "socket_timeout", "client_name", "protocol")
    )


class Connection:
    """A client of the driver that does what a test says."""

    def __init__(self, fail: Exception | None = None, appendfsync: Exception | None = None) -> None:
        self._fail = fail
        self._appendfsync = appendfsync
        self.closed = 0

    async def info(self, section: str = "") -> dict[str, Any]:
        if self._fail is not None:
            raise self._fail
        return {"redis_version": "7"}

    async def config_get(self, name: str) -> dict[str, str]:
        if self._appendfsync is not None:
            raise self._appendfsync
        return {name: "everysec"} if name == "appendfsync" else {}

    async def aclose(self) -> None:
        self.closed += 1


def counters(connection: Any = None) -> RedisCounters:
    made = RedisCounters(URL, BanPolicy())
    made._made = connection and RedisClient(connection)
    return made


async def test_what_redis_reports_includes_its_flushes_where_this_user_may_read_them() -> None:
    assert {"redis_version": "7", "appendfsync": "everysec"} == await counters(Connection()).info()
    assert {"redis_version": "7"} == await counters(Connection(appendfsync=ResponseError("NOPERM"))).info()


@pytest.mark.parametrize("fault", [RedisTimeoutError("slow."), OSError("slow."), None], ids=repr)
@pytest.mark.parametrize(
    "call",
    [lambda it: it.info(), lambda it: it.usages([1]), lambda it: it.newest("store:timeline", 1), lambda it: it.prove()],
)
async def test_a_redis_that_fails_or_is_not_connected_is_an_outage_for_every_call(
    call: Callable[[RedisCounters], Coroutine[Any, Any, object]], fault: Exception | None
) -> None:
    connection = None
    if fault is not None:
        connection = Connection(fail=fault)
        for name in ("mget", "eval", "evalsha"):
            setattr(connection, name, lambda *_: connection.info())
    with pytest.raises(CountersUnavailable, match="^not connected$" if fault is None else "^slow$") as caught:
        await call(counters(connection))
    assert not caught.value.refused


async def test_accounts_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petstore_server.limits.redis._MAX_READ", 2)
    asked: list[list[str]] = []

    async def mget(keys: list[str]) -> list[bytes | None]:
        asked.append(keys)
        return [msgspec.msgpack.encode((1, 2, 3, int(key[-2]))) if key[-2] != "5" else None for key in keys]

    connection: Any = Connection()
    connection.mget = mget
    found = await counters(connection).usages([1, 2, 3, 4, 5])
    assert [2, 2, 1] == [len(keys) for keys in asked]
    assert {**{number: Usage(Count(1, 2), Count(3, number)) for number in range(1, 5)}, 5: Usage()} == found
