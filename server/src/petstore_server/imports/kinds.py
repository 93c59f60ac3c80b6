"""What can be imported: orders and pets, how a store takes them, and how the columns of a file map to their fields."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import Import, Order, Status, order_from_fields
from petstore_server.domain.pets import Pet, pet_from_fields
from petstore_server.imports.conversions import Cell, Timestamps, boolean_cell, integer_cell
from petstore_server.imports.files import UnreadableFile
from petstore_server.imports.options import EVERY_COLUMN, ReadOptions
from petstore_server.store import Store

T = TypeVar("T", bound=Order | Pet)


@dataclass(frozen=True)
class RecordKind(Generic[T]):
    """One kind of record: its noun in messages, its fields with what reads their cells, how a record is built of them.

    `import_batch` imports records into the first store, in one transaction, under an import id. It may replace what was
    placed over the API if the next argument is True; for a dry run, the last is the store from which records are copied
    to the first. `refusals` has the reason for each outcome that leaves a record as it was.
    """

    noun: str
    cells: Mapping[str, Cell]
    build: Callable[[dict[str, Any]], T]
    find_many: Callable[[Store, Sequence[int]], Awaitable[list[T]]]
    import_batch: Callable[[Store, Sequence[T], str, Actor, bool, Store | None], Awaitable[list[Import]]]
    refusals: Mapping[Import, str]


def _status_cell(text: str) -> str:
    status = text.strip().lower()
    return status if status in list(Status) else text


_ORDER_REFUSALS = {
    Import.REJECTED: "The order is no longer pending in the store and differs from this row; it was not changed.",
    Import.PLACED: "The order was placed over the API and differs from this row; it was not changed. "
    "--replace-placed replaces such orders.",
}


async def _import_orders(
    store: Store, orders: Sequence[Order], import_id: str, actor: Actor, replace_placed: bool, origin: Store | None
) -> list[Import]:
    placed = await origin.orders.placed([order.id for order in orders]) if origin else ()
    return await store.orders.import_batch(orders, import_id, actor, replace_placed=replace_placed, placed=placed)


_SHIP_DATE = "shipDate"
ORDERS = RecordKind[Order](
    "order",
    {
        "id": integer_cell,
        "petId": integer_cell,
        "quantity": integer_cell,
        _SHIP_DATE: Timestamps(),
        "complete": boolean_cell,
        "status": _status_cell,
    },
    order_from_fields,
    lambda store, ids: store.orders.find_many(ids),
    _import_orders,
    _ORDER_REFUSALS,
)
PETS = RecordKind[Pet](
    "pet",
    {"id": integer_cell, "name": str, "tag": str},
    pet_from_fields,
    lambda store, ids: store.pets.find_many(ids),
    lambda store, pets, import_id, actor, *_: store.pets.import_batch(pets, import_id, actor),
    {},
)


class Schema(Generic[T]):
    """A kind of record as one file, with its options, presents it."""

    def __init__(self, kind: RecordKind[T], options: ReadOptions) -> None:
        self.kind = kind
        self.timestamps = Timestamps(options.zone, options.date_format)
        self.cells = {name: self.timestamps if name == _SHIP_DATE else cell for name, cell in kind.cells.items()}
        self.missing = frozenset[str]()  # fields that no row of the file has
        self.renames = bool(options.columns or options.ignored)
        ignored = map(_plain, options.ignored)
        self._mapped = {_plain(name): field for name, field in options.columns}
        self._fields = {_plain(field): field for field in kind.cells} | dict.fromkeys(ignored) | self._mapped
        self._ignores_others = EVERY_COLUMN in options.ignored

    def header(self, names: list[str]) -> list[str | None]:
        """The field of each column, None for those to leave out; notes which are missing. Raises UnreadableFile."""
        fields = [self._fields.get(_plain(name)) for name in names]
        if unknown := [name for name in names if not self._is_known(name)]:
            raise UnreadableFile(self._unknown_columns(unknown))
        if twice := next((field for field in fields if field and fields.count(field) > 1), None):
            raise UnreadableFile(f"The header names the field '{twice}' twice; leave one out with --ignore-column.")
        if absent := self._mapped.keys() - set(map(_plain, names)):
            raise UnreadableFile(f"--map names a column '{min(absent)}', which the header does not have.")
        if "id" not in fields:
            raise UnreadableFile("The header has no column 'id', which every record needs; --map COLUMN=id names it.")
        self.missing = frozenset(self.cells).difference(field for field in fields if field)
        return fields

    def adapt(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a JSON record, given by their names in the file. Raises InvalidField."""
        if self.renames:
            fields = self._renamed(fields)
        if _SHIP_DATE in self.cells and type(ship_date := fields.get(_SHIP_DATE)) is str:
            try:
                fields = {**fields, _SHIP_DATE: self.timestamps(ship_date)}
            except ValueError as error:
                raise InvalidField(_SHIP_DATE, str(error), ship_date) from None
        return fields

    def _is_known(self, name: str) -> bool:
        return self._ignores_others or _plain(name) in self._fields

    def _renamed(self, fields: dict[str, Any]) -> dict[str, Any]:
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            field = self._fields.get(_plain(name)) if self._is_known(name) else name
            if field in renamed:
                raise InvalidField(field, "occurs more than once in the record")
            if field is not None:
                renamed[field] = value
        return renamed

    def _unknown_columns(self, names: list[str]) -> str:
        shown = ", ".join(f"'{name[:50]}'" for name in names[:5]) + (" and others" if len(names) > 5 else "")
        return (
            f"The first line must name the columns ({', '.join(self.cells)}); it has {shown}. Give "
            "--ignore-column NAME to leave a column out, or --map NAME=FIELD to say which field it is."
        )


def _plain(name: str) -> str:
    """A column's name without what programs write differently: case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]+", "", name).casefold()
