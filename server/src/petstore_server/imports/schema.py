"""A kind of record as one file presents it: its columns and names, what its cells mean, and the faults of its rows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Generic

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.orders import UNASSIGNED, Order
from petstore_server.domain.remedies import Choice, Remedy, choose
from petstore_server.imports import shops
from petstore_server.imports.conversions import PLAIN_DIGITS, Statuses, is_filled
from petstore_server.imports.files import UnreadableFile
from petstore_server.imports.kinds import RecordKind, T
from petstore_server.imports.options import EVERY_COLUMN, ReadOptions
from petstore_server.imports.options import plain_name as _plain
from petstore_server.imports.rejects import MAX_NAME, Fault, UnreadableRow
from petstore_server.imports.timestamps import Timestamps

_MAX_FAULTS = 10  # of a row that are named
_MAX_NAMES = 30  # of columns that are not fields that are named
_WITHOUT_REFERENCE = Remedy("fill in the order's number of the row above, or leave the row out")
_OF_SHOP_WITHOUT_REFERENCE = Remedy("leave the row out, unless it is an order")
_READ_IN_JSON = frozenset(["shipDate", "reference", "status"])  # as in CSV, if they are texts


class Schema(Generic[T]):
    """A kind of record as one file, with its options, presents it."""

    def __init__(self, kind: RecordKind[T], options: ReadOptions) -> None:
        self.kind = kind
        self.of_shop: ReadOptions | None = None  # what the export of a shop adds to the options
        self.repeated = kind.repeated
        self._use(options)

    def _use(self, options: ReadOptions) -> None:
        kind = self.kind
        self.options = options
        self.timestamps, self.statuses = Timestamps(options.zone, options.date_format), Statuses(options.statuses)
        self.cells = kind.cells(options, self.statuses, self.timestamps)
        self.missing = frozenset[str]()  # fields that no row of the file has
        self.renames = bool(options.columns or options.ignored or options.statuses)
        ignored = map(_plain, options.ignored)
        self._mapped = defaultdict[str, tuple[str, ...]](tuple)
        for name, field in options.columns:
            self._mapped[_plain(name)] += (field,)
        self._columns = {field: field for field in kind.fields}  # how the file names each
        self._columns |= {field: name for name, field in options.columns}
        self._has_reference = False  # a column for it
        self._order = {field: place for place, field in enumerate(kind.fields)}
        self._known = {_plain(field): field for field in kind.fields}
        known = {name: (field,) for name, field in self._known.items()}
        self._fields: Mapping[str, tuple[str, ...]] = known | self._mapped | dict.fromkeys(ignored, ())
        self._ignores_others = EVERY_COLUMN in options.ignored

    @property
    def account_column(self) -> str | None:
        """The column that names owners, if it can be left out."""
        return None if "account" in self.missing else self._columns.get("account")

    def header(self, names: list[str]) -> list[tuple[str, ...]]:
        """The fields of each column, none for those to leave out; notes which are missing. Raises UnreadableFile."""
        if self.options.shop is not None:
            export = shops.export_of(self.options.shop, names)
            if export is None:
                problem = (
                    f"The file is not an export of {shops.SHOPS[self.options.shop]}'s orders whose columns are known."
                )
                raise _looks_like(names) or UnreadableFile(problem, _other_columns(names[0] if names else ""))
            self.of_shop = export.added_to(self.options, names)
            self.repeated = export.remedy or self.repeated
            self._use(shops.combined(self.options, self.of_shop))
        try:
            return self._header(names)
        except UnreadableFile as error:
            may_be_of_shop = self.kind.has_references and self.options.shop is None
            raise (_looks_like(names) if may_be_of_shop else None) or error from None

    def _header(self, names: list[str]) -> list[tuple[str, ...]]:
        columns = [self._fields.get(_plain(name), ()) for name in names]
        fields = list(chain.from_iterable(columns))
        if absent := self._mapped.keys() - set(map(_plain, names)):
            mapped = next(name for name, _ in self.options.columns if _plain(name) in absent)
            raise UnreadableFile(f"The header does not have the mapped column '{mapped}'; it has {_quoted(names)}.")
        if unknown := [name for name in names if not self._is_known(name)]:
            known = ", ".join(self.kind.fields)
            problem = f"The first line must name the columns ({known}); it has {_quoted(unknown)}."
            raise UnreadableFile(problem, _other_columns(unknown[0]))
        if twice := next((field for field in fields if fields.count(field) > 1), None):
            raise UnreadableFile(f"The header names the field '{twice}' twice.", self._leave_out_one(names, twice))
        if "id" not in fields and not (self.kind.has_references and "reference" in fields):
            problem = "The header has no column 'id', which every record needs."
            by_id = choose("map", "COLUMN=id")
            raise UnreadableFile(problem, choose("number", "COLUMN=id") if self.kind.has_references else by_id)
        self._columns = {field: name for name, of in zip(names, columns, strict=True) for field in of}
        self._has_reference = "reference" in fields
        given = {
            *fields,
            *(("account",) if self.options.account else ()),
            *(("status",) if {*fields} & {*self.kind.flags} else ()),
        }
        self.missing = frozenset(self.kind.fields) - given
        self.timestamps.in_utc = names == list(self.kind.fields)[: len(names)] and "shipDate" in names
        return columns

    def count_fields(self, names: Iterable[str]) -> int:
        """How many of the names are those of fields."""
        return sum(bool(self._fields.get(_plain(name))) for name in names)

    def is_of_shop(self, names: Sequence[str]) -> bool:
        """Whether the names are the header of a shop's export."""
        return self.kind.has_references and shops.recognized(names) is not None

    def name_orders(self, names: Iterable[str]) -> bool:
        """Whether one of the names in a JSON record is that of an identifier or a reference."""
        fields = chain.from_iterable(self._fields.get(_plain(name), ()) for name in names) if self.renames else names
        return not {"id", "reference"}.isdisjoint(fields)

    def own_header(self, cells: list[str]) -> list[str] | None:
        """The header of an export of the service, if the cells are a row of one without its header."""
        names = list(self.kind.fields)[: len(cells)]
        texts = {name: text for name, text in zip(names, cells, strict=False) if text.strip()}
        fields, faults = self.read_cells(texts)
        return names if len(names) == len(cells) and self.build(fields, faults) is not None else None

    def read_cells(self, cells: Mapping[str, str]) -> tuple[dict[str, Any], list[InvalidField]]:
        """The values of cells by their fields, and what is wrong with others."""
        fields, faults = dict[str, Any](), list[InvalidField]()
        for name, text in cells.items():
            try:
                fields[name] = self.cells[name](text)
            except ValueError as error:
                faults.append(InvalidField(name, str(error), text, getattr(error, "remedy", None)))
        return self._with_status(fields, cells), faults

    def _with_status(self, fields: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
        """The fields without flags, with the status that these give unless there is one."""
        flags = [flag for flag in self.kind.flags if fields.pop(flag, False)]
        status = flags[0] if flags else self.statuses.of_empty
        if status is None or "status" in given or not self.kind.flags:
            return fields
        return {**fields, "status": status}

    def adapt(self, fields: dict[str, Any]) -> tuple[dict[str, Any], list[InvalidField]]:
        """The fields of a JSON record, given by their names in the file, and what is wrong with others.

        Raises UnreadableRow if one occurs twice.
        """
        if self.renames:
            fields = self._renamed(fields)
        texts = {name: fields[name] for name in _READ_IN_JSON & self.cells.keys() if type(fields.get(name)) is str}
        if not texts.get("status", "-").strip():
            self.statuses.note(texts.pop("status"))
        named = [name for name in self.kind.flags if self.renames and name in fields]
        values = {name: fields[name] for name in named}
        flags = {name: value if isinstance(value, str) else str(is_filled(value)) for name, value in values.items()}
        read, faults = self.read_cells(texts | flags)
        if type(fields.get("status")) not in (str, type(None)):  # which is a fault, whatever else gives the status
            read.pop("status", None)
        wrong = {fault.field for fault in faults} | flags.keys()
        return {name: value for name, value in fields.items() if name not in wrong} | read, faults

    def build(self, fields: dict[str, Any], faults: list[InvalidField]) -> T | None:
        """The record, or None if there are faults; those of other fields are added, up to a number."""
        given, wrong = fields, {fault.field for fault in faults}
        fields = {name: value for name, value in fields.items() if name not in wrong}
        if self.options.account and fields.get("account") is None:
            fields["account"] = self.options.account
        has_no_id = fields.get("id") is None and "id" not in wrong
        has_only_reference = has_no_id and self.kind.has_references and fields.get("reference") is not None
        if has_only_reference or "id" in wrong:
            fields["id"] = 0
        record = None
        while record is None and len(faults) < _MAX_FAULTS:
            try:
                record = self.kind.build(fields)
            except InvalidField as error:
                faults.append(self._advised(error, {*given, *wrong}))
                fields.pop(error.field, None)
                if error.field == "id":
                    fields["id"] = 0
        faults.sort(key=lambda fault: self._order.get(fault.field, len(self._order)))
        if has_only_reference and isinstance(record, Order):
            record = record._replace(id=UNASSIGNED)
        return None if faults else record

    def _advised(self, error: InvalidField, given: Collection[str]) -> InvalidField:
        """The error, with advice if the field is not one of this kind of record, or has a text that it should not.

        `given` are all fields of the record.
        """
        field, text = error.field, error.value if isinstance(error.value, str) else None
        if text is not None and _is_quoted(field, text):
            return InvalidField(field, "is text in quotes", text, self._without_quotes(error))
        if field == "id" and error.value is None and self._has_reference and "id" in self.missing:
            remedy = _OF_SHOP_WITHOUT_REFERENCE if self.of_shop else _WITHOUT_REFERENCE
            return InvalidField(self._columns["reference"], "is empty", remedy=remedy)
        if field == "id" and self.kind.has_references:
            error.remedy = self._without_number(error)
        elif field == "petId" and text is not None:
            column = self._columns.get("petId", "petId")
            error.remedy = Remedy("map the column of the article's number, or {}", (Choice("ignore_column", column),))
        elif field == "status" and text is not None and not text.strip():
            error.remedy = Remedy("{}, or give null", (Choice("map_status", "=STATUS"),))
        elif field not in self.kind.fields:
            error.remedy = self._instead_of(field, given)
        return error

    def _instead_of(self, unknown: str, given: Collection[str]) -> Remedy:
        """What to do about a name in a record that is not a field."""
        name = unknown if len(unknown) <= MAX_NAME else EVERY_COLUMN
        flags = {flag: flag for flag in self.kind.flags}
        field = (self._known | flags).get(_plain(unknown))
        if field in given and field != unknown:  # MongoDB adds an _id
            return Remedy(f"leave it out of the record, which has '{field}' too")
        return choose("map", f"{name}={field}") if field else choose("ignore_column", name, "to leave it out")

    def _without_quotes(self, error: InvalidField) -> Remedy:
        """What to do about a value in quotes."""
        own = self._without_number(error) if error.field == "id" and self.kind.has_references else None
        return Remedy(f"leave out the quotes, or {own.text}", own.choices) if own else Remedy("leave out the quotes")

    def _without_number(self, error: InvalidField) -> Remedy | None:
        """What to do about an identifier that is not a number."""
        if error.value is None:
            return Remedy("give it one, or a reference")
        if self._has_reference or not isinstance(error.value, str) or "id" not in self._columns:
            return None
        if not any(map(str.isdigit, error.value)):  # "Total" below the orders
            return Remedy("leave the row out of the file, if it is not an order")
        return choose(
            "map", f"{self._columns['id']}=reference", "instead, if this is the shop's own number of the order"
        )

    def _leave_out_one(self, names: list[str], field: str) -> Remedy:
        """What to do about two columns of a field."""
        of_field = [name for name in names if field in self._fields.get(_plain(name), ())]
        unmapped = [name for name in of_field if _plain(name) not in self._mapped]
        if len(unmapped) == 1 and len(of_field) == 2:
            return choose("ignore_column", unmapped[0])
        if len({*map(_plain, of_field)}) == len(of_field) and not unmapped:
            return Remedy("map one column to it")
        return Remedy("rename one of them in the file")

    def _is_known(self, name: str) -> bool:
        return self._ignores_others or _plain(name) in self._fields

    def _renamed(self, fields: dict[str, Any]) -> dict[str, Any]:
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            for field in self._fields.get(_plain(name), ()) if self._is_known(name) else (name,):
                if field in renamed:
                    raise named_twice(field)
                renamed[field] = value
        return renamed


def _is_quoted(field: str, text: str) -> bool:
    """Whether a text of JSON, for which quotes were needed, is a value of the field without them."""
    if field == "complete":
        return text in ("true", "false")
    return field in ("id", "petId", "quantity") and PLAIN_DIGITS.fullmatch(text) is not None


def _quoted(names: Sequence[str]) -> str:
    """Names of columns, the first ones, in quotes."""
    shown = ", ".join(f"'{name[:50]}'" for name in names[:_MAX_NAMES])
    return shown + (f" and {more} more" if (more := len(names) - _MAX_NAMES) > 0 else "")


def named_twice(name: str) -> UnreadableRow:
    """The error for a record with a field of this name twice."""
    return UnreadableRow(Fault.of(InvalidField(name, "occurs more than once in the record")))


def _looks_like(names: list[str]) -> UnreadableFile | None:
    """The error for a file that seems to be an export of a shop."""
    shop = shops.recognized(names)
    if shop is None:
        return None
    return UnreadableFile(f"This looks like an export of {shops.SHOPS[shop]}'s orders:", choose("shop", shop))


def _other_columns(name: str) -> Remedy:
    """What to do about columns that are not fields, one of which has this name."""
    example = name if 0 < len(name) <= MAX_NAME else "COLUMN"
    then = "{} for each that is a field, and {} to leave out the others"
    return Remedy(then, (Choice("map", f"{example}=FIELD"), Choice("ignore_column", EVERY_COLUMN)))
