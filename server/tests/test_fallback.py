"""What a process asks of shared counters, and what it does while they do not respond (D19)."""

import logging

import pytest

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import BAN_MEMORY, Ban, BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.windows import AddressDecision, Count, Outcome, evaluate_address
from petstore_server.limits.counters import Counted, CountersUnavailable
from petstore_server.limits.fallback import FallbackLimiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.limits.redis import RedisCounters
from testing.clock import Clock

NOW = 1_793_000_000.0
PRINCIPAL = Principal("key_a", 1, "acme", Plan.ENTERPRISE, Limits(60, 1000), DEFAULT_SCOPES)
BAN = Ban("key_a", int(NOW), int(NOW) + 120, 2)


class Shared(RedisCounters):
    """Counters that tests set: `used` requests were counted in windows that began at NOW, by their clock."""

    def __init__(self) -> None:
        self.fault: CountersUnavailable | None = None
        self.used = 0
        self.day_used: int | None = None  # as many as in the minute
        self.admitted = True
        self.banned_now = False
        self.ban: Ban | None = None
        self.calls: list[str] = []
        self.stored: list[Ban | None] = []
        self.since = 1

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fault is not None:
            raise self.fault

    async def count(self, principal: Principal, ban: Ban | None, *, charge: bool = True) -> tuple[float, Counted]:
        self._called("count" if charge else "look")
        self.stored.append(ban)
        step = 3 if self.banned_now else int(self.admitted)
        day_used = self.used if self.day_used is None else self.day_used
        held = (self.ban.began, self.ban.until, self.ban.level) if self.ban else (0, 0, 0)
        return NOW, Counted(step, int(NOW), self.used, int(NOW), day_used, int(self.banned_now), *held)

    async def count_address(self, address: str, *, charge: bool) -> AddressDecision:
        self._called("charge" if charge else "read")
        return evaluate_address(self.admitted, Count(int(NOW), self.used), NOW)

    async def newest(self, store_id: str, timeline: int) -> int:
        self._called("timeline")
        return 7

    async def connect(self) -> None:
        self._called("connect")

    async def prove(self) -> tuple[float, int]:
        self._called("prove")
        return NOW - 100, self.since


@pytest.fixture
def shared() -> Shared:
    return Shared()


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
async def limiter(shared: Shared, clock: Clock) -> FallbackLimiter:
    """Connected."""
    made = FallbackLimiter(shared, MemoryLimiter(BanPolicy(strikes=1, grace_seconds=0), clock), clock)
    await made.start()
    shared.calls.clear()
    return made


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, object]]:
    return [(line.levelno, vars(line).get("reason", vars(line).get("after"))) for line in caplog.records]


async def test_no_request_asks_the_counters_after_a_fault_until_a_check(
    shared: Shared, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one = FallbackLimiter(shared, MemoryLimiter(BanPolicy(), clock), clock)
    shared.fault = CountersUnavailable("gone")
    await one.start()
    await one.admit(PRINCIPAL)
    decision = one.decide(PRINCIPAL)
    assert decision is not None
    assert (Outcome.ADMITTED, 58) == (decision.outcome, decision.minute_remaining)
    await one.admit_address("192.0.2.1")
    await one.admit_address("192.0.2.1", charge=False)
    assert (["connect"], 3, "gone") == (shared.calls, one.local_decisions, one.fault)
    assert "gone" == await one.check()
    shared.fault = None
    assert (None, None, None) == (await one.check(), await one.check(), one.decide(PRINCIPAL))
    assert ["connect", "connect", "connect", "prove", "prove"] == shared.calls
    shared.fault = CountersUnavailable("slow")
    assert Outcome.ADMITTED is (await one.admit(PRINCIPAL)).outcome
    await one.admit_address("192.0.2.1", charge=False)
    assert (["count"], 4, "slow") == (shared.calls[5:], one.local_decisions, one.fault)
    assert [(logging.ERROR, "gone"), (logging.INFO, "gone"), (logging.ERROR, "slow")] == logged(caplog)


@pytest.mark.parametrize("ahead", [-90.0, 0.0, 0.4, 90.0])
async def test_in_an_outage_the_windows_of_the_counters_go_on_by_the_own_clock(
    shared: Shared, limiter: FallbackLimiter, clock: Clock, ahead: float
) -> None:
    clock.now += ahead
    shared.used = 59
    await limiter.admit(PRINCIPAL)
    shared.fault = CountersUnavailable("gone")
    clock.now += 30
    decisions = [await limiter.admit(PRINCIPAL) for _ in range(2)]
    assert [Outcome.ADMITTED, Outcome.LIMITED] == [each.outcome for each in decisions]
    assert 30 == decisions[1].retry_after


async def test_in_an_outage_the_day_of_the_counters_is_not_taken_for_their_minute(
    shared: Shared, limiter: FallbackLimiter, clock: Clock
) -> None:
    clock.now += 90
    shared.used, shared.day_used = 1, 999
    await limiter.admit(PRINCIPAL)
    shared.fault = CountersUnavailable("gone")
    decisions = [await limiter.admit(PRINCIPAL) for _ in range(2)]
    assert [Outcome.ADMITTED, Outcome.LIMITED] == [each.outcome for each in decisions]
    assert ("day", 0) == (decisions[1].shown.name, decisions[1].shown.remaining)
    assert DAY == decisions[1].retry_after


async def test_the_counters_get_what_the_store_has_of_a_ban_and_for_a_day_that_it_was_lifted(
    shared: Shared, limiter: FallbackLimiter, clock: Clock
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
    assert [BAN, lifted, lifted, None] == shared.stored


async def test_a_ban_that_the_store_has_again_is_not_taken_for_lifted(shared: Shared, limiter: FallbackLimiter) -> None:
    for bans in ([BAN], [], [BAN], []):
        limiter.local.replace_bans(bans)
    await limiter.admit(PRINCIPAL)
    limiter.local.replace_bans([BAN])
    await limiter.admit(PRINCIPAL)
    assert [Ban("key_a", BAN.began, 0, 0), BAN] == shared.stored


async def test_the_newest_is_that_of_the_counters_or_the_own_without_them(
    shared: Shared, limiter: FallbackLimiter
) -> None:
    assert 7 == await limiter.newest("store", 3)
    shared.fault = CountersUnavailable("gone")
    assert (3, None) == (await limiter.newest("store", 3), limiter.fault)
    await limiter.admit(PRINCIPAL)
    shared.fault = None
    assert 3 == await limiter.newest("store", 3)
    assert ["timeline", "timeline", "count"] == shared.calls
