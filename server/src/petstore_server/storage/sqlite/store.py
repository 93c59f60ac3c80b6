"""One store in one file: its parts, and what concerns all of them. Implements `ports.Store`."""

from pathlib import Path

import apsw

from petstore_server.ports import AccessVersion
from petstore_server.storage.accounts import Accounts
from petstore_server.storage.audit import AuditLog
from petstore_server.storage.backups import Backups
from petstore_server.storage.keys import Keys
from petstore_server.storage.pets import Pets
from petstore_server.storage.search import Search
from petstore_server.storage.sessions import Sessions
from petstore_server.storage.sqlite.engine import SqliteEngine
from petstore_server.storage.sqlite.orders import SqliteOrders
from petstore_server.storage.sqlite.pets import SqlitePets
from petstore_server.storage.sqlite.placements import SqlitePlacements
from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.search import SEARCH
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.stats import Stats
from petstore_server.storage.usage import UsageStore


class SqliteStore:
    """An open store. Created by `open_store`; belongs to the event loop that runs then."""

    def __init__(self, path: Path) -> None:
        """Open a file that has the latest schema. Raises apsw.Error, OSError."""
        self.path = path.resolve()
        self.stats = Stats()
        self._reader = Reader(self.path)
        self._writer = Writer(self.path, self.stats)
        engine = SqliteEngine(self._reader, self._writer)
        self.orders = SqliteOrders(self._reader, self._writer, self.stats)
        self.search = Search(engine, SEARCH)
        self.placements = SqlitePlacements(self._writer)
        self.pets = Pets(engine, SqlitePets())
        self.accounts = Accounts(engine)
        self.keys = Keys(engine)
        self.usage = UsageStore(engine)
        self.audit = AuditLog(engine)
        self.sessions = Sessions(engine)
        self.backups = Backups(engine)

    async def identity(self) -> str:
        """Return a text that no other store has, copies of this one included.

        A restore in place keeps it. A copy of the file has the same identity inside, but is another inode.
        """
        [(identity,)] = self._reader.now("SELECT identity FROM store")
        return f"{identity}-{self.path.stat().st_ino}"

    async def access_version(self) -> AccessVersion:
        """Return a version that differs after any change to accounts, keys or bans, and after a restore."""
        [row] = self._reader.now("SELECT epoch, access_version FROM store")
        return AccessVersion(*row)

    async def check(self) -> None:
        """Prove with a tiny write and a read that the store can be used, and that its file is still in place.

        Raises ServiceUnavailable with the reason.
        """
        await self._writer.run(_beat)
        self._reader.now("SELECT heartbeat FROM store")

    async def close(self) -> None:
        await self.search.close()
        await self._writer.close()
        await self._reader.close()


def _beat(connection: apsw.Connection) -> None:
    connection.execute("UPDATE store SET heartbeat = heartbeat + 1")
