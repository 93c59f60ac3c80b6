"""One store in one file: short reads at once, longer ones on threads, writes on the writer's thread."""

import asyncio
import shutil
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.sqlite.connections import connect_inline, connect_reader, snapshot, unavailable
from petstore_server.engines.sqlite.dialect import SqliteDialect
from petstore_server.engines.sqlite.statements import rows_of, run
from petstore_server.engines.sqlite.writer import Writer
from petstore_server.store.engine import Item, Perform, Query, Result, Row, Snapshot, Stats, Work

_LEAST_FREE = 1 << 18  # bytes: several times what a commit of many changes writes
_READERS = 2  # one for the list, so that an export or a report does not delay it


class SqliteEngine:
    """Implements `store.engine.Engine`."""

    def __init__(self, path: Path) -> None:
        """Open a file that has the latest schema. Raises apsw.Error, OSError."""
        self.dialect = SqliteDialect()
        self.stats = Stats()
        self._path = path
        self._inline = connect_inline(path)
        self._idle: deque[apsw.Connection] = deque()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="petstore-read")
        self._writer = Writer(path, self.stats)
        self._closed = False

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            return rows_of(self._inline, Query(sql, parameters))
        except apsw.Error as error:
            raise unavailable(error) from error

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        if short:
            return self.peek(sql, parameters)
        return await self._on_thread(self._read, lambda connection: rows_of(connection, Query(sql, parameters)))

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        return await self._on_thread(self._read, lambda connection: run(connection, work()))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        connection = await self._on_thread(connect_reader, self._path)
        lock = threading.Lock()  # a consumer that stops early closes while a thread may still read

        def read(work: Callable[[], Work[Result]]) -> Result:
            with lock:
                return run(connection, work())

        try:
            await self._on_thread(connection.execute, "BEGIN")
            yield lambda work: self._on_thread(read, work)
        finally:
            with lock:
                connection.close()

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        return await self._writer.run(work, bulk=bulk)

    async def submit(self, perform: Perform[Item, Result], item: Item) -> Result:
        return await self._writer.submit(perform, item)

    async def identity(self) -> str:
        """A restore in place keeps it. A copy of the file has the same identity inside, but is another inode."""
        [(identity,)] = self.peek("SELECT identity FROM store")
        return f"{identity}-{self._path.stat().st_ino}"

    async def verify(self) -> None:
        # A change needs more pages than the heartbeat: in the rest of the log, that one may find room for a long time.
        if shutil.disk_usage(self._path.parent).free < _LEAST_FREE:
            raise ServiceUnavailable("the store cannot be used: the disk is full")

    async def close(self) -> None:
        await self._writer.close()
        self._closed = True
        await asyncio.to_thread(self._readers.shutdown)
        for connection in (*self._idle, self._inline):
            with suppress(apsw.Error):
                connection.close()

    async def _on_thread(self, function: Callable[..., Result], *arguments: object) -> Result:
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)
        except apsw.Error as error:
            raise unavailable(error) from error

    def _read(self, read: Callable[[apsw.Connection], Result]) -> Result:
        """Read in one transaction, on the connection of a thread."""
        connection = self._idle.pop() if self._idle else connect_reader(self._path)
        try:
            with snapshot(connection):
                return read(connection)
        finally:
            self._idle.append(connection)
