"""Memory of the server under connections that misuse it, and what a well-behaved client notices of them."""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

from bench.load import Connection, p99
from bench.machine import peak_resident, raise_descriptor_limit, resident, this_process_on
from bench.plan import Plan, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import Running, petstore
from bench.stores import LIST, Store, sqlite_store

ORDERS = 1_000
PIPELINED = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1_000
SLOW = b"GET /v1/store/orders HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"a" * 1_000
Way = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""How a connection behaves; it is ended from outside."""


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Open connections that pipeline without reading, that stay idle and that send slowly, for some seconds."""
    number, seconds = plan.size(1_000, 50), plan.size(20, 3)
    progress(f"{number:,} pipelining, {number:,} idle and {number:,} slow connections")
    raise_descriptor_limit(3 * number + 200)
    with (
        this_process_on(plan.cores.load),
        sqlite_store(plan, ORDERS) as store,
        petstore(plan, store) as server,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        with Connection(server.url, store.authorization) as connection:
            undisturbed = [connection.latency(LIST) for _ in range(200)]
        before = resident(server.pid)
        attack = pool.submit(_attack, server, store, number, seconds)
        disturbed = _latencies_during(server, store, attack.done)
        opened = attack.result()
        grown = (peak_resident(server.pid) - before) / 1e6
    title = f"{number:,} pipelining, {number:,} idle, {number:,} slow connections"
    note = f"{opened:,} of {3 * number:,} connections were opened. Memory before: {before / 1e6:.0f} MB."
    memory = Row(
        "hostile-memory",
        f"Growth of memory under {title}",
        "MB",
        {PRODUCT: [grown]},
        goal=Goal(100, at_most=True, absolute=True),
        note=note,
    )
    latency = Row(
        "hostile-latency",
        "List of 1,000 orders for another client meanwhile, p99",
        "ms",
        {PRODUCT: [p99(disturbed)], "without these connections": [p99(undisturbed)]},
        "without these connections",
    )
    return [memory, latency], []


def _latencies_during(server: Running, store: Store, ended: Callable[[], bool]) -> list[float]:
    times = []
    while not ended():
        with Connection(server.url, store.authorization) as connection:
            times.append(connection.latency(LIST))
    return times


def _attack(server: Running, store: Store, number: int, seconds: int) -> int:
    """Carry out the attack; return how many connections could be opened."""
    return asyncio.run(_open_all(server, store, number, seconds))


async def _open_all(server: Running, store: Store, number: int, seconds: int) -> int:
    """Keep all connections busy in their ways for some seconds."""
    opened: list[asyncio.StreamWriter] = []
    ways: list[Way] = [_pipeline(PIPELINED)] * (number // 2) + [_pipeline(_lists(store))] * (number - number // 2)
    ways += [_idle] * number + [_send_slowly] * number
    tasks = [asyncio.ensure_future(_open(server, way, opened)) for way in ways]
    _, pending = await asyncio.wait(tasks, timeout=seconds)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(opened)


async def _open(server: Running, way: Way, opened: list[asyncio.StreamWriter]) -> None:
    """One connection, until the server closes it or the attack ends. It reads next to nothing."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with suppress(OSError):
        _reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        opened.append(writer)
        try:
            await way(writer)
        finally:
            writer.transport.abort()


def _lists(store: Store) -> bytes:
    request = f"GET {LIST} HTTP/1.1\r\nHost: a\r\nAuthorization: {store.authorization['Authorization']}\r\n\r\n"
    return request.encode() * 300


def _pipeline(requests: bytes) -> Way:
    async def send(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(requests)
            await writer.drain()

    return send


async def _idle(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _send_slowly(writer: asyncio.StreamWriter) -> None:
    for byte in SLOW:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)
