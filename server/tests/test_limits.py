"""Counting: exactly L requests are admitted per window, refusals are not charged, memory is bounded (D11–D15).

Every case that is not about one limiter's memory runs over both: in this process, and in a real Redis.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import AbuseRecord, Ban, BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Usage
from petstore_server.domain.windows import ADDRESS_LIMIT, Count, Decision, Outcome
from petstore_server.limits.fallback import FallbackLimiter, Limiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.limits.redis import RedisCounters
from petstore_server.settings import SETTINGS
from testing.clock import Clock
from testing.redis_engine import shared_redis
from testing.subprocesses import PATIENT

T = TypeVar("T")
POLICY = BanPolicy()
SMALL = Limits(3, 10)
UNHURRIED = settings(deadline=None)  # an example with Redis takes as long as the machine is busy


class InProcess:
    """A kind of limiter: makes new ones, each with what it keeps in memory, and runs their coroutines."""

    def make(self, policy: BanPolicy, clock: Clock) -> tuple[Limiter, MemoryLimiter]:
        made = MemoryLimiter(policy, clock)
        return made, made

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)


class InRedis(InProcess):
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._made: list[FallbackLimiter] = []

    def make(self, policy: BanPolicy, clock: Clock) -> tuple[Limiter, MemoryLimiter]:
        self._close_made()
        local = MemoryLimiter(policy, clock)
        limiter = FallbackLimiter(RedisCounters(shared_redis().empty(), policy, clock, PATIENT), local, clock)
        self.run(limiter.start())
        limiter.counters.use_store("store")
        self._made.append(limiter)
        return limiter, local

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        result = self._runner.run(work)
        assert [None] * len(self._made) == [limiter.fault for limiter in self._made]
        return result

    def close(self) -> None:
        self._close_made()
        self._runner.close()

    def pass_time(self, seconds: float) -> None:
        """Let the keys in Redis expire as if so much time had passed."""
        client = shared_redis().client
        for name in client.scan_iter():
            client.pexpire(name, client.pttl(name) - int(seconds * 1000))

    def _close_made(self) -> None:
        while self._made:
            self._runner.run(self._made.pop().counters.close())


@pytest.fixture(scope="module")
def in_redis() -> Iterator[InRedis]:
    limiters = InRedis()
    yield limiters
    limiters.close()


@pytest.fixture(scope="module", params=["memory", "redis"])
def each_backend(request: pytest.FixtureRequest) -> InProcess:
    if request.param == "memory":
        return InProcess()
    made: InProcess = request.getfixturevalue("in_redis")
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.25)


@pytest.fixture
def memory(clock: Clock) -> MemoryLimiter:
    return MemoryLimiter(POLICY, clock)


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never blocks, without an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the limiter blocked")


def principal(account: int = 1, key: str = "key_a", limits: Limits = SMALL) -> Principal:
    return Principal(key, account, "acme", Plan.ENTERPRISE, limits, DEFAULT_SCOPES)


def ask(limiter: MemoryLimiter, times: int = 1, **of: Any) -> Outcome:
    """The outcome of the last of so many requests of one principal."""
    return [now(limiter.admit(principal(**of))).outcome for _ in range(times)][-1]


def admitted(decisions: Sequence[Decision]) -> int:
    return sum(decision.outcome is Outcome.ADMITTED for decision in decisions)


@UNHURRIED
@example(SMALL, [0.0, 0.0, 0.0, 59.75, 0.0])  # the fourth at the end of the minute
@given(
    limits=st.tuples(st.integers(1, 5), st.integers(0, 8)).map(lambda pair: Limits(pair[0], sum(pair))),
    gaps=st.lists(st.floats(0, 40) | st.floats(50, 90_000), max_size=120),
)
def test_admissions_follow_a_naive_model_of_both_windows(
    each_backend: InProcess, limits: Limits, gaps: list[float]
) -> None:
    """The model keeps the time of each admitted request, and has no counts."""
    clock = Clock(1_000_000.25)
    limiter, _ = each_backend.make(POLICY._replace(strikes=10**9), clock)
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
        key = f"key_{len(served) % 2}"  # the keys of an account share its windows
        decision = each_backend.run(limiter.admit(principal(key=key, limits=limits)))
        assert expected == (decision.outcome is Outcome.ADMITTED)


def test_a_lifted_ban_ends_at_once_and_one_not_yet_saved_stays(each_backend: InProcess, clock: Clock) -> None:
    limiter, local = each_backend.make(POLICY._replace(strikes=2), clock)
    local.replace_bans([Ban("key_b", int(clock.now), int(clock.now) + 120, 1)])
    for _ in range(4):
        each_backend.run(limiter.admit(principal()))
    clock.now += 3
    for _ in range(2):
        each_backend.run(limiter.admit(principal()))  # bans key_a
    local.replace_bans([])
    assert each_backend.run(limiter.admit(principal(key="key_b", account=2))).outcome is Outcome.ADMITTED
    assert each_backend.run(limiter.admit(principal())).outcome is Outcome.BANNED
    local.saved(local.take_unsaved())
    local.replace_bans([])
    clock.now += 60
    assert each_backend.run(limiter.admit(principal())).outcome is Outcome.ADMITTED


def test_counts_survive_from_one_limiter_to_the_next(memory: MemoryLimiter, clock: Clock) -> None:
    ask(memory)
    clock.now += 60
    ask(memory, 3)
    unsaved = memory.take_unsaved()
    second = MemoryLimiter(POLICY, clock)
    second.load(*unsaved)
    assert Outcome.LIMITED is ask(second)
    assert ({}, ()) == memory.take_unsaved()
    memory.put_back(unsaved)
    assert unsaved == memory.take_unsaved()
    assert {1: Usage(Count(1_000_060, 3), Count(1_000_000, 4))} == unsaved.usage


def test_the_saved_window_of_the_day_is_not_taken_for_that_of_the_minute(memory: MemoryLimiter) -> None:
    memory.load({1: Usage(Count(1_000_000, 0), Count(990_000, 10))}, [])
    assert Outcome.LIMITED is ask(memory)


def test_windows_that_were_moved_because_the_clock_was_set_back_are_saved(memory: MemoryLimiter, clock: Clock) -> None:
    ask(memory, 3)
    memory.take_unsaved()
    clock.now -= 100
    assert Outcome.LIMITED is ask(memory)
    [usage] = memory.take_unsaved().usage.values()
    assert Count(int(clock.now), 3) == usage.minute


@pytest.mark.parametrize("asked", ["192.0.2.1", "192.0.2.2", "192.0.2.3"])
def test_an_address_gets_no_new_window_from_a_clock_that_is_set_back_and_waits_no_longer_than_the_response_says(
    each_backend: InProcess, clock: Clock, asked: str
) -> None:
    limiter, _ = each_backend.make(POLICY, clock)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):  # a request looks at the two oldest, and at its own
        assert 60 == admitted(each_backend.run(ask_address(limiter, address, True, 61)))
    clock.now -= 100
    refused = each_backend.run(limiter.admit_address(asked))
    assert Outcome.LIMITED is refused.outcome
    clock.now += refused.retry_after
    assert Outcome.ADMITTED is each_backend.run(limiter.admit_address(asked)).outcome


def test_a_full_table_of_addresses_drops_the_oldest_window_and_locks_no_new_address_out() -> None:
    limiter = MemoryLimiter(POLICY, Clock(1_000_000.0), max_addresses=1000)
    decisions = [now(limiter.admit_address(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")) for n in range(5000)]
    assert 5000 == admitted(decisions)
    assert 1000 == len(limiter._addresses)
    assert ADDRESS_LIMIT == admitted([now(limiter.admit_address("192.0.2.9")) for _ in range(ADDRESS_LIMIT + 9)])
    assert 58 == now(limiter.admit_address("10.0.19.135")).shown.remaining  # the last of them keeps its window


def test_reading_the_windows_of_addresses_adds_none_to_the_table(memory: MemoryLimiter) -> None:
    assert 60 == now(memory.admit_address("a", charge=False)).shown.remaining
    assert not memory._addresses


def test_each_request_removes_two_windows_of_addresses_that_have_ended(memory: MemoryLimiter, clock: Clock) -> None:
    for number in range(20):
        now(memory.admit_address(f"10.0.0.{number}"))
    clock.now = 1_000_060.0
    for _ in range(5):
        now(memory.admit_address("192.0.2.1"))
    assert 20 - 2 * 5 + 1 == len(memory._addresses)


def test_a_new_window_of_an_address_does_not_keep_older_ones(clock: Clock) -> None:
    limiter = MemoryLimiter(POLICY, clock, max_addresses=4)
    for address in "abcd":
        now(limiter.admit_address(address))
    clock.now += 60
    for address in "cefg":
        now(limiter.admit_address(address))
    assert ["c", "e", "f", "g"] == list(limiter._addresses)


def test_a_refusal_is_remembered_until_its_retry_after_has_passed(memory: MemoryLimiter, clock: Clock) -> None:
    ask(memory, 4)
    clock.now += 3  # after the grace
    memory.forget()
    ask(memory)
    assert 1 == memory.strikes
    clock.now = 1_000_060.0
    memory._abuse["key_a"] = AbuseRecord(1_000_000.25, clock.now)
    memory.forget()
    assert {} == memory._abuse


def test_records_behind_one_with_recent_strikes_are_dropped(clock: Clock) -> None:
    limiter = MemoryLimiter(POLICY._replace(grace_seconds=0), clock)
    ask(limiter, 5, account=1, key="key_struck")
    ask(limiter, 4, account=2, key="key_b")
    clock.now += 61
    limiter.forget()
    assert ["key_struck"] == list(limiter._abuse)


def test_strikes_are_kept_while_the_last_is_recent_when_records_are_dropped(clock: Clock) -> None:
    limiter = MemoryLimiter(POLICY._replace(grace_seconds=0), clock)
    ask(limiter, 5)
    clock.now += 300
    ask(limiter, 5)
    struck_at = clock.now
    for seconds, kept in ((0, True), (599.9, True), (600, False)):
        clock.now = struck_at + seconds
        limiter.forget()
        assert kept is ("key_a" in limiter._abuse)


@pytest.mark.parametrize(("length", "kept_for"), [(120, 86_400), (100_000, 100_000)])
def test_a_ban_is_remembered_for_a_day_after_its_start_and_never_less_than_it_lasts(
    memory: MemoryLimiter, clock: Clock, length: int, kept_for: int
) -> None:
    memory.replace_bans([Ban("key_a", 1_000_000, 1_000_000 + length, 1)])
    for seconds, kept in ((kept_for - 1, True), (kept_for, False)):
        clock.now = 1_000_000.0 + seconds
        memory.forget()
        assert kept is ("key_a" in memory.latest_bans)


def test_the_largest_number_of_strikes_bans_exactly_then(each_backend: InProcess, clock: Clock) -> None:
    [most] = [setting for setting in SETTINGS if setting.name == "PETSTORE_BAN_STRIKES"]
    strikes = most.read("10000")
    limiter, local = each_backend.make(BanPolicy(strikes=strikes), clock)

    async def outcomes(number: int) -> set[Outcome]:
        decisions = await asyncio.gather(*[limiter.admit(principal(limits=Limits(1, 10))) for _ in range(number)])
        return {decision.outcome for decision in decisions}

    each_backend.run(outcomes(2))
    clock.now += 3
    for _ in range(50):
        assert {Outcome.LIMITED} == each_backend.run(outcomes(strikes // 50 - 1))
    assert {Outcome.LIMITED} == each_backend.run(outcomes(49))
    assert {Outcome.BANNED} == each_backend.run(outcomes(1))
    assert (strikes, 1) == (local.strikes, local.bans)
    clock.now += 121
    assert {Outcome.ADMITTED} == each_backend.run(outcomes(1))


STEPS = st.one_of(
    st.tuples(st.just("admit"), st.integers(1, 2), st.sampled_from(["key_a", "key_b"]), st.sampled_from([2, 3])),
    st.tuples(st.just("admit"), st.just(1), st.just("key_a"), st.just(2)),
    st.tuples(st.just("read"), st.just(1), st.just("key_a"), st.just(2)),
    st.tuples(st.just("wait"), st.floats(0, 5) | st.floats(0, 100_000) | st.floats(-200, 0)),
    st.tuples(st.just("save")),
    st.tuples(st.just("lift"), st.sampled_from(["key_a", "key_b"])),
)


def calls(*names: str | float) -> list[tuple[Any, ...]]:
    """A2 and R3 admit and read at 2 and 3 requests per minute; a number is the seconds to wait."""
    kinds = {"A": "admit", "R": "read"}
    return [
        (kinds[name[0]], 1, "key_a", int(name[1])) if isinstance(name, str) else ("wait", float(name)) for name in names
    ]


USED_UP_FOR_THE_DAY = calls("A2", "A2", 61, "A2", "A2", "A2")
NO_GRACE = BanPolicy(strikes=4, grace_seconds=0)


@UNHURRIED
@example(calls("A2", "R2", "A2", "A2", "A2", "R2"), BanPolicy())
# The third strike comes exactly when the first no longer counts.
@example(USED_UP_FOR_THE_DAY + calls("A2", 300, "A2", 300, "A2", "A2"), NO_GRACE._replace(strikes=3))
# A new series of refusals keeps the strikes of the one before.
@example(calls("A2", "A2", "A2", "A2", 61, "A2", "A2", "A2", "A2"), NO_GRACE._replace(strikes=2))
# Strikes after the present time of a clock that was set back do not count.
@example(USED_UP_FOR_THE_DAY + calls("A2", 10, "A2", 2, "A2", -1, "A2", -6, "A2", "A2", "A2"), NO_GRACE)
# A series of refusals ends exactly with its Retry-After, which no shorter one replaces.
@example(calls("A2", "A2", "A2", 59.75, "A2", "A2", "A2", "A2"), NO_GRACE._replace(strikes=1))
@example(calls("A3", "A3", "A3", 61, "A3", "A2", "A3", "A3", "A3", 61, "A2"), BanPolicy())
# A further ban within a day is longer, also where Redis knows the one before from the store only.
@example([*USED_UP_FOR_THE_DAY, *calls("A2"), ("save",), *calls(121, "A2"), ("save",)], NO_GRACE._replace(strikes=1))
# The clock is set back to before the start of one of the windows.
@example(calls("A2", 100, "A2", "A2", -50, "A2", 60, "A2"), BanPolicy())
@example(calls("A3", DAY - 30, "A3", 40, "A3", -20, "R3", 30, "R3"), BanPolicy())
# The day ends before the minute that is used up.
@example(calls("A2", DAY - 20, "A2", "A2", 30, "A2", 30, "A2"), BanPolicy())
# After a ban was lifted, the Retry-After of before counts until its end.
@example([*USED_UP_FOR_THE_DAY, *calls("A2"), ("lift", "key_a"), *calls("R2", 700, "A2")], NO_GRACE._replace(strikes=1))
@given(
    steps=st.lists(STEPS, max_size=60),
    policy=st.builds(
        BanPolicy,
        strikes=st.integers(1, 4),
        seconds=st.integers(1, 200),
        max_seconds=st.integers(200, 1000),
        grace_seconds=st.sampled_from([0, 2]),
    ),
)
def test_the_script_and_the_process_make_the_same_decisions_on_the_same_calls(
    in_redis: InRedis, steps: list[tuple[Any, ...]], policy: BanPolicy
) -> None:
    """One counts with the domain's functions, the other with the script: every number is the same."""
    clock = Clock(1_793_000_000.25)
    kinds: tuple[InProcess, InProcess] = InProcess(), in_redis
    pair = [(kind, kind.make(policy, clock)) for kind in kinds]
    stored: dict[str, Ban] = {}
    set_back = any(name == "wait" and rest[0] < 0 for name, *rest in steps)  # then Redis may forget what still counts

    for name, *rest in steps:
        if name == "wait":
            clock.now = max(0.0, clock.now + rest[0])
            if not set_back:
                in_redis.pass_time(rest[0])
        elif name in ("admit", "read"):
            account, key, per_minute = rest
            who, charge = principal(account, f"{key}{account}", Limits(per_minute, per_minute**2)), name == "admit"
            asked = [kind.run(limiter.admit(who, charge=charge)) for kind, (limiter, _) in pair]
            assert asked[0] == asked[1]
        else:
            unsaved = [local.take_unsaved() for _, (_, local) in pair]
            assert unsaved[0].bans == unsaved[1].bans
            stored |= {ban.key_id: ban for ban in unsaved[0].bans}
            if name == "lift":
                stored = {key_id: ban for key_id, ban in stored.items() if not key_id.startswith(rest[0])}
            for _, (_, local) in pair:
                local.saved(unsaved[0])
                local.replace_bans(stored.values())
        one, other = (local for _, (_, local) in pair)
        assert (one.strikes, one.bans) == (other.strikes, other.bans)


@settings(UNHURRIED, max_examples=25)
@example([*[(0.0, address, True, 1) for address in "abc"], (61.0, "c", False, 1), (30.0, "c", True, 59)])
@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.sampled_from(["a", "2001:db8::/64"]), st.booleans(), st.sampled_from([1, 59])),
        max_size=20,
    )
)
def test_addresses_are_counted_in_the_same_way_by_both(
    in_redis: InRedis, steps: list[tuple[float, str, bool, int]]
) -> None:
    clock = Clock(1_793_000_000.25)
    memory, (shared, _) = MemoryLimiter(POLICY, clock), in_redis.make(POLICY, clock)
    for wait, address, charge, times in steps:
        clock.now += wait
        expected = [now(memory.admit_address(address, charge=charge)) for _ in range(times)]
        assert expected == in_redis.run(ask_address(shared, address, charge, times))


async def ask_address(limiter: Limiter, address: str, charge: bool, times: int) -> list[Decision]:
    """Ask at the same time: Redis decides on one request after another, in this order."""
    return await asyncio.gather(*[limiter.admit_address(address, charge=charge) for _ in range(times)])
