"""The client: reading a long list against msgspec decoding the same bytes in memory."""

import json
import os
import sys
from functools import partial
from pathlib import Path

from bench.machine import BenchError, pinned
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress, run
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup

REFERENCE = "msgspec"
TITLES = {
    "iter_orders": "`iter_orders`, uncompressed",
    "iter_orders_gzip": "`iter_orders`",
    "list_orders_gzip": "`list_orders`",
}
NOTED = ("iter_orders", "list_orders_gzip")  # the ways whose memory tells streaming from a list
Read = tuple[float, float]  # seconds, and growth of memory in MB


def measure(plan: Plan) -> list[Row]:
    """Measure every way to read a list of 1,000,000 orders."""
    orders = plan.size(1_000_000, 10_000)
    progress(f"the client reads {orders:,} orders")
    with Setup(plan) as setup:
        store, body = setup.store(orders), setup.folder() / "body.json"
        server = setup.petstore(store)
        with server.connection() as connection:
            connection.get(LIST, **{"Accept-Encoding": "gzip"})  # so that the server has compressed the list once
            body.write_bytes(connection.get(LIST)[1])
        env = dict(os.environ) | {"BENCH_KEY": store.key}
        ways = ("msgspec", *TITLES)
        found = interleaved(
            plan.rounds, {way: partial(_read, plan, way, f"{server.url}/v1", body, orders, env) for way in ways}
        )
    reference = [seconds for seconds, _ in found["msgspec"]]
    return [_row(way, orders, found[way], reference) for way in TITLES]


def _read(plan: Plan, way: str, url: str, body: Path, orders: int, env: dict[str, str]) -> Read:
    printed = run(pinned(plan.cores.load, [sys.executable, "-m", "bench.reading", way, url, body]), env=env)
    seconds, grown, number = json.loads(printed)
    if number != orders:
        raise BenchError(f"{way} read {number:,} of {orders:,} orders.")
    return seconds, grown


def _row(way: str, orders: int, found: list[Read], reference: list[float]) -> Row:
    return Row(
        f"client-{way.replace('_', '-')}",
        f"{TITLES[way]}, {orders:,} orders",
        "s",
        {PRODUCT: [seconds for seconds, _ in found], REFERENCE: reference},
        REFERENCE,
        Goal(2, at_most=True) if way == "iter_orders" else None,
        note=f"Memory grows by {max(grown for _, grown in found):.1f} MB at most." if way in NOTED else "",
    )
