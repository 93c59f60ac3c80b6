"""Prometheus with the shipped configuration: promtool accepts it, alerts fire, and the dashboard shows a real server.

Every duration of the alerts that fire is divided by sixty, so that a minute takes a second.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.timestamps import DAY
from petstore_server.runtime.opening import opened_store
from testing import needs
from testing.documents import ROOT
from testing.process import UNLIMITED, environment, new_key, petstore, put_orders, serving, serving_as
from testing.prometheus import SHIPPED, ask, firing, prometheus
from testing.redis_engine import own_redis, shared_redis
from testing.subprocesses import PATIENCE, descendants, within
from testing.threaded_receiver import receiving
from testing.webhook_messages import SETTINGS

pytestmark = pytest.mark.system

LISTS, PAGES = "/v1/store/orders", "/v2/store/orders"
PANELS = json.loads((ROOT / "deploy" / "grafana" / "petstore.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
ZERO = re.compile(
    r"limits_degraded|500\|503|log_lines_lost|(refused|shed)_total|decisions_local|counts_lost|held_requests|workers?"
    r"|postgresql|start_timestamp|clock_ahead|webhook_lag"
)
"""Queries that show zero while nothing is wrong."""
BANS = {"PETSTORE_BAN_GRACE_SECONDS": "0", "PETSTORE_BAN_STRIKES": "2"}
BANS |= {"PETSTORE_BAN_SECONDS": "1", "PETSTORE_BAN_MAX_SECONDS": "1"}


def promtool(*arguments: str) -> None:
    """Run promtool next to the shipped files. It must succeed."""
    done = subprocess.run(
        [needs.program("promtool", "prometheus"), *arguments], cwd=SHIPPED, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*_test.yml")), ids=lambda file: file.stem)
def test_the_alerts_pass_their_tests(file: Path) -> None:
    promtool("test", "rules", file.name)


@contextmanager
def watched(admin: str, folder: Path) -> Iterator[Callable[[str, Callable[[], object]], str]]:
    """A function that repeats what causes an alert until that fires; it returns the alert's summary."""
    target = admin.removeprefix("http://")
    with prometheus(target, folder) as asked:
        found = {"match[]": "petstore_ready"}
        within(PATIENCE, lambda: bool(ask(asked, "label/instance/values", **found)))
        within(PATIENCE, lambda: {} == firing(asked))  # until its first look, Prometheus has no target

        def fires(name: str, cause: Callable[[], object]) -> str:
            deadline = time.monotonic() + PATIENCE
            while name not in (alerts := firing(asked)):
                assert time.monotonic() < deadline, alerts
                cause()
                time.sleep(0.5)
            assert target == alerts[name]["labels"]["instance"]
            summary: str = alerts[name]["annotations"]["summary"]
            return summary

        yield fires


def nothing() -> None:
    """The failure goes on by itself."""


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Path:
    return tmp_path / "orders.db"


def test_an_empty_store_and_a_rise_of_401(store: Path, tmp_path: Path) -> None:
    with serving(store) as server, watched(server.admin, tmp_path) as fires, server.client() as client:

        def ask_for_the_list() -> None:
            assert 401 == client.get(LISTS).status_code

        summary = fires("PetstoreStoreEmpty", ask_for_the_list)
        assert summary.startswith("The store that 127.0.0.1:")
        assert " answers " in fires("PetstoreUnauthorized", ask_for_the_list)


def test_counts_that_redis_lost(store: Path, tmp_path: Path) -> None:
    key, _ = new_key(store)
    with (
        own_redis() as redis,
        serving(store, PETSTORE_REDIS_URL=redis.url) as server,
        watched(server.admin, tmp_path) as fires,
        server.client(key) as client,
    ):
        assert 200 == client.get(LISTS).status_code
        redis.empty()
        assert "has lost its counts" in fires("PetstoreLimitCountsLost", nothing)


def set_clock_ahead() -> None:
    true_time = time.time
    time.time = lambda: true_time() + 60


def test_a_clock_that_is_wrong(store: Path, tmp_path: Path) -> None:
    redis = {"PETSTORE_REDIS_URL": shared_redis().empty()}
    with serving_as(store, (), redis, set_clock_ahead) as server, watched(server.admin, tmp_path) as fires:
        assert re.search("differs by (59|1m 0).* from that of Redis", fires("PetstoreClockWrong", nothing))


def test_workers_that_die_again_and_again(store: Path, tmp_path: Path) -> None:
    redis = shared_redis().empty()
    with serving(store, "--workers", "2", PETSTORE_REDIS_URL=redis) as server, watched(server.admin, tmp_path) as fires:

        def kill_one() -> None:
            for pid in descendants(server.process.pid)[:1]:
                os.kill(pid, signal.SIGKILL)

        assert "die again and again" in fires("PetstoreRestarting", kill_one)


def test_connections_that_are_refused(store: Path, tmp_path: Path) -> None:
    with (
        serving(store, PETSTORE_MAX_CONNECTIONS="1") as server,
        watched(server.admin, tmp_path) as fires,
        server.connect(),
    ):

        def connect() -> None:
            assert 503 == httpx2.get(f"{server.api}{LISTS}", timeout=PATIENCE).status_code

        assert "refuses connections" in fires("PetstoreConnectionsRefused", connect)


def test_a_backup_that_is_missing(store: Path, tmp_path: Path) -> None:
    with serving(store) as server, watched(server.admin, tmp_path) as fires:
        asyncio.run(record_backup(environment(store)["PETSTORE_DATABASE_URL"], time.time() - 3 * DAY))
        assert "has not been backed up for two days." in fires("PetstoreBackupOld", nothing)


async def record_backup(url: str, at: float) -> None:
    async with opened_store(url) as store:
        await store.audit.record_backup("orders.dump", Actor("operator:test", at))


def shows(prometheus: httpx2.Client, query: str) -> bool:
    """Whether the query has the values that its panel should have."""
    query = query.replace("$instance", ".*").replace("$__rate_interval", "10s")
    found = ask(prometheus, "query", query=query)
    values = [float(series["value"][1]) for series in found["result"]]
    return values != [] and (max(values) > 0 or bool(ZERO.search(query)))


def test_every_panel_of_the_dashboard_shows_what_the_server_did(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    put_orders(store, 1_000)
    key, _ = new_key(store, "acme", UNLIMITED)
    limited_key, _ = new_key(store, "hasty", ("--plan", "enterprise", "--per-minute", "1", "--per-day", "9"))
    assert 0 == petstore(store, "db", "backup", str(tmp_path / "backup.db")).returncode
    with receiving() as receiver, ExitStack() as running:
        created = petstore(store, "webhooks", "create", "acme", receiver.url, **SETTINGS)
        assert 0 == created.returncode, created.stderr
        server = running.enter_context(serving(store, **BANS, **SETTINGS))
        client, hasty = (running.enter_context(server.client(each)) for each in (key, limited_key))
        target = server.admin.removeprefix("http://")
        with prometheus(target, tmp_path) as asked:
            within(PATIENCE, lambda: ask(asked, "label/instance/values", **{"match[]": "petstore_ready"}) == [target])
            missing, number = QUERIES, 0
            deadline = time.monotonic() + PATIENCE
            while missing := [query for query in missing if not shows(asked, query)]:
                assert time.monotonic() < deadline, "\n".join(missing)
                number += 1
                tag = client.get(LISTS).headers["ETag"]
                assert 304 == client.get(LISTS, headers={"If-None-Match": tag}).status_code
                assert 200 == client.get(PAGES).status_code
                assert 204 == client.delete(f"{LISTS}/{number}").status_code
                assert {200, 429} >= {hasty.get(LISTS).status_code for _ in range(5)}
                time.sleep(0.2)
