"""The store: everything durable. Each part is a class with its SQL; an engine carries the statements out."""

from functools import cached_property
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from petstore_server.store.access import Accounts, Keys
    from petstore_server.store.engine import Engine
    from petstore_server.store.listing import Listing
    from petstore_server.store.responses import Responses
    from petstore_server.store.usage import UsageStore
    from petstore_server.store.webhooks import Webhooks

_PROBED_SECONDS = 1.0  # for which a probe that succeeded is not made again: it locks the clock, if only briefly


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
    """An open store. Belongs to the event loop that runs when it is made, if one does.

    Every method of its parts raises ServiceUnavailable if the store cannot be used, and then has changed nothing (or,
    if a connection failed during a commit, may have changed something: D19), and StatementFailed if it refuses what is
    written, and then has changed nothing either. Times are Unix seconds.
    """

    def __init__(self, engine: "Engine") -> None:
        """Take over an engine, which `close` closes."""
        # Imported here: a command that opens no store starts without them.
        from petstore_server.store.audit import AuditLog
        from petstore_server.store.health import HealthStates
        from petstore_server.store.imports import Imports
        from petstore_server.store.orders import Orders
        from petstore_server.store.pets import Pets
        from petstore_server.store.search import Search
        from petstore_server.store.sessions import Sessions

        self.engine = engine
        self._epoch: str | None = None
        self._probed_at = -inf  # a time of the monotonic clock
        self.contents: Contents | None = None  # as `check` found them last
        self.audit = AuditLog(engine)
        self.health = HealthStates(engine)
        self.imports = Imports(engine)
        self.orders = Orders(engine)
        self.pets = Pets(engine)
        self.search = Search(engine)
        self.sessions = Sessions(engine)

    # Commands on orders do not need these parts, which take longest to load; a server has loaded them when it starts.

    @cached_property
    def accounts(self) -> "Accounts":
        from petstore_server.store.access import Accounts

        return Accounts(self.engine)

    @cached_property
    def keys(self) -> "Keys":
        from petstore_server.store.access import Keys

        return Keys(self.engine)

    @cached_property
    def listing(self) -> "Listing":
        from petstore_server.store.listing import Listing

        return Listing(self.engine)

    @cached_property
    def responses(self) -> "Responses":
        from petstore_server.store.responses import Responses

        return Responses(self.engine)

    @cached_property
    def usage(self) -> "UsageStore":
        from petstore_server.store.usage import UsageStore

        return UsageStore(self.engine)

    @cached_property
    def webhooks(self) -> "Webhooks":
        from petstore_server.store.webhooks import Webhooks

        return Webhooks(self.engine)

    async def access_version(self) -> AccessVersion:
        """Return a version that differs after any change to accounts, keys or bans, by any process. Cheap.

        Learns of damage that another process has saved.
        """
        dialect = self.engine.dialect
        sql = f"SELECT {dialect.epoch}, {dialect.history}, access_version, damage FROM petstore.store WHERE one = 1"
        [(self._epoch, *version, damage)] = await self.engine.query(sql)
        self.engine.damage.reason = self.engine.damage.reason or damage
        return AccessVersion(*version)

    async def epoch(self) -> str:
        """Return a text that is another one after a restore, but not after a restart or a failover.

        On PostgreSQL it is that of the last call of `access_version`, which a server makes several times a second.
        """
        rows = self.engine.peek(f"SELECT {self.engine.dialect.epoch} FROM petstore.store WHERE one = 1")
        if rows is None and self._epoch is None:
            await self.access_version()
        return str(self._epoch if rows is None else rows[0][0])

    async def check(self) -> None:
        """Prove that everything can be served. Raises ServiceUnavailable with the reason."""
        await self.check_orders()
        await self.check_keys()
        await self.check_others()

    async def check_orders(self) -> None:
        """Prove that keys that are known can read, change and place orders: with a small write, by what these need.

        Raises ServiceUnavailable with the reason.
        """
        await self.engine.verify()
        await self.health.beat()
        if monotonic() - self._probed_at >= _PROBED_SECONDS:
            await self.engine.query(self.engine.dialect.probe)
            self._probed_at = monotonic()
        await self.engine.query(_READ_ORDERS)

    async def check_keys(self) -> None:
        """Prove that keys can be looked up. Raises ServiceUnavailable with the reason."""
        [row] = await self.engine.query(_READ.format(connections=self.engine.dialect.connections))
        self.contents = Contents(*row)

    async def check_others(self) -> None:
        """Prove that pets and usage can be read. Raises ServiceUnavailable with the reason."""
        await self.engine.query(_READ_OTHERS)

    async def close(self) -> None:
        """Finish what is queued, and close the store."""
        if "listing" in vars(self):
            await self.listing.close()
        await self.engine.close()


_READ = """
    SELECT EXISTS (SELECT 1 FROM petstore.orders), EXISTS (SELECT 1 FROM petstore.accounts),
        EXISTS (SELECT 1 FROM petstore.keys), backed_up_at, {connections}
    FROM petstore.store WHERE one = 1
"""
# A store that 1.0.0 has put in the place of this one, by a restore, lacks the column.
_READ_ORDERS = "SELECT EXISTS (SELECT 1 FROM petstore.orders), migration FROM petstore.store WHERE one = 1"
# Reads nothing, and fails for a lock or a privilege all the same.
_READ_OTHERS = "SELECT 1 FROM petstore.pets, petstore.usage_history, petstore.bans WHERE FALSE"
