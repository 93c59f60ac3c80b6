"""What becomes of requests when PostgreSQL fails, and that service recovers by itself when it is back."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import psycopg
import pytest

from petstore_server import deadlines
from petstore_server.api.list_cache import ListCache
from petstore_server.deadlines import Timeouts
from petstore_server.domain.errors import (
    OrderAlreadyCancelled,
    OrderNotFound,
    PetNotFound,
    ServiceUnavailable,
    StoreUnusable,
)
from petstore_server.domain.keys import Environment
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.pets import Pet
from petstore_server.engines.postgres import opening
from petstore_server.engines.postgres.connections import Connection
from petstore_server.engines.postgres.engine import LONG_READS
from petstore_server.engines.postgres.faults import NO_RESPONSE
from petstore_server.engines.postgres.options import Options, transactions
from petstore_server.engines.postgres.pool import CONNECTIONS, Pool
from petstore_server.engines.postgres.timelines import Timelines
from petstore_server.runtime.opening import named_store
from petstore_server.settings import read_settings
from petstore_server.store import Store
from petstore_server.store.statements import Query, Row, Work
from testing.engines import PostgresEngine, running_engine
from testing.redis_engine import own_redis
from testing.stores import (
    BY,
    Canceller,
    PostgresPlaces,
    Stores,
    add_key,
    all_orders,
    api_key,
    body,
    log,
    opened_at,
    reason,
    seconds_to_recovery,
    served,
)
from testing.subprocesses import PATIENCE, busy, within

READ, _, _, EXPORT, WRITE, BULK = transactions(Timeouts())
SOON = 2.0
"""Seconds within which a request gets the error that the store cannot be used."""


@pytest.fixture(name="unhurried")
def _unhurried() -> None:
    """The time limits of calls are those of the product, except in tests that are `patient`."""


@pytest.fixture(name="own_engine", scope="module")
def _own_engine() -> Iterator[PostgresEngine]:
    """A server that the tests of this module stop and start."""
    with running_engine() as engine:
        yield engine


@pytest.fixture(name="own_stores")
def _own_stores(own_engine: PostgresEngine) -> Iterator[Stores]:
    with PostgresPlaces(own_engine) as places:
        yield Stores(places)


@asynccontextmanager
async def filled(stores: Stores, orders: int = 10) -> AsyncIterator[Store]:
    """A store with pending orders from 0 on, and a key."""
    async with stores.opened() as store:
        await store.orders.import_batch([Order(number) for number in range(orders)], "import:1", BY)
        await store.pets.import_batch([Pet(1)], "import:2", BY)
        await add_key(store)
        yield store


def calls(store: Store) -> list[Callable[[], Awaitable[object]]]:
    """Every way in which a request, or a background task, uses the store."""
    return [
        store.listing.current,
        lambda: store.orders.change(1, CANCEL, BY),
        lambda: store.orders.find(1),
        lambda: store.keys.principal(api_key("one").digest, Environment.PRODUCTION, 1.0),
        lambda: store.pets.find(1),
        store.access_version,
        store.check,
        lambda: store.usage.save({}, []),
        store.usage.bans,
        lambda: store.accounts.find("zoo"),
    ]


@asynccontextmanager
async def open_pool(stores: Stores) -> AsyncIterator[Pool]:
    """Connections to a store with pending orders."""
    async with filled(stores):
        pool = Pool(stores.url, Timelines())
        yield pool
        await pool.close()


async def time_to_refusal(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    with pytest.raises(ServiceUnavailable):
        await call()
    return time.perf_counter() - began


async def connect_all(store: Store) -> None:
    """Open all connections: when the machine stands still for a second, a request does not wait for them."""
    found: Sequence[object] = [ServiceUnavailable("")]
    while {Order} != set(map(type, found)):
        found = await asyncio.gather(*(store.orders.find(1) for _ in range(CONNECTIONS)), return_exceptions=True)


async def reported_lock(change: Callable[[], Awaitable[object]]) -> str:
    """Why a change of a locked order is refused, soon each time; not for lack of a response, as after a pause."""
    while True:
        began = time.perf_counter()
        found = await reason(change())
        assert time.perf_counter() - began < SOON + busy()
        if found != NO_RESPONSE:
            return found


async def test_a_stopped_server_is_reported_soon_and_used_again_when_it_returns(
    own_stores: Stores, own_engine: PostgresEngine
) -> None:
    async with filled(own_stores) as store:
        shown = await body(store)
        own_engine.stop(signal.SIGINT)
        try:
            waits = await asyncio.gather(*(time_to_refusal(call) for call in calls(store) for _ in range(5)))
        finally:
            own_engine.start()
        assert max(waits) < SOON + busy()
        assert await seconds_to_recovery(store) < 5 + busy()
        assert shown == await body(store)
        assert (await store.orders.change(1, CANCEL, BY)).status is Status.CANCELLED


async def test_a_server_that_does_not_respond_is_reported_soon_and_used_again(
    own_stores: Stores, own_engine: PostgresEngine
) -> None:
    async with filled(own_stores) as store:
        await connect_all(store)
        with own_engine.frozen():
            for _ in range(2):  # over the connections that were open, and over new ones
                waits = await asyncio.gather(*(time_to_refusal(call) for call in calls(store) for _ in range(10)))
                assert max(waits) < SOON + busy()
            late = []
            for _ in range(10):  # while others find that it is gone
                late += [asyncio.create_task(time_to_refusal(call)) for call in calls(store)[:2]]
                await asyncio.sleep(0.1)
            assert max(await asyncio.gather(*late)) < SOON + busy()
        assert await seconds_to_recovery(store) < 5 + busy()


async def test_an_import_goes_on_after_a_pause_of_the_server(own_stores: Stores, own_engine: PostgresEngine) -> None:
    async with filled(own_stores) as store:
        with own_engine.frozen():
            importing = asyncio.create_task(store.orders.import_batch([Order(1_000_000)], "import", BY))
            await asyncio.sleep(SOON)  # no request would wait as long
        await importing


async def test_commands_do_not_blame_postgresql_while_redis_is_frozen(postgres_stores: Stores) -> None:
    async with postgres_stores.opened():
        pass
    with own_redis() as redis, redis.frozen():
        settings = {"PETSTORE_DATABASE_URL": postgres_stores.url, "PETSTORE_REDIS_URL": redis.url}
        async with named_store(read_settings(settings)) as store:
            assert [] == await store.accounts.list()


async def test_a_crash_under_load_loses_no_acknowledged_change(own_stores: Stores, own_engine: PostgresEngine) -> None:
    async with filled(own_stores, 8_000) as store:
        canceller = Canceller(store, 8_000)
        await canceller.until(1_000)
        await asyncio.to_thread(own_engine.stop, signal.SIGQUIT)
        await canceller.end()
        await asyncio.to_thread(own_engine.start)
        await seconds_to_recovery(store)
        cancelled = await canceller.verify()
        assert canceller.unsure
        for number in canceller.unsure:  # a retry shows (D19)
            if number in cancelled:
                with pytest.raises(OrderAlreadyCancelled):
                    await store.orders.change(number, CANCEL, BY)
            else:
                await store.orders.change(number, CANCEL, BY)


async def test_the_list_is_current_after_the_server_crashed_and_recovered(
    own_stores: Stores, own_engine: PostgresEngine
) -> None:
    async with filled(own_stores, 2) as store:
        cache = ListCache(store.listing)
        assert b'[{"id":0},{"id":1}]' == await served(cache)
        access = await store.access_version()
        await asyncio.to_thread(own_engine.crash)
        async with opened_at(own_stores.url) as other:
            await other.orders.import_batch([Order(2)], "import:3", BY)
            await add_key(other, "two", "shop")
        assert b'[{"id":0},{"id":1},{"id":2}]' == await served(cache)
        assert access != await store.access_version()


def terminate(stores: Stores, engine: PostgresEngine) -> int:
    """End all connections to the store, as an administrator does; return how many there were."""
    ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with engine.admin() as admin:
        return len(admin.execute(ending, (stores.url.rpartition("/")[2],)).fetchall())


@pytest.mark.usefixtures("patient")
async def test_connections_that_were_ended_while_idle_are_not_noticed(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    async with filled(postgres_stores) as store:
        used = calls(store)
        used.append(lambda: store.pets.import_batch([Pet(2)], "import:3", BY))
        used.append(lambda: all_orders(store))
        for call in used:
            await connect_all(store)
            assert 2 <= terminate(postgres_stores, postgres)
            await call()
        assert 1 == (await store.imports.find("import:3")).created
        assert ["import:2", "import:3"] == [each.subject for each in await log(store) if each.action == "pets.import"]


async def test_transactions_that_wait_for_each_other_in_a_circle_are_done_again(postgres_stores: Stores) -> None:
    async with open_pool(postgres_stores) as pool:
        tries = 0
        both_hold_one = asyncio.Barrier(2)

        def lock(order_id: int) -> Work[None]:
            yield Query("SELECT 1 FROM petstore.orders WHERE id = %s FOR UPDATE", (order_id,))

        async def lock_both(connection: Connection, first: int, second: int) -> None:
            nonlocal tries
            tries += 1
            met = tries > 2
            await connection.run_work(lock(first))
            if not met:
                await both_hold_one.wait()
            await connection.transaction(lock(second))

        works = [lambda connection: lock_both(connection, 1, 2), lambda connection: lock_both(connection, 2, 1)]
        await asyncio.gather(*(pool.use(work, BULK) for work in works))
        assert tries >= 3  # more if the one that is repeated is again quicker than the one that waits


async def test_a_transaction_that_fails_leaves_its_connection_to_the_next(postgres_stores: Stores) -> None:
    def fail() -> Work[None]:
        yield Query("SELECT 1")
        raise KeyError

    async def number() -> list[list[Row]]:
        """That of the process of PostgreSQL at the other end."""
        return await pool.use(lambda connection: connection.rows([Query("SELECT pg_backend_pid()")]), READ)

    async with open_pool(postgres_stores) as pool:
        first = await number()
        async with pool.long_read(EXPORT) as reading:
            await reading.rows([Query("SELECT 1")])
        with pytest.raises(KeyError):
            await pool.use(lambda connection: connection.transaction(fail()), WRITE)
        assert first == await number()
        await asyncio.sleep(READ.statement + 0.1)  # the limits of statements that have ended break no connection
        assert first == await number()


async def test_no_more_connections_than_allowed_are_made_to_a_server_that_does_not_respond() -> None:
    """A request waits for less time than an attempt to connect."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/x"
        pool = Pool(url, Timelines(), Timeouts(connect=0.01))
        for _ in range(CONNECTIONS + 3):
            await time_to_refusal(partial(pool.use, lambda connection: connection.rows([Query("SELECT 1")]), READ))
        await pool.close()
        silent.setblocking(False)
        made = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                made += 1
    assert CONNECTIONS == made


async def test_a_process_that_was_paused_goes_on_with_the_response_that_has_arrived_meanwhile(
    postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "LAST_LOOK_SECONDS", 0.9)
    begun = asyncio.Event()

    def work() -> Work[list[Row]]:
        begun.set()
        return (yield Query("SELECT 7 FROM pg_sleep(0.1)"))

    async with open_pool(postgres_stores) as pool:
        options = WRITE._replace(statement=1.0, total=PATIENCE)
        working = asyncio.create_task(pool.use(lambda connection: connection.transaction(work()), options))
        await begun.wait()
        await asyncio.sleep(0.05)
        time.sleep(1.2)  # noqa: ASYNC251 - pauses the process, which has yet to commit
        assert [(7,)] == await working


async def test_a_connection_whose_time_ends_with_its_response_is_not_used_again(postgres_stores: Stores) -> None:
    async def end_with_response(connection: Connection) -> list[list[Row]]:
        rows = await connection.rows([Query("SELECT 7")])
        connection._abort()
        return rows

    async with open_pool(postgres_stores) as pool:
        assert [[(7,)]] == await pool.use(end_with_response, READ)
        assert 0 == len(pool._idle)


async def test_all_attempts_of_a_call_share_one_time_limit(postgres_stores: Stores, postgres: PostgresEngine) -> None:
    def meet_another() -> Work[None]:
        yield Query("SELECT pg_sleep(0.4)")
        raise psycopg.errors.UniqueViolation

    options = WRITE._replace(conflicts=(psycopg.errors.UniqueViolation,))
    async with open_pool(postgres_stores) as pool:
        call = partial(pool.use, lambda connection: connection.transaction(meet_another()), options)
        assert 0.4 < await time_to_refusal(call) < SOON + busy()
        for limits in ((60.0, 0.2), (0.2, 60.0)):  # of a statement, and of all
            sleep = partial(pool.use, lambda each: each.rows([Query("SELECT pg_sleep(1)")]), Options("", *limits))
            await time_to_refusal(sleep)
    within(PATIENCE, lambda: not postgres.connections(postgres_stores.url.rpartition("/")[2]))


async def test_an_order_that_another_program_keeps_locked_holds_up_no_other(postgres_stores: Stores) -> None:
    async with filled(postgres_stores) as store:
        commits: list[int] = []
        store.engine.stats.committed = commits.append
        with psycopg.connect(postgres_stores.url) as other:
            other.execute("SELECT 1 FROM petstore.orders WHERE id = 3 FOR UPDATE")

            def change_locked() -> Awaitable[Order]:
                commits.clear()
                return store.orders.change(3, CANCEL, BY)

            began = time.perf_counter()
            locked = asyncio.create_task(reported_lock(change_locked))
            others = (store.orders.change(number, CANCEL, BY) for number in (0, 1, 2, 4, 5))
            assert {Status.CANCELLED} == {order.status for order in await asyncio.gather(*others)}
            assert time.perf_counter() - began < 0.5 + busy()
            assert "locked" in await locked
            assert len(commits) <= 20, "it tries again too often"
        assert (await store.orders.change(3, CANCEL, BY)).status is Status.CANCELLED


async def test_exports_and_long_reads_leave_connections_to_requests(postgres_stores: Stores) -> None:
    async with filled(postgres_stores) as store, AsyncExitStack() as open_scans:
        scans = [store.orders.scan(batch_size=2) for _ in range(CONNECTIONS)]
        for scan in scans[:LONG_READS]:
            await anext(scan)
            open_scans.push_async_callback(scan.aclose)
        assert "2 long reads are under way already" == await reason(anext(scans[LONG_READS]))
        await store.orders.change(1, CANCEL, BY)
        assert Order(2) == await store.orders.find(2)
        assert 1 == len(await store.accounts.list())


@pytest.mark.usefixtures("patient")
async def test_many_requests_for_large_pages_leave_connections_to_short_work(postgres_stores: Stores) -> None:
    """Otherwise a flood of them would delay a revocation, or what an account sees, until it ends."""

    def slow() -> Work[None]:
        yield Query("SELECT pg_sleep(0.2)")

    async with filled(postgres_stores) as store:
        reads = [asyncio.create_task(store.engine.read(slow)) for _ in range(10 * CONNECTIONS)]
        await reads[0]
        await store.access_version()
        await store.orders.change(1, CANCEL, BY)
        assert sum(read.done() for read in reads) < 5 * CONNECTIONS
        await asyncio.gather(*reads)


@pytest.mark.usefixtures("patient")
async def test_connections_that_are_all_in_use_are_the_reported_reason(postgres_stores: Stores) -> None:
    async with open_pool(postgres_stores) as pool, AsyncExitStack() as reads:
        for _ in range(CONNECTIONS):
            await reads.enter_async_context(pool.long_read(EXPORT))
        refused = pool.use(lambda connection: connection.rows([Query("SELECT 1")]), READ)
        assert "all 8 connections to PostgreSQL are busy" == await reason(refused)
    assert 0 == pool._open


async def test_a_locked_table_uses_up_no_connections_and_is_the_reported_reason(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    locked = "LOCK TABLE petstore.{} IN ACCESS EXCLUSIVE MODE"
    connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'petstore'"
    async with filled(postgres_stores) as store:
        with postgres.admin() as admin, psycopg.connect(postgres_stores.url) as other:
            for table in ("keys", "accounts"):
                other.execute(locked.format(table).encode())
                await time_to_refusal(store.check)
                assert "locked" in await reported_lock(partial(store.accounts.close_account, "zoo", BY))
                other.rollback()
            other.execute(locked.format("orders").encode())
            waiting, most = [], 0
            for _ in range(20):
                waiting += [asyncio.create_task(time_to_refusal(store.check)) for _ in range(2)]
                await asyncio.sleep(0.1)
                [(number,)] = admin.execute(connections).fetchall()
                most = max(most, number)
            await asyncio.gather(*waiting)
            assert 1 < most <= CONNECTIONS
            assert "another program keeps a table or rows of PostgreSQL locked" in (store.engine.fault() or "")
            other.rollback()
        assert await seconds_to_recovery(store) < 5 + busy()


async def test_a_statement_whose_process_is_killed_ends_by_itself(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    async with open_pool(postgres_stores) as pool:
        with psycopg.connect(postgres_stores.url) as other:
            other.execute("LOCK TABLE petstore.orders IN ACCESS EXCLUSIVE MODE")
            async with pool._connection(READ, asyncio.get_running_loop().time() + 60) as connection:
                reading = asyncio.create_task(connection.rows([Query("SELECT 1 FROM petstore.orders LIMIT 1")]))
                await asyncio.sleep(0.1)
                connection._abort()  # the connection is gone, as after a kill
                with pytest.raises(psycopg.Error):
                    await reading
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'petstore'"
            with postgres.admin() as admin:
                within(2.0, lambda: not admin.execute(waiting).fetchall())
            await asyncio.sleep(READ.statement + 0.1)
            assert 0 == pool._open  # its place is free for another one


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("turns", range(3))
async def test_a_request_that_is_cancelled_as_it_gets_a_connection_leaves_it_to_others(
    postgres_stores: Stores, turns: int
) -> None:
    patient = READ._replace(statement=PATIENCE, total=PATIENCE)
    async with open_pool(postgres_stores) as pool, AsyncExitStack() as reads:
        for _ in range(CONNECTIONS - 1):
            await reads.enter_async_context(pool.long_read(EXPORT))
        async with pool.long_read(EXPORT):
            ask = pool.use(lambda connection: connection.rows([Query("SELECT 1")]), patient)
            request = asyncio.create_task(ask)
            await asyncio.sleep(0.01)
        for _ in range(turns):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait([request])
        assert request.cancelled()
        assert [[(2,)]] == await pool.use(lambda connection: connection.rows([Query("SELECT 2")]), patient)


@pytest.mark.usefixtures("patient")
async def test_a_connection_that_is_ready_just_before_its_pool_closes_is_closed(postgres_stores: Stores) -> None:
    async with open_pool(postgres_stores) as pool:
        request = asyncio.create_task(pool.use(lambda connection: connection.rows([Query("SELECT 1")]), READ))
        await asyncio.sleep(0)
        [connecting] = pool._connecting
        request.cancel()
        while not connecting.done():  # noqa: ASYNC110 - a done callback would run after the pool's
            await asyncio.sleep(0)
    assert connecting.result().closed


async def test_a_database_that_accepts_no_changes_is_reported(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    async with filled(postgres_stores) as store:
        with postgres.admin() as admin:
            name = postgres_stores.url.rpartition("/")[2]
            admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        terminate(postgres_stores, postgres)
        assert "read-only" in await reason(store.check())


async def test_of_several_hosts_one_that_does_not_respond_is_skipped(
    postgres_stores: Stores, postgres: PostgresEngine
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dark:  # takes connections and never says a word
        hosts = f"127.0.0.1:{dark.getsockname()[1]},127.0.0.1:{postgres.port}"
        async with opened_at(postgres_stores.url.replace(f"127.0.0.1:{postgres.port}", hosts)) as store:
            began = time.perf_counter()
            outcomes = await asyncio.gather(*(call() for call in calls(store)[2:5]), return_exceptions=True)
            assert time.perf_counter() - began < SOON + busy()
            assert {ServiceUnavailable, OrderNotFound, PetNotFound, type(None)} >= set(map(type, outcomes))
            assert await seconds_to_recovery(store) < 5 + busy()


async def test_a_server_that_stops_answering_does_not_hold_up_what_reads_its_state(
    postgres_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_STATE", "SELECT pg_sleep(60)")
    monkeypatch.setattr(opening, "_OPENING_SECONDS", 1.0)
    with pytest.raises(StoreUnusable, match="has stopped answering"):
        await opening.state(postgres_stores.url)
