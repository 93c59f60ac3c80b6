"""Orders read in bulk: a whole block of a file at once, several times as fast as row by row.

Only blocks of which every row is a plain record are accepted, and read as reading row by row would (a property test
compares them). For all others the result is None, and the rows are read one by one, which finds reasons.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from petstore_server.domain.orders import (
    INT64_MAX,
    INT64_MIN,
    ORDER_FIELDS,
    Order,
    Status,
    check_account,
    check_reference,
)
from petstore_server.domain.timestamps import are_canonical
from petstore_server.imports.conversions import FLAGS, Cell
from petstore_server.imports.files import MAX_ROW_BYTES
from petstore_server.imports.kinds import MARKERS, ORDERS
from petstore_server.imports.schema import Schema

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class _Record(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):  # in the order of Order
    id: Int64
    pet_id: Int64 | UnsetType | None = UNSET
    quantity: Int64 | UnsetType | None = UNSET
    ship_date: str | UnsetType | None = UNSET
    complete: bool | UnsetType | None = UNSET
    status: Status | UnsetType | None = UNSET
    reference: str | UnsetType | None = UNSET
    account: str | UnsetType | None = UNSET


_BETWEEN = b"},\n{"
_decode_records = msgspec.json.Decoder(list[_Record]).decode
_decode_integers = msgspec.json.Decoder(list[Int64]).decode
_CANONICAL_LENGTH = len("2026-11-01T10:00:00Z")
_STATUSES: dict[str | None, Status] = {None: Status.PENDING, **{str(status): status for status in Status}}
_UNREADABLE = (msgspec.MsgspecError, csv.Error, ValueError, RecursionError, KeyError)

# The fields are checked here, so the constructor, which runs in Python, can be skipped.
_build: Callable[[tuple[Any, ...]], Order] = partial(tuple.__new__, Order)


def json_orders(raws: Sequence[bytes], schema: Schema[Any]) -> list[Order] | None:
    """The orders of JSON records."""
    if schema.kind is not ORDERS or schema.renames or schema.options.split_lines or max(map(len, raws)) > MAX_ROW_BYTES:
        return None
    # Lines that are not one record each could be records once they are joined, unless braces are at both ends of all.
    data = b"[" + b",\n".join(map(bytes.strip, raws)) + b"]"
    if not (data.startswith(b"[{") and data.endswith(b"}]") and data.count(_BETWEEN) == len(raws) - 1):
        return None
    try:
        records = _decode_records(data)
        if len(records) != len(raws):
            return None
        columns: list[Sequence[Any]] = list(zip(*map(msgspec.structs.astuple, records), strict=True))
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
            flags = zip(*(_distinct(schema.cells[flag], texts[flag]) for flag in FLAGS), strict=True)
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
    if not schema.options.keep_markers and not MARKERS.isdisjoint(checked_references):
        raise ValueError("a reference may say that there is none")
    default = schema.options.account
    owners = list(accounts) if default is None else [default if name is None else name for name in accounts]
    for name in {*owners} - {None}:
        check_account(str(name))
    dates, checked = _ship_dates(ship_dates, schema.timestamps), map(_STATUSES.__getitem__, statuses)
    values = ids, pet_ids, quantities, dates, complete, checked, checked_references, owners
    return list(map(_build, zip(*values, strict=True)))


def _ship_dates(texts: Iterable[str | None], convert: Callable[[str], str]) -> Iterable[str | None]:
    """Raises ValueError if one is not a timestamp."""
    texts = list(texts)
    given = [text for text in texts if text is not None]
    if {*map(len, given)} == {_CANONICAL_LENGTH} and are_canonical(given):
        return texts
    return [text if text is None else convert(text) for text in texts]


def _distinct(convert: Cell, texts: Sequence[str]) -> list[Any]:
    """The values of cells of which few differ."""
    table = {text: convert(text) if text.strip() else None for text in set(texts)}
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
