"""A failover: hosts find the new primary themselves; a synchronous replica has lost no acknowledged change."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock, call

import httpx2
import pytest

from petstore_server.api.list_cache import ListCache
from petstore_server.domain.orders import Order
from petstore_server.engines.postgres import timelines
from petstore_server.engines.postgres.faults import OldPrimary
from petstore_server.engines.postgres.timelines import Timelines
from testing.deployment import Deployment
from testing.failover import Pair, acknowledge_together, disconnect, promote, running_pair
from testing.process import Server, new_key, petstore, serving
from testing.redis_engine import own_redis
from testing.stores import BY, Canceller, opened_at, seconds_to_recovery, served
from testing.subprocesses import PATIENCE, busy, within

OLD = "PostgreSQL is an old primary"
CHANGES = "/v2/store/changes"


@pytest.fixture(name="pair")
def _pair() -> Iterator[Pair]:
    with running_pair() as pair:
        yield pair


async def test_a_failover_under_load_loses_no_acknowledged_change(pair: Pair) -> None:
    acknowledge_together(pair.primary)
    replica_first = f"postgresql://postgres@127.0.0.1:{pair.replica.port},127.0.0.1:{pair.primary.port}/postgres"
    async with opened_at(replica_first) as store:  # which is passed over
        await store.orders.import_batch([Order(number) for number in range(8_000)], "import:1", BY)
        cache = ListCache(store.listing)
        shown, access = await served(cache), await store.access_version()
        rebuilds: list[float] = []
        store.engine.stats.rebuilt = rebuilds.append
        canceller = Canceller(store, 8_000)
        await canceller.until(500)
        await asyncio.to_thread(pair.primary.stop, signal.SIGQUIT)
        await canceller.end()
        await asyncio.to_thread(promote, pair.replica)
        assert await seconds_to_recovery(store) < 5 + busy()
        await canceller.verify()
        assert shown == await served(cache)
        assert rebuilds  # another history: read again
        assert access != await store.access_version()


@pytest.fixture(name="store")
def _store(pair: Pair, tmp_path: Path) -> Iterator[Deployment]:
    """A store on the pair, whose processes share a Redis."""
    with own_redis() as redis:
        engines = {"PETSTORE_DATABASE_URL": pair.url, "PETSTORE_REDIS_URL": redis.url}
        deployment = Deployment(tmp_path / "store", engines)
        assert 0 == petstore(deployment, "db", "migrate").returncode
        yield deployment


def readiness(server: Server) -> str:
    response = httpx2.get(f"{server.admin}/readyz", timeout=PATIENCE)
    return f"{response.status_code} {response.text}"


def test_a_primary_that_returns_after_a_failover_is_refused_by_servers_and_commands(
    pair: Pair, store: Deployment
) -> None:
    assert 0 == petstore(store, "accounts", "create", "acme", "--plan", "free").returncode
    disconnect(pair)
    with serving(store) as server:
        pair.primary.stop(signal.SIGQUIT)
        promote(pair.replica)
        within(PATIENCE, lambda: readiness(server).startswith("200"))
        pair.primary.start()
        with pair.replica.admin() as admin:  # the server has to connect again, and the old primary is first in its URL
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'petstore'")
        within(PATIENCE, lambda: OLD in readiness(server))
        assert readiness(server).startswith("503")
        within(PATIENCE, lambda: OLD in server.log.read_text())
        assert 1 <= server.metrics()["petstore_old_primaries_refused_total"]
        for command in ("accounts create globex --plan free", "db migrate", "db check", "accounts list"):
            refused = petstore(store, *command.split())
            assert (1, True) == (refused.returncode, OLD in refused.stderr)
        examined = petstore(store, "doctor")
        assert (1, True) == (examined.returncode, OLD in examined.stdout)
        with pair.primary.admin() as admin:
            assert [("acme",)] == admin.execute("SELECT name FROM petstore.accounts").fetchall()
        pair.primary.stop(signal.SIGQUIT)
        within(PATIENCE, lambda: readiness(server).startswith("200"))
    assert 0 == petstore(store, "accounts", "create", "globex", "--plan", "free").returncode


def test_a_server_stops_using_a_primary_once_another_process_has_seen_its_successor(
    pair: Pair, store: Deployment
) -> None:
    assert 0 == petstore(store, "accounts", "create", "acme", "--plan", "free").returncode
    disconnect(pair)
    with serving(store, PETSTORE_DATABASE_URL=pair.primary.url("postgres")) as server:
        assert readiness(server).startswith("200")
        promote(pair.replica)
        new = petstore(store, "accounts", "list", PETSTORE_DATABASE_URL=pair.replica.url("postgres"))
        assert 0 == new.returncode
        within(PATIENCE, lambda: OLD in server.log.read_text())
        assert OLD in readiness(server)


@pytest.mark.parametrize("loses", [False, True])
def test_tokens_of_changes_survive_a_failover_unless_it_lost_changes(
    pair: Pair, store: Deployment, loses: bool
) -> None:
    key, _ = new_key(store)
    assert 0 == petstore(store, "orders", "import", "-", "--format", "csv", text="id\n1\n2\n3\n").returncode
    if loses:
        disconnect(pair)
    else:
        acknowledge_together(pair.primary)
    with serving(store) as server, server.client(key) as client:
        assert 204 == client.delete("/v1/store/orders/1").status_code
        page = client.get(CHANGES).json()
        assert [2, 3, 1] == [order["id"] for order in page["data"]]
        pair.primary.stop(signal.SIGQUIT)
        promote(pair.replica)
        # At once: the clock is not behind any more.
        within(PATIENCE, lambda: client.delete("/v1/store/orders/2").status_code == 204)
        found = client.get(CHANGES, params={"after": page["next"]})
        if loses:
            assert (410, "changes_reset") == (found.status_code, found.json()["code"])
            assert [1, 3, 2] == [order["id"] for order in client.get(CHANGES).json()["data"]]
        else:
            assert [2] == [order["id"] for order in found.json()["data"]]


async def test_without_redis_a_process_refuses_an_older_timeline_than_it_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica: list[tuple[str, str]] = []
    first, promoted = [("store", "00000010")], [("store", "00000011")]
    monkeypatch.setattr(timelines, "briefly", AsyncMock(side_effect=[first, promoted, replica, first]))
    seen = Timelines()
    for _ in range(3):
        await seen.verify(AsyncMock())
    with pytest.raises(OldPrimary, match="timeline 16, after 17 was seen"):
        await seen.verify(AsyncMock())
    assert 1 == seen.refused


async def test_each_newer_time_that_was_shown_is_shared_once() -> None:
    shared = AsyncMock()
    seen = Timelines(shared)
    for at in (50, 49, 51, 51):
        await seen.witness("epoch", at)
    assert [call(":clock:epoch", 50), call(":clock:epoch", 51)] == shared.mock_calls
