"""What can be imported: orders and pets, how a file presents them, and how a store takes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

from petstore_server.domain.imports import ImportOutcome, Obstacle
from petstore_server.domain.orders import ORDER_FIELDS, Order, order_from_fields
from petstore_server.domain.pets import PET_FIELDS, Pet, pet_from_fields
from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.imports.conversions import (
    FLAGS,
    Cell,
    Statuses,
    UnclearCell,
    boolean_cell,
    integer_cell,
    is_filled,
)
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.rejects import Fault
from petstore_server.imports.timestamps import NO_DATE, Timestamps, no_date
from petstore_server.store import Store

T = TypeVar("T", bound=Order | Pet)


@dataclass(frozen=True)
class RecordKind(Generic[T]):
    """One kind of record: its noun in messages, its fields, what reads their cells, how a record is built of them.

    `flags` are other fields of a file, of which filled cells give the status. `part` is the part of a store that has
    the records, `refusals` has the reason for each outcome that changes nothing, and `repeated` is what to do about a
    record that a file has twice.
    """

    noun: str
    fields: Sequence[str]
    cells: Callable[[ReadOptions, Statuses, Timestamps], Mapping[str, Cell]]
    build: Callable[[dict[str, Any]], T]
    part: Callable[[Store], Any]
    refusals: Mapping[ImportOutcome, Fault]
    repeated: Remedy
    has_references: bool = False  # whether a record may have a reference instead of an identifier
    flags: Sequence[str] = ()


_NO_VALUE = Remedy("empty such cells, or give null in JSON")
_NO_REFERENCE = Remedy("empty such cells, or {} if they are references", (Choice("keep_markers"),))
MARKERS = frozenset(["NULL", "Null", "null", "NaN", "nan", "NAN", "\\N", "--", "N/A", "n/a", "#N/A", "None", "none"])
"""What programs write where there is no value."""


def _without_markers(cell: Cell, remedy: Remedy = _NO_VALUE) -> Cell:
    """Reads cells, and refuses markers with this remedy."""

    def read(text: str) -> object:
        if text.strip() in MARKERS:
            raise UnclearCell("seems to say that there is no value", remedy)
        return cell(text)

    return read


def _flag_cell(text: str) -> bool:
    if NO_DATE.fullmatch(text.strip()):
        raise no_date()
    return is_filled(text)


def _order_cells(options: ReadOptions, statuses: Statuses, timestamps: Timestamps) -> dict[str, Cell]:
    integers = _without_markers(partial(integer_cell, decimal=options.decimal))
    return {
        "id": integers,
        "petId": integers,
        "quantity": integers,
        "shipDate": _without_markers(timestamps),
        "complete": _without_markers(boolean_cell),
        "status": statuses,
        "reference": str.strip if options.keep_markers else _without_markers(str.strip, _NO_REFERENCE),
        "account": str.strip,
        **dict.fromkeys(FLAGS, _without_markers(_flag_cell)),
    }


_UNCHANGED = "; it was not changed."
_REFUSALS = {
    ImportOutcome.REJECTED: f"The order is no longer pending in the store and differs from this row{_UNCHANGED}",
    ImportOutcome.CORRECTABLE: f"The order has shipped, and differs from this row{_UNCHANGED}",
    ImportOutcome.TAKEN: "The file has another order, without a number of its own, that was given this number.",
    ImportOutcome.MISSING: "There is no such order to update.",
    ImportOutcome.PROTECTED: f"The order was placed over the API and differs from this row{_UNCHANGED}",
    ImportOutcome.OTHER_PLACED: "The order was placed over the API, and the row does not have its account and "
    "reference.",
    ImportOutcome.RESERVED: "There is no order with this id, and the service assigns such ids "
    "(PETSTORE_ASSIGNED_IDS_FROM).",
    ImportOutcome.OTHER_OWNER: f"The order belongs to another account than this row names{_UNCHANGED}",
    ImportOutcome.UNKNOWN_ACCOUNT: "The row names an account that does not exist.",
    ImportOutcome.REFERENCE_IN_USE: "Another order of this account has this reference; the row was not imported.",
    ImportOutcome.AMBIGUOUS: "Several orders have this reference; the row was not imported.",
}
_REMEDIES = {
    ImportOutcome.CORRECTABLE: choose("correct_shipped", then="to correct such orders"),
    ImportOutcome.TAKEN: Remedy(
        "restore the backup from before the first import of the file, set PETSTORE_ASSIGNED_IDS_FROM so that assigned "
        "numbers are none of yours, and import the file again"
    ),
    ImportOutcome.MISSING: Remedy("check the number"),
    ImportOutcome.PROTECTED: choose("replace_placed", then="to replace such orders"),
    ImportOutcome.RESERVED: choose("assigned", then="to import such rows"),
    ImportOutcome.AMBIGUOUS: Remedy("name the order by its id"),
}


def refused_by(outcome: ImportOutcome, obstacle: Obstacle, *, split_lines: bool = False) -> Fault:
    """The reason for an outcome that other orders, or the owner of this one, stand behind.

    With `split_lines` a row cannot name its order by an id.
    """
    order_id, account, reference, last_id = obstacle
    problem = _REFUSALS[outcome]
    if outcome is ImportOutcome.AMBIGUOUS:
        owner = "without an owner" if account is None else f"of {account}"
        remedy = Remedy("give one of them another reference") if split_lines else _REMEDIES[outcome]
        message = f"Orders {order_id} and {last_id} {owner} have the reference {reference}."
        return Fault(message, remedy, problem=problem)
    if outcome is ImportOutcome.OTHER_OWNER:
        remedy = Remedy("if an import set it by mistake, restore the backup from before that import")
        return Fault(f"Order {order_id} belongs to {account}, and an owner never changes.", remedy, problem=problem)
    remedy = Remedy("give this row another one, or leave it out")
    return Fault(f"Order {order_id} of {account} already has the reference {reference}.", remedy, problem=problem)


def unknown_account(name: str, ignorable: str | None) -> Fault:
    """The reason for a row with an account of this name. The column `ignorable`, if there is one, can be left out."""
    remedy = Remedy("correct it, or {}", (Choice("create_account", "NAME"),))
    if name in MARKERS:
        remedy = Remedy("empty such cells")
    elif ignorable is not None:
        remedy = Remedy(f"{remedy.text}, or {{}}", (*remedy.choices, Choice("ignore_column", ignorable)))
    problem = _REFUSALS[ImportOutcome.UNKNOWN_ACCOUNT]
    return Fault(f"There is no account '{name}'.", remedy, "account", problem, f"'{name}'")


ORDERS = RecordKind[Order](
    "order",
    ORDER_FIELDS,
    _order_cells,
    order_from_fields,
    attrgetter("orders"),
    {outcome: Fault(message, _REMEDIES.get(outcome)) for outcome, message in _REFUSALS.items()},
    Remedy("an order here has one animal; {} to make each line an order", (Choice("split_lines"),)),
    has_references=True,
    flags=FLAGS,
)
PETS = RecordKind[Pet](
    "pet",
    PET_FIELDS,
    lambda options, *_: {"id": partial(integer_cell, decimal=options.decimal), "name": str, "tag": str},
    pet_from_fields,
    attrgetter("pets"),
    {},
    Remedy("leave out one of them"),
)
