"""A synchronous engine over one SQLite file, for commands.

The engine of servers (`engines/sqlite/engine.py`) inherits this, and adds an event loop and threads.
"""

import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from petstore_server.domain.errors import DomainError, ServiceUnavailable, StatementFailed
from petstore_server.engines.sqlite import connections, dialect
from petstore_server.engines.sqlite.connections import connect_reader, connect_writer, transaction, unavailable
from petstore_server.engines.sqlite.dialect import rows_of, run_work, translated
from petstore_server.store.damage import Damage
from petstore_server.store.engine import Perform, Snapshot, Stats, run_synchronously
from petstore_server.store.statements import Execute, Item, Query, Result, Row, Work

if TYPE_CHECKING:
    from concurrent.futures import Executor

_USUAL_CACHE = "PRAGMA cache_size = -2000"  # KiB: as it was before a bulk transaction
_MIN_FREE = 1 << 18  # bytes: several times what a commit of many changes writes

Job = tuple[Perform[Any, Any], Any]  # what performs an item together with others, and the item


class SerialEngine:
    """Implements `store.engine.Engine` without an event loop or threads: none of its methods suspends its caller."""

    _readers: "Executor | None" = None
    _writer: "Executor | None" = None

    def __init__(self, path: Path, begin: Callable[[Any], object] = run_synchronously) -> None:
        """Open a file that has the latest schema. `begin` runs what saves damage. Raises apsw.Error, OSError."""
        self.dialect = dialect
        self.stats = Stats()
        self.damage = Damage(self._save_damage, begin)
        self._path = path
        self._inline = connections.connect_inline(path)
        self._cursor = self._inline.cursor()  # making one takes a fifth of the time of a short read
        self._idle: deque[apsw.Connection] = deque()
        self._writing = connect_writer(path)
        self._file = _identity(path)
        self._closed = False

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            return rows_of(self._cursor, Query(sql, parameters))
        except apsw.Error as error:
            raise self._explained(error) from error

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        if short:
            return self.peek(sql, parameters)
        return await self._on_reader(self._read, lambda connection: rows_of(connection, Query(sql, parameters)))

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        return await self._on_reader(self._read, lambda connection: run_work(connection, work()))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        connection = await self._on_reader(connect_reader, self._path)
        lock = threading.Lock()  # a consumer that stops early closes while a thread may still use it

        def use(function: Callable[..., Result], *arguments: object) -> Result:
            with lock:
                return function(*arguments)

        try:
            await self._on_reader(use, connection.execute, "BEGIN")
            yield lambda work: self._on_reader(use, lambda: run_work(connection, work()))
        finally:
            with lock:
                connection.close()

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        return await self.submit(_do_each, partial(_cached, work) if bulk else work)

    async def submit(self, perform: Perform[Item, Result], item: Item, flow: int = 0) -> Result:
        self._require_open()
        [outcome] = await self._perform([(perform, item)])
        if isinstance(outcome, Exception):
            raise outcome
        result: Result = outcome
        return result

    async def identity(self) -> str:
        """A restore in place keeps it. A copy of the file has the same identity inside, but is another inode."""
        [(identity,)] = self.peek("SELECT identity FROM store")
        return f"{identity}-{self._file[1]}"

    async def witness(self, epoch: str, at: int) -> None:
        """Nothing: a file that takes the place of another has another inode, which the store knows."""

    def fault(self) -> str | None:
        return self.damage.reason

    async def verify(self) -> None:
        self.damage.require_none()
        # A change needs more pages than the heartbeat: in the rest of the log, that one may find room for a long time.
        try:
            disk = os.statvfs(self._path.parent)
        except OSError as error:
            raise unavailable(error) from None
        if disk.f_bavail * disk.f_frsize < _MIN_FREE:
            raise unavailable(apsw.FullError())

    async def close(self) -> None:
        self._closed = True
        await self.damage.close()
        await self._call(None, self._writing.close)
        for connection in (*self._idle, self._inline):
            with suppress(apsw.Error):
                connection.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ServiceUnavailable("the store is closed")

    async def _call(self, threads: "Executor | None", function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function that may wait: here at once, in an engine with threads on these; None: on any of them."""
        return function(*arguments)

    async def _on_reader(self, function: Callable[..., Result], *arguments: object) -> Result:
        self._require_open()
        try:
            return await self._call(self._readers, function, *arguments)
        except apsw.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: apsw.Error) -> DomainError:
        """The error to raise for this one; damage is saved."""
        if not isinstance(error, connections.ENVIRONMENT):
            return StatementFailed(connections.plain_words(error))
        explained = unavailable(error)
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            self.damage.seen(explained)
        return explained

    async def _save_damage(self, reason: str | None) -> None:
        def save() -> None:
            with closing(connect_writer(self._path)) as connection:
                connection.execute(translated(Damage.SAVE), (reason,))

        try:
            await self._call(None, save)
        except (apsw.Error, OSError) as error:
            raise unavailable(error) from error

    def _read(self, read: Callable[[apsw.Connection], Result]) -> Result:
        """Read in one transaction, on the connection of a thread."""
        connection = self._idle.pop() if self._idle else connect_reader(self._path)
        try:
            with transaction(connection):
                return read(connection)
        finally:
            self._idle.append(connection)

    def _begin(self) -> bool:
        """Begin the transaction of a batch. False: it has to wait for another program, which must not happen here."""
        self._writing.execute("BEGIN IMMEDIATE")
        return True

    async def _perform(self, jobs: list[Job]) -> list[Any]:
        """Run the jobs in one transaction. Raises ServiceUnavailable or what a job raises, and then keeps nothing.

        Only what may wait goes to the writer's thread, if there is one, which a busy event loop delays: a commit, the
        lock of another program, and work without a bound. The thread then also commits: other programs wait for the
        lock, and must not wait for the event loop. The next batch is a new transaction, so the service recovers.
        """
        self.damage.require_none()
        try:
            if _identity(self._path) != self._file:  # a commit to a file that was deleted or replaced would be lost
                raise FileNotFoundError(self._path)
            if self._begin() and all(perform is not _do_each for perform, _ in jobs):
                try:
                    outcomes = self._run(jobs)
                    await self._call(self._writer, self._writing.execute, "COMMIT")
                finally:
                    connections.roll_back(self._writing)
            else:
                outcomes = await self._call(self._writer, self._run_whole, jobs)
        except apsw.Error as error:
            raise self._explained(error) from error
        except OSError:
            raise ServiceUnavailable(f"the store file was moved or deleted: {self._path}") from None
        self.stats.committed(len(jobs))
        return outcomes

    def _run_whole(self, jobs: list[Job]) -> list[Any]:
        """Begin the transaction, unless `_begin` did, run the jobs and commit."""
        try:
            if not self._writing.in_transaction:
                self._writing.execute("BEGIN IMMEDIATE")
            outcomes = self._run(jobs)
            self._writing.execute("COMMIT")
        finally:
            connections.roll_back(self._writing)
        return outcomes

    def _run(self, jobs: list[Job]) -> list[Any]:
        """Run the jobs in the transaction that has begun."""
        self.damage.require_none(self._writing.execute("SELECT damage FROM store").get)
        outcomes: list[Any] = []
        for perform, group in groupby(jobs, key=itemgetter(0)):
            is_only = perform is _do_each and len(jobs) == 1
            outcomes += run_work(self._writing, (_do_only if is_only else perform)([item for _, item in group]))
        return outcomes


def _cached(work: Callable[[], Work[Result]]) -> Work[Result]:
    """Do the work with room for the pages of the indexes that it changes."""
    yield Execute("PRAGMA cache_size = -64000")
    return (yield from work())


def _do_each(works: Sequence[Callable[[], Work[Any]]]) -> Work[list[Any]]:
    """Do transactions one by one; what one raises undoes only what it wrote. An error of the store ends all of them."""
    outcomes: list[Any] = []
    yield Execute(_USUAL_CACHE)
    for work in works:
        yield Execute("SAVEPOINT work")
        try:
            outcomes.append((yield from work()))
        except Exception as error:  # noqa: BLE001 - for its caller; it must not affect the others
            yield Execute("ROLLBACK TO work")
            outcomes.append(error)
        yield Execute("RELEASE work")
    return outcomes


def _do_only(works: Sequence[Callable[[], Work[Any]]]) -> Work[list[Any]]:
    """As `_do_each`, for a batch of one: without a savepoint, for which SQLite notes each page that changes."""
    [work] = works
    yield Execute(_USUAL_CACHE)
    try:
        return [(yield from work())]
    except Exception as error:  # noqa: BLE001 - for its caller; the calls that wait for the next batch go on
        yield Execute("ROLLBACK")
        yield Execute("BEGIN")  # for the commit of the batch
        return [error]


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - a tenth of the cost of Path.stat, before every commit
    return status.st_dev, status.st_ino
