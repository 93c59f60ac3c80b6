"""Undo an import: take back what nothing has changed since, and report the rest."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from petstore_server.domain.errors import ImportNotFound
from petstore_server.domain.imports import IMPORT_ACTION, Reversal, Undo, checksum, evaluate_undo
from petstore_server.domain.orders import Order, order_from_fields
from petstore_server.ports import Actor, AuditFilters, Store

_BATCH = 2000


class UndoReport(NamedTuple):
    """The identifiers of the orders by what became of them."""

    import_id: str
    orders: dict[Undo, list[int]]

    @property
    def kept(self) -> int:
        """The number of orders that were not taken back."""
        return sum(len(ids) for outcome, ids in self.orders.items() if outcome not in (Undo.REMOVED, Undo.RESTORED))


async def undo_import(store: Store, import_id: str, actor: Actor, *, dry_run: bool = False) -> UndoReport:
    """Remove the orders that the import created and restore those that it replaced, as far as `evaluate_undo` allows.

    Batches are undone in reverse, each in one transaction with one audit entry. Raises ImportNotFound.
    """
    outcomes: dict[int, Undo] = {}
    restored: dict[int, Order] = {}  # by a dry run, in place of the orders in the store
    for batch in reversed(await _batches(store, import_id)):
        if dry_run:
            found = await _evaluate(store, batch, restored)
        else:
            found = await store.orders.undo_batch(batch, import_id, actor)
        outcomes.update((reversal.order_id, outcome) for reversal, outcome in zip(batch, found, strict=True))
    ids: dict[Undo, list[int]] = {outcome: [] for outcome in Undo}
    for order_id in sorted(outcomes):
        ids[outcomes[order_id]].append(order_id)
    return UndoReport(import_id, ids)


async def _evaluate(store: Store, batch: Sequence[Reversal], restored: dict[int, Order]) -> list[Undo]:
    found = await store.orders.find_many([reversal.order_id for reversal in batch])
    current = {order.id: restored.get(order.id, order) for order in found}
    outcomes = [evaluate_undo(current.get(reversal.order_id), reversal) for reversal in batch]
    for reversal, outcome in zip(batch, outcomes, strict=True):
        if outcome is Undo.RESTORED and reversal.before is not None:
            restored[reversal.order_id] = reversal.before
    return outcomes


async def _batches(store: Store, import_id: str) -> list[list[Reversal]]:
    """What the audit log says of the import, in parts that one transaction can undo."""
    batches: list[list[Reversal]] = []
    found = False
    async for entry in store.audit.entries(AuditFilters(action=IMPORT_ACTION, subjects=(import_id,))):
        found = True
        reversals = [*_created(entry.after), *_replaced(entry.before, entry.after)]
        batches.extend(reversals[first : first + _BATCH] for first in range(0, len(reversals), _BATCH))
    if not found:
        raise ImportNotFound(import_id)
    return batches


def _created(after: dict[str, Any]) -> Iterator[Reversal]:
    ids = (order_id for first, last in after.get("createdIds", ()) for order_id in range(first, last + 1))
    checksums = bytes.fromhex(after.get("createdChecksums", ""))
    for index, order_id in enumerate(ids):
        yield Reversal(order_id, int.from_bytes(checksums[4 * index : 4 * index + 4], "big"), None)


def _replaced(before: dict[str, Any] | None, after: dict[str, Any]) -> Iterator[Reversal]:
    if before is not None:
        for old, new in zip(before["orders"], after["orders"], strict=True):
            imported = order_from_fields(new)
            yield Reversal(imported.id, checksum(imported.record(), imported.status), order_from_fields(old))
