"""One store in one database: its parts, and what concerns all of them. Implements `ports.Store`."""

from petstore_server.ports import AccessVersion
from petstore_server.storage.accounts import Accounts
from petstore_server.storage.audit import AuditLog
from petstore_server.storage.backups import Backups
from petstore_server.storage.keys import Keys
from petstore_server.storage.pets import Pets
from petstore_server.storage.postgres.engine import PostgresEngine
from petstore_server.storage.postgres.listing import HISTORY
from petstore_server.storage.postgres.orders import PostgresOrders
from petstore_server.storage.postgres.pets import PostgresPets
from petstore_server.storage.postgres.placements import PostgresPlacements
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.search import SEARCH
from petstore_server.storage.postgres.session import Session
from petstore_server.storage.search import Search
from petstore_server.storage.sessions import Sessions
from petstore_server.storage.stats import Stats
from petstore_server.storage.usage import UsageStore

_ACCESS = f"SELECT {HISTORY}, access_version FROM petstore.store"  # noqa: S608 - constants

_IDENTITY = """
    SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())
    FROM pg_control_system()
"""


class PostgresStore:
    """An open store. Created by `open_store`; belongs to the event loop that runs then."""

    def __init__(self, url: str) -> None:
        """`url` names a database with the latest schema; nothing is connected before it is needed."""
        self.stats = Stats()
        self._pool = Pool(url)
        engine = PostgresEngine(self._pool)
        self.orders = PostgresOrders(self._pool, self.stats)
        self.search = Search(engine, SEARCH)
        self.placements = PostgresPlacements(self._pool)
        self.pets = Pets(engine, PostgresPets())
        self.accounts = Accounts(engine)
        self.keys = Keys(engine)
        self.usage = UsageStore(engine)
        self.audit = AuditLog(engine)
        self.sessions = Sessions(engine)
        self.backups = Backups(engine)

    async def identity(self) -> str:
        """Return a text that no other store has, copies included: the identifiers of the cluster and of the database.

        A restart, a failover to a replica and a restore in place keep both. Rows would not do: a dump copies them.
        """
        [(cluster, database)] = await self._pool.rows(_IDENTITY)
        return f"{cluster}-{database}"

    async def access_version(self) -> AccessVersion:
        """Return a version that differs after any change to accounts, keys or bans, after a restart and a restore."""
        [row] = await self._pool.rows(_ACCESS)
        return AccessVersion(*row)

    async def check(self) -> None:
        """Prove with a tiny write that the store can be used. Raises ServiceUnavailable with the reason."""
        await self._pool.transaction(_beat)

    async def close(self) -> None:
        """Finish what is queued, and close all connections."""
        await self.search.close()
        await self.orders.close()
        await self.placements.close()
        await self._pool.close()


async def _beat(session: Session) -> None:
    await session.execute("UPDATE petstore.store SET heartbeat = heartbeat + 1")
