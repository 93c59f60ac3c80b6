"""The protocols that `storage` and `ratelimit` implement, in terms of the business.

Every method of a store may raise ServiceUnavailable if the store cannot be used, and then has changed nothing (or, if a
connection failed during a commit, may have changed something: D19). Times are Unix seconds.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from petstore_server.domain.accounts import Account, Limits, Plan
from petstore_server.domain.bans import Ban
from petstore_server.domain.imports import Reversal, Undo
from petstore_server.domain.keys import ApiKey, Environment, Principal, Rotated, Successor
from petstore_server.domain.orders import Import, Order, Status
from petstore_server.domain.pets import Pet
from petstore_server.domain.placement import Placed, Placement
from petstore_server.domain.search import Page, Query, TrackedOrder
from petstore_server.domain.sessions import Session
from petstore_server.domain.transitions import Transition
from petstore_server.domain.usage import NO_ACTIVITY, Activity, Granularity, KeylessRow, UsageCounts, UsageRow
from petstore_server.domain.windows import Count, Decision

SERVICE = "service"
"""The actor of changes that the service makes by itself, such as a ban."""


class Actor(NamedTuple):
    """Who makes a change and when (Unix seconds), for the audit log.

    `name` is `key:<id>`, `operator:<user>`, or SERVICE. `request_id` is that of
    the request which made the change.
    """

    name: str
    at: float
    request_id: str | None = None


class Usage(NamedTuple):
    """What an account has used of its windows."""

    minute: Count = Count()
    day: Count = Count()


class Unsaved(NamedTuple):
    """What a limiter counted and the store does not hold yet: usage by account id, and new bans."""

    usage: Mapping[int, Usage]
    bans: Sequence[Ban]


class AuditEntry(NamedTuple):
    """One entry of the audit log. `before` and `after` hold what changed: {field: value}, or None.

    `request_id` is that of the request that made the change, None for changes by other means.
    """

    id: int
    at: float
    actor: str
    action: str
    subject: str
    before: Any
    after: Any
    request_id: str | None = None


class Piece:
    """Records of adjacent orders as JSON, each after a comma, with their SHA-256; both empty without orders.

    `deflated` is kept here by who compresses the list: deflate blocks of the records, and their CRC-32.
    """

    __slots__ = ("data", "deflated", "digest")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.digest = sha256(data).digest() if data else b""
        self.deflated: tuple[bytes, int] | None = None


@dataclass(frozen=True, slots=True)
class OrderList:
    """One snapshot of the list of all orders (D8), in pieces.

    `pieces` are the records of all orders, ascending by id. The piece at an index holds the orders from `starts` at
    that index up to the next. A change renews only its own piece: all others are the same objects in the next snapshot.
    `mark` identifies what was read; only the store can interpret it.
    """

    mark: Any
    starts: tuple[int, ...]
    pieces: tuple[Piece, ...]


class Orders(Protocol):
    def is_current(self, held: OrderList) -> bool:
        """Whether `held` is known, without waiting, to show every acknowledged change. False if only a query can tell.

        Takes microseconds.
        """

    async def snapshot(self, held: OrderList | None = None) -> OrderList:
        """Return the list of all orders, never older than any change acknowledged before this call, by any process.

        Pieces that have not changed since `held` are taken from there; if none has, `pieces` is the same object.
        """

    async def change(self, order_id: int, transition: Transition[Order], actor: Actor) -> Order:
        """Apply the transition and return the order after it, once both it and its audit entry are durable.

        Concurrent changes share a commit; each caller gets its own outcome. Raises OrderNotFound, OrderConflict,
        DamagedRecord.
        """

    async def find(self, order_id: int) -> Order:
        """Return the order. Raises OrderNotFound, DamagedRecord."""

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers, in any order."""

    def scan(self, batch_size: int = 1000) -> AsyncIterator[list[Order]]:
        """Yield all orders of one consistent snapshot, ascending by id, in bounded memory."""

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Import the orders in one transaction with one audit entry; return the outcome of each.

        Raises DamagedRecord if one of them is stored already and cannot be read.
        """

    async def undo_batch(self, reversals: Sequence[Reversal], import_id: str, actor: Actor) -> list[Undo]:
        """Undo changes that an import made, as `domain.imports.evaluate_undo` allows, in one transaction.

        One audit entry has what was removed and restored. Returns the outcome of each. Raises DamagedRecord.
        """


class OrderSearch(Protocol):
    async def page(self, query: Query) -> Page:
        """One page of orders, never older than any change acknowledged before this call, by any process."""

    async def find(self, order_id: int) -> TrackedOrder:
        """One order, as current as a page. Raises OrderNotFound."""

    async def count_by_status(self) -> Mapping[Status, int]:
        """The number of orders with each status, as of the last update of the search index."""

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
        """Return the pet. Raises PetNotFound."""

    async def find_many(self, ids: Sequence[int]) -> list[Pet]:
        """The pets that exist among these identifiers, in any order."""

    async def import_batch(self, pets: Sequence[Pet], import_id: str, actor: Actor) -> list[Import]:
        """Import the pets, replacing those of the same id (never REJECTED), in one transaction."""


class Accounts(Protocol):
    async def create(
        self, name: str, plan: Plan, limits: Limits, actor: Actor, *, contact: str = "", note: str = ""
    ) -> Account:
        """Raises AccountExists."""

    async def find(self, name: str) -> Account:
        """Raises AccountNotFound."""

    async def list(self) -> list[Account]:
        """Return all accounts, by name."""

    async def change(self, name: str, transition: Transition[Account], actor: Actor) -> Account:
        """Apply the transition and return the account after it, once it is durable.

        The transitions are `set_plan`, `suspend`, `RESUME`, `edit` and `close` of `domain.accounts`. What changes
        nothing leaves no trace. Raises AccountNotFound, AccountClosed.
        """


class Keys(Protocol):
    async def principal(self, digest: bytes, environment: Environment, now: float) -> Principal | None:
        """Return what the key with this SHA-256 allows at `now`; None unless it is valid in this environment."""

    async def create(self, key: ApiKey, actor: Actor) -> ApiKey:
        """Store a key of the account `key.account`. Raises AccountNotFound, AccountClosed."""

    async def find(self, key_id: str) -> ApiKey:
        """Raises KeyNotFound."""

    async def list(self, account: str | None = None) -> list[ApiKey]:
        """Return the keys of one account or of all, oldest first. Raises AccountNotFound."""

    async def change(self, key_id: str, transition: Transition[ApiKey], actor: Actor) -> ApiKey:
        """Apply the transition (`revoke`, `unban`) and return the key after it, once it is durable.

        What changes nothing leaves no trace. Raises KeyNotFound, KeyNotBanned.
        """

    async def rotate(self, key_id: str, successor: Successor, grace_ends: float, actor: Actor) -> Rotated:
        """Replace the key by a successor, as `domain.keys.rotate` says. Raises KeyNotFound, KeyNotUsable."""


class UsageStore(Protocol):
    """What a limiter in process memory saves in the store, so that it survives a restart (D12)."""

    async def find(self, account_id: int) -> Usage:
        """Return what the account has used, as last saved."""

    async def all(self) -> Mapping[int, Usage]:
        """Return what each account (by id) has used, as last saved."""

    async def bans(self) -> Sequence[Ban]:
        """Return the latest ban of each key that has one, including ended ones, which lengthen the next."""

    async def save(self, usage: Mapping[int, Usage], bans: Sequence[Ban], activity: Activity = NO_ACTIVITY) -> None:
        """Save usage by account id and new bans, and add to the usage history, in one transaction.

        A successor to which a key was rotated after its ban began gets the ban too.
        """

    async def history(self, account_id: int | None, start: int, end: int, by: Granularity) -> list[UsageRow]:
        """The usage history of an account, or the sum of all if it is None: hours or days, ascending.

        All that begin at `start` or later and before `end` (Unix seconds); those without requests are left out.
        """

    async def keyless_history(self, start: int, end: int, by: Granularity) -> list[KeylessRow]:
        """The same for requests without a valid key."""

    async def totals(self, start: int, end: int) -> Mapping[int, UsageCounts]:
        """The usage of each active account (by id) in the hours and days that begin in this time, summed."""

    async def compact(self, hours_before: int, days_before: int) -> bool:
        """Sum the hours of one day that ended before `hours_before` into that day; delete days before `days_before`.

        Both are starts of days in Unix seconds. Returns whether there may be more to do.
        """


class AuditPosition(NamedTuple):
    """The place of an entry in the audit log, which is sorted by time and id."""

    at: float
    id: int


class AuditFilters(NamedTuple):
    """Which entries of the audit log to read: those that satisfy every filter. None, and nothing, mean all.

    `since` is included, `until` is not; both are Unix seconds. For each group of names in `about`, such as `order:7` or
    `key:<id>`, the subject or the actor of an entry must be one of them.
    """

    actor: str | None = None
    action: str | None = None
    subjects: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    about: tuple[tuple[str, ...], ...] = ()


class AuditPage(NamedTuple):
    """Entries, newest first. `next` is the position before which the log goes on, None at its end.

    A page may be shorter than its limit, even empty, and still have a `next`: the work for one page is bounded.
    """

    entries: Sequence[AuditEntry]
    next: AuditPosition | None


class Audit(Protocol):
    def entries(self, filters: AuditFilters = AuditFilters()) -> AsyncIterator[AuditEntry]:  # noqa: B008 - immutable
        """Yield the entries that match, oldest first, in bounded memory."""

    async def page(self, filters: AuditFilters, limit: int, before: AuditPosition | None = None) -> AuditPage:
        """At most `limit` entries that match, newest first, from before a position or from the newest."""


class Backups(Protocol):
    async def record(self, file: str, actor: Actor) -> None:
        """Record that a good backup was made at `actor.at` in a file of this name."""

    async def last(self) -> float | None:
        """Return when the last good backup was made, in Unix seconds; None if there was none."""


class Sessions(Protocol):
    """Sign-in links and sessions of the operator console, each found by the SHA-256 of its token."""

    async def add_link(self, digest: bytes, expires_at: float, actor: Actor) -> None:
        """Store a link that signs in as `actor`, and delete what has expired."""

    async def sign_in(self, link: bytes, session: bytes, expires_at: float, now: float) -> Session | None:
        """Replace a link by a session, both given by their digests; None unless the link is valid at `now`.

        Exactly one of several concurrent calls with the same link succeeds.
        """

    async def find(self, digest: bytes, now: float) -> Session | None:
        """The session if it has not ended at `now`."""

    async def extend(self, digest: bytes, expires_at: float) -> None:
        """Move the end of a session that exists."""

    async def end(self, digest: bytes) -> None:
        """End a session; ending it twice changes nothing."""

    async def end_all(self, actor: Actor) -> int:
        """End all sessions and delete all links; return the number of sessions."""


class AccessVersion(NamedTuple):
    """A version of accounts, keys and bans: the number of changes in one history of the store.

    A restore begins another history. In PostgreSQL so do a restart, a crash recovery and a failover.
    """

    history: str
    changes: int


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
