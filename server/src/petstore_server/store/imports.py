"""Batches of imported records: the outcome of each record, and the audit entry of the batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from petstore_server.domain.orders import Import
from petstore_server.store.audit import Change


class Identified(Protocol):
    """A record with an identifier."""

    @property
    def id(self) -> int: ...

    def fields(self) -> dict[str, Any]: ...


Record = TypeVar("Record", bound=Identified)
Evaluate = Callable[[Record | None, Record], Import]


def evaluate(
    records: Sequence[Record], existing: Mapping[int, Record], rule: Evaluate[Record]
) -> tuple[list[Import], dict[int, Record]]:
    """Return the outcome of each record, as if imported one after another, and the records to write, by id."""
    if not existing:  # the common case, at a tenth of the cost
        changed = {record.id: record for record in records}
        if len(changed) == len(records):
            return [Import.CREATED] * len(records), changed
    changed = {}
    outcomes: list[Import] = []
    for record in records:
        outcome = rule(changed.get(record.id, existing.get(record.id)), record)
        if outcome in (Import.CREATED, Import.REPLACED):
            changed[record.id] = record
        outcomes.append(outcome)
    return outcomes, changed


def audit_change(
    kind: str, existing: Mapping[int, Record], changed: Mapping[int, Record], outcomes: Sequence[Import]
) -> Change:
    """Return what the audit log records of a batch: counts, and both states of each record that existed (D6)."""
    counts = {str(outcome): outcomes.count(outcome) for outcome in Import if outcome in outcomes}
    replaced = [record_id for record_id in changed if record_id in existing]
    if not replaced:
        return Change(None, counts)
    return Change(
        {kind: [existing[record_id].fields() for record_id in replaced]},
        {**counts, kind: [changed[record_id].fields() for record_id in replaced]},
    )
