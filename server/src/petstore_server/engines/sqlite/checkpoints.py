"""Checkpoints: SQLite's log is copied into the store's file on a thread, while changes are committed.

By default, SQLite does it within the commit that brings the log to 1,000 pages. Of commits with 64 cancels, one in
seven took four times as long as the others; of cancels with little other load, more than one in a hundred did.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw

from petstore_server.engines.sqlite import connections

LOG_PAGES = 1000
"""Pages of the log that are not in the file yet at which a checkpoint begins: SQLite's default."""

MAX_LOG_PAGES = 8000
"""Pages of the log at which the next transaction waits for a checkpoint: 32 MB.

SQLite begins the log anew with the first transaction that finds all of it in the file. Under load, no checkpoint ends
before the next transaction begins, unless that waits.
"""


class Checkpoints:
    """The checkpoints of one store. Belongs to the event loop that uses it.

    One that fails is not reported: its pages stay in the log, and the next commit tries again.
    """

    def __init__(self, path: Path, writing: apsw.Connection) -> None:
        """From now on the commits of `writing` leave checkpoints to this object. Raises apsw.Error, OSError."""
        self._connection = connections.connect_writer(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="petstore-checkpoint")
        self._latest: asyncio.Future[None] | None = None
        self._pages = 0  # in the log
        self._copied = 0  # of these
        writing.set_wal_hook(self._committed)  # instead of SQLite's own, which makes a checkpoint

    async def before_transaction(self) -> None:
        """If the log is long, wait until all of it is in the file, or as much as open read transactions allow."""
        if self._pages >= MAX_LOG_PAGES:
            if self._latest is not None and not self._latest.done():  # it began before the latest commits
                await self._latest
            await self._checkpoint()

    def after_transaction(self) -> None:
        """Begin a checkpoint if it is time for one."""
        if self._left >= LOG_PAGES:
            self._checkpoint()

    async def close(self) -> None:
        """Wait for the one that is under way, and close the connection."""
        await asyncio.to_thread(self._thread.shutdown)
        self._connection.close()

    @property
    def _left(self) -> int:
        """Pages that are not in the file."""
        # The log may have begun anew before the thread notes what it copied of the one before.
        return self._pages - self._copied if self._copied <= self._pages else self._pages

    def _checkpoint(self) -> "asyncio.Future[None]":
        if self._latest is None or self._latest.done():
            self._latest = asyncio.get_running_loop().run_in_executor(self._thread, self._copy)
        return self._latest

    def _copy(self) -> None:
        with suppress(apsw.Error):
            busy, _, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").get
            if not busy:  # because another process makes one
                self._copied = copied

    def _committed(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        if pages <= self._pages:  # the log has begun anew
            self._copied = 0
        self._pages = pages
        return apsw.SQLITE_OK
