"""Redis and its faults without a Redis: how they are named, and how a process counts in an outage (D19)."""

import ssl
from unittest.mock import AsyncMock

import msgspec
import pytest
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import BAN_MEMORY, Ban, BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import Count, Outcome
from petstore_server.limits.counters import Counted, CountersUnavailable
from petstore_server.limits.fallback import FallbackLimiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.limits.redis import RedisCounters
from petstore_server.limits.redis_client import RedisAddress, RedisClient, is_refusal, make_client, reason_of
from testing.clock import Clock

URL = "redis://localhost:1/0"


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
    assert (0, 1.0, None) == (found["retry"]._retries, found["socket_connect_timeout"], found["socket_timeout"])


async def test_what_redis_reports_includes_its_flushes_where_this_user_may_read_them() -> None:
    connection, counters = AsyncMock(), RedisCounters(URL, BanPolicy())
    connection.info.side_effect = lambda: {"redis_version": "7"}
    connection.config_get.return_value = {"appendfsync": "everysec"}
    counters._made = RedisClient(connection)
    assert {"redis_version": "7", "appendfsync": "everysec"} == await counters.info()
    connection.config_get.side_effect = ResponseError("NOPERM")
    assert {"redis_version": "7"} == await counters.info()


@pytest.mark.parametrize(("fault", "reason"), [(RedisTimeoutError("slow."), "slow"), (None, "not connected")])
async def test_a_redis_that_fails_or_is_not_connected_is_an_outage(fault: Exception | None, reason: str) -> None:
    counters = RedisCounters(URL, BanPolicy())
    if fault is not None:
        counters._made = RedisClient(AsyncMock(**{"info.side_effect": fault}))
    with pytest.raises(CountersUnavailable, match=f"^{reason}$") as caught:
        await counters.info()
    assert not caught.value.refused


async def test_accounts_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petstore_server.limits.redis._MAX_READ", 2)

    def stored(keys: list[str]) -> list[bytes | None]:
        return [msgspec.msgpack.encode((1, 2, 3, int(key[-2]))) if key[-2] != "5" else None for key in keys]

    connection, counters = AsyncMock(), RedisCounters(URL, BanPolicy())
    connection.mget.side_effect = stored
    counters._made = RedisClient(connection)
    found = await counters.usages([1, 2, 3, 4, 5])
    assert [2, 2, 1] == [len(asked.args[0]) for asked in connection.mget.mock_calls]
    assert {**{number: Usage(Count(1, 2), Count(3, number)) for number in range(1, 5)}, 5: Usage()} == found


NOW = 1_793_000_000.0
PRINCIPAL = Principal("key_a", 1, "acme", Plan.ENTERPRISE, Limits(60, 1000), DEFAULT_SCOPES)
BAN = Ban("key_a", int(NOW), int(NOW) + 120, 2)
GONE = CountersUnavailable("gone")


def counted(minute_used: int = 0, day_used: int = 0) -> tuple[float, Counted]:
    """The outcome of a request of which there were so many in windows that began at NOW, by the counters' clock."""
    return NOW, Counted(1, int(NOW), minute_used, int(NOW), day_used, 0, 0, 0, 0)


def stored(shared: AsyncMock) -> list[Ban | None]:
    """What the counters received about the ban of the key, with each request."""
    return [asked.args[1] for asked in shared.count.mock_calls]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def shared() -> AsyncMock:
    return AsyncMock(RedisCounters, **{"count.return_value": counted(), "newest.return_value": 7})


@pytest.fixture
def limiter(shared: AsyncMock, clock: Clock) -> FallbackLimiter:
    return FallbackLimiter(shared, MemoryLimiter(BanPolicy(), clock), clock)


async def test_in_an_outage_only_the_request_that_meets_it_waits_for_the_counters(
    shared: AsyncMock, limiter: FallbackLimiter
) -> None:
    shared.count.side_effect = GONE
    await limiter.admit(PRINCIPAL)
    decision = limiter.decide(PRINCIPAL)
    await limiter.admit(PRINCIPAL)
    await limiter.admit_address("192.0.2.1")
    assert decision is not None
    assert (1, 0) == (shared.count.call_count, shared.count_address.call_count)
    assert (Outcome.ADMITTED, 58, 4) == (decision.outcome, decision.minute_remaining, limiter.local_decisions)


@pytest.mark.parametrize("ahead", [-90.0, 0.0, 0.4, 90.0])
async def test_in_an_outage_the_windows_of_the_counters_go_on_by_the_own_clock(
    shared: AsyncMock, limiter: FallbackLimiter, clock: Clock, ahead: float
) -> None:
    clock.now += ahead
    shared.count.return_value = counted(59, 59)
    await limiter.admit(PRINCIPAL)
    shared.count.side_effect = GONE
    clock.now += 30
    decisions = [await limiter.admit(PRINCIPAL) for _ in range(2)]
    assert [Outcome.ADMITTED, Outcome.LIMITED] == [each.outcome for each in decisions]
    assert 30 == decisions[1].retry_after


async def test_in_an_outage_the_day_of_the_counters_is_not_taken_for_their_minute(
    shared: AsyncMock, limiter: FallbackLimiter, clock: Clock
) -> None:
    clock.now += 90
    shared.count.return_value = counted(1, 999)
    await limiter.admit(PRINCIPAL)
    shared.count.side_effect = GONE
    decisions = [await limiter.admit(PRINCIPAL) for _ in range(2)]
    assert [Outcome.ADMITTED, Outcome.LIMITED] == [each.outcome for each in decisions]
    assert ("day", 0) == (decisions[1].shown.name, decisions[1].shown.remaining)
    assert DAY == decisions[1].retry_after


async def test_the_counters_get_what_the_store_has_of_a_ban_and_for_a_day_that_it_was_lifted(
    shared: AsyncMock, limiter: FallbackLimiter, clock: Clock
) -> None:
    limiter.local.load({}, [BAN])
    await limiter.admit(PRINCIPAL)
    limiter.local.replace_bans([])
    await limiter.admit(PRINCIPAL)
    for seconds in (BAN_MEMORY - 1, BAN_MEMORY):
        clock.now = NOW + seconds
        limiter.local.forget()
        await limiter.admit(PRINCIPAL)
    lifted = Ban("key_a", BAN.began, 0, 0)
    assert [BAN, lifted, lifted, None] == stored(shared)


async def test_a_ban_that_the_store_has_again_is_not_taken_for_lifted(
    shared: AsyncMock, limiter: FallbackLimiter
) -> None:
    for bans in ([BAN], [], [BAN], []):
        limiter.local.replace_bans(bans)
    await limiter.admit(PRINCIPAL)
    limiter.local.replace_bans([BAN])
    await limiter.admit(PRINCIPAL)
    assert [Ban("key_a", BAN.began, 0, 0), BAN] == stored(shared)


async def test_the_newest_is_that_of_the_counters_or_the_own_without_them(
    shared: AsyncMock, limiter: FallbackLimiter
) -> None:
    assert 7 == await limiter.newest("store", 3)
    shared.newest.side_effect = shared.count.side_effect = GONE
    assert (3, None) == (await limiter.newest("store", 3), limiter.fault)
    await limiter.admit(PRINCIPAL)
    shared.newest.side_effect = None
    assert 3 == await limiter.newest("store", 3)
