"""One store in one file: reads at once or on threads, writes on the writer's thread."""

import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.sqlite.dialect import SqliteDialect
from petstore_server.engines.sqlite.reader import Reader
from petstore_server.engines.sqlite.statements import rows_of, run
from petstore_server.engines.sqlite.writer import Writer
from petstore_server.store.engine import Command, Query, Row, Stats, Work

_LEAST_FREE = 1 << 18  # bytes: several times what a commit of many changes writes

Item = TypeVar("Item")
Result = TypeVar("Result")


class SqliteEngine:
    """Implements `store.engine.Engine`."""

    def __init__(self, path: Path) -> None:
        """Open a file that has the latest schema. Raises apsw.Error, OSError."""
        self.dialect = SqliteDialect()
        self.stats = Stats()
        self._path = path
        self._reader = Reader(path)
        self._writer = Writer(path, self.stats)

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._reader.now(Query(sql, parameters))

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        query = Query(sql, parameters)
        if short:
            return self._reader.now(query)
        return await self._reader.run(lambda connection: rows_of(connection, query))

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        return await self._reader.run(lambda connection: run(connection, work()))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Callable[[Query], Awaitable[list[Row]]]]:
        connection = await self._reader.call(self._reader.connect)
        lock = threading.Lock()  # a consumer that stops early closes while a thread may still read

        def read(query: Query) -> list[Row]:
            with lock:
                return rows_of(connection, query)

        try:
            await self._reader.call(read, Query("BEGIN"))
            yield lambda query: self._reader.call(read, query)
        finally:
            with lock:
                connection.close()

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        return await self._writer.run(work, bulk=bulk)

    async def submit(
        self, perform: Callable[[Sequence[Item]], Work[Sequence[Result | Exception]]], item: Item
    ) -> Result:
        return await self._writer.submit(perform, item)

    async def identity(self) -> str:
        """A restore in place keeps it. A copy of the file has the same identity inside, but is another inode."""
        [(identity,)] = self.peek("SELECT identity FROM store")
        return f"{identity}-{self._path.stat().st_ino}"

    async def verify(self) -> None:
        """Nothing to do: no other file takes the place of this one while it is open."""

    async def check(self) -> None:
        """Prove with a small write and a read that the store can be used, and that its file is still in place."""
        # A change needs more pages than the heartbeat: in the rest of the log, that one may find room for a long time.
        if shutil.disk_usage(self._path.parent).free < _LEAST_FREE:
            raise ServiceUnavailable("the store cannot be used: the disk is full")
        await self._writer.run(_beat)
        self.peek("SELECT heartbeat FROM store")

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()


def _beat() -> Work[None]:
    yield Command("UPDATE store SET heartbeat = heartbeat + 1")
