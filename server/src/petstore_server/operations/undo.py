"""Undo an import: take back what nothing has changed since, and report the rest."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from petstore_server.domain.errors import ImportNotFound
from petstore_server.domain.imports import IMPORT_ACTION, Reversal, Undo, checksum, evaluate_undo
from petstore_server.domain.orders import Order, order_from_fields
from petstore_server.ports import Actor, AuditEntry, AuditFilters, AuditPosition, Store

_BATCH = 2000
_TAKEN_BACK = (Undo.REMOVED, Undo.RESTORED)


class UndoReport(NamedTuple):
    """How many orders were taken back, and the identifiers of those that were kept, ascending, by outcome."""

    import_id: str
    taken_back: Mapping[Undo, int]
    kept: Mapping[Undo, Sequence[int]]


async def undo_import(store: Store, import_id: str, actor: Actor, *, dry_run: bool = False) -> UndoReport:
    """Remove the orders that the import created and restore those that it replaced, as far as `evaluate_undo` allows.

    Batches are undone in reverse, each in one transaction with one audit entry. Raises ImportNotFound.
    """
    outcomes = _Outcomes()
    restored: dict[int, Order] = {}  # by a dry run, in place of the orders in the store
    found = False
    async for entry in _newest_first(store, import_id):
        found = True
        for batch in _batches(entry):
            if dry_run:
                outcomes.add(batch, await _evaluate(store, batch, restored))
            else:
                outcomes.add(batch, await store.orders.undo_batch(batch, import_id, actor))
    if not found:
        raise ImportNotFound(import_id)
    return outcomes.report(import_id)


class _Outcomes:
    """What became of each order. An order that the import changed several times has the outcome of the first change.

    That is added last. Orders that the import created are not remembered by themselves: it created each once.
    """

    def __init__(self) -> None:
        self._taken_back = Counter(dict.fromkeys(_TAKEN_BACK, 0))
        self._kept: dict[Undo, list[int]] = {outcome: [] for outcome in Undo if outcome not in _TAKEN_BACK}
        self._replaced: dict[int, Undo] = {}

    def add(self, batch: Sequence[Reversal], outcomes: Sequence[Undo]) -> None:
        for reversal, outcome in zip(batch, outcomes, strict=True):
            if reversal.before is None:
                self._replaced.pop(reversal.order_id, None)
                self._count(reversal.order_id, outcome)
            else:
                self._replaced[reversal.order_id] = outcome

    def report(self, import_id: str) -> UndoReport:
        for order_id, outcome in self._replaced.items():
            self._count(order_id, outcome)
        return UndoReport(import_id, self._taken_back, {outcome: sorted(ids) for outcome, ids in self._kept.items()})

    def _count(self, order_id: int, outcome: Undo) -> None:
        if outcome in _TAKEN_BACK:
            self._taken_back[outcome] += 1
        else:
            self._kept[outcome].append(order_id)


async def _evaluate(store: Store, batch: Sequence[Reversal], restored: dict[int, Order]) -> list[Undo]:
    found = await store.orders.find_many([reversal.order_id for reversal in batch])
    current = {order.id: restored.get(order.id, order) for order in found}
    outcomes = [evaluate_undo(current.get(reversal.order_id), reversal) for reversal in batch]
    for reversal, outcome in zip(batch, outcomes, strict=True):
        if outcome is Undo.RESTORED and reversal.before is not None:
            restored[reversal.order_id] = reversal.before
    return outcomes


async def _newest_first(store: Store, import_id: str) -> AsyncIterator[AuditEntry]:
    """The audit entries of the import, one for each of its batches."""
    filters = AuditFilters(action=IMPORT_ACTION, subjects=(import_id,))
    before: AuditPosition | None = None
    while True:
        page = await store.audit.page(filters, 1, before)
        for entry in page.entries:
            yield entry
        if page.next is None:
            return
        before = page.next


def _batches(entry: AuditEntry) -> list[list[Reversal]]:
    """What the entry says of its batch, in parts that one transaction can undo."""
    reversals = [*_created(entry.after), *_replaced(entry.before, entry.after)]
    return [reversals[first : first + _BATCH] for first in range(0, len(reversals), _BATCH)]


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
