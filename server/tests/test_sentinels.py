"""Limits in a Redis that Sentinels watch: failovers under load, with no limit exceeded beyond what D19 allows."""

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from petstore_server.domain.bans import BanPolicy
from petstore_server.limits.counters import CountersUnavailable
from petstore_server.limits.redis import RedisCounters
from petstore_server.limits.redis_client import RedisAddress
from testing.load import Clients
from testing.process import Server, new_key, petstore, petstore_json, petstore_process, serving
from testing.sentinels import NAME, PASSWORD, SENTINEL_PASSWORD, Program, Watched, watched_redis
from testing.subprocesses import PATIENCE, free_port, kill, within
from testing.wire import codes

ORDERS = "/v1/store/orders"
DAY_LIMIT = 2_000
OWN_LIMITS = ("--plan", "enterprise", "--per-minute", str(DAY_LIMIT), "--per-day", str(DAY_LIMIT))
LENIENT = {"PETSTORE_BAN_GRACE_SECONDS": "600", "PETSTORE_BAN_STRIKES": "10000"}


@pytest.fixture
def watched() -> Iterator[Watched]:
    with watched_redis() as watched:
        yield watched


@pytest.fixture
async def counters(watched: Watched) -> AsyncIterator[RedisCounters]:
    counters = RedisCounters(RedisAddress(watched.url, sentinel_password=SENTINEL_PASSWORD), BanPolicy())
    yield counters
    await counters.close()


def settings(watched: Watched) -> dict[str, str]:
    return {**LENIENT, "PETSTORE_REDIS_URL": watched.url, "PETSTORE_REDIS_SENTINEL_PASSWORD": SENTINEL_PASSWORD}


class Load(Clients):
    """A client for each server, which lists orders."""

    def __init__(self, servers: list[Server], key: str) -> None:
        super().__init__(len(servers))
        self.outcomes: Counter[str] = Counter()
        self.admitted_by: dict[float, int] = {}
        self._ports, self._key = [server.port for server in servers], key
        self._lock = threading.Lock()

    def total(self) -> int:
        return self.outcomes.total()

    def _send(self) -> None:
        port = self._ports.pop()
        while not self._stopping.wait(0.02):
            found = codes([port], self._key, [("GET", ORDERS)] * 8)
            with self._lock:
                self.outcomes.update(found)
                self.admitted_by[time.monotonic()] = self.outcomes["200"]

    def admitted_since(self, timestamp: float) -> int:
        """How many were admitted since this timestamp of the monotonic clock."""
        with self._lock:
            return self.outcomes["200"] - max([n for at, n in self.admitted_by.items() if at < timestamp], default=0)

    def wait_for_code(self, code: str, number: int) -> None:
        within(PATIENCE, lambda: self.outcomes[code] >= number)


def metric(servers: list[Server], name: str) -> float:
    return sum(server.metrics()[name] for server in servers)


def lose(watched: Watched, primary: Program) -> None:
    """Kill the primary."""
    kill(primary.process)


def hand_over(watched: Watched, primary: Program) -> None:
    """Have a Sentinel make the replica the primary; the old one stays reachable, as a replica."""
    watched.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", NAME)


@pytest.mark.parametrize("fail_over", [lose, hand_over])
def test_a_failover_under_load_exceeds_no_limit_beyond_what_processes_admit_by_themselves(
    tmp_path: Path, watched: Watched, fail_over: Callable[[Watched, Program], None]
) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store, plan=OWN_LIMITS)
    old = watched.primary()
    with serving(store, **settings(watched)) as one, serving(store, **settings(watched)) as other:
        servers = [one, other]
        with Load(servers, key) as load:
            load.wait_for_code("200", 200)
            failed_at = time.monotonic()
            lost = load.admitted_since(failed_at - 1)  # what an asynchronous replica may lack
            fail_over(watched, old)
            within(PATIENCE, lambda: watched.primary() is not old)
            within(PATIENCE, lambda: metric(servers, "petstore_limits_degraded") == 0)
            if fail_over is hand_over:  # the old primary counts until the Sentinels have made it a replica
                within(PATIENCE, old.is_replica)
                lost = load.admitted_since(failed_at - 1)
            load.wait_for_code("rate_limit_exceeded", load.outcomes["rate_limit_exceeded"] + 50)
        assert {"200", "rate_limit_exceeded"} == {*load.outcomes}  # no request failed
        by_themselves = metric(servers, "petstore_limit_decisions_local_total")
        assert load.outcomes["200"] <= DAY_LIMIT + by_themselves + lost
        assert load.outcomes["200"] <= 3 * DAY_LIMIT
        assert 0 == metric(servers, "petstore_limit_counts_lost_total")
        shown = petstore_json(store, "accounts", "show", "acme", **settings(watched))
        assert DAY_LIMIT == shown["windows"][1]["used"]
        if fail_over is lose:  # it returns as a primary, until a Sentinel makes it a replica
            old.start()
        within(PATIENCE, old.is_replica)
        within(PATIENCE, lambda: metric(servers, "petstore_limits_degraded") == 0)
        assert {"rate_limit_exceeded": 20} == codes([one.port, other.port], key, [("GET", ORDERS)] * 10)


async def test_a_process_leaves_a_primary_that_the_sentinels_have_replaced_though_it_responds(
    watched: Watched, counters: RedisCounters
) -> None:
    await counters.connect()
    await counters.prove()
    old = watched.primary()
    for each in watched.sentinels:  # so that none of them makes it a replica
        each.client.execute_command("SENTINEL", "SET", NAME, "failover-timeout", "600000")
    hand_over(watched, old)
    within(PATIENCE, lambda: watched.primary() is not old)
    with pytest.raises(CountersUnavailable, match=r"primary|closed|reset|replica"):
        await counters.prove()
    await counters.connect()
    await counters.prove()


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_wrong_password_of_the_sentinels_ends_the_start_with_its_cause(
    tmp_path: Path, watched: Watched, password: str
) -> None:
    environ = {**settings(watched), "PETSTORE_REDIS_SENTINEL_PASSWORD": password}
    petstore_json(tmp_path / "store.db", "accounts", "create", "acme", "--plan", "free")
    done = petstore_process(tmp_path / "store.db", "serve", **environ)
    problem = "the Sentinels cannot be used: "
    assert (2, True) == (done.returncode, problem in done.stderr)
    found = petstore(tmp_path / "store.db", "doctor", **environ)
    assert problem.strip() in found.stdout
    for text in (done.stderr, found.stdout, found.stderr):
        assert PASSWORD not in text


async def test_sentinels_that_are_down_or_know_no_such_primary_are_an_outage(watched: Watched) -> None:
    dead = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{NAME}/0"
    unknown = watched.url.replace(f"/{NAME}/", "/other/")
    for url in (dead, unknown):
        counters = RedisCounters(RedisAddress(url, sentinel_password=SENTINEL_PASSWORD), BanPolicy())
        with pytest.raises(CountersUnavailable, match=r"^no Sentinel that responds names a primary$") as caught:
            await counters.connect()
        assert not caught.value.refused
        await counters.close()


async def test_one_sentinel_that_responds_is_enough(watched: Watched, counters: RedisCounters) -> None:
    for each in watched.sentinels[:2]:
        kill(each.process)
    await counters.connect()
    now, _ = await counters.prove()
    assert abs(now - time.time()) < PATIENCE


def test_a_process_that_starts_during_a_failover_counts_by_itself_until_it_has_ended(
    tmp_path: Path, watched: Watched
) -> None:
    key, _ = new_key(tmp_path / "store.db")
    kill(watched.primary().process)
    with serving(tmp_path / "store.db", **settings(watched)) as server:
        assert {"200"} == {*codes([server.port], key, [("GET", ORDERS)])}
        within(PATIENCE, lambda: metric([server], "petstore_limits_degraded") == 0)
        assert {"200"} == {*codes([server.port], key, [("GET", ORDERS)])}
