"""One store in one file: its parts, and what concerns all of them. Implements `ports.Store`."""

from pathlib import Path
from typing import Any

import apsw

from petstore_server.storage.sqlite.accounts import SqliteAccounts
from petstore_server.storage.sqlite.audit import SqliteAudit
from petstore_server.storage.sqlite.keys import SqliteKeys
from petstore_server.storage.sqlite.orders import SqliteOrders
from petstore_server.storage.sqlite.pets import SqlitePets
from petstore_server.storage.sqlite.placements import SqlitePlacements
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.search import SqliteSearch
from petstore_server.storage.sqlite.usage import SqliteUsage
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.stats import Stats


class SqliteStore:
    """A store that is open. Made by `open_store`; belongs to the event loop that runs then."""

    def __init__(self, path: Path) -> None:
        """Open a file that has the latest schema. Raises apsw.Error, OSError."""
        self.path = path.resolve()
        self.stats = Stats()
        self._reader = Reader(self.path)
        self._writer = Writer(self.path, self.stats)
        self.orders = SqliteOrders(self._reader, self._writer)
        self.search = SqliteSearch(self._reader, self._writer)
        self.placements = SqlitePlacements(self._writer)
        self.pets = SqlitePets(self._reader, self._writer)
        self.accounts = SqliteAccounts(self._reader, self._writer)
        self.keys = SqliteKeys(self._reader, self._writer)
        self.usage = SqliteUsage(self._reader, self._writer)
        self.audit = SqliteAudit(self._reader)

    async def identity(self) -> str:
        """A text that no other store has, copies of this one included.

        A restore in place keeps it. A copy of the file has the same identity inside, but is another inode.
        """
        rows: list[tuple[Any, ...]] = self._reader.now("SELECT identity FROM store")
        return f"{rows[0][0]}-{self.path.stat().st_ino}"

    async def access_version(self) -> int:
        """A number that differs after any change to accounts, keys or bans, and after a restore. Microseconds."""
        rows: list[tuple[Any, ...]] = self._reader.now("SELECT epoch, access_version FROM store")
        epoch, version = rows[0]
        return (int(epoch, 16) << 64) + int(version)

    async def check(self) -> None:
        """Prove with a tiny write and a read that the store can be used, and that its file is still in place.

        Raises ServiceUnavailable with the reason.
        """
        await self._writer.run(_beat)
        self._reader.now("SELECT heartbeat FROM store")

    async def close(self) -> None:
        """Finish what is queued and let go of the store."""
        await self._writer.close()
        await self._reader.close()


def _beat(connection: apsw.Connection) -> None:
    connection.execute("UPDATE store SET heartbeat = heartbeat + 1")
