"""Counting: exactly L are admitted in a window, refusals cost nothing, memory is bounded (D11–D15)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import Ban, BanPolicy
from petstore_server.domain.keys import ALL_SCOPES, Grant
from petstore_server.domain.windows import ADDRESS_LIMIT, Outcome, Verdict
from petstore_server.ports import Usage
from petstore_server.ratelimit.memory import MemoryLimiter

T = TypeVar("T")
POLICY = BanPolicy()
SMALL = Limits(3, 10)


class Clock:
    """A clock that tests set."""

    def __init__(self, now: float = 1_000_000.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the limiter waited")


def grant(account: int = 1, key: str = "key_a", limits: Limits = SMALL) -> Grant:
    return Grant(key, account, Plan.ENTERPRISE, limits, ALL_SCOPES)


def admitted(verdicts: list[Verdict]) -> int:
    return sum(verdict.outcome is Outcome.ADMITTED for verdict in verdicts)


def test_exactly_the_limit_is_admitted_and_a_refusal_by_one_window_costs_the_other_nothing() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock)
    verdicts = [now(limiter.admit(grant())) for _ in range(5)]
    assert 3 == admitted(verdicts)
    assert (0, 7) == tuple(window.remaining for window in verdicts[-1].windows)


@given(
    limits=st.tuples(st.integers(1, 5), st.integers(0, 8)).map(lambda pair: Limits(pair[0], sum(pair))),
    gaps=st.lists(st.floats(0, 40) | st.floats(50, 90_000), max_size=120),
)
def test_admissions_follow_a_naive_model_of_both_windows(limits: Limits, gaps: list[float]) -> None:
    """The model keeps each admitted request's moment, and knows nothing of counts."""
    clock = Clock()
    limiter = MemoryLimiter(POLICY._replace(strikes=10**9), clock)
    opened = {60: -1e9, 86_400: -1e9}
    served: list[float] = []
    for gap in gaps:
        clock.now += gap
        for seconds, start in opened.items():
            if clock.now >= start + seconds:
                opened[seconds] = float(int(clock.now))
        room = {60: limits.per_minute, 86_400: limits.per_day}
        expected = all(sum(at >= opened[seconds] for at in served) < room[seconds] for seconds in room)
        if expected:
            served.append(clock.now)
        else:  # a request that is refused opens no window
            opened = {s: (start if any(at >= start for at in served) else -1e9) for s, start in opened.items()}
        verdict = now(limiter.admit(grant(limits=limits)))
        assert expected == (verdict.outcome is Outcome.ADMITTED)


@given(st.lists(st.sampled_from(["key_a", "key_b", "key_c"]), max_size=12))
def test_keys_of_one_account_share_its_windows(keys: list[str]) -> None:
    limiter = MemoryLimiter(POLICY, Clock())
    assert min(3, len(keys)) == admitted([now(limiter.admit(grant(key=key))) for key in keys])


def test_accounts_do_not_share_windows() -> None:
    limiter = MemoryLimiter(POLICY, Clock())
    assert 6 == admitted([now(limiter.admit(grant(account=1 + number % 2))) for number in range(10)])


def test_waiting_exactly_retry_after_admits_the_next_request() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock)
    refused = [now(limiter.admit(grant())) for _ in range(4)][-1]
    clock.now += refused.retry_after
    assert now(limiter.admit(grant())).outcome is Outcome.ADMITTED


def test_a_plan_change_keeps_what_was_used() -> None:
    limiter = MemoryLimiter(POLICY, Clock())
    for _ in range(3):
        now(limiter.admit(grant()))
    larger = now(limiter.admit(grant(limits=Limits(10, 100))))
    assert (6, 96) == tuple(window.remaining for window in larger.windows)
    smaller = now(limiter.admit(grant(limits=Limits(2, 3))))
    assert (Outcome.LIMITED, (0, 0)) == (smaller.outcome, tuple(window.remaining for window in smaller.windows))


def test_the_request_that_brings_the_last_strike_is_answered_as_banned() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock)
    for _ in range(4):
        now(limiter.admit(grant()))
    clock.now += 3
    verdicts = [now(limiter.admit(grant())) for _ in range(21)]
    assert [Outcome.LIMITED] * 19 + [Outcome.BANNED] * 2 == [verdict.outcome for verdict in verdicts]
    assert (20, 1) == (limiter.strikes, limiter.bans)


def test_requests_during_a_ban_never_prolong_it() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock)
    limiter.replace_bans([Ban("key_a", int(clock.now), int(clock.now) + 120, 1)])
    resets = set()
    for _ in range(100):
        clock.now += 1
        resets.add(now(limiter.admit(grant())).shown.reset)
    assert {1_000_120} == resets
    clock.now = 1_000_120.0
    assert now(limiter.admit(grant())).outcome is Outcome.ADMITTED


def test_a_ban_is_per_key_and_leaves_the_accounts_other_keys_alone() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock)
    limiter.replace_bans([Ban("key_a", int(clock.now), int(clock.now) + 120, 1)])
    assert now(limiter.admit(grant())).outcome is Outcome.BANNED
    assert now(limiter.admit(grant(key="key_b"))).outcome is Outcome.ADMITTED


def test_a_lifted_ban_ends_at_once_and_one_not_yet_saved_stays() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY._replace(strikes=1), clock)
    limiter.replace_bans([Ban("key_b", int(clock.now), int(clock.now) + 120, 1)])
    for _ in range(4):
        now(limiter.admit(grant()))
    clock.now += 3
    now(limiter.admit(grant()))  # bans key_a
    limiter.replace_bans([])
    assert now(limiter.admit(grant(key="key_b", account=2))).outcome is Outcome.ADMITTED
    assert now(limiter.admit(grant())).outcome is Outcome.BANNED
    _, unsaved = limiter.take_unsaved()
    limiter.saved(unsaved)
    limiter.replace_bans([])
    clock.now += 60
    assert now(limiter.admit(grant())).outcome is Outcome.ADMITTED


def test_counts_survive_from_one_limiter_to_the_next() -> None:
    clock = Clock()
    first = MemoryLimiter(POLICY, clock)
    for _ in range(3):
        now(first.admit(grant()))
    usage, bans = first.take_unsaved()
    second = MemoryLimiter(POLICY, clock)
    second.load(usage, bans)
    assert now(second.admit(grant())).outcome is Outcome.LIMITED
    assert ({}, []) == first.take_unsaved()
    first.put_back(usage)
    assert usage == first.take_unsaved()[0]
    assert {1} == usage.keys()
    assert isinstance(usage[1], Usage)


def test_an_address_gets_sixty_a_minute() -> None:
    limiter = MemoryLimiter(POLICY, Clock())
    assert ADDRESS_LIMIT == admitted([now(limiter.admit_address("192.0.2.1")) for _ in range(100)])


def test_a_full_table_of_addresses_shares_one_overflow_window_and_stays_bounded() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock, max_addresses=1000)
    verdicts = [now(limiter.admit_address(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")) for n in range(5000)]
    assert 1000 + ADDRESS_LIMIT == admitted(verdicts)
    assert len(limiter._addresses) <= 1001
    assert now(limiter.admit_address("10.0.0.1")).outcome is Outcome.ADMITTED  # a known one keeps its own
    clock.now += 60
    for number in range(1000):
        now(limiter.admit_address(f"172.16.{number >> 8}.{number & 255}"))
    assert now(limiter.admit_address("192.0.2.9")).outcome is Outcome.ADMITTED


def test_the_conduct_of_keys_that_behave_is_forgotten() -> None:
    clock = Clock()
    limiter = MemoryLimiter(POLICY, clock)
    for number in range(100):
        for _ in range(4):
            now(limiter.admit(grant(account=number, key=f"key_{number}")))
    assert 100 == len(limiter._conduct)
    clock.now += 61
    limiter.forget()
    assert {} == limiter._conduct


def test_a_burst_of_tasks_is_admitted_exactly_to_the_limit() -> None:
    limiter = MemoryLimiter(POLICY, Clock())

    async def burst() -> list[Verdict]:
        return await asyncio.gather(*[limiter.admit(grant(limits=Limits(60, 1000))) for _ in range(500)])

    assert 60 == admitted(asyncio.run(burst()))
