"""What tests have processes of their own do, forked from one that has loaded this module.

From the module of a test, they would import that first, with pytest and Hypothesis: that takes longer than the work.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import StoreUnusable
from petstore_server.domain.orders import Order
from petstore_server.domain.webhooks import SigningSecrets
from petstore_server.engines import postgres, sqlite
from petstore_server.imports.files import UnreadableFile, open_source
from petstore_server.imports.kinds import ORDERS
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import read_batches
from petstore_server.imports.schema import Schema
from petstore_server.runtime.opening import is_sqlite, opened_store, sqlite_path
from petstore_server.store.webhooks import Webhooks
from petstore_server.webhooks.addresses import Addresses
from petstore_server.webhooks.delivery import Deliveries
from petstore_server.webhooks.sending import Sender
from testing.subprocesses import peak_resident


def measure_reading(file: str, found: "Connection[tuple[int, str]]") -> None:
    """Read a file as an import does; send the memory that this took, in bytes, and the reason if it is refused."""
    before, options, message = peak_resident(), ReadOptions("json"), ""
    with open_source(file) as source:
        try:
            for batch in islice(read_batches(source, Schema(ORDERS, options)), 30):
                batch.rows()
        except UnreadableFile as error:
            message = error.message
    found.send((peak_resident() - before, message))


def import_many(url: str, batches: int, by: Actor) -> None:
    """Import batches of 1,000 orders, one after another."""

    async def run() -> None:
        async with opened_store(url, create=True, migrate=True) as store:
            for start in range(1000, (batches + 1) * 1000, 1000):
                await store.orders.import_batch([Order(start + number) for number in range(1000)], "import:2", by)

    asyncio.run(run())


def migrate(url: str, report: Callable[[str], None] = lambda _: None) -> tuple[int, int]:
    """Migrate a store of either engine; return its version before and after."""
    if is_sqlite(url):
        return sqlite.migrate(sqlite_path(url), report)
    return asyncio.run(postgres.migrate(url, report))


def migrate_at_once(url: str, begin: Any, reports: Any) -> None:
    """Migrate when the others do; report what is said about it, and at last the versions and the error."""
    begin.wait()
    try:
        reports.put((migrate(url, reports.put), None))
    except StoreUnusable as error:
        reports.put((None, error.message))


def plant_in(folder: Path, victim: Path, loot: Path, user: int) -> None:
    """As another user, put links and files where a command is about to write in a folder, as fast as possible.

    The links lead to a victim, and to what is to be stolen in a directory of that user.
    """
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    plants: list[Callable[[Path], object]] = [
        lambda path: path.symlink_to(victim),
        lambda path: path.symlink_to(loot / "stolen"),
        lambda path: path.hardlink_to(victim),
        lambda path: path.symlink_to(loot),
        lambda path: path.touch(0o666, exist_ok=False),
        Path.mkdir,
    ]
    for turn in count():
        hidden = list(folder.glob(".petstore-*"))
        inside = [path / name for path in hidden for name in ("file", "file-journal", "file-wal")]
        for number, path in enumerate((folder / "new", *hidden, *inside)):
            taken = partial(Path.rename, target=loot / f"{turn}-{number}")
            for change in (taken, Path.unlink, plants[(turn + number) % len(plants)]):
                with suppress(OSError):
                    change(path)
        time.sleep(turn % 7 / 1000)


def deliver_until_killed(url: str, secret: str, point: str) -> None:
    """Deliver the webhooks of a store, and be killed where the first delivery calls "send" or "finish".

    "after": once the first outcome is recorded.
    """
    finish = Webhooks.finish

    async def killed(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def killed_after(*arguments: Any, **options: Any) -> None:
        await finish(*arguments, **options)
        await killed()

    async def run() -> None:
        async with opened_store(url) as store:
            sender = Sender(SigningSecrets(secret), Addresses([ip_network("127.0.0.0/8")]), None, time.time)
            if point == "send":
                sender.send = killed  # type: ignore[assignment, method-assign]
            else:
                Webhooks.finish = killed_after if point == "after" else killed  # type: ignore[method-assign]
            await Deliveries(store, sender, "killed", lambda: 0.0).look(time.time())
            await asyncio.sleep(60)

    asyncio.run(run())
