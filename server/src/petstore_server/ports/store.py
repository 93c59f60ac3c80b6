"""The store: all of its parts, and what concerns all of them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from petstore_server.ports.accounts import Accounts
from petstore_server.ports.audit import Audit
from petstore_server.ports.backups import Backups
from petstore_server.ports.keys import Keys
from petstore_server.ports.orders import OrderPlacement, Orders, OrderSearch
from petstore_server.ports.pets import Pets
from petstore_server.ports.sessions import Sessions
from petstore_server.ports.usage import UsageStore


class AccessVersion(NamedTuple):
    """A version of accounts, keys and bans: the number of changes in one history of the store.

    A restore begins another history. In PostgreSQL so do a restart, a crash recovery and a failover.
    """

    history: str
    changes: int


class StoreStats(Protocol):
    """What a store reports for metrics, on the event loop. It also counts commits, and how often it read the list."""

    commits: int
    rebuilds: int
    on_commit: Callable[[int], None] | None
    """Called with the number of changes that a commit made durable."""
    on_rebuild: Callable[[float], None] | None
    """Called with the seconds that reading the list took."""


class Store(Protocol):
    """One place that holds everything durable."""

    @property
    def orders(self) -> Orders: ...
    @property
    def search(self) -> OrderSearch: ...
    @property
    def placements(self) -> OrderPlacement: ...
    @property
    def pets(self) -> Pets: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def usage(self) -> UsageStore: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def backups(self) -> Backups: ...
    @property
    def stats(self) -> StoreStats: ...

    async def identity(self) -> str:
        """A text that no other store has, copies of this one included, for the names of its counters in Redis.

        Stays the same across restarts, restores in place and failovers.
        """

    async def access_version(self) -> AccessVersion:
        """Return a version that differs after any change to accounts, keys or bans, by any process. Cheap."""

    async def check(self) -> None:
        """Prove that the store can be read and written. Raises ServiceUnavailable with the reason."""

    async def close(self) -> None:
        """Finish what is queued, and close the store."""
