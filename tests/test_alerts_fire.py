"""Alerts fire: a real Prometheus scrapes a real server in which the failure is caused.

Every duration of the alerts is divided by sixty, so that a minute takes a second.
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
from dataclasses import replace
from pathlib import Path

import httpx2
import psycopg
import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.transitions import Transition
from petstore_server.domain.webhooks import Webhook, WebhookState
from petstore_server.runtime.opening import opened_store
from testing.deployment import Deployment
from testing.engines import PostgresEngine, running_engine
from testing.failover import disconnect, promote, running_pair
from testing.process import PETSTORE, environment, new_key, petstore, serving, serving_as
from testing.prometheus import ask, firing, prometheus
from testing.redis_engine import own_redis, shared_redis
from testing.stores import new_store_database, require_store_file
from testing.subprocesses import PATIENCE, descendants, free_port, kill, within
from testing.webhook_messages import SETTINGS

pytestmark = pytest.mark.system

LISTS = "/v1/store/orders"


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


def test_a_process_that_is_started_again_and_again(store: Path, tmp_path: Path) -> None:
    port = str(free_port())
    require_store_file(store)
    command = [str(PETSTORE), "serve", "--port", "0", "--admin-port", port]
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as running:

        def start_again() -> None:
            if processes:
                kill(processes.pop())
            log = running.enter_context((tmp_path / "log").open("ab"))
            processes.append(subprocess.Popen(command, env=environment(store), stdout=log, stderr=log))
            within(PATIENCE, responds)
            time.sleep(1.5)  # for a scrape

        def responds() -> bool:
            try:
                return httpx2.get(f"http://127.0.0.1:{port}/livez").status_code == 200
            except httpx2.TransportError:
                return False

        start_again()
        running.callback(lambda: kill(processes[0]))
        with watched(f"http://127.0.0.1:{port}", tmp_path) as fires:
            fires("PetstoreRestarting", start_again)


def test_an_old_primary_that_returns(tmp_path: Path) -> None:
    with running_pair() as pair, own_redis() as redis:
        engines = {"PETSTORE_DATABASE_URL": pair.url, "PETSTORE_REDIS_URL": redis.url}
        store = Deployment(tmp_path / "store", engines)
        assert 0 == petstore(store, "db", "migrate").returncode
        disconnect(pair)
        with serving(store) as server, watched(server.admin, tmp_path) as fires:
            pair.primary.stop(signal.SIGQUIT)
            promote(pair.replica)
            within(PATIENCE, lambda: httpx2.get(f"{server.admin}/readyz").status_code == 200)
            pair.primary.start()
            with pair.replica.admin() as admin:
                mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'petstore'"
                admin.execute(mine)
            assert "refuses an old primary" in fires("PetstoreOldPrimary", nothing)


def test_lines_of_the_log_that_are_lost(store: Path, tmp_path: Path) -> None:
    key, _ = new_key(store)
    ports = [str(free_port()), str(free_port())]
    command = [str(PETSTORE), "serve", "--port", ports[0], "--admin-port", ports[1]]
    api, admin = (f"http://127.0.0.1:{port}" for port in ports)
    with Path("/dev/full").open("wb") as full, ExitStack() as running:
        environ = environment(store, PETSTORE_ACCESS_LOG="all")
        process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=full)
        running.callback(kill, process)
        with watched(admin, tmp_path) as fires:
            headers = {"Authorization": f"Bearer {key}"}
            cause = lambda: httpx2.get(f"{api}{LISTS}", headers=headers)  # noqa: E731 - repeated by `fires`
            assert " lines of its log." in fires("PetstoreLogLinesLost", cause)


def test_connections_that_are_refused(store: Path, tmp_path: Path) -> None:
    with (
        serving(store, PETSTORE_MAX_CONNECTIONS="1") as server,
        watched(server.admin, tmp_path) as fires,
        server.connect(),
    ):

        def connect() -> None:
            assert 503 == httpx2.get(f"{server.api}{LISTS}", timeout=PATIENCE).status_code

        assert "refuses connections" in fires("PetstoreConnectionsRefused", connect)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_backup_that_is_missing(engine: str, store: Path, tmp_path: Path) -> None:
    with ExitStack() as made:
        on = made.enter_context(in_postgresql(store))[0] if engine == "postgresql" else store
        with serving(on) as server, watched(server.admin, tmp_path) as fires:
            asyncio.run(record_backup(environment(on)["PETSTORE_DATABASE_URL"], time.time() - 3 * DAY))
            assert "has not been backed up for two days." in fires("PetstoreBackupOld", nothing)


@contextmanager
def in_postgresql(store: Path) -> Iterator[tuple[Deployment, PostgresEngine]]:
    """A new store in a PostgreSQL, with a Redis; logs go next to this path."""
    with running_engine() as postgres:
        url = postgres.url(new_store_database(postgres))
        yield Deployment(store, {"PETSTORE_DATABASE_URL": url, "PETSTORE_REDIS_URL": shared_redis().empty()}), postgres


def test_a_webhook_that_was_stopped(store: Path, tmp_path: Path) -> None:
    new_key(store)
    created = petstore(store, "webhooks", "create", "acme", "https://shop.example/", "--json", **SETTINGS)
    webhook_id = json.loads(created.stdout)["id"]
    with serving(store, **SETTINGS) as server, watched(server.admin, tmp_path) as fires:
        asyncio.run(stop_webhook(environment(store)["PETSTORE_DATABASE_URL"], webhook_id))
        assert fires("PetstoreWebhooksStopped", nothing).startswith("1 of the webhooks that 127.0.0.1:")


async def stop_webhook(url: str, webhook_id: str) -> None:
    stop = Transition[Webhook]("webhook.stop", lambda webhook: replace(webhook, state=WebhookState.STOPPED))
    async with opened_store(url) as store:
        await store.webhooks.change(webhook_id, stop, Actor("operator:test", time.time()))


async def record_backup(url: str, at: float) -> None:
    async with opened_store(url) as store:
        await store.audit.record_backup("orders.dump", Actor("operator:test", at))


def test_a_postgresql_whose_connections_are_used_up(store: Path, tmp_path: Path) -> None:
    with (
        in_postgresql(store) as (deployment, postgres),
        serving(deployment) as server,
        watched(server.admin, tmp_path) as fires,
        ExitStack() as others,
    ):
        for _ in range(48):  # of 60, and the server has some
            others.enter_context(psycopg.connect(postgres.url("postgres")))
        assert "more than four fifths" in fires("PetstorePostgresqlConnections", nothing)
