"""Counting in a real Redis: what is sent, what is kept there, what happens during an outage (D12, D19)."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from petstore_server import deadlines
from petstore_server.deadlines import Timeouts
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.bans import Ban, BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.windows import ADDRESS_LIMIT, Decision, Outcome
from petstore_server.limits import redis as redis_counters
from petstore_server.limits.counters import CountersUnavailable
from petstore_server.limits.fallback import FallbackLimiter
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.limits.redis import RedisCounters
from petstore_server.telemetry.logs import configure_logging
from testing.cli import CommandLine
from testing.clock import Clock
from testing.documents import ROOT, block
from testing.proxy import Proxy
from testing.redis_engine import REDIS, VALKEY, RedisEngine, own_redis, shared_redis
from testing.subprocesses import PATIENCE, PATIENT, busy, within

POLICY = BanPolicy()
STRICT = BanPolicy(strikes=1, grace_seconds=0)
LIMITS = Limits(60, 1000)


def principal(account: int = 1, key: str = "key_a", limits: Limits = LIMITS) -> Principal:
    return Principal(key, account, "acme", Plan.ENTERPRISE, limits, DEFAULT_SCOPES)


def admitted(decisions: Sequence[Decision]) -> int:
    return sum(decision.outcome is Outcome.ADMITTED for decision in decisions)


@asynccontextmanager
async def limiter(
    url: str, clock: Callable[[], float] | None = None, store: str = "store", policy: BanPolicy = STRICT
) -> AsyncIterator[FallbackLimiter]:
    """A limiter as a server process has one, on Redis's clock; or one with a given clock and a strict policy."""
    policy, own_clock = (POLICY, time.time) if clock is None else (policy, clock)
    made = FallbackLimiter(RedisCounters(url, policy, clock), MemoryLimiter(policy, own_clock), own_clock)
    await made.start()
    made.counters.use_store(store)
    try:
        yield made
    finally:
        await made.counters.close()


@pytest.fixture(params=[VALKEY, pytest.param(REDIS, marks=pytest.mark.system)])
def server(request: pytest.FixtureRequest) -> str:
    """Valkey, and the system's Redis, for every test of this module."""
    name: str = request.param
    return name


@pytest.fixture
def engine(server: str, monkeypatch: pytest.MonkeyPatch) -> RedisEngine:
    # Redis may have to wait for a busy processor.
    monkeypatch.setattr(deadlines, "TIMEOUTS", PATIENT)
    shared_redis(server).empty()
    return shared_redis(server)


@pytest.fixture
def own(server: str) -> Iterator[RedisEngine]:
    with own_redis(server=server) as engine:
        yield engine


def script_calls(engine: RedisEngine) -> int:
    called: Any = engine.client.info("commandstats")
    return sum(int(called.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "eval"))


async def test_requests_that_arrive_together_share_a_call_and_very_many_are_split(engine: RedisEngine) -> None:
    async with limiter(engine.url) as one:
        before = script_calls(engine)
        asked: list[Coroutine[Any, Any, Decision]] = [one.admit(principal(account)) for account in range(1, 33)]
        asked += [one.admit_address("192.0.2.1", charge=charge) for charge in (True, False)]
        _, *decisions = await asyncio.gather(one.counters.prove(), *asked)
        assert 1 == script_calls(engine) - before
        assert [59] * 34 == [decision.shown.remaining for decision in decisions]
        assert 1 == len({decision.now for decision in decisions})
        many = await asyncio.gather(*[one.admit(principal(account)) for account in range(101, 1101)])
        assert (1000, 5) == (admitted(many), script_calls(engine) - before)


async def test_the_clock_is_that_of_redis(engine: RedisEngine) -> None:
    async with limiter(engine.url) as one:
        before, decision, after = engine.client.time(), await one.admit(principal()), engine.client.time()
        assert before <= (int(decision.now), round(decision.now % 1 * 1e6)) <= after
        assert int(decision.now) + 60 == decision.windows[0].reset


async def test_the_script_survives_a_flush_of_scripts(engine: RedisEngine) -> None:
    async with limiter(engine.url) as one:
        await one.admit(principal())
        engine.client.script_flush()
        assert 58 == (await one.admit(principal())).shown.remaining
        assert one.fault is None


async def test_every_key_expires_soon_after_nothing_in_it_counts_and_an_accounts_keys_share_a_hash_tag(
    engine: RedisEngine,
) -> None:
    clock = Clock()
    async with limiter(engine.url, clock, policy=BanPolicy(strikes=2, grace_seconds=0)) as one:

        async def admit(times: int = 1, *, charge: bool = True) -> None:
            for _ in range(times):
                await one.admit(principal(limits=Limits(1, 10)), charge=charge)

        def expire(since: int = 86_405, account: int = 86_405, address: int = 65, **of_key: int) -> None:
            """Assert that exactly these keys expire after these seconds, or a little less."""
            expected = {"since": since, "account:{1}": account, "address:{2001:db8::/64}": address}
            expected |= {f"key:{{1}}:{name.replace('_strikes', ':strikes')}": ttl for name, ttl in of_key.items()}
            names: Any = engine.client.keys("*")
            found = {name.decode().removeprefix("petstore:store:"): engine.client.ttl(name) for name in names}
            assert expected == {name: ttl + max(0, min(expected[name] - ttl, 9)) for name, ttl in found.items()}

        assert None is await one.check()
        await one.admit_address("2001:db8::/64")
        await admit(3)
        expire(key_a=65, key_a_strikes=605)
        clock.now += 59
        await admit()  # bans the key
        expire(key_a=redis_counters.BAN_BRIDGE_SECONDS + 5)
        one.local.saved(one.local.take_unsaved())
        one.local.replace_bans([])
        await admit(charge=False)  # the ban was lifted
        expire(key_a=6)
        clock.now -= 100
        await admit(charge=False)
        await one.admit_address("2001:db8::/64", charge=False)
        expire(key_a=6)
        assert None is one.fault


async def test_stores_that_share_a_redis_do_not_share_counters_bans_or_addresses(engine: RedisEngine) -> None:
    clock = Clock()
    async with limiter(engine.url, clock, "production") as one, limiter(engine.url, clock, "staging") as other:
        await ban_by(one)
        assert Outcome.ADMITTED is (await other.admit(principal(limits=Limits(1, 10)))).outcome
        for _ in range(ADDRESS_LIMIT + 1):
            refused = await one.admit_address("192.0.2.1")
        assert Outcome.LIMITED is refused.outcome
        assert ADDRESS_LIMIT == (await other.admit_address("192.0.2.1", charge=False)).shown.remaining


async def test_the_newest_that_any_process_has_seen_is_known_to_all_for_90_days(engine: RedisEngine) -> None:
    counters = [RedisCounters(engine.url, POLICY) for _ in range(2)]
    for each in counters:
        await each.connect()
    seen = [await each.newest("store:timeline", number) for each, number in zip(counters, (3, 2), strict=True)]
    assert ([3, 3], 1) == (seen, await counters[0].newest("another:timeline", 1))
    assert 89 * 86_400 < engine.client.ttl("petstore:store:timeline") <= 90 * 86_400
    for each in counters:
        await each.close()


async def ban_by(one: FallbackLimiter) -> Ban:
    """Misbehave until the key is banned."""
    while (await one.admit(principal(limits=Limits(1, 10)))).outcome is not Outcome.BANNED:
        pass
    return one.local.take_unsaved().bans[0]


async def outcome(one: FallbackLimiter) -> Outcome:
    return (await one.admit(principal(limits=Limits(10, 100)))).outcome


async def test_a_ban_holds_in_every_process_at_once_and_until_its_end_once_the_store_has_it(
    engine: RedisEngine,
) -> None:
    clock = Clock()
    async with limiter(engine.url, clock) as one, limiter(engine.url, clock) as other:
        ban = await ban_by(one)
        assert () == other.local.take_unsaved().bans
        assert [Outcome.BANNED] * 2 == [await outcome(one), await outcome(other)]
        one.local.saved(one.local.take_unsaved())
        other.local.replace_bans([ban])
        clock.now += redis_counters.BAN_BRIDGE_SECONDS + 1
        assert Outcome.BANNED is await outcome(other)
        clock.now = float(ban.until)
        assert Outcome.ADMITTED is await outcome(other)


async def test_a_ban_lifted_in_the_store_ends_in_processes_that_have_not_read_that_yet(engine: RedisEngine) -> None:
    clock = Clock()
    async with limiter(engine.url, clock) as one, limiter(engine.url, clock) as other:
        ban = await ban_by(one)
        one.local.saved(one.local.take_unsaved())
        one.local.replace_bans([ban])
        one.local.replace_bans([])
        assert [Outcome.ADMITTED] * 2 == [await outcome(one), await outcome(other)]


async def test_a_ban_that_never_reached_the_store_holds_from_a_minute_before_it_until_its_bridge_ends(
    engine: RedisEngine,
) -> None:
    clock = Clock()
    async with limiter(engine.url, clock) as one, limiter(engine.url, clock) as other:
        ban = await ban_by(one)  # which is then killed before it saved the ban
        for seconds, expected in ((-60.0, Outcome.BANNED), (0.0, Outcome.BANNED), (-60.25, Outcome.ADMITTED)):
            clock.now = ban.began + seconds
            assert expected is await outcome(other)
        clock.now = ban.began + float(redis_counters.BAN_BRIDGE_SECONDS)
        assert Outcome.ADMITTED is await outcome(other)


async def timed(decision: Coroutine[Any, Any, Decision]) -> tuple[float, Decision]:
    began = time.perf_counter()
    result = await decision
    return time.perf_counter() - began, result


async def exact_again(one: FallbackLimiter) -> None:
    """Check as a server does until limits are exact, which must be within five seconds."""
    began = time.perf_counter()
    while await one.check() is not None:
        assert time.perf_counter() - began < 5 + busy()
        await asyncio.sleep(0.25)


async def test_a_process_that_was_paused_reads_the_response_that_has_arrived_meanwhile(
    own: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "TIMEOUTS", Timeouts(counters=2.0))
    async with limiter(own.url) as one:
        with own.frozen():
            deciding = asyncio.create_task(one.admit(principal()))
            await asyncio.sleep(0.05)
        time.sleep(2.0)  # noqa: ASYNC251 - pauses the process, while Redis responds
        assert Outcome.ADMITTED is (await deciding).outcome
        assert (None, 0) == (one.fault, one.local_decisions)


async def test_a_frozen_redis_costs_one_wait_and_each_process_then_counts_by_itself_at_the_plans_limits(
    own: RedisEngine,
) -> None:
    log = io.StringIO()
    configure_logging("info", log)

    async with limiter(own.url) as one:
        assert 59 == (await one.admit(principal())).shown.remaining
        with own.frozen():
            waits = await asyncio.gather(*[timed(one.admit(principal())) for _ in range(10)])
            assert 0.15 < max(wait for wait, _ in waits) < 0.2 + busy()
            later = [await timed(one.admit(principal())) for _ in range(100)]
            assert sum(wait for wait, _ in later) < busy()  # 20 s if each of them waited
            assert 59 == admitted([decision for _, decision in (*waits, *later)])  # one was counted before
            assert one.fault is not None
            assert await one.check() is not None
            assert ADDRESS_LIMIT == admitted([await one.admit_address("192.0.2.1") for _ in range(100)])
            assert 0 == (await one.admit_address("192.0.2.1", charge=False)).shown.remaining
        await exact_again(one)
        assert one.local_decisions == 210
        assert 0 < (await one.admit(principal())).shown.remaining < 59  # what it held is there again
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    assert ["error", "info"] == [line["level"] for line in logged]
    assert "no response within 200 ms" in logged[0]["reason"]


@pytest.mark.parametrize("first", [0, 5])
async def test_a_response_that_comes_too_late_is_not_taken_for_that_to_the_next_call(
    own: RedisEngine, first: int
) -> None:
    async with Proxy(own.port) as proxy:
        timeouts = Timeouts(counters=1.0, counters_connect=PATIENCE)
        counters = RedisCounters(f"redis://127.0.0.1:{proxy.port}/0", POLICY, timeouts=timeouts)
        await counters.connect()
        proxy.first = first
        with pytest.raises(CountersUnavailable) as caught:
            await counters.count(principal(1, limits=Limits(10, 20)), None)
        assert "no response within 1000 ms" == caught.value.reason
        proxy.first = None
        proxy.rest.set()  # Redis has counted the request, and its response comes now
        await counters.count(principal(2), None)
        _, counted = await counters.count(principal(2), None)
        assert (2, 2) == (counted.minute_used, counted.day_used)
        used = await counters.usages([1, 2])
        assert [1, 2] == [used[account].minute.used for account in (1, 2)]
        names = [client["name"] for client in own.client.client_list()]
        assert 1 == names.count("petstore")
        await counters.close()


async def test_each_process_notices_that_redis_lost_its_counts_whichever_asks_first(own: RedisEngine) -> None:
    async with limiter(own.url) as one, limiter(own.url) as other:
        for each in (one, other, one):
            assert None is await each.check()
        assert 86_390 < own.client.ttl("petstore:store:since") < 86_410
        own.empty()
        async with limiter(own.url) as new:  # the first to ask; it has seen nothing before
            for each in (new, one, other, one, new):
                assert None is await each.check()
            assert [1, 1, 0] == [each.losses for each in (one, other, new)]
        with own.gone():
            assert None is not await one.check()
            async with limiter(own.url) as late:
                assert (Outcome.ADMITTED, 1) == ((await late.admit(principal())).outcome, late.local_decisions)
        await exact_again(one)
        assert [2, 1] == [one.losses, other.losses]


async def assert_outage(one: FallbackLimiter, reason: str) -> None:
    """No request is refused because of it."""
    assert Outcome.ADMITTED is (await one.admit(principal())).outcome
    assert reason == one.fault
    assert await one.check() is not None


async def test_a_redis_that_cannot_write_is_an_outage_and_never_an_error(server: str) -> None:
    with own_redis("--dir", "/proc", server=server) as redis:
        async with limiter(redis.url) as one:
            redis.client.config_set("maxmemory", "1")
            await assert_outage(one, "its memory is used up: raise maxmemory")
            redis.client.config_set("maxmemory", "0")
            await exact_again(one)
            redis.client.replicaof("127.0.0.1", "1")
            await assert_outage(one, "it is a read-only replica: use the primary")
            redis.client.replicaof("NO", "ONE")
            await exact_again(one)
            redis.client.config_set("save", "3600 1")
            redis.client.bgsave()
            within(1.0, lambda: redis.client.info("persistence")["rdb_last_bgsave_status"] == "err")
            await assert_outage(one, "it cannot save its data to the disk: its log has the cause")
            redis.client.config_set("save", "")
            await exact_again(one)


async def test_a_request_waits_no_longer_in_a_queue_than_by_itself(
    own: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "TIMEOUTS", Timeouts(counters=2.0))
    async with limiter(own.url) as one:
        await one.admit(principal())
        with own.frozen():
            first = asyncio.create_task(timed(one.admit(principal())))
            await asyncio.sleep(1.0)
            second = asyncio.create_task(timed(one.admit(principal())))  # waits for the next call
            assert max((await first)[0], (await second)[0]) < 2.0 + busy()  # 3 s if it waited for the first as well


@pytest.mark.parametrize(
    ("options", "end", "reason"),
    [
        (["--requirepass", "secret"], "/0", "Authentication"),
        (["--cluster-enabled", "yes"], "/0", "cluster"),
        ([], "/99", "DB index is out of range"),
        ([], "/0?socket_timout=1", "unknown parameter, 'socket_timout'"),
        ([], "/0?retry=3", "a value that the driver cannot use: 'str' object has no attribute"),
        ([], "/0?encoding=utf-88", "a value that the driver cannot use: unknown encoding: utf-88"),
        ([], "/0?driver_info=x", "a value that the driver cannot use: "),
    ],
)
async def test_a_redis_that_rejects_this_process_or_its_url_is_reported_at_the_start(
    server: str, options: list[str], end: str, reason: str
) -> None:
    with own_redis(*options, server=server) as engine:
        counters = RedisCounters(f"redis://127.0.0.1:{engine.port}{end}", POLICY)
        with pytest.raises(CountersUnavailable, match=reason) as refused:
            await counters.connect()
        assert (True, None) == (refused.value.refused, counters._made)


SECRET = "s3cr3t"


def documented_user(server: str) -> list[str]:
    """The command of the page that makes a user, in words; with the right that older versions do not know."""
    words = block(ROOT / "docs/operating.md", "redis user").replace(">PASSWORD", f">{SECRET}").split()
    return words if server == REDIS else [*words, "+client|setinfo"]


async def use_every_command(url: str) -> None:
    """Count as a server does, with strikes that expire, and strikes of a clock that is set back."""
    clock, policy = Clock(), BanPolicy(strikes=3, grace_seconds=0)
    async with limiter(url) as one, limiter(url, clock, "other", policy) as other:
        for each in (one, other):
            assert Outcome.ADMITTED is (await each.admit(principal(limits=Limits(1, 1)))).outcome
            assert (await each.admit_address("192.0.2.1")).outcome is Outcome.ADMITTED
        for ahead in (0, 0, 700, -5, 0, 0):  # a refusal, a strike, one after it has expired, one before that
            clock.now += ahead
            await other.admit(principal(limits=Limits(1, 1)))
        assert Outcome.BANNED is (await other.admit(principal(limits=Limits(1, 1)))).outcome
        await one.counters.prove()
        assert 1 == (await one.counters.usages([1]))[1].day.used
        assert 7 == await one.counters.newest("postgres:x", 7)
        assert "appendfsync" in await one.counters.info()
        assert (one.fault, other.fault) == (None, None)


async def test_the_documented_user_has_the_rights_that_the_service_uses_and_no_others(
    own: RedisEngine, server: str, tmp_path: Path
) -> None:
    words = documented_user(server)
    own.client.execute_command(*words)  # type: ignore[no-untyped-call]
    own.client.config_resetstat()
    url = f"redis://petstore:{SECRET}@127.0.0.1:{own.port}/1"
    await use_every_command(url)
    called: Any = own.client.info("commandstats")
    names = {name.removeprefix("cmdstat_") for name, calls in called.items() if calls["calls"]}
    assert {word.removeprefix("+") for word in words if word.startswith("+")} == names - {"auth", "config|resetstat"}
    petstore = CommandLine(tmp_path / "store.db")
    as_user, as_admin = [
        await asyncio.to_thread(petstore, "doctor", "--json", PETSTORE_REDIS_URL=used) for used in (url, own.url)
    ]
    assert redis_checks(as_admin.out)
    assert (as_admin.code, redis_checks(as_admin.out)) == (as_user.code, redis_checks(as_user.out))
    assert SECRET not in as_user.out + as_user.err
    assert [] == own.client.acl_log()


def redis_checks(out: str) -> list[Any]:
    """What the doctor reports of Redis."""
    return [each for each in json.loads(out) if "Redis" in each.get("message", "")]


async def test_a_missing_right_is_reported_at_the_start(own: RedisEngine, server: str) -> None:
    words = documented_user(server)
    for missing in ("+info", "+script|load", "+client|setname"):
        own.client.execute_command(*[word for word in words if word != missing])  # type: ignore[no-untyped-call]
        counters = RedisCounters(f"redis://petstore:{SECRET}@127.0.0.1:{own.port}/0", POLICY)
        with pytest.raises(CountersUnavailable, match=missing.removeprefix("+").replace("|", r"\|")) as refused:
            await counters.connect()
        assert refused.value.refused
