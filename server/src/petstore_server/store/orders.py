"""Orders: their reads, and changes, placements and imports, each in one transaction."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from petstore_server.domain import lists
from petstore_server.domain.audit import Actor
from petstore_server.domain.changes import ChangedOrder, OrderChange
from petstore_server.domain.errors import OrderNotFound
from petstore_server.domain.imports import ImportOutcome, Obstacle, Rejected
from petstore_server.domain.orders import PLACE, Order
from petstore_server.domain.placements import Placed, Placement
from petstore_server.domain.transitions import Transition
from petstore_server.store.engine import Part, bulk_transaction, transaction
from petstore_server.store.imports import update_run
from petstore_server.store.order_changes import change_all
from petstore_server.store.order_imports import ImportRule, OrderImport, find_owners
from petstore_server.store.placements import PlacementRequest, place_all
from petstore_server.store.records import COLUMNS, WITH_IDS, order_row, read_order
from petstore_server.store.search import read_page
from petstore_server.store.statements import OWNER_NAME, Execute, ExecuteRows, Query, Row, Work, marks, one

CLAIMED_TOGETHER = 1000  # orders that get their owners in one transaction
AUDITED_TOGETHER = 1000  # orders in a batch of an import

_ALL = lists.Filters()
_FIND_MANY = f"SELECT {COLUMNS}, {OWNER_NAME} {WITH_IDS}"
_PLACED = f"SELECT id {WITH_IDS} AND placed = 1"
_WITHOUT_OWNER = """
    SELECT id FROM petstore.orders WHERE placed = 1 AND account_id IS NULL AND id > %s ORDER BY id LIMIT %s
"""
_COUNT_WITHOUT_OWNER = "SELECT count(*) FROM petstore.orders WHERE placed = 1 AND account_id IS NULL"
_LOCK_WITHOUT_OWNER = f"SELECT id, status {WITH_IDS} AND account_id IS NULL ORDER BY id FOR UPDATE SKIP LOCKED"
# A look-up for each order, and not a join, which PostgreSQL might do by reading the whole log.
_PLACED_BY = f"""
    SELECT orders.id, account_id FROM petstore.keys JOIN (
        SELECT id, substr((
            SELECT actor FROM petstore.audit WHERE subject = 'order:' || orders.id AND action = '{PLACE}'
            ORDER BY at, audit.id LIMIT 1
        ), 5) AS key_id
        {WITH_IDS}
    ) AS orders ON keys.id = key_id
"""
_LOCK_ACCOUNTS = """
    SELECT id, orders = 'own' FROM petstore.accounts WHERE id = ANY(%s::bigint[]) ORDER BY id FOR SHARE
"""
_SHOWS_OWNERS = "SELECT 1 FROM petstore.keys WHERE revoked_at IS NULL AND ' ' || scopes || ' ' LIKE %s LIMIT 1"
_SET_OWNERS = """
    UPDATE petstore.orders SET account_id = new.owner FROM unnest(%s::bigint[], %s::bigint[]) AS new (order_id, owner)
    WHERE id = new.order_id
"""
_FIND_NAMED = f"""
    SELECT {COLUMNS}, {OWNER_NAME} FROM petstore.orders
    WHERE account_id = (SELECT id FROM petstore.accounts WHERE name = %s) AND reference IN
"""
_FIND_NAMED_WITHOUT_OWNER = f"""
    SELECT {COLUMNS}, {OWNER_NAME} FROM petstore.orders WHERE account_id IS NULL AND reference IN
"""
_FORGET = """
    DELETE FROM petstore.idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM petstore.idempotency_keys WHERE at <= %s LIMIT %s
    )
"""


class Claimed(NamedTuple):
    """How many orders got owners, and the identifier up to which all that could get one have it."""

    number: int
    last: int


class Orders(Part):
    first_assigned = 1
    """The least identifier that a placed order gets. If it is greater than 1, others cannot be created from it on."""

    async def change(
        self,
        order_id: int,
        transition: Transition[Order],
        actor: Actor,
        account_id: int = 0,
        *,
        owner: int | None = None,
    ) -> Order:
        """Apply the transition and return the order after it, once both it and its audit entry are durable.

        The order is returned without its account: partners' cancels need no other table. Concurrent changes share a
        commit, evenly by `account_id`; each has its own outcome. With an `owner`, the orders of others do not exist,
        and are not locked. Raises OrderNotFound, OrderConflict, DamagedRecord.
        """
        change = OrderChange(order_id, transition, actor, owner)
        return (await self._engine.submit(self._change_all, change, account_id)).order

    async def request(self, change: OrderChange, account_id: int = 0) -> ChangedOrder:
        """Carry out a change of one order, as `change` does; return the order after it.

        A change that leads to an equal order changes nothing and is not recorded. Raises what `OrderChange.apply`
        raises, UnknownAccount, IdentifierReserved, ReferenceInUse, DamagedRecord.
        """
        return await self._engine.submit(self._change_all, change, account_id)

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order under the next identifier up to MAX_ASSIGNED_ID; return once it is durable (D20).

        The account owns the order. The idempotency key is kept for KEY_LIFETIME in the same transaction; a repeated
        request gets the same response. Nothing is kept of a request that fails. Raises IdempotencyKeyReused,
        IdempotencyKeyInUse, ReferenceInUse, NoIdentifierLeft.
        """
        return await self._engine.submit(self._place_all, (placement, actor), placement.account_id)

    @transaction
    def forget(self, before: float, limit: int) -> Work[None]:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
        yield Execute(_FORGET, (before, limit))

    async def claim(self, after: int, now: float) -> Claimed:
        """Set the owners of some orders that 1.0.0 placed, by identifiers above `after`; `now` is in Unix seconds.

        The owner is the account with the key that the audit log names; without such an entry the order stays without an
        owner. It is a change only for an account that sees only its own orders, or if a key sees owners.
        """
        ids = [row[0] for row in await self._engine.query(_WITHOUT_OWNER, (after, CLAIMED_TOGETHER), in_order=True)]
        return await self._claim(ids, now) if ids else Claimed(0, after)

    async def count_without_owner(self) -> int:
        """Return how many placed orders have no owner."""
        [(number,)] = await self._engine.query(_COUNT_WITHOUT_OWNER, short=False)
        return int(number)

    async def last_identifier(self) -> int:
        """Return the largest identifier ever assigned to an order; 0 before the first."""
        [(last,)] = await self._engine.query("SELECT last_order_id FROM petstore.clock WHERE one = 1")
        return int(last)

    async def count_above(self, order_id: int, most: int) -> int:
        """Return how many orders have greater identifiers, counted up to `most`."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM petstore.orders WHERE id > %s LIMIT %s) AS greater"
        [(number,)] = await self._engine.query(sql, (order_id, most))
        return int(number)

    async def find(self, order_id: int) -> Order:
        """Return the order. Raises OrderNotFound, DamagedRecord."""
        return one(await self.find_many([order_id]), OrderNotFound, order_id)

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers, in any order."""
        return [read_order(*row) for row in await self._engine.query(_FIND_MANY, (list(ids),), short=len(ids) == 1)]

    async def with_references(self, named: Collection[tuple[str | None, str]]) -> list[Order]:
        """The orders with one of these pairs of an owner's name, None for no owner, and a reference; in any order."""
        found: list[Row] = []
        for name in {name for name, _ in named}:
            texts = sorted(text for owner, text in named if owner == name)
            for at in range(0, len(texts), AUDITED_TOGETHER):
                some = texts[at : at + AUDITED_TOGETHER]
                sql, given = (_FIND_NAMED, [name]) if name is not None else (_FIND_NAMED_WITHOUT_OWNER, [])
                found += await self._engine.query(f"{sql} {marks(some)}", (*given, *some), short=False)
        return [read_order(*row) for row in found]

    async def scan(
        self, filters: lists.Filters = _ALL, batch_size: int = lists.MAX_LIMIT
    ) -> AsyncGenerator[list[Order]]:
        """Yield the orders of one consistent snapshot that match, ascending by id, in bounded memory.

        A batch may be empty. A read transaction is held until the end: a caller that may stop earlier uses `aclosing`.
        """
        query = lists.PageQuery(filters, lists.Sort(), batch_size)
        async with self._engine.snapshot() as read:
            accounts = await read(_account_names)
            more = True
            while more:
                page = await read(partial(read_page, query, self._engine.dialect))
                yield [read_order(row[0], row[1], row[5], row[4], accounts.get(row[7])) for row in page.rows]
                query, more = query._replace(after=page.next), page.next is not None

    async def placed(self, ids: Sequence[int]) -> list[int]:
        """The orders among these identifiers that were placed over the API."""
        return [row[0] for row in await self._engine.query(_PLACED, (list(ids),), short=False)]

    @bulk_transaction
    def _claim(self, ids: Sequence[int], now: float) -> Work[Claimed]:
        """Set the owners of these orders, as far as no other transaction has locked them."""
        from petstore_server.domain.keys import Scope  # which commands on orders do not load

        rows = dict((yield Query(_LOCK_WITHOUT_OWNER, (ids,))))
        owners = dict((yield Query(_PLACED_BY, (list(rows),))))
        # Locked, so that an account cannot begin to see only its own orders meanwhile.
        locked = yield Query(_LOCK_ACCOUNTS, (sorted({*owners.values()}),), briefly=True)
        shown = yield Query(_SHOWS_OWNERS, (f"% {Scope.ORDERS_MANAGE} %",))
        own = {account_id for account_id, sees_own in locked if sees_own or shown}
        yield ExecuteRows(_SET_OWNERS, [(key, owner) for key, owner in owners.items() if owner not in own])
        # Their lists, and what follows them, are found by the time of the last change.
        changed = [(key, rows[key], *[None] * 5, owner) for key, owner in owners.items() if owner in own]
        if changed:
            yield from self._engine.dialect.write_orders(changed, (), now)
        skipped = [order_id for order_id in ids if order_id not in rows]
        return Claimed(len(owners), skipped[0] - 1 if skipped else ids[-1])

    @bulk_transaction
    def import_batch(
        self,
        orders: Sequence[Order],
        import_id: str,
        actor: Actor,
        *,
        replace_placed: bool = False,
        placed: Collection[int] = (),
        assigned: bool = False,
        update_only: bool = False,
        correct_shipped: bool = False,
        repeated: Collection[int] = (),
        by_reference: bool = False,
        missing: Collection[str] = (),
        file: str = "",
        rejected: Callable[[Sequence[ImportOutcome], Mapping[int, Obstacle]], Rejected] = lambda *_: Rejected(),
    ) -> Work[list[ImportOutcome]]:
        """Import the orders in one transaction, and add to the import's record; return the outcome of each.

        Only these orders are locked (D6). Those that were placed over the API, and those in `placed`, are replaced only
        with `replace_placed`, by an order that names the same account and reference. `assigned`: orders are created
        also under identifiers that the service assigns. `update_only`: none is created. `correct_shipped`: orders that
        have shipped are replaced too, as far as they can be corrected. `repeated` are the places of those that the file
        has had before, which change nothing. `by_reference`: orders of this import may be UNASSIGNED; they are
        the owner's with their reference, or new. `missing` are fields that stored orders keep, except the names of
        those that were placed and are replaced. `file` is the name in the record, and `rejected` returns what is
        rejected, by the outcomes and the places of orders that another one stands against. Raises DamagedRecord if a
        stored one cannot be read.
        """
        reserved_from = 1 if assigned else self.first_assigned
        rule = ImportRule(placed, reserved_from, replace_placed, update_only, correct_shipped, missing)
        imported = OrderImport(self._engine.dialect, import_id, actor, rule, self.first_assigned, by_reference)
        outcomes: list[ImportOutcome] = []
        for at in range(0, len(orders), AUDITED_TOGETHER):
            again = {place - at for place in repeated if 0 <= place - at < AUDITED_TOGETHER}
            outcomes += yield from imported.add(orders[at : at + AUDITED_TOGETHER], again)
        yield from update_run("orders", import_id, actor, file, outcomes, rejected(outcomes, imported.obstacles))
        return outcomes

    @bulk_transaction
    def copy(self, orders: Iterable[Order], now: float) -> Work[None]:
        """Add copies of another store's orders, which this one lacks, at `now` (Unix seconds): none is refused."""
        copied = sorted(orders, key=attrgetter("id"))
        owners = yield from find_owners(copied)
        rows = [order_row(order, owners.get(order.account)) for order in copied]
        yield from self._engine.dialect.write_orders((), rows, now)

    def _change_all(self, changes: Sequence[OrderChange]) -> Work[list[ChangedOrder | Exception]]:
        return change_all(self._engine.dialect, self.first_assigned, changes)

    def _place_all(self, requests: Sequence[PlacementRequest]) -> Work[list[Placed | Exception]]:
        return place_all(self._engine.dialect, self.first_assigned, requests)


def _account_names() -> Work[dict[int | None, str]]:
    """The names of all accounts by id."""
    return dict((yield Query("SELECT id, name FROM petstore.accounts")))
