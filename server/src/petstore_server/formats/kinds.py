"""What can be imported, and how the records of a file map to it: the fields, their names in the file, the options."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import Any, Generic, TypeVar

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import ORDER_FIELDS, Order, Status, order_from_fields
from petstore_server.domain.pets import PET_FIELDS, Pet, pet_from_fields
from petstore_server.formats.conversions import (
    Cell,
    Timestamps,
    boolean_cell,
    choice_cell,
    integer_cell,
    text_cell,
)
from petstore_server.formats.rows import UnreadableFile

T = TypeVar("T")

EVERY_COLUMN = "*"
"""As an ignored column: every column that is not a field."""


@dataclass(frozen=True)
class ReadOptions:
    """How an operator says what a file does not: its format, its encoding, where its local times belong, its columns.

    `columns` maps names in the file to fields; the columns in `ignored` are left out.
    """

    file_format: str | None = None
    encoding: str | None = None
    zone: tzinfo | None = None
    date_format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RecordKind(Generic[T]):
    """One kind of record: its noun in messages, its fields and how a record is built of them."""

    noun: str
    fields: tuple[str, ...]
    cells: Callable[[Timestamps], tuple[Cell, ...]]
    build: Callable[[dict[str, Any]], T]


def _order_cells(timestamps: Timestamps) -> tuple[Cell, ...]:
    return integer_cell, integer_cell, integer_cell, timestamps, boolean_cell, choice_cell(map(str, Status))


ORDERS: RecordKind[Order] = RecordKind("order", ORDER_FIELDS, _order_cells, order_from_fields)
PETS: RecordKind[Pet] = RecordKind("pet", PET_FIELDS, lambda _: (integer_cell, text_cell, text_cell), pet_from_fields)


class Schema(Generic[T]):
    """A kind of record as one file, with its options, presents it."""

    def __init__(self, kind: RecordKind[T], options: ReadOptions) -> None:
        self.kind = kind
        self.timestamps = Timestamps(options.zone, options.date_format)
        self.cells = dict(zip(kind.fields, kind.cells(self.timestamps), strict=True))
        self._columns = {_plain(name): field for name, field in options.columns.items()}
        self._ignored = frozenset(map(_plain, options.ignored))

    @property
    def renames(self) -> bool:
        """Whether names in the file differ from those of the fields."""
        return bool(self._columns or self._ignored)

    def header(self, names: list[str]) -> list[str | None]:
        """The field of each column, None for those to leave out. Raises UnreadableFile."""
        found: list[str | None] = []
        unknown: list[str] = []
        for name in names:
            known, field = self._resolve(_plain(name))
            found.append(field)
            if not known:
                unknown.append(name)
        if unknown:
            raise UnreadableFile(self._unknown_columns(unknown))
        used = [field for field in found if field is not None]
        if twice := next((field for field in used if used.count(field) > 1), None):
            raise UnreadableFile(f"The header names the field '{twice}' twice; leave one out with --ignore-column.")
        if missing := set(self._columns) - set(map(_plain, names)):
            raise UnreadableFile(f"--map names a column '{min(missing)}', which the header does not have.")
        if "id" not in used:
            raise UnreadableFile("The header has no column 'id', which every record needs; --map COLUMN=id names it.")
        return found

    def adapt(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a JSON record, given by their names in the file. Raises InvalidField."""
        if self.renames:
            fields = self._renamed(fields)
        if "shipDate" in self.cells and type(ship_date := fields.get("shipDate")) is str:
            try:
                fields = {**fields, "shipDate": self.timestamps(ship_date)}
            except ValueError as error:
                raise InvalidField("shipDate", str(error), ship_date) from None
        return fields

    def _resolve(self, name: str) -> tuple[bool, str | None]:
        """Whether a column of this plain name is known, and its field."""
        if name in self._columns:
            return True, self._columns[name]
        if name in self._ignored:
            return True, None
        field = self._fields.get(name)
        return field is not None or EVERY_COLUMN in self._ignored, field

    @cached_property
    def _fields(self) -> dict[str, str]:
        return {_plain(field): field for field in self.kind.fields}

    def _renamed(self, fields: dict[str, Any]) -> dict[str, Any]:
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            known, field = self._resolve(_plain(name))
            if known and field is None:
                continue
            field = field or name
            if field in renamed:
                raise InvalidField(field, "occurs more than once in the record")
            renamed[field] = value
        return renamed

    def _unknown_columns(self, names: list[str]) -> str:
        shown = ", ".join(f"'{name[:50]}'" for name in names[:5]) + (" and others" if len(names) > 5 else "")
        return (
            f"The first line must name the columns ({', '.join(self.kind.fields)}); it has {shown}. Give "
            "--ignore-column NAME to leave a column out, or --map NAME=FIELD to say which field it is."
        )


def _plain(name: str) -> str:
    """A column's name without what programs write differently: case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]+", "", name).casefold()
