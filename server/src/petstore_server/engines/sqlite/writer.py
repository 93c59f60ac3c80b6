"""The one writer of a process: concurrent changes share a commit, and each caller gets its own outcome."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from petstore_server.batching import Batcher
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.sqlite.connections import connect_writer, unavailable
from petstore_server.engines.sqlite.statements import run
from petstore_server.store.engine import Command, Item, Perform, Result, Stats, Work

BULK_GAP_SECONDS = 0.003
"""The pause after a bulk transaction, in which others can write. A waiting writer tries every millisecond."""


class _Job(NamedTuple):
    """An item and what performs it together with others."""

    perform: Perform[Any, Any]
    item: Any


class Writer:
    """Runs changes on a thread, because a commit waits for the disk. Belongs to the event loop that creates it."""

    def __init__(self, path: Path, stats: Stats) -> None:
        """Open the store for writing. Raises apsw.Error, OSError."""
        self._path = path
        self._stats = stats
        self._connection = connect_writer(path)
        self._file = _identity(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="petstore-write")
        self._batcher: Batcher[_Job, Any] = Batcher(self._perform)
        self._bulk = asyncio.Lock()
        self._bulk_ended = 0.0
        self._closed = False

    async def run(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        """Run the work in a transaction, and return its result once that is durable.

        Raises what the work raises, after undoing what it wrote, and ServiceUnavailable if the transaction failed.
        """
        if not bulk:
            return await self.submit(_do_each, work)
        async with self._bulk:
            await asyncio.sleep(self._bulk_ended + BULK_GAP_SECONDS - time.monotonic())
            try:
                return await self.submit(_do_each, lambda: _cached(work))
            finally:
                self._bulk_ended = time.monotonic()

    async def submit(self, perform: Perform[Item, Result], item: Item) -> Result:
        """Perform the item together with all others that share its commit."""
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        result: Result = await self._batcher.submit(_Job(perform, item))
        return result

    async def close(self) -> None:
        """Finish what was submitted, and close the store."""
        self._closed = True
        await self._batcher.close()
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._connection.close)

    async def _perform(self, jobs: list[_Job]) -> list[Any]:
        outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, jobs)
        self._stats.committed(len(jobs))
        return outcomes

    def _commit(self, jobs: Sequence[_Job]) -> list[Any]:
        """Run the jobs in one transaction, on the writer's thread. Raises ServiceUnavailable, and then keeps nothing.

        The next batch is a new transaction, so the service recovers when the cause is gone.
        """
        outcomes: list[Any] = []
        try:
            if _identity(self._path) != self._file:  # a commit to a file that was deleted or replaced would be lost
                raise FileNotFoundError(self._path)
            self._connection.execute("BEGIN IMMEDIATE")
            for perform, group in groupby(jobs, key=attrgetter("perform")):
                outcomes += run(self._connection, perform([job.item for job in group]))
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            raise unavailable(error) from error
        except OSError:
            raise ServiceUnavailable(f"the store file was moved or deleted: {self._path}") from None
        finally:
            # SQLite may have rolled back by itself, and a disk that fails may fail this too: nothing was committed.
            with suppress(apsw.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        return outcomes


def _cached(work: Callable[[], Work[Result]]) -> Work[Result]:
    """Do the work with room for the pages of the indexes that it changes."""
    yield Command("PRAGMA cache_size = -64000")  # KiB
    return (yield from work())


def _do_each(works: Sequence[Callable[[], Work[Any]]]) -> Work[list[Any]]:
    """Do transactions one by one; what one of them raises is its own outcome, and undoes only what it wrote.

    An error of the store ends all of them: `run` raises it.
    """
    outcomes: list[Any] = []
    for work in works:
        yield Command("SAVEPOINT work")
        try:
            outcomes.append((yield from work()))
        except Exception as error:  # noqa: BLE001 - for its caller; it must not affect the others
            yield Command("ROLLBACK TO work")
            outcomes.append(error)
        yield Command("RELEASE work")
    return outcomes


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - a tenth of the cost of Path.stat, before every commit
    return status.st_dev, status.st_ino
