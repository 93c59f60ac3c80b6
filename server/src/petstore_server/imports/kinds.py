"""What can be imported: orders and pets, how a store takes them, how a file presents them, and orders read in bulk.

Reading a whole block of a file at once is several times as fast as row by row. It accepts only blocks of which every
row is a plain record, and then returns what reading row by row would (a property test compares them). For all others it
returns None, and the rows are read one by one, which finds reasons.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from petstore_server.domain.errors import Choice, InvalidField, Remedy, choose
from petstore_server.domain.orders import (
    INT64_MAX,
    INT64_MIN,
    ORDER_FIELDS,
    UNASSIGNED,
    ImportOutcome,
    Order,
    Status,
    check_account,
    check_reference,
    order_from_fields,
)
from petstore_server.domain.pets import Pet, pet_from_fields
from petstore_server.domain.timestamps import are_canonical
from petstore_server.imports import shops
from petstore_server.imports.conversions import Cell, Integers, Timestamps, UnclearCell, boolean_cell
from petstore_server.imports.files import MAX_NAME, MAX_ROW_BYTES, UnreadableFile
from petstore_server.imports.options import EVERY_COLUMN, ReadOptions
from petstore_server.imports.options import plain_name as _plain
from petstore_server.imports.statuses import FLAGS, Statuses, is_filled
from petstore_server.store import Store

T = TypeVar("T", bound=Order | Pet)


@dataclass(frozen=True)
class RecordKind(Generic[T]):
    """One kind of record: its noun in messages, its fields with what reads their cells, how a record is built of them.

    `flags` are other fields of a file, of which filled cells give the status. `part` is the part of a store that has
    the records, `refusals` has the reason for each outcome that changes nothing, and `repeated` is what to do about a
    record that a file has twice.
    """

    noun: str
    cells: Mapping[str, Cell]
    build: Callable[[dict[str, Any]], T]
    part: Callable[[Store], Any]
    refusals: Mapping[ImportOutcome, tuple[str, Remedy | None]]
    repeated: Remedy
    has_references: bool = False  # whether a record may have a reference instead of an identifier
    flags: Sequence[str] = ()


def _reference_cell(text: str) -> str:
    text = text.strip()
    if text in _MARKERS:
        raise UnclearCell("seems to say that there is no value", _MARKER)
    return text


_SHIP_DATE = "shipDate"
_MAX_FAULTS = 10  # of a row that are named
_READ_IN_JSON = frozenset([_SHIP_DATE, "reference", "status"])  # as in CSV, if they are texts
_INTEGER = Integers()
_MARKERS = frozenset(["NULL", "Null", "null", "NaN", "nan", "NAN", "\\N", "--", "N/A", "n/a", "#N/A", "None", "none"])
_MARKER = Remedy("empty such cells, or {} if they are references", (Choice("keep_markers"),))
ORDERS = RecordKind[Order](
    "order",
    {
        "id": _INTEGER,
        "petId": _INTEGER,
        "quantity": _INTEGER,
        _SHIP_DATE: Timestamps(),
        "complete": boolean_cell,
        "status": Statuses(),
        "reference": _reference_cell,
        "account": str.strip,
    },
    order_from_fields,
    attrgetter("orders"),
    {
        ImportOutcome.REJECTED: (
            "The order is no longer pending in the store and differs from this row; it was not changed.",
            None,
        ),
        ImportOutcome.CORRECTABLE: (
            "The order has shipped, and differs from this row; it was not changed.",
            choose("correct_shipped", then="to correct such orders"),
        ),
        ImportOutcome.TAKEN: (
            "The file has another order, without a number of its own, that was given this number.",
            Remedy("set PETSTORE_ASSIGNED_IDS_FROM, so that assigned numbers are none of yours"),
        ),
        ImportOutcome.MISSING: ("There is no such order to update.", Remedy("check the number")),
        ImportOutcome.PROTECTED: (
            "The order was placed over the API and differs from this row; it was not changed.",
            choose("replace_placed", then="to replace such orders"),
        ),
        ImportOutcome.OTHER_PLACED: (
            "The order was placed over the API, and the row does not have its account and reference.",
            None,
        ),
        ImportOutcome.RESERVED: (
            "There is no order with this id, and the service assigns such ids (PETSTORE_ASSIGNED_IDS_FROM).",
            choose("assigned", then="to import such rows"),
        ),
        ImportOutcome.OTHER_OWNER: (
            "The order belongs to another account than this row names; it was not changed.",
            None,
        ),
        ImportOutcome.UNKNOWN_ACCOUNT: (
            "The row names an account that does not exist; it was not imported.",
            Remedy("create the account, or {}", (Choice("ignore_column", "account"),)),
        ),
        ImportOutcome.REFERENCE_IN_USE: (
            "Another order of this account has this reference; the row was not imported.",
            None,
        ),
    },
    Remedy("an order here has one animal; {} to make each line an order", (Choice("split_lines"),)),
    has_references=True,
    flags=FLAGS,
)
PETS = RecordKind[Pet](
    "pet",
    {"id": _INTEGER, "name": str, "tag": str},
    pet_from_fields,
    attrgetter("pets"),
    {},
    Remedy("leave out one of them"),
)


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
        self.timestamps = Timestamps(options.zone, options.date_format)
        self.cells = {**kind.cells}
        integers = Integers(options.decimal)
        self.cells |= {name: integers for name, cell in kind.cells.items() if isinstance(cell, Integers)}
        if _SHIP_DATE in kind.cells:
            self.cells |= {_SHIP_DATE: self.timestamps}
        if options.keep_markers and "reference" in kind.cells:
            self.cells |= {"reference": str.strip}
        self.statuses = Statuses(options.statuses)
        if kind.flags:
            self.cells |= {"status": self.statuses, **dict.fromkeys(kind.flags, is_filled)}
        self.missing = frozenset[str]()  # fields that no row of the file has
        self.renames = bool(options.columns or options.ignored or options.statuses)
        ignored = map(_plain, options.ignored)
        self._mapped = defaultdict[str, tuple[str, ...]](tuple)
        for name, field in options.columns:
            self._mapped[_plain(name)] += (field,)
        self._columns = {field: field for field in kind.cells}  # how the file names each
        self._has_reference = False  # a column for it
        self._order = {field: place for place, field in enumerate(kind.cells)}
        self._known = {_plain(field): field for field in kind.cells}
        known = {name: (field,) for name, field in self._known.items()}
        self._fields: Mapping[str, tuple[str, ...]] = known | dict.fromkeys(ignored, ()) | self._mapped
        self._ignores_others = EVERY_COLUMN in options.ignored

    def header(self, names: list[str]) -> list[tuple[str, ...]]:
        """The fields of each column, none for those to leave out; notes which are missing. Raises UnreadableFile."""
        if self.options.shop is not None:
            self.of_shop = shops.stands_for(self.options.shop, names, self.options)
            if self.of_shop is None:
                raise _not_of_shop(self.options.shop, names)
            self.repeated = shops.repeated(self.options.shop, names) or self.repeated
            self._use(shops.combined(self.options, self.of_shop))
        try:
            return self._header(names)
        except UnreadableFile as error:
            raise (_looks_like(names) if self.options.shop is None else None) or error from None

    def _header(self, names: list[str]) -> list[tuple[str, ...]]:
        columns = [self._fields.get(_plain(name), ()) for name in names]
        fields = list(chain.from_iterable(columns))
        if unknown := [name for name in names if not self._is_known(name)]:
            shown = ", ".join(f"'{name[:50]}'" for name in unknown[:5]) + (" and others" if len(unknown) > 5 else "")
            problem = f"The first line must name the columns ({', '.join(self.cells)}); it has {shown}."
            raise UnreadableFile(problem, _other_columns(unknown[0]))
        if twice := next((field for field in fields if fields.count(field) > 1), None):
            raise UnreadableFile(f"The header names the field '{twice}' twice.", self._leave_out_one(names, twice))
        if absent := self._mapped.keys() - set(map(_plain, names)):
            raise UnreadableFile(f"The header does not have the mapped column '{min(absent)}'.")
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
        self.missing = frozenset(self.kind.cells) - given
        self.timestamps.in_utc = names == list(self.kind.cells)[: len(names)] and _SHIP_DATE in names
        return columns

    def count_fields(self, names: Iterable[str]) -> int:
        """How many of the names are those of fields."""
        return sum(bool(self._fields.get(_plain(name))) for name in names)

    def own_header(self, cells: list[str]) -> list[str] | None:
        """The header of an export of the service, if the cells are a row of one without its header."""
        names = list(self.kind.cells)[: len(cells)]
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

        Raises InvalidField if one occurs twice.
        """
        if self.renames:
            fields = self._renamed(fields)
        texts = {name: fields[name] for name in _READ_IN_JSON & self.cells.keys() if type(fields.get(name)) is str}
        texts = {name: text for name, text in texts.items() if text.strip() or name != "status"}
        named = [name for name in self.kind.flags if self.renames and name in fields]
        flags = {name: str(is_filled(fields[name])) for name in named}
        read, faults = self.read_cells(texts | flags)
        wrong = {fault.field for fault in faults} | flags.keys()
        return {name: value for name, value in fields.items() if name not in wrong} | read, faults

    def build(self, fields: dict[str, Any], faults: list[InvalidField]) -> T | None:
        """The record, or None if there are faults; those of other fields are added, up to a number."""
        wrong = {fault.field for fault in faults}
        fields = {name: value for name, value in fields.items() if name not in wrong}
        if self.options.account and fields.get("account") is None:
            fields["account"] = self.options.account
        has_only_reference = self._has_only_reference(fields, wrong)
        if has_only_reference or "id" in wrong:
            fields["id"] = 0
        record = None
        while record is None and len(faults) < _MAX_FAULTS:
            try:
                record = self.kind.build(fields)
            except InvalidField as error:
                faults.append(self._advised(error))
                fields.pop(error.field, None)
                if error.field == "id":
                    fields["id"] = 0
        faults.sort(key=lambda fault: self._order.get(fault.field, len(self._order)))
        if has_only_reference and isinstance(record, Order):
            record = record._replace(id=UNASSIGNED)
        return None if faults else record

    def _has_only_reference(self, fields: Mapping[str, Any], wrong: Collection[str]) -> bool:
        """Whether the record is the order of its owner with its reference."""
        if not self.kind.has_references or "id" in wrong:
            return False
        return fields.get("id") is None and fields.get("reference") is not None

    def _advised(self, error: InvalidField) -> InvalidField:
        """The error, with advice if the field is not one of this kind of record."""
        if error.field == "id" and self.kind.has_references:
            return InvalidField(error.field, error.problem, error.value, self._without_number(error))
        if error.field == "petId" and isinstance(error.value, str):
            column = self._columns.get("petId", "petId")
            remedy = Remedy("map the column of the article's number, or {}", (Choice("ignore_column", column),))
            return InvalidField(error.field, error.problem, error.value, remedy)
        if error.field in self.kind.cells:
            return error
        name = error.field if len(error.field) <= MAX_NAME else EVERY_COLUMN
        if field := self._known.get(_plain(error.field)):
            remedy = choose("map", f"{name}={field}")
        else:
            remedy = choose("ignore_column", name, "to leave it out")
        return InvalidField(error.field, error.problem, remedy=remedy)

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
        return Remedy("rename one of them in the file")

    def _is_known(self, name: str) -> bool:
        return self._ignores_others or _plain(name) in self._fields

    def _renamed(self, fields: dict[str, Any]) -> dict[str, Any]:
        renamed: dict[str, Any] = {}
        for name, value in fields.items():
            for field in self._fields.get(_plain(name), ()) if self._is_known(name) else (name,):
                if field in renamed:
                    raise InvalidField(field, "occurs more than once in the record")
                renamed[field] = value
        return renamed


def _not_of_shop(shop: str, names: list[str]) -> UnreadableFile:
    problem = f"The file is not an export of {shops.SHOPS[shop].title}'s orders whose columns are known."
    return _looks_like(names) or UnreadableFile(problem, _other_columns(names[0] if names else ""))


def _looks_like(names: list[str]) -> UnreadableFile | None:
    """The error for a file that seems to be an export of a shop."""
    shop = shops.recognized(names)
    if shop is None:
        return None
    return UnreadableFile(f"This looks like an export of {shops.SHOPS[shop].title}'s orders:", choose("shop", shop))


def _other_columns(name: str) -> Remedy:
    """What to do about columns that are not fields, one of which has this name."""
    example = name if 0 < len(name) <= MAX_NAME else "COLUMN"
    then = "{} for each that is a field, and {} to leave out the others"
    return Remedy(then, (Choice("map", f"{example}=FIELD"), Choice("ignore_column", EVERY_COLUMN)))


Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class _Record(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    id: Int64
    pet_id: Int64 | UnsetType | None = UNSET
    quantity: Int64 | UnsetType | None = UNSET
    ship_date: str | UnsetType | None = UNSET
    complete: bool | UnsetType | None = UNSET
    status: Status | UnsetType | None = UNSET
    reference: str | UnsetType | None = UNSET
    account: str | UnsetType | None = UNSET


_decode_records = msgspec.json.Decoder(list[_Record]).decode
_decode_integers = msgspec.json.Decoder(list[Int64]).decode
_values = attrgetter("id", "pet_id", "quantity", "ship_date", "complete", "status", "reference", "account")
_CANONICAL_LENGTH = len("2026-11-01T10:00:00Z")
_STATUSES: dict[str | None, Status] = {None: Status.PENDING, **{str(status): status for status in Status}}
_UNREADABLE = (msgspec.MsgspecError, csv.Error, ValueError, RecursionError, KeyError)

# The fields are checked here, so the constructor, which runs in Python, can be skipped.
_build: Callable[[tuple[Any, ...]], Order] = partial(tuple.__new__, Order)


def json_orders(raws: Sequence[bytes], schema: Schema[Any]) -> list[Order] | None:
    if schema.kind is not ORDERS or schema.renames or schema.options.split_lines or max(map(len, raws)) > MAX_ROW_BYTES:
        return None
    data = b"[" + b",".join(raws) + b"]"
    try:
        records = _decode_records(data)
        columns: list[Sequence[Any]] = list(zip(*map(_values, records), strict=True))
        absent = [column.count(UNSET) for column in columns]
        # Each name and each text has two quotes. More of them: a name occurs twice, or a quote is escaped.
        names = len(records) * len(columns) - sum(absent)
        texts = sum(len(records) - absent[at] - columns[at].count(None) for at in (3, 5, 6, 7))
        if data.count(b'"') != 2 * (names + texts):
            return None
        for at, count in enumerate(absent):
            if count:
                columns[at] = [None if value is UNSET else value for value in columns[at]]
        return _orders(schema, *columns)
    except _UNREADABLE:
        return None


def csv_orders(
    lines: list[bytes], delimiter: str, fields: list[tuple[str, ...]], schema: Schema[Any]
) -> list[Order] | None:
    """The orders of CSV rows, given the fields of each column (none: a column to leave out)."""
    if schema.kind is not ORDERS or schema.options.split_lines:
        return None
    try:
        columns = _columns(lines, delimiter)
        texts: dict[str, Sequence[str]] = dict.fromkeys((*ORDER_FIELDS, *FLAGS), ("",) * len(columns[0]))
        texts |= {field: column for named, column in zip(fields, columns, strict=True) for field in named}
        ids, complete = _integers(texts["id"]), _distinct(schema.cells["complete"], texts["complete"])
        if None in ids or not {True, False, None}.issuperset(complete):
            return None
        pet_ids, quantities = _integers(texts["petId"]), _integers(texts["quantity"])
        statuses = _distinct(schema.statuses, texts["status"])
        if schema.statuses.of_empty or any(FLAGS[0] in named or FLAGS[1] in named for named in fields):
            flags = zip(*(_distinct(is_filled, texts[flag]) for flag in FLAGS), strict=True)
            given = [FLAGS[0] if first else FLAGS[1] if second else schema.statuses.of_empty for first, second in flags]
            statuses = [status or other for status, other in zip(statuses, given, strict=True)]
        ship_dates = [text or None for text in texts["shipDate"]]
        references = [text.strip() or None for text in texts["reference"]]
        accounts = [text.strip() or None for text in texts["account"]]
        return _orders(schema, ids, pet_ids, quantities, ship_dates, complete, statuses, references, accounts)
    except _UNREADABLE:
        return None


def _columns(lines: list[bytes], delimiter: str) -> list[Sequence[str]]:
    """The cells of a block by column. Raises ValueError or csv.Error unless each row is one line of valid UTF-8."""
    text = b"\n".join(lines).decode()
    rows = [line for line in text.replace("\r\n", "\n").split("\n") if line]
    columns: list[Sequence[str]] = list(zip(*csv.reader(rows, delimiter=delimiter, strict=True), strict=True))
    if len(text) > MAX_ROW_BYTES or not columns or len(columns[0]) != len(rows):
        raise ValueError("a row may be too long, or extend over several lines")
    return columns


def _orders(schema: Schema[Any], *columns: Iterable[Any]) -> list[Order]:
    """Raises KeyError or ValueError if a status, a ship date, a reference or an account is not valid."""
    ids, pet_ids, quantities, ship_dates, complete, statuses, references, accounts = columns
    checked_references = [text if text is None else check_reference(text) for text in references]
    if not schema.options.keep_markers and not _MARKERS.isdisjoint(checked_references):
        raise ValueError("a reference may say that there is none")
    default = schema.options.account
    owners = list(accounts) if default is None else [name or default for name in accounts]
    for name in {*owners} - {None}:
        check_account(str(name))
    dates, checked = _ship_dates(ship_dates, schema.timestamps), map(_STATUSES.__getitem__, statuses)
    values = ids, pet_ids, quantities, dates, complete, checked, checked_references, owners
    return list(map(_build, zip(*values, strict=True)))


def _ship_dates(texts: Iterable[str | None], convert: Callable[[str], str]) -> Iterable[str | None]:
    """Raises ValueError if one is not a timestamp."""
    texts = list(texts)
    kept = are_canonical([text for text in texts if text is not None and len(text) == _CANONICAL_LENGTH])
    return [text if text is None or (kept and len(text) == _CANONICAL_LENGTH) else convert(text) for text in texts]


def _distinct(convert: Cell, texts: Sequence[str]) -> list[Any]:
    """The values of cells of which few differ."""
    table = {text: convert(text) if text else None for text in set(texts)}
    return [table[text] for text in texts]


def _integers(texts: Sequence[str]) -> list[int | None]:
    """Whole numbers in plain form, None for empty cells. Raises ValueError, or what the decoder raises, for others."""
    given = [text for text in texts if text]
    listed = f"[{','.join(given)}]"
    values = _decode_integers(listed)
    if len(values) != len(given) or "-0" in listed:  # the plain form is that of JSON, except for -0
        raise ValueError("not in plain form")
    following = iter(values)
    return [next(following) if text else None for text in texts]
