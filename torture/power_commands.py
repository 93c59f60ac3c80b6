"""Loss of power while a command works: it has happened or not, what it reported is true, and it can be run again."""

import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from petstore_server.domain.errors import DomainError
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.engines.sqlite.maintenance import backup, check
from testing.stores import opened_at
from torture.power import STORE, Outcome, Recording, examine, recording
from torture.programs import petstore
from torture.state import BY, State, put_orders, read_state, url_of

BACKUP = "copy.db"
IMPORTED = 6_000
Rows = dict[int, Status]


def write_orders(file: Path, ids: range, owners: Sequence[str] = ("",)) -> None:
    """A file for `petstore orders import`; the orders have these owners in turn."""
    rows = "".join(f"{number},{number},1,{owners[number % len(owners)]}\n" for number in ids)
    file.write_text("id,petId,quantity,account\n" + rows)


def run(made: Recording, *arguments: str) -> None:
    """Run a command that must succeed, recorded; note when it had reported that."""
    done = petstore(made.url, *arguments, options=made.options)
    assert done.returncode == 0, done.stderr
    made.complete_at = made.place()


async def state_of(store: Path) -> State:
    """Raises DomainError."""
    async with opened_at(url_of(store)) as opened:
        return await read_state(opened)


def rows(orders: dict[int, Order]) -> Rows:
    return {order.id: order.status for order in orders.values()}


async def imported(seed: int, images: int, *, orders: int = IMPORTED) -> Outcome:
    """An import: each batch is there and counted in the record, or not at all; run again, it completes."""
    chance = random.Random(seed)
    with recording() as made:
        await put_orders(made.url, range(0))
        made.begin()
        file = made.folder / "orders.csv"
        write_orders(file, range(1, orders + 1))
        run(made, "orders", "import", str(file), "--json")

        async def look(image: Path, place: int) -> AsyncIterator[str]:
            store = image / STORE
            before = await state_of(store)
            async with opened_at(url_of(store)) as opened:
                recorded = sum(run.created for run in (await opened.imports.page(1)).imports)
            if recorded != len(before.orders) or set(before.orders) != set(range(1, len(before.orders) + 1)):
                yield f"{len(before.orders)} orders, of which the record has {recorded}"
            if place >= (made.complete_at or 0) and len(before.orders) != orders:
                yield f"{len(before.orders)} orders of a complete import"
            if chance.random() < 0.1:
                done = petstore(url_of(store), "orders", "import", str(file))
                after = await state_of(store)
                if done.returncode or len(after.orders) != orders:
                    yield f"a second import leaves {len(after.orders)} orders: {done.stderr}"
            for problem in check(store):
                yield problem

        return await examine(made, images, chance, look)


async def changed_store(made: Recording) -> tuple[Rows, Rows]:
    """A store with a backup, and changes since; return the orders now, and those of the backup."""
    await put_orders(made.url, range(1, 501))
    backup(made.files / STORE, made.files / BACKUP)
    await put_orders(made.url, range(501, 801))
    async with opened_at(made.url) as store:
        await store.orders.change(7, CANCEL, BY)
    made.begin()
    saved = dict.fromkeys(range(1, 501), Status.PENDING)
    now = {**dict.fromkeys(range(1, 801), Status.PENDING), 7: Status.CANCELLED}
    return now, saved


async def restored(seed: int, images: int) -> Outcome:
    """A restore: the store is as it was before or as in the backup, and what was there before is kept."""
    with recording() as made:
        now, saved = await changed_store(made)
        run(made, "db", "restore", str(made.files / BACKUP), "--yes")

        async def look(image: Path, place: int) -> AsyncIterator[str]:
            found = rows((await state_of(image / STORE)).orders)
            kept = list(image.glob(f"{STORE}.before-restore-*Z"))
            if found != saved and (found != now or place >= (made.complete_at or 0)):
                yield f"{len(found)} orders after the loss"
            if found == saved and not kept:
                yield "what was there before is lost"
            for name in [image / STORE, image / BACKUP, *kept]:
                for problem in check(name):
                    yield f"{name.name}: {problem}"
            for name in kept:
                if rows((await state_of(name)).orders) != now:
                    yield f"{name.name} is not what was there before"

        return await examine(made, images, random.Random(seed), look)


async def backed_up(seed: int, images: int) -> Outcome:
    """A backup: the file with its name is complete, and the store is as before."""
    with recording() as made:
        now, _ = await changed_store(made)
        run(made, "db", "backup", str(made.files / "another.db"))

        async def look(image: Path, place: int) -> AsyncIterator[str]:
            copies = list(image.glob("another.db"))
            if not copies and place >= (made.complete_at or 0):
                yield "the backup is lost"
            for name in [image / STORE, *copies]:
                if check(name) or rows((await state_of(name)).orders) != now:
                    yield f"{name.name} is not complete"

        return await examine(made, images, random.Random(seed), look)


async def migrated(seed: int, images: int) -> Outcome:
    """A new store: it has its schema or is empty, and migrating it again completes it."""
    with recording() as made:
        made.begin()
        run(made, "db", "migrate")

        async def look(image: Path, place: int) -> AsyncIterator[str]:
            try:
                found = await state_of(image / STORE)
            except DomainError as error:
                yield f"it cannot be opened: {error}"
                return
            if found.orders or check(image / STORE):
                yield "it is not sound"

        return await examine(made, images, random.Random(seed), look)
