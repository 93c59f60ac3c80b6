"""Imports: what becomes of each record (D6, D21), and what the audit log and the record of a run have of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeVar

from petstore_server.domain.audit import Change
from petstore_server.domain.orders import ORDER_FIELDS, Order, Status
from petstore_server.domain.pets import PET_FIELDS, Pet
from petstore_server.domain.timestamps import DAY

IMPORT_ACTIONS = ("orders.import", "pets.import")  # of the audit entries of imports, one for each
MAX_KEPT_REJECTS = 10_000  # rejected rows in the record of an import, the first ones
REJECTS_LIFETIME = 30 * DAY  # seconds for which the rejected rows of an import are kept

Record = TypeVar("Record", Order, Pet)
_ATTRIBUTES: Mapping[type, Mapping[str, str]] = {
    Order: dict(zip(ORDER_FIELDS, Order._fields, strict=True)),
    Pet: dict(zip(PET_FIELDS, PET_FIELDS, strict=True)),
}
"""By the names of the fields in files."""
_NAMING = ("account", "reference")


class Rejected(NamedTuple):
    """The rows that a batch rejected: how many, those to keep by number, and why rows of the import were rejected."""

    number: int = 0
    kept: Sequence[tuple[int, Mapping[str, object]]] = ()
    reasons: Sequence[str] = ()


class Obstacle(NamedTuple):
    """The stored order because of which a record is refused: its owner is another one, or it has the reference.

    Where several orders have the reference that is to name one, `last_id` is the last of these.
    """

    order_id: int
    account: str | None
    reference: str | None = None
    last_id: int | None = None


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


class ImportOutcome(StrEnum):
    CREATED = "created"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    REJECTED = "rejected"
    PROTECTED = "protected"
    OTHER_OWNER = "other owner"
    UNKNOWN_ACCOUNT = "unknown account"
    REFERENCE_IN_USE = "reference in use"
    OTHER_PLACED = "other placed order"
    RESERVED = "reserved identifier"
    REPEATED = "repeated"
    MISSING = "missing"
    CORRECTABLE = "correctable"
    TAKEN = "taken"
    AMBIGUOUS = "ambiguous reference"


IMPORTED = (ImportOutcome.CREATED, ImportOutcome.UNCHANGED, ImportOutcome.REPLACED)
"""The outcomes of orders that are in the store as the file has them."""


def kept_of(existing: Order | None, incoming: Order, correct_shipped: bool = False) -> Order:
    """The incoming order with what an import keeps of the existing one: its owner, if the incoming one has none.

    With `correct_shipped` also the reference of a shipped order.
    """
    if existing is None:
        return incoming
    if existing.account is not None and incoming.account is None:
        incoming = incoming._replace(account=existing.account)
    if correct_shipped and existing.status is Status.SHIPPED and incoming.reference is None:
        incoming = incoming._replace(reference=existing.reference)
    return incoming


def with_stored_fields(
    records: Sequence[Record], stored: Mapping[int, Record], missing: Collection[str], placed: Collection[int] = ()
) -> Sequence[Record]:
    """The records with the missing fields as stored ones have them, whatever a file may have today.

    What names one of the `placed` orders is only what the file has.
    """
    if not missing or not stored:
        return records
    names_kept = {False: missing, True: {*missing}.difference(_NAMING)}
    return [
        _with_fields_of(stored[each.id], each, names_kept[each.id in placed]) if each.id in stored else each
        for each in records
    ]


def _with_fields_of(stored: Record, record: Record, names: Collection[str]) -> Record:
    fields = _ATTRIBUTES[type(record)].items()
    return type(record)(**{field: getattr(stored if name in names else record, field) for name, field in fields})


def possible_references(existing: Mapping[int, Order], incoming: Iterable[Order]) -> set[tuple[str, str]]:
    """All pairs of an owner's name and a reference that an import of these orders may give to one of them."""
    orders, names = list(incoming), defaultdict[int, set[str]](set)
    for order in (*existing.values(), *orders):
        if order.account is not None:
            names[order.id].add(order.account)
    return {(name, each.reference) for each in orders if each.reference for name in names.get(each.id, ())}


def evaluate_import(
    existing: Order | None, incoming: Order, placed: bool = False, correct_shipped: bool = False
) -> ImportOutcome:
    """Decide on an import: an identical order stays, a pending one is replaced unless it was `placed` over the API.

    With `correct_shipped` one that has shipped is replaced too, if it stays shipped and keeps its reference. An order
    without an owner may get one in any state; an owner is never replaced (D21). `incoming` has the owner that the order
    will have.
    """
    if existing is None:
        return ImportOutcome.CREATED
    if existing == incoming:
        return ImportOutcome.UNCHANGED
    if existing.account not in (None, incoming.account):
        return ImportOutcome.OTHER_OWNER
    if existing._replace(account=incoming.account) == incoming:
        return ImportOutcome.REPLACED
    if existing.status is not Status.PENDING:
        stays = existing.status is incoming.status and incoming.reference in (None, existing.reference)
        if existing.status is Status.CANCELLED or not stays:
            return ImportOutcome.REJECTED
        if not correct_shipped:
            return ImportOutcome.CORRECTABLE
    return ImportOutcome.PROTECTED if placed else ImportOutcome.REPLACED


def evaluate_pet_import(existing: Pet | None, incoming: Pet) -> ImportOutcome:
    """Decide on an import: an identical pet stays, any other is replaced. A pet has no states."""
    if existing is None:
        return ImportOutcome.CREATED
    return ImportOutcome.UNCHANGED if existing == incoming else ImportOutcome.REPLACED


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
    counted = Counter(outcomes)
    counts = {str(outcome): counted[outcome] for outcome in ImportOutcome if outcome in counted}
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
