"""The store: everything durable. Each part is a class with its SQL; an engine carries the statements out."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from petstore_server.store.engine import Engine, Stats


class AccessVersion(NamedTuple):
    """The number of changes to accounts, keys and bans in one history of the store; a restore begins another."""

    history: str
    changes: int


class Contents(NamedTuple):
    """What a store was found to have. PostgreSQL's connections are those in use, and all that it allows."""

    orders: bool
    accounts: bool
    keys: bool
    backed_up_at: float | None
    connections: int | None
    max_connections: int | None


class Store:
    """An open store. Belongs to the event loop that runs when it is made.

    Every method of its parts raises ServiceUnavailable if the store cannot be used, and then has changed nothing (or,
    if a connection failed during a commit, may have changed something: D19). Times are Unix seconds.
    """

    def __init__(self, engine: "Engine") -> None:
        """Take over an engine, which `close` closes."""
        # Imported here: a command that opens no store starts without them.
        from petstore_server.store.access import Accounts, Keys
        from petstore_server.store.audit import AuditLog
        from petstore_server.store.health import HealthStates
        from petstore_server.store.imports import Imports
        from petstore_server.store.listing import Listing
        from petstore_server.store.orders import Orders
        from petstore_server.store.pages import Search
        from petstore_server.store.pets import Pets
        from petstore_server.store.sessions import Sessions
        from petstore_server.store.usage import UsageStore

        self._engine = engine
        self._epoch: str | None = None
        self.contents: Contents | None = None  # as `check` found them last
        self.accounts = Accounts(engine)
        self.audit = AuditLog(engine)
        self.health = HealthStates(engine)
        self.imports = Imports(engine)
        self.keys = Keys(engine)
        self.listing = Listing(engine)
        self.orders = Orders(engine)
        self.pets = Pets(engine)
        self.search = Search(engine)
        self.sessions = Sessions(engine)
        self.usage = UsageStore(engine)

    @property
    def stats(self) -> "Stats":
        """What the store reports for metrics."""
        return self._engine.stats

    async def identity(self) -> str:
        """See `Engine.identity`."""
        return await self._engine.identity()

    async def witness(self, epoch: str, at: int) -> None:
        """See `Engine.witness`."""
        await self._engine.witness(epoch, at)

    async def verify(self) -> None:
        """See `Engine.verify`."""
        await self._engine.verify()

    async def access_version(self) -> AccessVersion:
        """Return a version that differs after any change to accounts, keys or bans, by any process. Cheap.

        Learns of damage that another process has noted.
        """
        dialect = self._engine.dialect
        sql = f"SELECT {dialect.epoch}, {dialect.history}, access_version, damage FROM petstore.store"
        [(self._epoch, *version, noted)] = await self._engine.query(sql)
        self._engine.damage.reason = self._engine.damage.reason or noted
        return AccessVersion(*version)

    async def epoch(self) -> str:
        """Return a text that is another one after a restore, but not after a restart or a failover.

        On PostgreSQL it is that of the last call of `access_version`, which a server makes several times a second.
        """
        rows = self._engine.peek(f"SELECT {self._engine.dialect.epoch} FROM petstore.store")
        if rows is None and self._epoch is None:
            await self.access_version()
        return str(self._epoch if rows is None else rows[0][0])

    async def check(self) -> None:
        """Prove that requests can be served: with a small write, and by reading what each of them reads.

        Raises ServiceUnavailable with the reason.
        """
        await self._engine.verify()
        await self.health.beat()
        [row] = await self._engine.query(_READ.format(connections=self._engine.dialect.connections))
        self.contents = Contents(*row)

    async def clear_damage(self) -> None:
        """Take back a note of damage: the store was read in full and is sound."""
        await self._engine.damage.note(None)

    def fault(self) -> str | None:
        """See `Engine.fault`."""
        return self._engine.fault()

    async def close(self) -> None:
        """Finish what is queued, and close the store."""
        await self.listing.close()
        await self._engine.close()


_READ = """
    SELECT EXISTS (SELECT 1 FROM petstore.orders), EXISTS (SELECT 1 FROM petstore.accounts),
        EXISTS (SELECT 1 FROM petstore.keys), backed_up_at, {connections}
    FROM petstore.store
"""
