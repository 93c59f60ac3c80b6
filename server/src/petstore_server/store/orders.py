"""Orders: changes and placed orders, which share commits; imports, which commit in batches; and reads of orders."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from petstore_server.domain import lists
from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.changes import NOT_YET, ChangedOrder, OrderChange, Put, StoredOrder
from petstore_server.domain.errors import (
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    IdentifierReserved,
    NoIdentifierLeft,
    OrderNotFound,
    ReferenceInUse,
    UnknownAccount,
)
from petstore_server.domain.imports import Rejected, audit_change, evaluate, id_ranges
from petstore_server.domain.lists import NO_OWNER
from petstore_server.domain.orders import (
    KEY_LIFETIME,
    MAX_ASSIGNED_ID,
    ORDER_FIELDS,
    PLACE,
    UNASSIGNED,
    ImportOutcome,
    Order,
    Placed,
    Placement,
    evaluate_import,
    kept_of,
    possible_references,
)
from petstore_server.domain.transitions import Transition
from petstore_server.store.audit import audit_row
from petstore_server.store.engine import (
    NO_KEYS,
    OWNER_NAME,
    Command,
    Named,
    Part,
    PlacementKeys,
    Query,
    Row,
    Rows,
    TryAgain,
    Work,
    bulk_transaction,
    marks,
    one,
    transaction,
)
from petstore_server.store.imports import add_batch, note
from petstore_server.store.records import order_row, read_order
from petstore_server.store.search import read_page

CLAIMED_TOGETHER = 1000  # orders that get their owners in one transaction
AUDITED_TOGETHER = 1000  # orders in a batch of an import

_ALL = lists.Filters()
_COLUMNS = "record, status, id, reference"  # for `read_order`
_WITH_IDS = "FROM petstore.orders WHERE id = ANY(%s::bigint[])"
_FIND_MANY = f"SELECT {_COLUMNS}, {OWNER_NAME} {_WITH_IDS}"
# In ascending order, as in every transaction, so that two of them never wait for each other.
LOCK = f"SELECT {_COLUMNS}, account_id, updated_at, created_at, placed {_WITH_IDS} ORDER BY id FOR UPDATE"
_FIND_ORIGINS = f"SELECT {_COLUMNS}, {OWNER_NAME}, account_id, placed, imported {_WITH_IDS}"
_PLACED = f"SELECT id {_WITH_IDS} AND placed = 1"
_WITHOUT_OWNER = """
    SELECT id FROM petstore.orders WHERE placed = 1 AND account_id IS NULL AND id > %s ORDER BY id LIMIT %s
"""
_COUNT_WITHOUT_OWNER = "SELECT count(*) FROM petstore.orders WHERE placed = 1 AND account_id IS NULL"
_LOCK_WITHOUT_OWNER = f"SELECT id, status {_WITH_IDS} AND account_id IS NULL ORDER BY id FOR UPDATE SKIP LOCKED"
# A look-up for each order, and not a join, which PostgreSQL might do by reading the whole log.
_PLACED_BY = f"""
    SELECT orders.id, account_id FROM petstore.keys JOIN (
        SELECT id, substr((
            SELECT actor FROM petstore.audit WHERE subject = 'order:' || orders.id AND action = '{PLACE}'
            ORDER BY at, audit.id LIMIT 1
        ), 5) AS key_id
        {_WITH_IDS}
    ) AS orders ON keys.id = key_id
"""
_LOCK_ACCOUNTS = """
    SELECT id, orders = 'own' FROM petstore.accounts WHERE id = ANY(%s::bigint[]) ORDER BY id FOR SHARE
"""
_SET_OWNERS = """
    UPDATE petstore.orders SET account_id = new.owner FROM unnest(%s::bigint[], %s::bigint[]) AS new (order_id, owner)
    WHERE id = new.order_id
"""
_FIND_NAMED = f"""
    SELECT {_COLUMNS}, {OWNER_NAME} FROM petstore.orders
    WHERE account_id = (SELECT id FROM petstore.accounts WHERE name = %s) AND reference IN
"""
_BATCHES_OF = "SELECT id FROM petstore.import_batches WHERE import_id = %s AND id = ANY(%s::bigint[])"
_LAST_LOCKED = "SELECT last_order_id FROM petstore.clock WHERE one = 1 FOR UPDATE"
_FIND_NAMED_WITHOUT_OWNER = f"""
    SELECT {_COLUMNS}, {OWNER_NAME} FROM petstore.orders WHERE account_id IS NULL AND reference IN
"""
_FORGET = """
    DELETE FROM petstore.idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM petstore.idempotency_keys WHERE at <= %s LIMIT %s
    )
"""
_NO_IDENTIFIER = '{"id":0'  # how the JSON of an order begins that has no identifier yet

PlacementRequest = tuple[Placement, Actor]
_Outcome = tuple[StoredOrder, Order | None]  # the order after a change and before it, None if it is new


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
        yield Command(_FORGET, (before, limit))

    async def claim(self, after: int, now: float) -> Claimed:
        """Set the owners of some orders that 1.0.0 placed, by identifiers above `after`; `now` is in Unix seconds.

        The owner is the account with the key that the audit log names; without such an entry the order stays without an
        owner. It is a change only for an account that sees only its own orders.
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
        rows = dict((yield Query(_LOCK_WITHOUT_OWNER, (ids,))))
        owners = dict((yield Query(_PLACED_BY, (list(rows),))))
        # Locked, so that an account cannot begin to see only its own orders meanwhile.
        locked = yield Query(_LOCK_ACCOUNTS, (sorted({*owners.values()}),), briefly=True)
        own = {account_id for account_id, sees_own in locked if sees_own}
        yield Rows(_SET_OWNERS, [(key, owner) for key, owner in owners.items() if owner not in own])
        # Their lists are found by the time of the last change.
        changed = [(key, rows[key], *[None] * 5, owner) for key, owner in owners.items() if owner in own]
        if changed:
            yield from self._engine.dialect.update_orders(changed, now)
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
        as_stored: bool = False,
        repeated: Collection[int] = (),
        by_reference: bool = False,
        file: str = "",
        rejected: Callable[[Sequence[ImportOutcome]], Rejected] = lambda _: Rejected(),
    ) -> Work[list[ImportOutcome]]:
        """Import the orders in one transaction, and add to the import's record; return the outcome of each.

        Only these orders are locked (D6). Those that were placed over the API, and those in `placed`, are replaced only
        with `replace_placed`, by an order that names the same account and reference. `assigned`: orders are created
        also under identifiers that the service assigns. `update_only`: none is created. `correct_shipped`: orders that
        have shipped are replaced too, as far as they can be corrected. `as_stored`: they are copies of stored ones, so
        none is refused. `repeated` are the places of those that the file has had before, which change nothing.
        `by_reference`: orders of this import may be UNASSIGNED; they are the owner's with their reference, or new.
        `file` is the name in the record, and `rejected` returns what is rejected, by the outcomes. Raises DamagedRecord
        if a stored one cannot be read.
        """
        outcomes: list[ImportOutcome] = []
        for at in range(0, len(orders), AUDITED_TOGETHER):
            batch = orders[at : at + AUDITED_TOGETHER]
            again = {place - at for place in repeated if 0 <= place - at < AUDITED_TOGETHER}
            batch, busy = (yield from self._found(batch)) if by_reference else (batch, ())
            reserved_from = 1 if assigned else self.first_assigned
            rule = _ImportRule(placed, reserved_from, replace_placed, update_only, correct_shipped)
            outcomes += yield from self._import(
                batch, import_id, actor, None if as_stored else rule, again, busy, by_reference
            )
        yield from note("orders", import_id, actor, file, outcomes, rejected(outcomes))
        return outcomes

    def _import(
        self,
        orders: Sequence[Order],
        import_id: str,
        actor: Actor,
        rule: "_ImportRule | None",
        repeated: Collection[int],
        busy: Collection[Named],
        by_reference: bool,
    ) -> Work[list[ImportOutcome]]:
        """Import the orders by a rule; without one they are copies of stored ones."""
        unassigned = [at for at, order in enumerate(orders) if order.id == UNASSIGNED] if by_reference else []
        rows = yield from _locked_rows(sorted({order.id for order in orders} - {UNASSIGNED}))
        own = (yield from _written_by(import_id, rows)) if by_reference else set()
        if unassigned:
            numbers = {order.id for order in orders}
            orders = yield from self._assigned(orders)
            repeated = {*repeated, *(place for place in unassigned if orders[place].id in numbers)}
        existing = {row[2]: read_order(*row[:5]) for row in rows}
        owners = {row[4]: row[5] for row in rows if row[5] is not None} | (yield from _find_owners(orders))
        found = NO_KEYS
        if owners:
            possible = possible_references(existing, orders)
            named = sorted({(owners[name], reference) for name, reference in possible if name in owners})
            found = yield from self._engine.dialect.find_keys([], named, 0.0)
        simple = not by_reference and all(order.account is None for order in orders)
        any_new = rule is None or (rule.accepts_any_new and simple)
        if rule is not None:
            rule.use(
                owners, found, [row[2] for row in rows if row[6]], {orders[place].id for place in unassigned}, own, busy
            )
        rules = (rule, rule.completed) if rule else (evaluate_import, kept_of)
        outcomes, changed = evaluate(orders, existing, *rules, any_new=any_new, repeated=repeated)
        if not changed:
            return outcomes
        new = sorted([order for order in changed.values() if order.id not in existing])
        replaced = [order for order in changed.values() if order.id in existing]
        before, after = audit_change("orders", existing, changed, outcomes)
        if new:
            after = {**(after or {}), "createdIds": id_ranges([order.id for order in new])}
        previous = {row[2]: row[7] for row in rows if row[2] in changed}
        batch = yield from add_batch(import_id, actor, Change(before, after), previous)
        if new:
            assignable = bisect_right(new, MAX_ASSIGNED_ID, key=attrgetter("id"))
            last_id = new[assignable - 1].id if assignable else 0
            inserted = [(*order_row(order), owners.get(order.account)) for order in new]
            yield from self._engine.dialect.insert_orders(inserted, last_id, actor.at, batch)
        if replaced:
            updated = [_changed_row(existing[order.id], order, owners.get(order.account)) for order in replaced]
            yield from self._engine.dialect.update_orders(updated, actor.at, batch)
        return outcomes

    def _found(self, orders: Sequence[Order]) -> Work[tuple[Sequence[Order], Collection[Named]]]:
        """The orders; those that are UNASSIGNED under the identifier of the owner's order with their reference.

        Also the references that another transaction uses now.
        """
        owners = yield from _find_owners(orders)
        wanted = [_named(order, owners) for order in orders]
        names = {name for name, order in zip(wanted, orders, strict=True) if order.id == UNASSIGNED}
        found = yield from self._engine.dialect.find_keys([], sorted(names), 0.0)
        with_ids = [
            order._replace(id=found.references.get(name, UNASSIGNED)) if order.id == UNASSIGNED else order
            for name, order in zip(wanted, orders, strict=True)
        ]
        return with_ids, found.busy_references

    def _assigned(self, orders: Sequence[Order]) -> Work[list[Order]]:
        """The orders; those that are UNASSIGNED under new identifiers, one for each owner and reference."""
        [(last,)] = yield Query(_LAST_LOCKED)
        given = {(order.account, order.reference): order.id for order in orders if order.id != UNASSIGNED}
        names = {(order.account, order.reference): None for order in orders if order.id == UNASSIGNED}
        numbers = [number for number in given.values() if number <= MAX_ASSIGNED_ID]
        first = max(last, self.first_assigned - 1, *numbers) + 1
        if first + len(names) - 1 > MAX_ASSIGNED_ID:
            raise NoIdentifierLeft
        ids = dict(zip(names, range(first, first + len(names)), strict=True)) | given
        return [
            order._replace(id=ids[order.account, order.reference]) if order.id == UNASSIGNED else order
            for order in orders
        ]

    def _change_all(self, changes: Sequence[OrderChange]) -> Work[list[ChangedOrder | Exception]]:
        """Apply the changes one after another; return each one's order after it, or the error that its caller gets.

        Everything is decided before anything is written: a change that fails, or has to wait, does not affect others.
        """
        wanted = sorted({change.order_id for change in changes if change.owner is None})
        owned = sorted({(change.order_id, change.owner) for change in changes if change.owner is not None})
        rows = {row[2]: row for row in (yield from self._engine.dialect.lock_orders(wanted, owned))}
        accounts = yield from _find_accounts(changes, rows.values())
        found = NO_KEYS
        looked_up: set[Named] = set()
        while True:
            batch = _Batch(rows, accounts, self.first_assigned, found)
            outcomes = [batch.outcome(change) for change in changes]
            if batch.references <= looked_up:
                break
            looked_up |= batch.references  # with those that orders have, again
            found = yield from self._engine.dialect.find_keys([], sorted(looked_up), 0.0)
        at = NOT_YET
        existing: Collection[int] = ()
        if batch.audit:
            now = max([change.actor.at for change in changes])
            at, existing = yield from self._engine.dialect.change_orders(*batch.rows(), batch.audit, now)
        return [_written(change, outcome, at, existing) for change, outcome in zip(changes, outcomes, strict=True)]

    def _place_all(self, requests: Sequence[PlacementRequest]) -> Work[list[Placed | Exception]]:
        """Place an order for each new key; return what was placed under each request's key, or the caller's error."""
        now = max(actor.at for _, actor in requests)
        keys = [placement.identity for placement, _ in requests]
        references = sorted({named for placement, _ in requests if (named := placement.owned_reference) is not None})
        found = yield from self._engine.dialect.find_keys(keys, references, now - KEY_LIFETIME)
        new = _new_orders(requests, found)
        placed: Sequence[tuple[int, int]] = ()
        if new:
            placed = yield from self._engine.dialect.place_orders(
                [_placed_row(*each) for each in new.values()], self.first_assigned, now
            )
        assigned = dict(zip(new, placed, strict=False))  # by key: the identifier, and the time
        named_by = {placement.owned_reference: key for key, (placement, _) in new.items()}
        return [_outcome(request, found, new, assigned, named_by) for request in requests]


def _account_names() -> Work[dict[int | None, str]]:
    """The names of all accounts by id."""
    return dict((yield Query("SELECT id, name FROM petstore.accounts")))


def _find_owners(orders: Sequence[Order]) -> Work[dict[str | None, int]]:
    """The ids of the accounts that these orders name, by name."""
    names = sorted({order.account for order in orders if order.account is not None})
    if not names:
        return {}
    return dict((yield Query(f"SELECT name, id FROM petstore.accounts WHERE name IN {marks(names)}", names)))


def _written_by(import_id: str, rows: Sequence[Row]) -> Work[set[int]]:
    """Those of the orders that earlier batches of the import have written."""
    batches = yield Query(_BATCHES_OF, (import_id, [row[7] for row in rows if row[7] is not None]))
    return {row[2] for row in rows if (row[7],) in batches}


def _named(order: Order, owners: Mapping[str | None, int]) -> Named:
    """The owner of an order that has only a reference, NO_OWNER for none or one that does not exist, and that."""
    return owners.get(order.account, NO_OWNER), order.reference or ""


def _owned_reference(order: Order, owners: Mapping[str | None, int]) -> Named | None:
    """The owner that an import names and the reference, which no other order of this owner may have."""
    if order.account not in owners or order.reference is None:
        return None
    return owners[order.account], order.reference


class _ImportRule:
    """Decides on each order of a batch of an import, one after another.

    `placed` are orders that count as placed, and new ones from `reserved_from` on, if that is greater than 1, can only
    be placed.
    """

    def __init__(
        self,
        placed: Collection[int],
        reserved_from: int,
        replace_placed: bool,
        update_only: bool,
        correct_shipped: bool,
    ) -> None:
        self._placed = set(placed)
        self._reserved_from = reserved_from
        self._replace_placed = replace_placed
        self._update_only = update_only
        self._correct_shipped = correct_shipped

    @property
    def accepts_any_new(self) -> bool:
        """Whether any order without an owner can be created."""
        return self._reserved_from == 1 and not self._update_only

    def use(
        self,
        owners: Mapping[str | None, int],
        found: PlacementKeys,
        placed: Iterable[int],
        assigned: Collection[int],
        own: Collection[int],
        waiting: Collection[Named],
    ) -> None:
        """Take what a batch meets: accounts by name, the references that orders have, and the orders placed.

        `assigned` are the identifiers of new orders without a number, `own` those that earlier batches have written,
        and `waiting` the references of new ones that another transaction uses.
        """
        self._assigned, self._own, self._waiting = assigned, own, waiting
        self._owners = owners
        self._busy = found.busy_references
        self._used = dict(found.references)  # the order with each, as the batch changes them
        self._placed |= set(placed)

    def completed(self, old: Order | None, incoming: Order) -> Order:
        return kept_of(old, incoming, self._correct_shipped)

    def _refusal(self, old: Order | None, new: Order) -> ImportOutcome | None:
        """Why the order is not imported whatever it has, if there is a reason."""
        if new.account is not None and new.account not in self._owners:
            return ImportOutcome.UNKNOWN_ACCOUNT
        if new.id in self._own:
            return ImportOutcome.TAKEN
        if old is not None:
            return None
        if self._update_only:
            return ImportOutcome.MISSING
        if new.id in self._assigned:
            return ImportOutcome.REFERENCE_IN_USE if _named(new, self._owners) in self._waiting else None
        return ImportOutcome.RESERVED if new.id >= self._reserved_from > 1 else None

    def __call__(self, old: Order | None, incoming: Order) -> ImportOutcome:
        new = self.completed(old, incoming)
        if (refusal := self._refusal(old, new)) is not None:
            return refusal
        outcome = evaluate_import(old, new, new.id in self._placed, self._correct_shipped)
        if outcome is ImportOutcome.PROTECTED and old is not None and self._replace_placed:
            same = old.account == incoming.account and old.reference in (None, incoming.reference)
            outcome = ImportOutcome.REPLACED if same else ImportOutcome.OTHER_PLACED
        before = None if old is None else _owned_reference(old, self._owners)
        named = _owned_reference(new, self._owners)
        if named == before or outcome not in (ImportOutcome.CREATED, ImportOutcome.REPLACED):
            return outcome  # what two orders have had since 1.0 stays
        if named is not None:
            if named in self._busy or self._used.get(named, new.id) != new.id:
                return ImportOutcome.REFERENCE_IN_USE
            self._used[named] = new.id
        if before is not None and self._used.get(before) == new.id:
            del self._used[before]
        return outcome


def _locked_rows(ids: Sequence[int]) -> Work[list[Row]]:
    """Lock the orders that exist among these identifiers, which ascend; return them with their origins."""
    rows = yield Query(f"{_FIND_ORIGINS} ORDER BY id FOR UPDATE", (ids,))
    missing = sorted({*ids} - {row[2] for row in rows})
    if missing:
        # With the clock locked, none of them is placed or imported by another transaction any more.
        [(last,)] = yield Query(_LAST_LOCKED)
        rows += (yield Query(_FIND_ORIGINS, (missing,))) if missing[0] <= last or missing[-1] > MAX_ASSIGNED_ID else []
    return rows


class _Batch:
    """Changes of orders that share a transaction, one after another: what they lead to.

    `rows` are those of `Dialect.lock_orders`, `accounts` the names that are needed by the ids of accounts, and `found`
    the references that orders have. `audit` are the entries of the changes, and `references` those that they give.
    """

    def __init__(
        self, rows: Mapping[int, Row], accounts: Mapping[int, str], first_assigned: int, found: PlacementKeys
    ) -> None:
        self.audit: list[Row] = []
        self.references: set[Named] = set()
        self._rows = rows
        self._accounts = accounts
        self._owners: dict[str | None, int] = {name: account_id for account_id, name in accounts.items()}
        self._first_assigned = first_assigned
        self._busy = found.busy_references
        self._used = dict(found.references)
        self._orders: dict[int, StoredOrder] = {}  # as they are after the changes so far
        self._created: set[int] = set()
        self._changed: dict[int, bool] = {}  # whether more than the status is written, of those that are not new

    def outcome(self, change: OrderChange) -> _Outcome | Exception:
        """The order after the change and before it, or the error that its caller gets."""
        try:
            if isinstance(change.transition, Put):
                self._check_account(change.transition.order.account, change.owner)
            stored = self._stored(change)
            order = change.apply(stored)
            if stored is None:
                return self._create(change, order)
            return (stored, stored.order) if order == stored.order else self._change(change, stored, order)
        except Exception as error:  # noqa: BLE001 - for its caller: even a defect must not affect the others
            return error

    def rows(self) -> tuple[list[Row], list[Row]]:
        """The rows of the orders that were changed, and of those that are new."""
        changed = [
            self._row(order_id) if with_record else _status_row(self._orders[order_id].order)
            for order_id, with_record in self._changed.items()
        ]
        return changed, [self._row(order_id) for order_id in sorted(self._created)]

    def _row(self, order_id: int) -> Row:
        order = self._orders[order_id].order
        return *order_row(order), self._owners.get(order.account)

    def _create(self, change: OrderChange, order: Order) -> _Outcome:
        if order.id >= self._first_assigned > 1:
            raise IdentifierReserved(order.id, self._first_assigned)
        self._take_reference(None, order)
        self._note(change, Change(None, order.fields()))
        self._created.add(order.id)
        after = self._orders[order.id] = StoredOrder(order, NOT_YET, NOT_YET)
        return after, None

    def _change(self, change: OrderChange, stored: StoredOrder, order: Order) -> _Outcome:
        self._take_reference(stored.order, order)
        old, new = _difference(stored.order, order)
        self._note(change, Change(old, new))
        if order.id not in self._created:
            self._changed[order.id] = self._changed.get(order.id, False) or {*old, *new} != {"status"}
        after = self._orders[order.id] = StoredOrder(order, NOT_YET, stored.created_at, stored.placed)
        return after, stored.order

    def _note(self, change: OrderChange, difference: Change) -> None:
        self.audit.append(audit_row(change.actor, change.transition.action, f"order:{change.order_id}", difference))

    def _check_account(self, name: str | None, owner: int | None) -> None:
        """Raise UnknownAccount if an account that a put names does not exist for its caller."""
        if name is not None and (name not in self._owners or owner not in (None, self._owners[name])):
            raise UnknownAccount

    def _stored(self, change: OrderChange) -> StoredOrder | None:
        """The order as the caller sees it, after the changes so far; None if it does not exist."""
        row, stored = self._rows.get(change.order_id), self._orders.get(change.order_id)
        if change.owner is not None and (row is None or row[4] != change.owner):
            return None
        if stored is None and row is not None:
            if row[0] is None:
                raise TryAgain(f"another program keeps order {change.order_id} locked")
            record, status, order_id, reference, owner, updated_at, created_at, placed = row
            order = read_order(record, status, order_id, reference, self._accounts.get(owner))
            stored = self._orders[change.order_id] = StoredOrder(order, updated_at, created_at, placed)
        return stored

    def _take_reference(self, before: Order | None, order: Order) -> None:
        """Note the reference that an order gets. Raises ReferenceInUse if another order of the owner has it."""
        if before is not None and (before.reference, before.account) == (order.reference, order.account):
            return  # as in most changes; what two orders have had since 1.0 stays
        old, new = (None if before is None else self._named(before)), self._named(order)
        if new is not None:
            self.references.add(new)
            if new in self._busy:
                raise TryAgain("another program is giving this reference to an order")
            if self._used.setdefault(new, order.id) != order.id:
                raise ReferenceInUse(self._used[new])
        if old is not None and self._used.get(old) == order.id:
            del self._used[old]

    def _named(self, order: Order) -> Named | None:
        """The owner and the reference of an order."""
        if order.reference is None:
            return None
        row = self._rows.get(order.id)
        owner = None if row is None else row[4]
        return owner or self._owners.get(order.account, NO_OWNER), order.reference


def _find_accounts(changes: Sequence[OrderChange], rows: Iterable[Row]) -> Work[dict[int, str]]:
    """The names of the accounts by id that the changes name, and of the owners of orders where one needs them."""
    puts = [change.transition.order.account for change in changes if isinstance(change.transition, Put)]
    if not puts and not any(change.sees_account for change in changes):
        return {}
    names = sorted({name for name in puts if name is not None})
    owners = sorted({row[4] for row in rows if row[4] is not None})
    if not names and not owners:
        return {}
    conditions = [("id = ANY(%s::bigint[])", (owners,))] + ([(f"name IN {marks(names)}", names)] if names else [])
    where = " OR ".join([text for text, _ in conditions])
    parameters = [value for _, values in conditions for value in values]
    return dict((yield Query(f"SELECT id, name FROM petstore.accounts WHERE {where}", parameters)))


def _written(
    change: OrderChange, outcome: _Outcome | Exception, at: int, existing: Collection[int]
) -> ChangedOrder | Exception:
    """The outcome of a change that was written `at`; `existing` are new orders that another transaction has added.

    What was decided about one of these, a refusal too, is decided again: the order is another one.
    """
    if existing:
        decided_by = outcome.values[0] if isinstance(outcome, ReferenceInUse) else change.order_id
        if {decided_by, change.order_id}.intersection(existing):
            return TryAgain(f"another program has added order {decided_by}")
    if isinstance(outcome, Exception):
        return outcome
    return ChangedOrder(*outcome, at)


def _changed_row(before: Order, after: Order, owner: int | None) -> Row:
    """The row to write, with the owner."""
    if before.status is not after.status and before._replace(status=after.status) == after:
        return _status_row(after)
    return *order_row(after), owner


def _status_row(order: Order) -> Row:
    """The row to write where only the status changed."""
    return order.id, str(order.status), None, None, None, None, None, None


def _difference(before: Order, after: Order) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that differ, before and after, as `audit.difference` has them, at a third of its cost."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for name, was, becomes in zip(ORDER_FIELDS, before, after, strict=True):
        if was != becomes:
            if was is not None:
                old[name] = was
            if becomes is not None:
                new[name] = becomes
    return old, new


def _new_orders(requests: Sequence[PlacementRequest], found: PlacementKeys) -> dict[Named, PlacementRequest]:
    """The requests that place an order, by their idempotency keys: the first with each new key and new reference."""
    new: dict[Named, PlacementRequest] = {}
    taken: set[Named | None] = {*found.references, *found.busy_references}
    for request in requests:
        key, named = request[0].identity, request[0].owned_reference
        if not (key in found.busy_keys or key in found.keys or key in new or named in taken):
            new[key] = request
            taken.add(named)
            taken.discard(None)  # orders without a reference are all different
    return new


def _outcome(
    request: PlacementRequest,
    found: PlacementKeys,
    new: Mapping[Named, PlacementRequest],
    assigned: Mapping[Named, tuple[int, int]],
    named_by: Mapping[Named | None, Named],
) -> Placed | Exception:
    """The outcome of a request. `named_by` leads from the references of new orders to their keys."""
    placement = request[0]
    key, named = placement.identity, placement.owned_reference
    if key in found.busy_keys:
        return IdempotencyKeyInUse()
    if key not in found.keys and key not in new:
        return _reference_outcome(named, found, assigned.get(named_by.get(named, key)))
    digest, *placed = found.keys[key] if key in found.keys else (new[key][0].digest, *assigned.get(key, ()))
    if not placed:
        return NoIdentifierLeft()
    if digest != placement.digest:
        return IdempotencyKeyReused()
    return placement.placed(*placed, replayed=new.get(key) is not request)


def _reference_outcome(named: Named | None, found: PlacementKeys, placed: tuple[int, int] | None) -> Exception:
    """The outcome of a request whose reference another order has, or the one `placed` in the same batch."""
    if named in found.busy_references:
        return TryAgain("another program is placing an order with this reference")
    if named is not None and named in found.references:
        return ReferenceInUse(found.references[named])
    return NoIdentifierLeft() if placed is None else ReferenceInUse(placed[0])


def _placed_row(placement: Placement, actor: Actor) -> Row:
    """The row for `Dialect.place_orders`."""
    order = placement.order(0)
    _, _, pet_id, _, ship_date, reference, record = order_row(order)
    after = str(audit_row(actor, PLACE, "", Change(None, order.fields()))[-1])
    record, after = record.removeprefix(_NO_IDENTIFIER), after.removeprefix(_NO_IDENTIFIER)
    key = placement.account_id, placement.key, placement.digest
    return pet_id, ship_date, reference, record, *key, actor.at, actor.name, after
