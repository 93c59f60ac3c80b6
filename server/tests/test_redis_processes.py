"""Several server processes over one store and one Redis: they count as one (D9, D12, D14, D19)."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from petstore_server.runtime.health import examine
from petstore_server.runtime.opening import store_file
from petstore_server.settings import read_settings
from testing.deployment import Deployment
from testing.process import UNLIMITED, Server, environment, new_key, petstore, petstore_json, serving_as
from testing.redis_engine import RedisEngine, own_redis, shared_redis, wait_for_redis
from testing.subprocesses import PATIENCE, busy, within
from testing.wire import codes

ORDERS = "/v1/store/orders"
LENIENT = {"PETSTORE_BAN_GRACE_SECONDS": "600"}  # however slowly the machine sends a burst, no request is a strike


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def two_servers(
    store: Path | Deployment, redis: str, prepare: Callable[[], None] | None = None, **more: str
) -> Iterator[tuple[Server, Server]]:
    settings = {**LENIENT, "PETSTORE_REDIS_URL": redis, **more}
    with serving_as(store, [], settings, prepare) as one, serving_as(store, [], settings, prepare) as other:
        yield one, other


def flood(servers: tuple[Server, ...], key: str, each: int) -> Counter[str]:
    """So many requests to each server at the same time; how often each code or status came."""
    return codes([server.port for server in servers], key, [("GET", ORDERS)] * each)


def test_exactly_the_limit_is_admitted_by_two_servers_together(each_deployment: Deployment) -> None:
    key, _ = new_key(each_deployment)
    with two_servers(each_deployment, shared_redis().empty(), wait_for_redis) as servers:
        assert {"200": 60, "rate_limit_exceeded": 40} == flood(servers, key, 50)
        shown = petstore_json(each_deployment, "accounts", "show", "acme", PETSTORE_REDIS_URL=shared_redis().url)
        assert [60, 60] == [window["used"] for window in shown["windows"]]
        [top] = petstore_json(each_deployment, "usage", "top", "--by", "share", PETSTORE_REDIS_URL=shared_redis().url)
        assert ("acme", 0.06) == (top["account"], top["dayShare"])
        assert {"missing_api_key": 60, "rate_limit_exceeded": 40} == flood(servers, "", 50)


def test_bans_unbans_plans_suspensions_and_revocations_hold_in_both_within_a_second(
    each_deployment: Deployment,
) -> None:
    key, key_id = new_key(each_deployment)
    other_key, _ = new_key(each_deployment, "globex", UNLIMITED)
    quick = {"PETSTORE_BAN_GRACE_SECONDS": "0", "PETSTORE_BAN_STRIKES": "3"}
    with (
        two_servers(each_deployment, shared_redis().empty(), wait_for_redis, **quick) as (one, other),
        one.client(key) as here,
        other.client(key) as there,
    ):

        def both_respond(status: int) -> bool:
            return here.get(ORDERS).status_code == there.get(ORDERS).status_code == status

        within(PATIENCE, lambda: flood((one,), key, 60)["api_key_banned"] > 0)
        within(1.0, lambda: "api_key_banned" in there.get(ORDERS).text)
        within(1.0, lambda: bool(petstore_json(each_deployment, "keys", "list", "--banned")))
        shared_redis().empty()  # the store has the ban too
        within(1.0, lambda: "api_key_banned" in there.get(ORDERS).text)
        petstore_json(each_deployment, "accounts", "set-plan", "acme", *UNLIMITED[1:])  # so that a lifted ban shows
        # A request between the end of the ban and the new plan would be the first strike of another ban.
        within(
            1.0, lambda: {"1000000"} == {client.get(ORDERS).headers["x-ratelimit-limit"] for client in (here, there)}
        )
        petstore_json(each_deployment, "keys", "unban", key_id)
        within(1.0, partial(both_respond, 200))
        petstore_json(each_deployment, "keys", "revoke", key_id)
        within(1.0, partial(both_respond, 401))
        here.headers["Authorization"] = there.headers["Authorization"] = f"Bearer {other_key}"
        for change, status in (("resume", 200), ("suspend", 401), ("resume", 200)):
            petstore_json(each_deployment, "accounts", change, "globex")
            within(1.0, partial(both_respond, status))


@pytest.mark.parametrize("kind", ["frozen", "gone"])
def test_an_outage_of_redis_under_load_is_never_an_error_and_never_unlimited(store: Path, kind: str) -> None:
    limited, _ = new_key(store)
    free, _ = new_key(store, "globex", UNLIMITED)
    with own_redis() as redis, two_servers(store, redis.url) as servers:

        def states() -> list[tuple[int, str]]:
            return [server.readiness() for server in servers]

        assert [(200, "ok")] * 2 == states()
        with redis.frozen() if kind == "frozen" else redis.gone():
            began = time.monotonic()
            assert {"200": 4} == flood(servers, free, 2)
            assert time.monotonic() - began < 1 + busy()
            assert {"200": 600} == flood(servers, free, 300)
            assert {"200": 120, "rate_limit_exceeded": 80} == flood(servers, limited, 100)  # 60 by each
            assert [(200, "degraded")] * 2 == states()
            assert [1, 1] == [server.metrics()["petstore_limits_degraded"] for server in servers]
        within(5, lambda: states() == [(200, "ok")] * 2)
        third, _ = new_key(store, "initech")
        assert {"200": 60, "rate_limit_exceeded": 40} == flood(servers, third, 50)
        for server in servers:
            logged = [json.loads(line) for line in server.log.read_text().splitlines() if "redis" in line]
            lost = [line for line in logged if line["event"].startswith("redis lost its counts")]
            assert (kind == "gone") == bool(lost)
            assert len(lost) == server.metrics()["petstore_limit_counts_lost_total"]
            levels = [line["level"] for line in logged if line["level"] != "debug" and line not in lost]
            assert ["error", "info"] * max(1, len(levels) // 2) == levels  # a busy machine may bring more outages


def results(store: Path, redis: RedisEngine) -> dict[str, str]:
    """What the doctor says of Redis: the message of each finding, by level."""
    done = petstore(store, "doctor", "--json", PETSTORE_REDIS_URL=redis.url)
    found = json.loads(done.stdout)
    return {each["level"]: each["message"] for each in found if each["check"] == "redis"}


def test_the_doctor_looks_into_every_store_that_can_be_served(each_deployment: Deployment) -> None:
    new_key(each_deployment)
    redis = {"PETSTORE_REDIS_URL": shared_redis().empty()}
    done = petstore(each_deployment, "doctor", "--json", PETSTORE_PORT="0", PETSTORE_ADMIN_PORT="0", **redis)
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert ("ok", "ok") == (found["store"]["level"], found["accounts"]["level"])
    assert 0 == done.returncode, done.stdout
    keys: Any = shared_redis().client.keys("*")
    names = {re.fullmatch(rb"petstore:[\w-]{10,}:(\w+)", key) for key in keys if b":clock:" not in key}
    assert {b"since"} == {name and name[1] for name in names} - {b"timeline"}


def test_the_doctor_of_a_store_that_cannot_be_opened_leaves_no_trace_in_redis(tmp_path: Path) -> None:
    settings = {
        "PETSTORE_DATABASE_URL": f"sqlite:///{tmp_path}/missing.db",
        "PETSTORE_REDIS_URL": shared_redis().empty(),
    }
    done = petstore(tmp_path / "missing.db", "doctor", "--json", **settings)
    assert (1, [], []) == (done.returncode, shared_redis().client.keys("*"), list(tmp_path.iterdir()))
    assert f"There is no store at {tmp_path}/missing.db." in done.stdout


def test_the_doctor_compares_the_clock_with_those_of_the_engines(each_deployment: Deployment) -> None:
    environ = environment(each_deployment, PETSTORE_REDIS_URL=shared_redis().empty(), PETSTORE_ADMIN_PORT="0")
    settings = read_settings({name: environ[name] for name in environ if "PETSTORE" in name})
    ahead = asyncio.run(examine(settings, lambda: time.time() + 100))
    [clock] = [result for result in ahead if result.check == "clock"]
    assert "warn" == clock.level
    assert re.search(r"that of Redis is (99|100|101) seconds behind", clock.message)
    on_postgresql = store_file(settings) is None
    assert on_postgresql == bool(re.search(r"that of PostgreSQL is (99|100|101) seconds behind", clock.message))
    right = asyncio.run(examine(settings, time.time))
    assert ["ok"] == [result.level for result in right if result.check == "clock"]


def test_the_doctor_warns_of_a_redis_that_forgets_or_is_gone(store: Path) -> None:
    with own_redis() as redis:
        assert "append-only" in results(store, redis)["warn"]
        with redis.gone():
            expected = f"Limits cannot be counted at {redis.url} (Connection refused)."
            assert expected == results(store, redis)["fail"]
