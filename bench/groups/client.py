"""The client: reading a long list against msgspec decoding the same bytes in memory, and importing the package."""

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

REFERENCE = "msgspec, the same bytes in memory"
TITLES = {
    "iter_orders": "`iter_orders`, uncompressed",
    "iter_orders_gzip": "`iter_orders`",
    "async_iter_orders_gzip": "`AsyncClient.iter_orders`",
    "list_orders_gzip": "`list_orders`",
}
NOTED = ("iter_orders", "list_orders_gzip")  # the ways whose memory tells streaming from a list
LIBRARIES = "import httpx2, msgspec"
Read = tuple[float, float]  # seconds, and growth of memory in MB


def measure(plan: Plan) -> list[Row]:
    """Measure every way to read a list of 1,000,000 orders, and the start of a program that imports the client."""
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
    rows = [_row(way, orders, found[way], reference) for way in TITLES]
    return [*rows, _package(plan)]


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


def _package(plan: Plan) -> Row:
    """Processor time of importing the client, in separate interpreters."""
    names = {PRODUCT: "import petstore_client", f"`{LIBRARIES}`": LIBRARIES}
    found = interleaved(plan.size(10, 2), {name: partial(_import_seconds, plan, text) for name, text in names.items()})
    return Row("client-import", "`import petstore_client`, processor time", "s", found, f"`{LIBRARIES}`")


def _import_seconds(plan: Plan, statement: str) -> float:
    code = f"import time; began = time.process_time(); {statement}; print(time.process_time() - began)"
    return float(run(pinned(plan.cores.load, [sys.executable, "-c", code])))
