"""PostgreSQL is killed with all its processes, again and again: what was acknowledged is there after each recovery."""

import asyncio
import random
import signal
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from testing.engines import running_engine
from testing.redis_engine import own_redis
from testing.stores import opened_at
from torture.client import Connection, place_and_cancel
from torture.power import STORE, Outcome
from torture.programs import Server, begun, petstore, serving
from torture.state import Acknowledged, disagreements, new_key, put_orders, read_state, url_of

CLIENTS = 6


@dataclass
class Promises:
    """What clients were promised. They send nothing while `go` is not set; `busy` of them wait for a response."""

    kept: list[Acknowledged] = field(default_factory=list)
    running: bool = True
    busy: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def promised(self, order_id: int, pet_id: int | None = None) -> None:
        self.kept.append(Acknowledged(order_id, pet_id))

    async def more(self) -> None:
        """Return when some more changes were promised. Raises TimeoutError: the service does not recover."""
        before = len(self.kept)
        async with asyncio.timeout(20.0):
            while len(self.kept) < before + CLIENTS:
                await asyncio.sleep(0.01)

    async def pause(self) -> None:
        """Return when no request is under way."""
        self.go.clear()
        while self.busy:
            await asyncio.sleep(0.01)


async def client(server: Server, key: str, first: int, promises: Promises, chance: random.Random) -> None:
    """Place orders and cancel half of them; what is refused or not answered is sent again with its key."""
    number = first
    with Connection(server.port, key) as connection:
        while promises.running:
            await promises.go.wait()
            promises.busy += 1
            try:
                number += await place_and_cancel(connection, number, chance, promises.promised)
            finally:
                promises.busy -= 1


async def killed(seed: int, kills: int) -> Outcome:
    """Kill PostgreSQL so many times under load, and compare the store with the promises after each recovery."""
    chance, outcome, promises = random.Random(seed), Outcome(), Promises()
    with ExitStack() as stack:
        engine = stack.enter_context(running_engine())
        redis = stack.enter_context(own_redis())
        url = engine.url(engine.new_database())
        key = await new_key(url)
        server = stack.enter_context(serving(url, PETSTORE_REDIS_URL=redis.url))
        clients = [
            asyncio.create_task(client(server, key, first * 1_000_000, promises, chance))
            for first in range(1, CLIENTS + 1)
        ]
        for _ in range(kills):
            promises.go.set()
            await promises.more()
            await asyncio.sleep(chance.uniform(0, 0.3))
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.start)
            await promises.pause()
            async with opened_at(url) as store:
                outcome.problems += disagreements(await read_state(store), promises.kept)
            outcome.images += 1
        promises.running = False
        promises.go.set()
        await asyncio.gather(*clients)
    outcome.acknowledged = len(promises.kept)
    return outcome


async def copied(seed: int, kills: int, *, orders: int = 5_000) -> Outcome:
    """Kill `db copy`, or PostgreSQL while it copies: nothing or everything is there, and another copy completes it."""
    chance, outcome = random.Random(seed), Outcome()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="petstore-torture-")))
        engine = stack.enter_context(running_engine())
        source = url_of(folder / STORE)
        await put_orders(source, range(1, orders + 1))
        for _ in range(kills):
            target = engine.url(engine.new_database())
            copying = begun(source, "db", "copy", "--to", target)
            await asyncio.sleep(chance.uniform(0.1, 1))
            if chance.random() < 0.5:
                await asyncio.to_thread(engine.kill)
                copying.communicate()
                await asyncio.to_thread(engine.start)
            else:
                copying.send_signal(signal.SIGKILL)
                copying.communicate()
            outcome.problems += await _copied_at_last(source, target, orders)
            outcome.images += 1
    return outcome


async def _copied_at_last(source: str, target: str, orders: int) -> list[str]:
    """Copy again, unless the copy was complete; what is wrong with the target."""
    again = petstore(source, "db", "copy", "--to", target)
    async with opened_at(target) as store:
        found = await read_state(store)
    if len(found.orders) != orders or found.audit["store.copy", "store"] != 1:
        return [f"{len(found.orders)} orders after another copy, which says: {again.stderr}"]
    return []
