"""A million orders through the client, as a ratio to msgspec decoding the same bytes in memory.

    .venv/bin/python bench/client_stream.py [--orders 1000000] [--rounds 5]

The service is `petstore serve` over SQLite, on one core, the client on another; every reading is a process of its own,
so that its memory is its own. Rounds are interleaved, and medians are shown. Memory is the highest resident size less
that before the first byte.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "server" / "tests"))

import httpx2
import msgspec

from petstore_client import AsyncClient, Client, Order
from support.process import UNLIMITED, Server, new_key, petstore, serving

SERVER_CORE, CLIENT_CORE = {0}, {1}


def memory(name: str) -> int:
    """Bytes: VmRSS is what is resident, VmHWM the most that ever was. (ru_maxrss would tell of the parent as well.)"""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def decode(_: str, __: str, body: Path) -> int:
    return len(msgspec.json.decode(body.read_bytes(), type=list[Order]))


def stream(url: str, key: str, _: Path, encoding: str = "identity") -> int:
    with Client(url, api_key=key) as petstore_client:
        petstore_client._http.event_hooks["request"].append(
            lambda request: request.headers.update({"accept-encoding": encoding})
        )
        return sum(1 for _ in petstore_client.iter_orders())


def stream_gzip(url: str, key: str, body: Path) -> int:
    return stream(url, key, body, "gzip")


def stream_awaited(url: str, key: str, _: Path) -> int:
    async def count() -> int:
        number = 0
        async with AsyncClient(url, api_key=key) as petstore_client:
            async for _ in petstore_client.iter_orders():
                number += 1
        return number

    return asyncio.run(count())


def whole_list(url: str, key: str, _: Path) -> int:
    with Client(url, api_key=key) as petstore_client:
        return len(petstore_client.list_orders())


WAYS: dict[str, Callable[[str, str, Path], int]] = {
    "msgspec, in memory": decode,
    "iter_orders, plain": stream,
    "iter_orders, gzip": stream_gzip,
    "AsyncClient, gzip": stream_awaited,
    "list_orders, gzip": whole_list,
}


def measure(way: str, url: str, key: str, body: Path) -> None:
    """One reading, in a process of its own; prints seconds, bytes and orders."""
    os.sched_setaffinity(0, CLIENT_CORE)
    before = memory("VmRSS")
    began = time.perf_counter()
    number = WAYS[way](url, key, body)
    seconds = time.perf_counter() - began
    grown = memory("VmHWM") - before
    sys.stdout.write(json.dumps([seconds, grown, number]))


def fill(store: Path, number: int) -> None:
    template = '{{"id":{0},"petId":{1},"quantity":1,"shipDate":"2026-10-07T03:51:47Z","complete":false}}\n'
    text = "".join(template.format(order_id, order_id % 977) for order_id in range(1, number + 1))
    done = petstore(store, "orders", "import", "-", "--format", "jsonl", text=text)
    if done.returncode:
        raise SystemExit(done.stderr)


def run(server: Server, key: str, folder: Path, number: int, rounds: int) -> None:
    url = f"{server.api}/v1"
    os.sched_setaffinity(server.process.pid, SERVER_CORE)
    body = folder / "body.json"
    headers = {"Authorization": f"Bearer {key}"}
    for encoding in ("gzip", "identity"):  # the first of each makes what the server then keeps
        found = httpx2.get(f"{url}/store/orders", headers={**headers, "accept-encoding": encoding}, timeout=300)
        body.write_bytes(found.content)
    readings: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--measure", way, url, key, str(body)]
            reading = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            if reading[2] != number:
                raise SystemExit(f"{way} gave {reading[2]} orders")
            readings[way].append(reading)
    reference = statistics.median(reading[0] for reading in readings["msgspec, in memory"])
    print(f"{number:,} orders, {body.stat().st_size / 1e6:.0f} MB; medians of {rounds} rounds")
    print(f"{'':<22}{'seconds':>9}{'ratio':>8}{'memory, MB':>12}")
    for way, taken in readings.items():
        seconds = statistics.median(reading[0] for reading in taken)
        grown = max(reading[1] for reading in taken)
        print(f"{way:<22}{seconds:>9.2f}{seconds / reference:>8.2f}{grown / 1e6:>12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        way, url, key, body = options.measure
        measure(way, url, key, Path(body))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "store.db"
        fill(store, options.orders)
        key, _ = new_key(store, plan=UNLIMITED)
        with serving(store) as server:
            run(server, key, folder, options.orders, options.rounds)


if __name__ == "__main__":
    main()
