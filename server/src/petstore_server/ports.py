"""What the service needs of the world, said in the words of the business; `storage` and `ratelimit` fulfil it.

Every method of a store may raise ServiceUnavailable when the store cannot be used, and then has changed nothing
(or, where a connection died at the commit, may have: D19). Moments are Unix seconds.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import ApiKey, Environment, Principal
from petstore_server.domain.orders import Import, Order, Transition
from petstore_server.domain.pets import Pet
from petstore_server.domain.placement import Placed, Placement
from petstore_server.domain.search import Page, Query, TrackedOrder
from petstore_server.domain.windows import Count, Decision


class Actor(NamedTuple):
    """Who makes a change (`key:<id>` or `operator:<user>`) and when (Unix seconds), for the audit log."""

    name: str
    at: float


class Usage(NamedTuple):
    """What an account's windows were charged with."""

    minute: Count = Count()
    day: Count = Count()


class Unsaved(NamedTuple):
    """What a limiter counted and the store does not hold yet: usage by account id, and new bans."""

    usage: Mapping[int, Usage]
    bans: Sequence[Ban]


class AuditEntry(NamedTuple):
    """One line of the audit log. `before` and `after` hold what changed: {field: value}, or None."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    before: Any
    after: Any


class Body(NamedTuple):
    """A response body held in memory: `chunks` follow one another, `length` is their bytes, `etag` is quoted."""

    etag: bytes
    length: int
    chunks: Sequence[bytes]


class Snapshot(Protocol):
    """The whole list at one moment, encoded (D8)."""

    @property
    def plain(self) -> Body:
        """The JSON array as it is."""

    async def gzip(self) -> Body:
        """The same as one gzip member, under an ETag of its own; made once a snapshot."""


class Orders(Protocol):
    async def snapshot(self) -> Snapshot:
        """The list of all orders, never older than any change acknowledged before this call, by any process."""

    async def change(self, order_id: int, transition: Transition, actor: Actor) -> Order:
        """Apply the transition and return the order after it, once both it and its audit entry are durable.

        Concurrent changes share a commit; each caller gets its own answer. Raises OrderNotFound, OrderConflict.
        """

    async def find(self, order_id: int) -> Order:
        """The order as it is. Raises OrderNotFound."""

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers, in any order."""

    def scan(self, batch_size: int = 1000) -> AsyncIterator[list[Order]]:
        """All orders of one consistent snapshot, ascending by id, in bounded memory."""

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Take the orders in, in one transaction with one audit entry; say of each what became of it."""


class OrderSearch(Protocol):
    async def page(self, query: Query) -> Page:
        """One page of orders, never older than any change acknowledged before this call, by any process."""

    async def find(self, order_id: int) -> TrackedOrder:
        """One order, as current as a page. Raises OrderNotFound."""

    async def update_index(self) -> bool:
        """Bring a bounded number of changes into the search index; return whether more are waiting."""


class OrderPlacement(Protocol):
    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order under an identifier larger than all used before; return once it is durable (D20).

        The idempotency key is kept for KEY_LIFETIME with the response, in the same transaction; a repeated request
        gets that response. Nothing is kept of a request that fails. Raises IdempotencyKeyReused, IdempotencyKeyInUse.
        """

    async def forget(self, before: float, limit: int) -> None:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""


class Pets(Protocol):
    async def find(self, pet_id: int) -> Pet:
        """The pet. Raises PetNotFound."""

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        """The pets that exist among these identifiers, in any order."""

    async def import_batch(self, pets: Sequence[Pet], import_id: str, actor: Actor) -> list[Import]:
        """Take the pets in, replacing those of the same id (never REJECTED), in one transaction."""


class Accounts(Protocol):
    async def create(self, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
        """Raises AccountExists."""

    async def find(self, name: str) -> Account:
        """Raises AccountNotFound."""

    async def list(self) -> list[Account]:
        """All accounts, by name."""

    async def set_plan(self, name: str, plan: Plan, limits: Limits, actor: Actor) -> Account:
        """Change the plan; what was used stays used. Raises AccountNotFound."""

    async def suspend(self, name: str, actor: Actor) -> Account:
        """Make the account's keys invalid; suspending twice changes nothing. Raises AccountNotFound."""

    async def resume(self, name: str, actor: Actor) -> Account:
        """Make them valid again; resuming twice changes nothing. Raises AccountNotFound."""


class Keys(Protocol):
    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | None:
        """What the key with this SHA-256 allows at `now`; None unless it is valid in this environment."""

    async def create(self, key: ApiKey, actor: Actor) -> ApiKey:
        """Store a key of the account `key.account`. Raises AccountNotFound."""

    async def find(self, key_id: str) -> ApiKey:
        """Raises KeyNotFound."""

    async def list(self, account: str | None = None) -> list[ApiKey]:
        """The keys of one account or of all, oldest first. Raises AccountNotFound."""

    async def rotate(self, key_id: str, new: ApiKey, grace_ends: float, actor: Actor) -> ApiKey:
        """Store `new` in place of the key, which ends at `grace_ends` (or earlier, if it was to); it inherits the ban.

        Of `new` only id, digest and created_at count; the rest is the old key's. Raises KeyNotFound, KeyNotUsable.
        """

    async def revoke(self, key_id: str, actor: Actor) -> ApiKey:
        """End the key now; revoking twice changes nothing. Raises KeyNotFound."""

    async def unban(self, key_id: str, actor: Actor) -> ApiKey:
        """Lift the key's ban and forget it. Raises KeyNotFound, KeyNotBanned."""


class UsageStore(Protocol):
    """What a limiter in process memory keeps in the store, so that it survives a restart (D12)."""

    async def find(self, account_id: int) -> Usage:
        """What the account has used, as last saved."""

    async def all(self) -> Mapping[int, Usage]:
        """What each account (by id) has used, as last saved."""

    async def bans(self) -> Sequence[Ban]:
        """The latest ban of each key that has one, ended ones included as long as they lengthen the next."""

    async def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban]) -> None:
        """Write down usage by account id and new bans, in one transaction."""


class Audit(Protocol):
    def entries(self, since: float | None = None) -> AsyncIterator[AuditEntry]:
        """The entries from `since` on, oldest first, in bounded memory."""


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

    async def identity(self) -> str:
        """A text that no other store has, copies of this one included, for the names of its counters in Redis.

        Stays the same across restarts, restores in place and failovers.
        """

    async def access_version(self) -> int:
        """A number that differs after any change to accounts, keys or bans, by any process. Cheap."""

    async def check(self) -> None:
        """Prove that the store can be read and written. Raises ServiceUnavailable with the reason."""

    async def close(self) -> None:
        """Finish what is queued and let go of the store."""


class Limiter(Protocol):
    """Counts requests: never forgets an account's windows, and keeps a bounded number of addresses (D12, D14)."""

    @property
    def fault(self) -> str | None:
        """Why limits are not exact now, as far as is known; None if they are (D19)."""

    @property
    def strikes(self) -> int:
        """Strikes that this process noted since it started."""

    @property
    def bans(self) -> int:
        """Bans that this process gave since it started."""

    @property
    def local_decisions(self) -> int:
        """Decisions that this process made by itself because shared counters did not respond."""

    async def start(self) -> None:
        """Connect to shared counters. Raises the adapter's error if they reject this process for good."""

    def load(self, store_id: str, usage: Mapping[int, Usage], bans: Iterable[Ban]) -> None:
        """Start from what the store with this identity holds. Called once, after `start` and before any request."""

    async def admit(self, principal: Principal) -> Decision:
        """Charge both windows of the key's account, or neither; note a strike, and ban a key that earned it."""

    async def admit_address(self, address: str) -> Decision:
        """Charge the window of an address (as text; IPv6 by /64) whose client has no valid key."""

    async def peek_address(self, address: str) -> Decision:
        """The window of an address, without a charge."""

    async def check(self) -> str | None:
        """Return `fault` after an attempt to clear it."""

    def replace_bans(self, bans: Iterable[Ban]) -> None:
        """Take over the store's bans; those not saved yet stay."""

    def take_unsaved(self) -> Unsaved:
        """Return what is to be saved. Follow with `saved`, or with `put_back` if that failed."""

    def saved(self, unsaved: Unsaved) -> None:
        """Note that this is in the store now."""

    def put_back(self, unsaved: Unsaved) -> None:
        """Note that this was not saved, and is to be taken again."""

    def forget(self) -> None:
        """Drop what is no longer needed, so that the tables stay small. Called once a minute."""

    async def close(self) -> None:
        """Release resources."""
