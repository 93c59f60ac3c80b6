"""The one writer of a process: changes that come together share a commit, and each caller gets its own answer."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw

from petstore_server.domain.errors import DomainError, ServiceUnavailable
from petstore_server.storage.sqlite.connections import connect_writer, unavailable
from petstore_server.storage.stats import Stats

Result = TypeVar("Result")
Change = Callable[[apsw.Connection], Result]
"""A part of a transaction. It raises its DomainErrors before it writes: what others share with it then stands."""

_MOST_IN_A_COMMIT = 1000


class _Job(NamedTuple):
    change: Change[Any]
    response: asyncio.Future[Any]


class Writer:
    """Runs changes on a thread of its own. A commit waits for the disk, and the event loop must not."""

    def __init__(self, path: Path, stats: Stats) -> None:
        """Open the store for writing. Raises apsw.Error, OSError."""
        self._path = path
        self.stats = stats
        self._loop = asyncio.get_running_loop()
        self._connection = connect_writer(path)
        self._file = _identity(path)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="petstore-write", daemon=True)
        self._thread.start()

    async def run(self, change: Change[Result]) -> Result:
        """Run the change in a transaction and return its result once that is durable.

        Raises what the change raises, and ServiceUnavailable where the transaction failed: nothing of it is kept.
        """
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        response: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(_Job(change, response))
        return await response

    async def close(self) -> None:
        """Finish what is queued, then let go of the store."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        last = False
        while not last:
            batch, last = self._take()
            if batch:
                outcomes, committed = self._commit(batch)
                # The loop may be gone where a program ends without closing its store.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._respond, batch, outcomes, committed)
        self._connection.close()

    def _take(self) -> tuple[list[_Job], bool]:
        """Wait for a job, and take all that has queued with it; say whether the end was among them."""
        batch: list[_Job] = []
        job = self._jobs.get()
        with contextlib.suppress(Empty):
            while job is not None and len(batch) < _MOST_IN_A_COMMIT - 1:
                batch.append(job)
                job = self._jobs.get_nowait()
            if job is not None:
                batch.append(job)
            return batch, job is None
        return batch, False

    def _commit(self, batch: list[_Job]) -> tuple[list[Any], bool]:
        """Run the batch in one transaction; return each job's result or error, and whether it was committed."""
        try:
            self._require_same_file()
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [_perform(job.change, self._connection) for job in batch]
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            return self._undo(batch, unavailable(error))
        except OSError:
            return self._undo(batch, ServiceUnavailable(f"the store file was moved or deleted: {self._path}"))
        except Exception as error:  # noqa: BLE001 - a defect in one change must end neither the thread nor the callers
            return self._undo(batch, error)
        return outcomes, True

    def _undo(self, batch: list[_Job], error: Exception) -> tuple[list[Any], bool]:
        """Roll back. The next batch tries afresh, so the service recovers when the cause goes."""
        # SQLite may have rolled back by itself, and a disk that fails may fail this too: nothing was committed anyway.
        with contextlib.suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return [error] * len(batch), False

    def _require_same_file(self) -> None:
        """A commit into a file that was deleted or replaced would be durable nowhere. Raises OSError."""
        if _identity(self._path) != self._file:
            raise FileNotFoundError(self._path)

    def _respond(self, batch: list[_Job], outcomes: list[Any], committed: bool) -> None:
        """On the event loop: tell each caller, all in one turn."""
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.response.done():  # the caller has gone away
                continue
            if isinstance(outcome, Exception):
                job.response.set_exception(outcome)
            else:
                job.response.set_result(outcome)
        if committed:
            self.stats.committed(len(batch))


def _perform(change: Change[Any], connection: apsw.Connection) -> Any:
    """The change's result, or the DomainError that is its answer."""
    try:
        return change(connection)
    except DomainError as decision:
        return decision


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - a tenth of the cost of Path.stat, before every commit
    return status.st_dev, status.st_ino
