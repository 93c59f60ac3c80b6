"""Changes of orders that share a commit: each is decided on in turn, then all are written together (D5, D22)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from petstore_server.domain.audit import Change
from petstore_server.domain.changes import NOT_YET, ChangedOrder, OrderChange, Put, StoredOrder
from petstore_server.domain.errors import IdentifierReserved, ReferenceInUse, UnknownAccount
from petstore_server.domain.lists import NO_OWNER
from petstore_server.domain.orders import ORDER_FIELDS, Order
from petstore_server.store.audit import audit_row
from petstore_server.store.engine import NO_KEYS, Dialect, Named, PlacementKeys, TryAgain
from petstore_server.store.records import changed_row, order_row, read_order
from petstore_server.store.references import References, find_references
from petstore_server.store.statements import Query, Row, Work, marks

_Outcome = tuple[StoredOrder, Order | None]  # the order after a change and before it, None if it is new


def change_all(
    dialect: Dialect, first_assigned: int, changes: Sequence[OrderChange]
) -> Work[list[ChangedOrder | Exception]]:
    """Apply the changes one after another; return each one's order after it, or the error that its caller gets.

    Everything is decided before anything is written: a change that fails, or has to wait, does not affect others.
    `first_assigned` is that of `Orders`.
    """
    wanted = sorted({change.order_id for change in changes if change.owner is None})
    owned = sorted({(change.order_id, change.owner) for change in changes if change.owner is not None})
    rows = {row[2]: row for row in (yield from dialect.lock_orders(wanted, owned))}
    accounts = yield from _find_accounts(changes, rows.values())
    found = NO_KEYS
    looked_up: set[Named] = set()
    while True:
        batch = _Batch(rows, accounts, first_assigned, found)
        outcomes = [batch.outcome(change) for change in changes]
        if batch.given <= looked_up:
            break
        looked_up |= batch.given  # with those that orders have, again
        found = yield from find_references(dialect, looked_up)
    at = NOT_YET
    existing: Collection[int] = ()
    if batch.audit:
        now = max([change.actor.at for change in changes])
        at, existing = yield from dialect.change_orders(*batch.rows(), batch.audit, now)
    return [_written(change, outcome, at, existing) for change, outcome in zip(changes, outcomes, strict=True)]


class _Batch:
    """Changes of orders that share a transaction, one after another: what they lead to.

    `rows` are those of `Dialect.lock_orders`, `accounts` the names that are needed by the ids of accounts, and `found`
    the references that orders have. `audit` are the entries of the changes, and `given` the references that they give.
    """

    def __init__(
        self, rows: Mapping[int, Row], accounts: Mapping[int, str], first_assigned: int, found: PlacementKeys
    ) -> None:
        self.audit: list[Row] = []
        self.given: set[Named] = set()
        self._rows = rows
        self._accounts = accounts
        self._owners: dict[str | None, int] = {name: account_id for account_id, name in accounts.items()}
        self._first_assigned = first_assigned
        self._references = References(found)
        self._orders: dict[int, StoredOrder] = {}  # as they are after the changes so far
        self._created: set[int] = set()
        self._before: dict[int, Order] = {}  # those that were changed and are not new, as they were at first

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
        changed = []
        for order_id, before in self._before.items():
            after = self._orders[order_id].order
            changed.append(changed_row(before, after, self._owners.get(after.account)))
        created = [self._orders[order_id].order for order_id in sorted(self._created)]
        return changed, [order_row(order, self._owners.get(order.account)) for order in created]

    def _create(self, change: OrderChange, order: Order) -> _Outcome:
        if order.id >= self._first_assigned > 1:
            raise IdentifierReserved(order.id, self._first_assigned)
        self._take_reference(None, order, is_put=True)
        self._record(change, Change(None, order.fields()))
        self._created.add(order.id)
        after = self._orders[order.id] = StoredOrder(order, NOT_YET, NOT_YET)
        return after, None

    def _change(self, change: OrderChange, stored: StoredOrder, order: Order) -> _Outcome:
        self._take_reference(stored.order, order, is_put=isinstance(change.transition, Put))
        self._record(change, _difference(stored.order, order))
        if order.id not in self._created:
            self._before.setdefault(order.id, stored.order)
        after = self._orders[order.id] = StoredOrder(order, NOT_YET, stored.created_at, stored.placed)
        return after, stored.order

    def _record(self, change: OrderChange, difference: Change) -> None:
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

    def _take_reference(self, before: Order | None, order: Order, *, is_put: bool) -> None:
        """Give an order its reference. Raises ReferenceInUse if another order of the owner has it."""
        if before is not None and (before.reference, before.account) == (order.reference, order.account):
            return  # as in most changes; what two orders have had since 1.0 stays
        old, new = (None if before is None else self._named(before)), self._named(order)
        if new is not None:
            self.given.add(new)
            if new in self._references.busy:
                raise TryAgain("another program is giving this reference to an order")
        if (holder := self._references.move(order.id, old, new)) != order.id:
            same = f"if it is the same order, put it under its number {holder}"
            raise ReferenceInUse(holder, same if is_put else "give this order another one")

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
    named = f" OR name IN {marks(names)}" if names else ""
    sql = f"SELECT id, name FROM petstore.accounts WHERE id = ANY(%s::bigint[]){named}"
    return dict((yield Query(sql, (owners, *names))))


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


def _difference(before: Order, after: Order) -> Change:
    """The fields that differ, before and after, as `audit.difference` has them, at a third of its cost."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for name, was, becomes in zip(ORDER_FIELDS, before, after, strict=True):
        if was != becomes:
            if was is not None:
                old[name] = was
            if becomes is not None:
                new[name] = becomes
    return Change(old, new)
