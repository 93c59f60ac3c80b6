"""Changes and imports of orders in batches, as transactions that every engine runs."""

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from struct import pack
from typing import NamedTuple, Protocol

import msgspec

from petstore_server.domain.errors import DamagedRecord, InvalidField, OrderNotFound
from petstore_server.domain.imports import IMPORT_ACTION, Reversal, Undo, checksum, evaluate_undo, id_ranges
from petstore_server.domain.orders import ORDER_FIELDS, Import, Order, Status, evaluate_import, order_from_fields
from petstore_server.domain.transitions import Transition
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, audit_row, record
from petstore_server.storage.imports import audit_change, evaluate
from petstore_server.storage.statements import Query, Row, Work

StoredOrder = tuple[int, str, str]
"""An order's row: id, record, status."""


class Locked(Exception):
    """Another transaction has the order locked now: the change is tried again."""


class OrderChange(NamedTuple):
    """One caller's change."""

    order_id: int
    transition: Transition[Order]
    actor: Actor


class Updated(NamedTuple):
    """An order before and after a transaction changed it."""

    before: Order
    after: Order

    @property
    def changes_record(self) -> bool:
        """Whether the list shows the change: the status is not part of the record."""
        return self.before[:-1] != self.after[:-1]


class OrderTable(Protocol):
    """How an engine stores orders."""

    def lock(self, ids: Sequence[int], *, wait: bool) -> Work[Sequence[StoredOrder]]:
        """Lock and return these orders. Without `wait`, skip those that another transaction has locked."""

    def exist(self, ids: Sequence[int]) -> Work[Collection[int]]:
        """Return which of these orders exist."""

    def update(self, updated: Sequence[Updated], audit: Sequence[Row], at: float) -> Work[None]:
        """Write existing orders at `at` (Unix seconds), and entries of the audit log (`audit_row`)."""

    def insert(self, orders: Sequence[Order], records: Sequence[str], at: float) -> Work[None]:
        """Insert new orders, given with their records, at `at` (Unix seconds)."""

    def delete(self, ids: Sequence[int], at: float) -> Work[None]:
        """Delete orders at `at` (Unix seconds), and begin another history of the list.

        No new order gets one of their identifiers (`domain.placement.largest_assigned`).
        """


class _Record(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The JSON that `Order.record` writes."""

    id: int
    pet_id: int | None = None
    quantity: int | None = None
    ship_date: str | None = None
    complete: bool | None = None


_decode = msgspec.json.Decoder(_Record).decode
_encode_lines = msgspec.json.Encoder().encode_lines
_STATUS = {str(status): status for status in Status}


def read_order(stored: StoredOrder) -> Order:
    """Return the order of a row. Raises DamagedRecord."""
    order_id, text, status = stored
    try:
        record = _decode(text)
        order = Order(record.id, record.pet_id, record.quantity, record.ship_date, record.complete, _STATUS[status])
    except (msgspec.MsgspecError, KeyError):
        raise DamagedRecord(order_id) from None
    if order.id != order_id:
        raise DamagedRecord(order_id)
    return order


def known_ids(ids: Sequence[int]) -> Work[Sequence[int]]:
    """Return those of the identifiers, ascending, that may be in use: an import of new orders looks up none."""
    [(largest,)] = yield Query("SELECT max(id) FROM petstore.orders")
    return ids[: bisect_right(ids, largest)] if largest is not None else ()


def change_orders(table: OrderTable, changes: Sequence[OrderChange]) -> Work[list[Order | Exception]]:
    """Apply the changes one after another; return each one's order after it, or the error that its caller gets.

    Everything is decided before anything is written, so a change that fails does not affect the others.
    """
    wanted = sorted({change.order_id for change in changes})
    stored = {row[0]: row for row in (yield from table.lock(wanted, wait=False))}
    missing = [order_id for order_id in wanted if order_id not in stored]
    locked = (yield from table.exist(missing)) if missing else ()
    updated: dict[int, Updated] = {}
    audit: list[Row] = []
    outcomes: list[Order | Exception] = []
    for change in changes:
        try:
            outcomes.append(_apply(change, stored, locked, updated, audit))
        except Exception as error:  # noqa: BLE001 - for its caller: even a defect must not affect the others
            outcomes.append(error)
    if updated:
        yield from table.update(list(updated.values()), audit, max(change.actor.at for change in changes))
    return outcomes


def _apply(
    change: OrderChange,
    stored: Mapping[int, StoredOrder],
    locked: Collection[int],
    updated: dict[int, Updated],
    audit: list[Row],
) -> Order:
    order_id, transition, actor = change
    if order_id not in stored:
        raise Locked if order_id in locked else OrderNotFound(order_id)
    earlier = updated.get(order_id)
    before = read_order(stored[order_id]) if earlier is None else earlier.after
    after = transition.apply(before)
    audit.append(audit_row(actor, transition.action, f"order:{order_id}", _difference(before, after)))
    updated[order_id] = Updated(before if earlier is None else earlier.before, after)
    return after


def _difference(before: Order, after: Order) -> Change:
    """The fields that differ, as `audit.difference` has them, at a third of its cost."""
    changed = [(name, old, new) for name, old, new in zip(ORDER_FIELDS, before, after, strict=True) if old != new]
    return Change(
        {name: old for name, old, _ in changed if old is not None},
        {name: new for name, _, new in changed if new is not None},
    )


class CreatedOrders(NamedTuple):
    """Orders that an import creates, ascending by id, with what is written of them."""

    orders: Sequence[Order]
    records: Sequence[str]
    audit: Mapping[str, object]
    """What undoing the import needs to know of them."""


class ImportedOrders:
    """Orders to import. What is written of new orders is prepared before the transaction, in which others wait."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self.orders = orders
        self.ids = sorted({order.id for order in orders})
        self._all = _created(orders) if len(self.ids) == len(orders) else None

    def created(self, new: Collection[Order]) -> CreatedOrders:
        """What to write of these orders, each with another id."""
        return self._all if self._all is not None and len(new) == len(self.orders) else _created(new)


def import_orders(table: OrderTable, imported: ImportedOrders, import_id: str, actor: Actor) -> Work[list[Import]]:
    """Import the orders with one audit entry; return the outcome of each. Raises DamagedRecord."""
    stored = yield from table.lock(imported.ids, wait=True)
    existing = {row[0]: read_order(row) for row in stored}
    outcomes, changed = evaluate(imported.orders, existing, evaluate_import)
    before, after = audit_change("orders", existing, changed, outcomes)
    new = [order for order in changed.values() if order.id not in existing] if existing else changed.values()
    if new:
        created = imported.created(new)
        yield from table.insert(created.orders, created.records, actor.at)
        after = {**(after or {}), **created.audit}
    replaced = [Updated(existing[order.id], order) for order in changed.values() if order.id in existing]
    if replaced:
        yield from table.update(replaced, (), actor.at)
    yield record(actor, IMPORT_ACTION, import_id, Change(before, after))
    return outcomes


def _created(new: Iterable[Order]) -> CreatedOrders:
    orders = sorted(new)
    records = encode_records(orders)
    checksums = [checksum(text, order.status) for order, text in zip(orders, records, strict=True)]
    audit = {
        "createdIds": id_ranges([order.id for order in orders]),
        "createdChecksums": pack(f">{len(checksums)}I", *checksums).hex(),
    }
    return CreatedOrders(orders, records, audit)


def encode_records(orders: Sequence[Order]) -> list[str]:
    """`Order.record` of each order, at half the cost."""
    lines = _encode_lines([_Record(*order[:5]) for order in orders])
    return lines.decode().split("\n")[:-1]


def undo_orders(table: OrderTable, reversals: Sequence[Reversal], import_id: str, actor: Actor) -> Work[list[Undo]]:
    """Undo changes of an import with one audit entry; return the outcome of each. Raises DamagedRecord."""
    stored = yield from table.lock(sorted(reversal.order_id for reversal in reversals), wait=True)
    current = {row[0]: read_order(row) for row in stored}
    outcomes = [evaluate_undo(current.get(reversal.order_id), reversal) for reversal in reversals]
    removed = [
        current[each.order_id] for each, outcome in zip(reversals, outcomes, strict=True) if outcome is Undo.REMOVED
    ]
    restored = [
        Updated(current[each.before.id], each.before)
        for each, outcome in zip(reversals, outcomes, strict=True)
        if outcome is Undo.RESTORED and each.before
    ]
    if removed:
        yield from table.delete([order.id for order in removed], actor.at)
    if restored:
        yield from table.update(restored, (), actor.at)
    if removed or restored:
        before = [order.fields() for order in removed] + [before.fields() for before, _ in restored]
        after = [after.fields() for _, after in restored]
        counts = {"removed": len(removed), "restored": len(restored)}
        yield record(actor, "orders.import-undo", import_id, Change({"orders": before}, {**counts, "orders": after}))
    return outcomes


MOST_PROBLEMS = 100
"""Problems that a check of a store reports at most."""


def order_problem(stored: StoredOrder) -> str | None:
    """Return what is wrong with a stored order, in plain words; its text must be what the service would write."""
    order_id, text, status = stored
    try:
        order = order_from_fields({**json.loads(text), "status": status})
    except (ValueError, TypeError, InvalidField) as error:
        return f"Order {order_id} has a record that cannot be read ({error})."
    if order.id != order_id:
        return f"Order {order_id} has a record that names order {order.id}."
    return None if order.record() == text else f"Order {order_id} has a record in another form than the service writes."
