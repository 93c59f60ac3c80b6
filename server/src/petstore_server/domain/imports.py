"""Imports in batches: the outcome of each record, and what the audit log records."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from petstore_server.domain.audit import Change
from petstore_server.domain.orders import ImportOutcome, Order
from petstore_server.domain.pets import Pet
from petstore_server.domain.timestamps import DAY

IMPORT_ACTIONS = ("orders.import", "pets.import")  # of the audit entries of imports, one for each
MAX_KEPT_REJECTS = 10_000  # rejected rows in the record of an import, the first ones
REJECTS_LIFETIME = 30 * DAY  # seconds for which the rejected rows of an import are kept

Record = TypeVar("Record", Order, Pet)


class Rejected(NamedTuple):
    """The rows that a batch rejected: how many, those to keep by number, and why rows of the import were rejected."""

    number: int = 0
    kept: Sequence[tuple[int, Mapping[str, object]]] = ()
    reasons: Sequence[str] = ()


class ImportRun(NamedTuple):
    """The record of an import. Times are Unix seconds by the store's clock; it was last seen running at `seen_at`.

    `kind` is orders or pets, `state` running, finished, failed or interrupted, and `error` why it failed. Of the
    rejected rows, `kept` can be read.
    """

    id: str
    kind: str
    file: str
    actor: str
    began_at: float
    seen_at: float
    state: str
    created: int
    replaced: int
    unchanged: int
    rejected: int
    reasons: list[str]
    error: str | None
    kept: int

    @property
    def position(self) -> "ImportPosition":
        return ImportPosition(self.began_at, self.id)


class ImportPosition(NamedTuple):
    """The place of an import in the list, which is sorted by time and id."""

    at: float
    id: str


class ImportsPage(NamedTuple):
    """Imports, newest first, of `total` that match. `next` is the position after which there are more, or None."""

    imports: Sequence[ImportRun]
    total: int
    next: ImportPosition | None


def evaluate(
    records: Sequence[Record],
    existing: Mapping[int, Record],
    rule: Callable[[Record | None, Record], ImportOutcome],
    completed: Callable[[Record | None, Record], Record] = lambda _, new: new,
    *,
    any_new: bool = True,
    repeated: Collection[int] = (),
) -> tuple[list[ImportOutcome], dict[int, Record]]:
    """Return the outcome of each record, as if imported one after another, and the records to write, by id.

    The rule gets the record before and the imported one. `completed` returns this with what the store keeps of the one
    before. `any_new`: the rule accepts any record with a new identifier. `repeated` are the places of records that the
    same file has had before: none of them changes anything.
    """
    if not existing and any_new and not repeated:  # the common case, at a tenth of the cost
        changed = {record.id: record for record in records}
        if len(changed) == len(records):
            return [ImportOutcome.CREATED] * len(records), changed
    changed = {}
    outcomes: list[ImportOutcome] = []
    for place, record in enumerate(records):
        old = changed.get(record.id, existing.get(record.id))
        if place in repeated:
            outcome = ImportOutcome.UNCHANGED if old == completed(old, record) else ImportOutcome.REPEATED
        else:
            outcome = rule(old, record)
        if outcome in (ImportOutcome.CREATED, ImportOutcome.REPLACED):
            changed[record.id] = completed(old, record)
        outcomes.append(outcome)
    return outcomes, changed


def audit_change(
    kind: str, existing: Mapping[int, Record], changed: Mapping[int, Record], outcomes: Sequence[ImportOutcome]
) -> Change:
    """Return what the audit log records of a batch: counts, and both states of each record that existed (D6)."""
    counts = {str(outcome): outcomes.count(outcome) for outcome in ImportOutcome if outcome in outcomes}
    replaced = [record_id for record_id in changed if record_id in existing]
    if not replaced:
        return Change(None, counts)
    return Change(
        {kind: [existing[record_id].fields() for record_id in replaced]},
        {**counts, kind: [changed[record_id].fields() for record_id in replaced]},
    )


def id_ranges(ids: Iterable[int]) -> list[list[int]]:
    """The identifiers as ascending ranges [first, last], both included."""
    ordered = sorted(ids)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:  # the common case
        return [[ordered[0], ordered[-1]]]
    gaps = [index for index, (one, following) in enumerate(pairwise(ordered), 1) if following != one + 1]
    return [[ordered[first], ordered[end - 1]] for first, end in pairwise([0, *gaps, len(ordered)]) if ordered]
