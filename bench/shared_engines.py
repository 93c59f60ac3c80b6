"""What the shared engines spend on the service: processor time a decision, a look, a cancel; bytes a counter.

    .venv/bin/python bench/shared_engines.py

Needs Debian's package wrk. Starts PostgreSQL and Redis from the wheels that the tests use, and drives the service's
own adapters against them, then a whole server. Processor time is the engine's own, all of its processes; it varies less
than rates do, which are those of one Python process that drives. Redis keeps its append-only file, PostgreSQL flushes
its log.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "server" / "tests"))

from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Environment, Grant
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.ratelimit.fallback import Latest
from petstore_server.ratelimit.redis import RedisCounters
from petstore_server.storage.engines import AnyStore
from requests_against_nginx import TARGET, cpu_seconds, order_lines, rate
from support.engines import PostgresEngine, running_engine
from support.open_stores import BY, opened_at
from support.process import UNLIMITED, petstore, petstore_json, serving
from support.redis_engine import RedisEngine, own_redis

ACCOUNTS = 50_000
ORDERS = 100_000
LOOKS = 2_000
SECONDS = 3


def processor_seconds(process: int) -> float:
    """What a process and its living children have used."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return sum(_used(number) for number in (str(process), *children))


def _used(process: str) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def measured(what: str, number: int, process: int) -> Iterator[None]:
    """Print the rate, and the engine's processor time each."""
    used, began = processor_seconds(process), time.perf_counter()
    yield
    took, cost = time.perf_counter() - began, processor_seconds(process) - used
    print(f"{what:<58} {number / took:>9,.0f}/s {cost / number * 1e6:>9,.1f} µs of the engine", flush=True)


async def at_once(callers: int, number: int, work: Callable[[int], Awaitable[object]]) -> None:
    """Do the work so many times, with so many callers."""

    async def call(first: int) -> None:
        for turn in range(first, number, callers):
            await work(turn)

    await asyncio.gather(*[call(first) for first in range(callers)])


async def redis(engine: RedisEngine) -> None:
    counters = RedisCounters(engine.url, BanPolicy())
    await counters.connect()
    process = engine.process.pid
    terms = Plan.BUSINESS, PLAN_LIMITS[Plan.BUSINESS], DEFAULT_SCOPES
    grants = [Grant(f"key_{account:012}", account, *terms) for account in range(1, ACCOUNTS + 1)]
    empty = engine.client.info("memory")["used_memory"]

    async def decide(turn: int) -> None:
        await counters.count(grants[turn % ACCOUNTS], Latest())

    for callers in (1, 32, 256):
        number = 2_000 if callers == 1 else ACCOUNTS
        with measured(f"limit decision, {callers} at once", number, process):
            await at_once(callers, number, decide)
    filled = engine.client.info("memory")["used_memory"]
    print(f"{'account with open windows':<58} {(filled - empty) / ACCOUNTS:>9,.0f} bytes of Redis")

    async def decide_address(turn: int) -> None:
        await counters.count_address(f"198.{turn >> 16}.{turn >> 8 & 255}.{turn & 255}", charge=True)

    await at_once(256, ACCOUNTS, decide_address)
    more = engine.client.info("memory")["used_memory"] - filled
    print(f"{'address without a valid key':<58} {more / ACCOUNTS:>9,.0f} bytes of Redis")
    await counters.close()


async def postgres(engine: PostgresEngine, process: int) -> None:
    async with opened_at(engine.url(engine.new_database())) as store:
        for first in range(0, ORDERS, 5_000):
            batch = [Order(order_id, order_id % 977, 1) for order_id in range(first, first + 5_000)]
            await store.orders.import_batch(batch, "import-1", BY)
        await store.orders.snapshot()
        for callers in (1, 32):
            with measured(f"look at an unchanged list, {callers} at once", LOOKS, process):
                await at_once(callers, LOOKS, lambda _: store.orders.snapshot())
        with measured("look-up of a key", LOOKS, process):
            await at_once(8, LOOKS, lambda turn: _look_up(store, turn))
        with measured("look for changes of access", LOOKS, process):
            await at_once(1, LOOKS, lambda _: store.access_version())
        for callers, first in ((32, 0), (256, ORDERS // 2)):
            number = 10_000
            with measured(f"durable cancel, {callers} at once", number, process):
                await at_once(callers, number, lambda turn, first=first: store.orders.change(first + turn, CANCEL, BY))
        await renewals(store, process)


async def renewals(store: AnyStore, process: int) -> None:
    number = 50

    async def change_and_list(turn: int) -> None:
        await store.orders.import_batch([Order(ORDERS - 1, turn, 2)], "import-2", BY)
        await store.orders.snapshot()

    with measured(f"one order of {ORDERS:,} replaced, and the list renewed", number, process):
        await at_once(1, number, change_and_list)


def serve(redis_engine: RedisEngine, database: PostgresEngine, process: int, folder: Path) -> None:
    """What a request costs one `petstore serve` over both engines, and what it costs these."""
    store, urls = folder / "unused.db", {"PETSTORE_REDIS_URL": redis_engine.url}
    urls["PETSTORE_DATABASE_URL"] = database.url(database.new_database())
    petstore(store, "orders", "import", "-", "--format", "jsonl", text=order_lines(1_000), **urls)
    petstore_json(store, "accounts", "create", "acme", *UNLIMITED, **urls)
    key = petstore_json(store, "keys", "create", "acme", **urls)["key"]
    with serving(store, **urls) as server:
        with server.client(key) as client:
            etag = client.get(TARGET).headers["etag"]
        for name, headers in (("a list of 1,000 orders", []), ("304", [f"If-None-Match: {etag}"])):
            before = cpu_seconds(server), processor_seconds(process), processor_seconds(redis_engine.process.pid)
            served = rate(server.api + TARGET, SECONDS, f"Authorization: Bearer {key}", *headers)
            after = cpu_seconds(server), processor_seconds(process), processor_seconds(redis_engine.process.pid)
            costs = [(then - now) / (served * SECONDS) * 1e6 for now, then in zip(before, after, strict=True)]
            print(
                f"{f'served over both, 16 connections: {name}':<58} {served:>9,.0f}/s {costs[0]:>9,.1f} µs of the "
                f"server, {costs[1]:.1f} of PostgreSQL, {costs[2]:.1f} of Redis"
            )


async def _look_up(store: AnyStore, turn: int) -> None:
    await store.keys.grant(turn.to_bytes(32), Environment.PRODUCTION, time.time())


def on_the_servers_loop(work: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def main() -> None:
    with own_redis("--appendonly", "yes") as counters, running_engine() as database:
        with database.admin() as admin:
            admin.execute("ALTER SYSTEM SET fsync = 'on'")
            admin.execute("SELECT pg_reload_conf()")
            ((written,),) = admin.execute("SELECT pg_read_file('postmaster.pid')").fetchall()
        process = int(written.splitlines()[0])
        on_the_servers_loop(redis(counters))
        on_the_servers_loop(postgres(database, process))
        with tempfile.TemporaryDirectory() as folder:
            serve(counters, database, process, Path(folder))


if __name__ == "__main__":
    main()
