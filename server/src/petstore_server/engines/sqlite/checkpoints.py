"""Checkpoints: copying the log into the store's file on a thread, while changes are committed.

SQLite would do it within the commit that reaches a thousand pages: with 64 cancels in each, one commit in seven took
four times as long as the others, and without other load, each two-hundredth cancel.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw

from petstore_server.engines.sqlite import connections

LOG_PAGES = 1000
"""Pages of the log that are not in the file, from which on they are copied: as many as by SQLite itself."""

MAX_LOG_PAGES = 8000
"""Pages of the log, from which on a transaction begins only when all of them are in the file: 32 MB.

SQLite then begins the log anew. It cannot while a transaction is under way, as there always is one under load.
"""


class Checkpoints:
    """The checkpoints of one store. Belongs to the event loop that uses it.

    None ends in an error: one that fails leaves the pages in the log, and is tried again after the next commit.
    """

    def __init__(self, path: Path, writing: apsw.Connection) -> None:
        """From now on the commits of `writing` leave checkpoints to this object. Raises apsw.Error, OSError."""
        self._connection = connections.connect(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="petstore-log")
        self._latest: asyncio.Future[None] | None = None
        self._pages = 0  # in the log
        self._copied = 0  # of these
        writing.set_wal_hook(self._committed)  # instead of SQLite's own, which makes a checkpoint

    async def before_transaction(self) -> None:
        """If the log is long, wait until all of it is in the file, or as much as those who still read it allow."""
        if self._pages >= MAX_LOG_PAGES:
            await self._checkpoint()
            if self._left:  # it had begun before the latest commits
                await self._checkpoint()

    def after_transaction(self) -> None:
        """Begin a checkpoint if it is time for one."""
        if self._left >= LOG_PAGES:
            self._checkpoint()

    async def close(self) -> None:
        """End the one that is under way."""
        await asyncio.to_thread(self._thread.shutdown)
        self._connection.close()

    @property
    def _left(self) -> int:
        """Pages that are not in the file. If fewer are in the log than were copied, it has begun anew."""
        return self._pages - self._copied if self._copied <= self._pages else self._pages

    def _checkpoint(self) -> "asyncio.Future[None]":
        if self._latest is None or self._latest.done():
            self._latest = asyncio.get_running_loop().run_in_executor(self._thread, self._copy)
        return self._latest

    def _copy(self) -> None:
        with suppress(apsw.Error):
            _, _, self._copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").get

    def _committed(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK
