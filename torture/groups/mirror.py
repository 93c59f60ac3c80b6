"""Copies of a store that programs keep with listChanges, while orders change and what the store runs on fails."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import httpx2

from petstore_client import ChangesResetError, Client, PetstoreError
from petstore_client.v2 import Order
from torture.cluster import Cluster, Faults, cluster
from torture.plan import Check, Plan, Result
from torture.power_commands import write_orders
from torture.programs import petstore

POLLING = 0.5
"""Seconds between two requests of a program that polls, and sees a change as soon as one that follows."""

_SETTLING = 60.0  # seconds within which a copy must be equal after the last change


def checks(plan: Plan) -> Iterator[Check]:
    for seed in plan.seeds:
        yield mirror(seed, "sqlite", plan.seconds)
        yield mirror(seed, "postgres", plan.seconds)


class Counting(httpx2.HTTPTransport):
    """Counts the requests that are sent."""

    sent = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent += 1
        return super().handle_request(request)


class Mirror:
    """A copy of all orders, kept by a thread as the documentation describes it.

    `delays` are the seconds from each shipment to its arrival, once the copy has been complete.
    """

    def __init__(self, port: int, key: str) -> None:
        self.copy: dict[int, Order] = {}
        self.delays: list[float] = []
        self.resets = 0
        self.failures = 0
        self.transport = Counting()
        self._client = Client(f"http://127.0.0.1:{port}/v1", api_key=key, transport=self.transport)
        self._ended = False
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._client.close()
        self._thread.join()

    def _follow(self) -> None:
        token, complete = None, False
        while not self._ended:
            try:
                for page in self._client.v2.follow_changes(after=token):
                    if complete:
                        shipped = [order for order in page.data if order.status == "shipped"]
                        self.delays += [time.time() - order.updated_at.timestamp() for order in shipped]
                    self.copy.update({order.id: order for order in page.data})
                    token, complete = page.next, complete or not page.more
            except ChangesResetError:
                self.resets += 1
                self.copy, token, complete = {}, None, False
            except PetstoreError:  # the outage took longer than the client tries again
                self.failures += 1
                time.sleep(0.2)


class Changes:
    """What changes orders: clients that place and cancel, imports, and shipments from the command line."""

    def __init__(self, made: Cluster, folder: Path, chance: random.Random) -> None:
        self.ended = False
        self._made = made
        self._folder = folder
        self._chance = chance
        self._placed: list[int] = []
        self._imported = 0

    async def run(self) -> None:
        """Change orders until `ended` is set."""
        await asyncio.gather(*map(self._repeat, (self._place_and_cancel, self._import, self._ship)))

    async def _repeat(self, work: Callable[[], None]) -> None:
        while not self.ended:
            await asyncio.to_thread(work)
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))

    def _place_and_cancel(self) -> None:
        server = self._chance.choice(self._made.servers)
        try:
            with Client(f"http://127.0.0.1:{server.port}/v1", api_key=self._made.key, retry_timeout=5.0) as client:
                for number in range(5):
                    self._placed.append(client.v2.place_order(pet_id=number, quantity=1).id)
                client.cancel_order(self._placed[-1])
        except PetstoreError:  # an outage, or a restore that took the order back
            pass

    def _import(self) -> None:
        first = 10_000_000 + 200 * self._imported
        self._imported += 1
        write_orders(self._folder / "import.csv", range(first, first + 300))  # some of them are there already
        petstore(self._made.url, "orders", "import", str(self._folder / "import.csv"))

    def _ship(self) -> None:
        if self._placed:
            petstore(self._made.url, "orders", "ship", str(self._chance.choice(self._placed[-20:])))


async def mirror(seed: int, engine: str, seconds: float) -> Result:
    """One copy from each server, through restarts, and a failover (PostgreSQL) or a restore (SQLite) half-way."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        servers = 1 if engine == "sqlite" else 2
        made = await cluster(stack, engine, servers, replica=engine == "postgres", direct=True)
        folder = made.clocks[0].parent
        mirrors = [Mirror(server.port, made.key) for server in made.servers]
        stack.push_async_callback(lambda: asyncio.gather(*(asyncio.to_thread(each.close) for each in mirrors)))
        changes = Changes(made, folder, chance)
        faults = Faults(made, chance)
        began = time.monotonic()
        working = asyncio.create_task(changes.run())
        backup = folder / "backup.db"

        async def part(number: int) -> None:
            """Go on for so many quarters of the time, and until each copy has something new."""
            known = [len(each.copy) for each in mirrors]
            while time.monotonic() < began + number * seconds / 4 or any(
                len(each.copy) <= before for each, before in zip(mirrors, known, strict=True)
            ):
                await asyncio.sleep(0.05)

        await part(1)
        if engine == "sqlite":
            assert petstore(made.url, "db", "backup", str(backup)).returncode == 0
        await faults.restart()
        await part(2)
        if engine == "postgres":
            await faults.promote()
        else:
            restored = await asyncio.to_thread(petstore, made.url, "db", "restore", str(backup), "--yes")
            assert restored.returncode == 0, restored.stderr
        await part(3)
        await faults.restart()
        await part(4)
        changes.ended = True
        await working
        truth = await _until_equal(made, mirrors)
        took = time.monotonic() - began
    problems = _problems(truth, mirrors, engine)
    delays = [delay for each in mirrors for delay in each.delays]
    sent = sum(each.transport.sent for each in mirrors)
    polling = round(len(mirrors) * took / POLLING)
    shown = (
        f"{len(mirrors)} copies of {len(truth)} orders for {took:.0f} s, {sent} requests instead of {polling} by "
        f"polling, {sum(each.resets for each in mirrors)} resets, {len(delays)} shipments seen, half of them within "
        f"{median(delays or [0]):.2f} s, the last after {max(delays, default=0):.1f} s"
    )
    return Result(f"mirror on {engine}", seed, shown, problems)


async def _until_equal(made: Cluster, mirrors: list[Mirror]) -> dict[int, Order]:
    """Wait until all copies are equal to what the service lists; return that."""
    ends = time.monotonic() + _SETTLING
    while True:
        truth = await asyncio.to_thread(_listed, made)
        if all(each.copy == truth for each in mirrors) or time.monotonic() > ends:
            return truth
        await asyncio.sleep(0.2)


def _listed(made: Cluster) -> dict[int, Order]:
    with Client(f"http://127.0.0.1:{made.servers[0].port}/v1", api_key=made.key) as client:
        return {order.id: order for order in client.v2.iter_orders(limit=1000)}


def _problems(truth: dict[int, Order], mirrors: list[Mirror], engine: str) -> list[str]:
    problems = [] if truth else ["nothing was changed"]
    for number, each in enumerate(mirrors, 1):
        differing = {key for key in truth.keys() | each.copy.keys() if truth.get(key) != each.copy.get(key)}
        if differing:
            problems.append(f"copy {number} differs in {len(differing)} orders, such as {min(differing)}")
        if engine == "sqlite" and each.resets != 1:
            problems.append(f"copy {number} was reset {each.resets} times by one restore")
    return problems
