"""A failover to a synchronous replica: no acknowledged change is lost, and hosts find the new primary themselves."""

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.http.list_cache import ListCache
from support.engines import PostgresEngine, running_engine
from support.open_stores import BY, log, opened_at, seconds_to_recovery, served
from support.subprocesses import BUSY, PATIENCE, within

pytestmark = pytest.mark.anyio


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[PostgresEngine, PostgresEngine]]:
    """A primary, and a replica without which it acknowledges nothing."""
    with running_engine() as primary:
        replica = PostgresEngine(primary=primary)
        try:
            replica.start()
            with primary.admin() as admin:
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                admin.execute("SELECT pg_reload_conf()")
                while [("sync",)] != admin.execute("SELECT sync_state FROM pg_stat_replication").fetchall():
                    time.sleep(0.02)
            yield primary, replica
        finally:
            primary.stop(signal.SIGQUIT)  # in order, it would wait for the replica
            replica.remove()


def promote(replica: PostgresEngine) -> None:
    """Make a replica the primary. A query that waited for that itself would hold up what the replica has to apply."""
    with replica.admin() as admin:
        admin.execute("SELECT pg_promote(wait => false)")
        within(PATIENCE, lambda: admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))


async def test_a_failover_under_load_loses_no_acknowledged_change(pair: tuple[PostgresEngine, PostgresEngine]) -> None:
    primary, replica = pair
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
    async with opened_at(url) as store:
        await store.orders.import_batch([Order(number) for number in range(20_000)], "import:1", BY)
        cache = ListCache(store.orders)
        shown, access = await served(cache), await store.access_version()
        numbers = iter(range(20_000))
        acknowledged: set[int] = set()
        unsure: set[int] = set()

        async def cancel() -> None:
            for number in numbers:
                try:
                    await store.orders.change(number, CANCEL, BY)
                    acknowledged.add(number)
                except ServiceUnavailable:
                    unsure.add(number)
                    return

        cancelling = [asyncio.create_task(cancel()) for _ in range(32)]
        while len(acknowledged) < 500:  # noqa: ASYNC110 - the end of a wait would come too late
            await asyncio.sleep(0.001)
        await asyncio.to_thread(primary.stop, signal.SIGQUIT)
        await asyncio.gather(*cancelling)
        await asyncio.to_thread(promote, replica)
        assert await seconds_to_recovery(store) < 5 + BUSY
        cancelled = {
            order.id async for batch in store.orders.scan() for order in batch if order.status is Status.CANCELLED
        }
        assert acknowledged <= cancelled <= acknowledged | unsure
        assert len(cancelled) == [entry.action for entry in await log(store)].count("order.cancel")
        rebuilds = store.stats.rebuilds
        assert shown == await served(cache)
        assert rebuilds < store.stats.rebuilds  # another history: read again
        assert access != await store.access_version()
