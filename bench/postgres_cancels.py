"""Cancels and lists over PostgreSQL, the cancels as a ratio to pgbench doing the same UPDATE in the same run.

    .venv/bin/python bench/postgres_cancels.py [--rounds 3] [--orders 1000000]

The store is the one that is served (row locks, the domain's decision, the audit entry), with 32 callers of one process;
pgbench has 32 connections, and updates a row by its key in a commit each. The server is the tests' own, with fsync on.
"""

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "server" / "tests"))

from petstore_server.domain.orders import CANCEL, Order, ship
from petstore_server.ports import Store
from support.engines import PostgresEngine, running_engine
from support.open_stores import BY, opened_at

CALLERS = 32
CANCELS = 20_000
SECONDS = 3
SCRIPT = r"""
\set id random(1, :orders)
UPDATE petstore.orders SET status = 'pending' WHERE id = :id;
"""


async def cancels_a_second(store: Store, first: int) -> float:
    """Cancel orders that are pending, from `first` on."""
    numbers = iter(range(first, first + CANCELS))

    async def cancel() -> None:
        for number in numbers:
            await store.orders.change(number, CANCEL, BY)

    began = time.perf_counter()
    await asyncio.gather(*(cancel() for _ in range(CALLERS)))
    return CANCELS / (time.perf_counter() - began)


def pgbench(engine: PostgresEngine, database: str, orders: int) -> float:
    """Commits a second of the reference."""
    script = engine.folder / "cancel.sql"
    script.write_text(SCRIPT)
    command = [engine.program("pgbench"), "-n", "-c", str(CALLERS), "-j", "1", "-T", str(SECONDS), "-M", "prepared"]
    command += [
        "-D",
        f"orders={orders}",
        "-f",
        str(script),
        "-h",
        "127.0.0.1",
        "-p",
        str(engine.port),
        "-U",
        "postgres",
    ]
    told = subprocess.run([*command, database], check=True, capture_output=True, text=True).stdout
    found = re.search(r"tps = ([\d.]+)", told)
    assert found
    return float(found[1])


async def milliseconds(call: Callable[[], Awaitable[object]], times: int) -> float:
    """The median of so many calls, one after another."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


async def measure(engine: PostgresEngine, rounds: int, orders: int) -> None:
    database = engine.new_database()
    async with opened_at(engine.url(database)) as store, opened_at(engine.url(database)) as other:
        for start in range(1, orders + 1, 4_000):
            some = range(start, min(start + 4_000, orders + 1))
            await store.orders.import_batch([Order(n, 1, 1, "2026-11-01T00:00:00Z", False) for n in some], "bench", BY)
        ratios, rates = [], []
        for number in range(rounds):
            ours = await cancels_a_second(store, 1 + number * CANCELS)
            reference = await asyncio.to_thread(pgbench, engine, database, orders)
            rates.append(ours)
            ratios.append(ours / reference)
            print(f"cancels {ours:,.0f}/s, pgbench {reference:,.0f}/s, ratio {ours / reference:.2f}")
        print(f"cancels: median {statistics.median(rates):,.0f}/s, {statistics.median(ratios):.2f} of pgbench")
        print(f"first list of {orders:,}: {await milliseconds(other.orders.snapshot, 1):.0f} ms")
        print(f"list, nothing changed: {await milliseconds(other.orders.snapshot, 1000):.3f} ms")
        ids = range(orders, rounds * CANCELS, (rounds * CANCELS - orders) // 50)
        took = []
        for order_id in ids:
            await store.orders.change(order_id, ship(datetime.now(UTC)), BY)
            took.append(await milliseconds(other.orders.snapshot, 1))
        print(f"list, after one change: {statistics.median(took):.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--orders", type=int, default=1_000_000)
    options = parser.parse_args()
    with (
        running_engine(settings={"fsync": "on", "shared_buffers": "256MB"}) as engine,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(measure(engine, options.rounds, options.orders))


if __name__ == "__main__":
    main()
