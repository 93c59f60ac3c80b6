"""Loss of power: what a store holds whose files have only a part of what was written to them.

A program runs with its writes and flushes recorded, a client notes what it was promised, and then crash images are made
from beginnings of the record. Each image is opened with the product's own code, and compared with the promises.
"""

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from testing.memory import memory
from testing.redis_engine import own_redis
from torture.client import Connection, place_and_cancel
from torture.disk import Disk, Event, Kind, read_events
from torture.programs import Server, serving
from torture.recording import Options, RecordedFiles, Recorder
from torture.state import Acknowledged, new_key, problems, url_of

STORE = "store.db"
CLIENTS = 8


class Recording:
    """A folder as it was at the beginning, the log of what was done to its files, and what clients were promised."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files, self.before, self.log = folder / "files", folder / "before", folder / "log"
        self.url = url_of(self.files / STORE)
        self.options = Options(folder=str(self.files), log=str(self.log), failing=str(folder / "failing"))
        self.acknowledged: list[Acknowledged] = []
        self.complete_at: int | None = None
        """The place in the log at which a command had reported its success."""

    def begin(self) -> None:
        """Everything in the folder now is on the disk."""
        shutil.copytree(self.files, self.before)

    def place(self) -> int:
        """The length of the log."""
        return self.log.stat().st_size

    def promised(self, order_id: int, pet_id: int | None = None) -> None:
        self.acknowledged.append(Acknowledged(order_id, pet_id, self.place()))


@contextmanager
def recording() -> Iterator[Recording]:
    """A folder with an empty place for a store; it is in memory where that is possible."""
    with tempfile.TemporaryDirectory(prefix="petstore-torture-", dir=memory()) as name:
        made = Recording(Path(name))
        made.files.mkdir()
        made.log.touch()
        yield made


@dataclass
class Outcome:
    """What a check found: how many images were examined, how many changes were promised, and what was wrong."""

    images: int = 0
    acknowledged: int = 0
    faults: int = 0
    problems: list[str] = field(default_factory=list)


Examine = Callable[[Path, int], AsyncIterator[str]]
"""Yields what is wrong with an image, given its folder and the place in the log."""


async def examine(made: Recording, images: int, chance: random.Random, check: Examine) -> Outcome:
    """Make so many crash images at random places of the log, and check each."""
    events = list(read_events(made.log.read_bytes()))
    outcome = Outcome(acknowledged=len(made.acknowledged))
    chosen = set(chance.choices(range(len(events)), k=images)) | {len(events) - 1}
    if len(chosen) < images / 2:
        outcome.problems.append(f"the recording has only {len(events)} events for {images} images")
    disk = Disk(made.before, chance)
    for number, (place, event) in enumerate(events):
        disk.take(event)
        if number in chosen:
            image = made.folder / "image"
            disk.image(image, chance)
            outcome.images += 1
            outcome.problems += [f"after event {number}: {text}" async for text in check(image, place)]
            shutil.rmtree(image)
    return outcome


async def promises_kept(made: Recording, chance: random.Random, image: Path, place: int) -> AsyncIterator[str]:
    """Everything promised before the loss is in the image; also after a second loss while it was opened again."""
    promised = [promise for promise in made.acknowledged if promise.at <= place]
    if chance.random() < 0.25:
        image = _second_loss(image, chance, await _recorded_opening(image))
        for text in await problems(url_of(image / STORE), promised):
            yield f"second loss: {text}"
        shutil.rmtree(image)
        return
    for text in await problems(url_of(image / STORE), promised):
        yield text


async def _recorded_opening(image: Path) -> list[Event]:
    """Open the store of an image, and go on with it; return what that did to its files. The image stays as it is."""
    scratch, log = image.with_name("scratch"), image.with_name("second-log")
    shutil.copytree(image, scratch)
    log.unlink(missing_ok=True)
    files = RecordedFiles(Recorder(Options(folder=str(scratch), log=str(log))))
    try:
        await problems(url_of(scratch / STORE), ())
    finally:
        files.unregister()
        shutil.rmtree(scratch)
    return [event for _, event in read_events(log.read_bytes())]


def _second_loss(image: Path, chance: random.Random, events: list[Event]) -> Path:
    disk = Disk(image, chance)
    for event in events[: chance.randrange(len(events) + 1)]:
        disk.take(event)
    second = image.with_name("second")
    disk.image(second, chance)
    return second


async def load(made: Recording, servers: list[Server], key: str, count: int, chance: random.Random) -> None:
    """Place orders and cancel half of them over HTTP from several clients, and note what was promised."""
    numbers = iter(range(1, count + 1))

    async def client(connection: Connection) -> None:
        for number in numbers:
            await place_and_cancel(connection, number, chance, made.promised)

    with ExitStack() as stack:
        places = [server.port for server in servers for _ in range(CLIENTS)]
        connections = [stack.enter_context(Connection(port, key)) for port in places]
        await asyncio.gather(*map(client, connections))
    assert made.acknowledged, "no change was promised"


async def prepared(made: Recording) -> str:
    """Make the store; return a key."""
    key = await new_key(made.url)
    made.begin()
    return key


async def served(seed: int, images: int, *, orders: int = 1500, flush: bool = True, servers: int = 1) -> Outcome:
    """Orders are placed and cancelled over HTTP, by so many processes on one store, and the power fails."""
    chance = random.Random(seed)
    with recording() as made, ExitStack() as stack:
        key = await prepared(made)
        shared = {"PETSTORE_REDIS_URL": stack.enter_context(own_redis()).url} if servers > 1 else {}
        start = partial(serving, made.url, replace(made.options, flush=flush), **shared)
        started = [stack.enter_context(start()) for _ in range(servers)]
        await load(made, started, key, orders, chance)
        for server in started:
            server.end()
        return await examine(made, images, chance, partial(promises_kept, made, chance))


async def failing_flushes(seed: int, images: int, *, orders: int = 1500, faults: int = 5) -> Outcome:
    """Flushes fail for a while, several times: nothing is acknowledged meanwhile, and nothing is lost by it."""
    chance = random.Random(seed)
    found: list[str] = []
    with recording() as made:
        key = await prepared(made)
        failing = Path(made.options.failing)
        with serving(made.url, made.options) as server:
            loading = asyncio.create_task(load(made, [server], key, orders, chance))
            for _ in range(faults):
                await asyncio.sleep(chance.uniform(0.05, 0.4))
                failing.touch()
                await asyncio.sleep(0.1)  # until flushes that had begun are acknowledged
                before = len(made.acknowledged)
                await asyncio.sleep(chance.uniform(0.1, 0.3))
                found += ["acknowledged although flushes fail"] * (len(made.acknowledged) - before)
                failing.unlink()
            await loading
            async with asyncio.timeout(10):
                with Connection(server.port, key) as last:
                    while (reply := await last.place("afterwards", 1)).status != 201:
                        await asyncio.sleep(0.05)
                made.promised(reply.json["id"], 1)
        outcome = await examine(made, images, chance, partial(promises_kept, made, chance))
        events = read_events(made.log.read_bytes())
        outcome.faults = sum(event.kind is Kind.SYNC_FAILED for _, event in events)
    outcome.problems += found
    if not outcome.faults:
        outcome.problems.append("no flush has failed")
    return outcome
