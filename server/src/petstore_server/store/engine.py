"""The seam between the rules of storage and the engines that carry them out.

The classes of this package offer transactions (`statements.py`) as methods, which a decorator runs on the engine:
`Accounts.create` is an example.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from petstore_server.domain.orders import MAX_ASSIGNED_ID
from petstore_server.store.damage import Damage
from petstore_server.store.statements import Item, Result, Row, Work

P = ParamSpec("P")
Snapshot = Callable[[Callable[[], Work[Any]]], Awaitable[Any]]  # runs queries on the snapshot that it stands for
Perform = Callable[[Sequence[Item]], Work[Sequence[Result | Exception]]]  # of several callers: the outcome of each item


def run_synchronously(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that does not wait for anything, without an event loop; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waits, which needs an event loop")


def run_in_background(coroutine: Coroutine[Any, Any, Result]) -> Awaitable[Result]:
    """Run a coroutine in a task of the event loop."""
    import asyncio  # a command that uses `run_synchronously` starts without it

    return asyncio.get_running_loop().create_task(coroutine)


class TryAgain(Exception):
    """The outcome of an item that another transaction has locked: the engine submits it again. `args[0]`: why."""


@dataclass
class Stats:
    """What a store reports for metrics: functions, called on the event loop, which the metrics replace."""

    committed: Callable[[int], object] = lambda changes: None  # the number of changes that a commit made durable
    rebuilt: Callable[[float], object] = lambda seconds: None  # how long reading the list took
    old_primaries: Callable[[], int] = lambda: 0  # asked by the metrics: how many connections to one were refused


Named = tuple[int, str]  # an idempotency key of an account, or a reference of an owner


class PlacementKeys(NamedTuple):
    """What `Dialect.find_keys` finds of idempotency keys and references.

    `busy_keys` and `busy_references` are used by another transaction now. `keys` were used for an order: its digest,
    identifier and placement in Unix microseconds. `references` lead to the first order with each.
    `shared` are those that several orders of an owner have, and lead to the last of these.
    """

    keys: Mapping[Named, Row]
    references: Mapping[Named, int]
    shared: Mapping[Named, int]
    busy_keys: Collection[Named] = ()
    busy_references: Collection[Named] = ()

    @classmethod
    def found(cls, keys: Iterable[Row], references: Collection[Row], *busy: Collection[Named]) -> "PlacementKeys":
        """From rows of (account, key, digest, order, placement), and (owner, reference, first order, last order).

        `busy` are `busy_keys` and `busy_references`, as far as there are any.
        """
        first = {row[:2]: row[2] for row in references}
        shared = {row[:2]: row[3] for row in references if row[3] != row[2]}
        return cls({row[:2]: row[2:] for row in keys}, first, shared, *busy)


NO_KEYS = PlacementKeys({}, {}, {})


def last_assigned(rows: Sequence[Row]) -> int:
    """The largest identifier among rows of orders, ascending by id, that counts as assigned; 0 without one."""
    return next((row[0] for row in reversed(rows) if row[0] <= MAX_ASSIGNED_ID), 0)


class Dialect(Protocol):
    """The statements in which the engines differ.

    Each that writes orders advances the clock first, in the transaction: the clock's row holds the number and the time
    (Unix microseconds) of the last change, and the largest identifier ever assigned. In PostgreSQL its row is locked
    from there to the commit, so numbers and times ascend in the order of commits, on any number of hosts.
    """

    epoch: str
    """An SQL expression for a text that names the history of orders: another one if what was seen may be gone."""

    history: str
    """An SQL expression that identifies the store's history: changes seen in another one may be gone."""

    connections: str
    """Two SQL expressions: the connections of the database server in use, and all that it allows; NULL without one."""

    covering: bool
    """Whether the indexes of orders also have most other columns that lists filter and sort by."""

    new_account: str
    """The identifier of a new account in SQL: none that another one had, not even one that a restore has removed."""

    probe: str
    """Statements that fail where every change would fail, for a lock or a privilege. They change nothing."""

    heartbeat: str
    """A statement that writes something small."""

    def require_schema(self, version: int) -> Work[None]:
        """Let only programs that know this schema version open the store from now on. No query follows it."""

    def lock_orders(self, ids: Sequence[int], owned: Sequence[tuple[int, int]]) -> Work[list[Row]]:
        """Lock the orders that exist among these identifiers, and that no other transaction has locked.

        Of those in `owned`, (id, account), only the account's own are locked. Return (record, status, id, reference,
        owner, updated, created, placed) of each that may be locked, where times are Unix microseconds; only the id and
        the owner if another transaction has locked it.
        """

    def change_orders(
        self, changed: Sequence[Row], created: Sequence[Row], audit: Sequence[Row], now: float
    ) -> Work[tuple[int, Collection[int]]]:
        """Write changed and new orders with audit entries at `now` (Unix seconds), as the last of a transaction.

        A row is as for `write_orders`, and one of `audit` is an `audit_row`. Return the time of the change in Unix
        microseconds, and which of the new orders exist already: nothing is written for these.
        """

    def write_orders(
        self, changed: Sequence[Row], created: Sequence[Row], now: float, batch: int | None = None
    ) -> Work[object]:
        """Write changed and new orders at `now` (Unix seconds); `batch` is that of the import that writes them.

        A row is `records.order_row`, whose owner is set only if the order has none; without a record only the status
        is written. New ones ascend by id; identifiers up to `last_assigned` of them count as assigned.
        """

    def find_keys(self, keys: Sequence[Named], references: Sequence[Named], since: float) -> Work[PlacementKeys]:
        """Lock idempotency keys, (account, key), and references, (owner or NO_OWNER, reference).

        Find the keys used after `since` (Unix seconds), and of each owner the first and the last order with each
        reference.
        """

    def wait_for_references(self, references: Sequence[Named]) -> Work[None]:
        """Lock references, which ascend, as `find_keys` does; first wait until no other transaction uses them.

        The transaction must not have locked anything else before.
        """

    def place_orders(self, rows: Sequence[Row], first: int, now: float) -> Work[list[tuple[int, int]]]:
        """Store new orders under the next identifiers from `first` on, with their idempotency keys and audit entries.

        It is the last statement of a transaction.

        A row is (pet, ship date, reference, end of the record, owner, key, digest, Unix seconds, actor, end of the
        audit entry), where an end is JSON text that follows the identifier. Return (identifier, Unix microseconds) of
        each order; nothing if there are not enough identifiers left.
        """


class Engine(Protocol):
    """Runs statements on one store. Every method raises ServiceUnavailable if the store cannot be used.

    StatementFailed is raised for a statement that the store refuses with these values, also when it is to be committed.
    """

    stats: Stats
    damage: Damage

    @property
    def dialect(self) -> Dialect:
        """The statements in which this engine differs."""

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row] | None:
        """Return the rows of a short statement if that takes no waiting; None otherwise."""

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        """Return the rows of one statement. A short one reads few rows, which an index finds: SQLite does not wait."""

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        """Run the queries of `work` on one snapshot."""

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """One snapshot for as long as the caller takes, as a function that runs queries on it."""

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        """Run `work` in one transaction; return once it is durable. Raises what `work` raises, after a rollback.

        A transaction may be started again from the beginning. `bulk`: many changes, for which no request waits.
        """

    async def submit(self, perform: Perform[Item, Result], item: Item, flow: int) -> Result:
        """Perform the item together with others in one transaction; return its result once that is durable.

        Where that fails for what one item asks, the others are performed without it; only its caller gets the error.
        Flows, which are accounts, share a transaction evenly. `perform` writes nothing for an item whose outcome is an
        exception, which its caller gets; after TryAgain the item is submitted again for as long as a request waits.
        """

    async def identity(self) -> str:
        """Return a text that no other store has, copies of this one included, for the names of its counters in Redis.

        Stays the same across restarts, restores in place and failovers.
        """

    async def witness(self, epoch: str, at: int) -> None:
        """Remember that a client saw this change, so that its loss is noticed."""

    def fault(self) -> str | None:
        """Why the store cannot be used as far as is known: damage that was seen, or the cause of recent failures."""

    async def verify(self) -> None:
        """Raises ServiceUnavailable if damage was seen, the disk is full, or another server has replaced this one.

        Once damage was seen, no change is accepted until this process ends: a restore would discard it.
        """

    async def close(self) -> None:
        """Finish what is queued, and close the store."""


class Part:
    """A part of the store: a class whose methods are transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine


S = TypeVar("S", bound=Part)
_Method = Callable[Concatenate[S, P], Work[Result]]
_Runs = Callable[Concatenate[S, P], Coroutine[Any, Any, Result]]


def transaction(method: _Method[S, P, Result], *, bulk: bool = False) -> _Runs[S, P, Result]:
    """Make the method run its statements in one transaction, durable when it returns."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._engine.transaction(lambda: method(self, *args, **kwargs), bulk=bulk)

    return run


def bulk_transaction(method: _Method[S, P, Result]) -> _Runs[S, P, Result]:
    """Make the method run many changes in one transaction, for which no request waits; durable when it returns."""
    return transaction(method, bulk=True)


def snapshot(method: _Method[S, P, Result]) -> _Runs[S, P, Result]:
    """Make the method run its queries on one snapshot."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._engine.read(lambda: method(self, *args, **kwargs))

    return run
