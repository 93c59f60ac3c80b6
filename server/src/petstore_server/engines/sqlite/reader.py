"""Reads of the store: short ones on the event loop, longer ones on threads with a separate connection each."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.sqlite.connections import connect_inline, connect_reader, snapshot, unavailable
from petstore_server.engines.sqlite.statements import rows_of
from petstore_server.store.engine import Query, Row

Result = TypeVar("Result")
_THREADS = 2  # one for the list, so that an export or a report does not delay it


class Reader:
    """Reads: `now` on the event loop for a few microseconds, `run` on a thread for longer ones."""

    def __init__(self, path: Path) -> None:
        """Open the store for reading. Raises apsw.Error."""
        self._path = path
        self._inline = connect_inline(path)
        self._idle: deque[apsw.Connection] = deque()
        self._closed = False
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="petstore-read")

    def now(self, query: Query) -> list[Row]:
        """Return the rows of a query that an index answers, without waiting. Raises ServiceUnavailable."""
        try:
            return rows_of(self._inline, query)
        except apsw.Error as error:
            raise unavailable(error) from error

    async def run(self, read: Callable[[apsw.Connection], Result]) -> Result:
        """Run `read` on a thread, in one read transaction. Raises ServiceUnavailable."""
        return await self.call(self._read, read)

    async def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Run a function on a thread. Raises ServiceUnavailable if SQLite fails."""
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        except apsw.Error as error:
            raise unavailable(error) from error

    def connect(self) -> apsw.Connection:
        """Open a connection for one long read."""
        return connect_reader(self._path)

    def _read(self, read: Callable[[apsw.Connection], Result]) -> Result:
        connection = self._idle.pop() if self._idle else self.connect()
        try:
            with snapshot(connection):
                return read(connection)
        finally:
            self._idle.append(connection)

    async def close(self) -> None:
        """Wait for the reads under way, then close the store."""
        self._closed = True
        await asyncio.to_thread(self._executor.shutdown)
        while self._idle:
            self._idle.pop().close()
        with suppress(apsw.Error):
            self._inline.close()
