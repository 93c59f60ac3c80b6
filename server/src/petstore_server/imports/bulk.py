"""Orders of a whole block of a file at once: several times as fast as row by row.

Each function accepts only blocks of which every row is a plain record, and then returns what reading row by row would
(a property test compares them). For all others it returns None, and the rows are read one by one, which finds reasons.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, ORDER_FIELDS, Order, Status
from petstore_server.domain.timestamps import are_canonical
from petstore_server.imports.conversions import Cell
from petstore_server.imports.files import MAX_ROW_BYTES
from petstore_server.imports.kinds import ORDERS, Schema

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class _Record(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    id: Int64
    pet_id: Int64 | UnsetType | None = UNSET
    quantity: Int64 | UnsetType | None = UNSET
    ship_date: str | UnsetType | None = UNSET
    complete: bool | UnsetType | None = UNSET
    status: Status | UnsetType | None = UNSET


_decode_records = msgspec.json.Decoder(list[_Record]).decode
_decode_integers = msgspec.json.Decoder(list[Int64]).decode
_values = attrgetter("id", "pet_id", "quantity", "ship_date", "complete", "status")
_CANONICAL_LENGTH = len("2026-11-01T10:00:00Z")
_STATUSES: dict[str | None, Status] = {None: Status.PENDING, **{str(status): status for status in Status}}
_UNREADABLE = (msgspec.MsgspecError, csv.Error, ValueError, RecursionError, KeyError)

# The fields are checked here, so the constructor, which runs in Python, can be skipped.
_build: Callable[[tuple[Any, ...]], Order] = partial(tuple.__new__, Order)


def json_orders(raws: Sequence[bytes], schema: Schema[Any]) -> list[Order] | None:
    """The orders of JSON objects."""
    if schema.kind is not ORDERS or schema.renames or max(map(len, raws)) > MAX_ROW_BYTES:
        return None
    data = b"[" + b",".join(raws) + b"]"
    try:
        records = _decode_records(data)
        columns: list[Sequence[Any]] = list(zip(*map(_values, records), strict=True))
        absent = [column.count(UNSET) for column in columns]
        # Each name and each text has two quotes. More of them: a name occurs twice, or a quote is escaped.
        names = len(records) * len(columns) - sum(absent)
        texts = sum(len(records) - absent[at] - columns[at].count(None) for at in (3, 5))
        if data.count(b'"') != 2 * (names + texts):
            return None
        for at, count in enumerate(absent):
            if count:
                columns[at] = [None if value is UNSET else value for value in columns[at]]
        return _orders(schema, *columns)
    except _UNREADABLE:
        return None


def csv_orders(lines: list[bytes], delimiter: str, fields: list[str | None], schema: Schema[Any]) -> list[Order] | None:
    """The orders of CSV rows, given the field of each column (None: a column to leave out)."""
    if schema.kind is not ORDERS:
        return None
    try:
        columns = _columns(lines, delimiter)
        texts: dict[str | None, Sequence[str]] = dict.fromkeys(ORDER_FIELDS, ("",) * len(columns[0]))
        texts |= zip(fields, columns, strict=True)
        ids, complete = _integers(texts["id"]), _distinct(schema.cells["complete"], texts["complete"])
        if None in ids or not {True, False, None}.issuperset(complete):
            return None
        pet_ids, quantities = _integers(texts["petId"]), _integers(texts["quantity"])
        statuses = _distinct(schema.cells["status"], texts["status"])
        ship_dates = [text or None for text in texts["shipDate"]]
        return _orders(schema, ids, pet_ids, quantities, ship_dates, complete, statuses)
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
    """Raises KeyError or ValueError where a status or a ship date is none."""
    ids, pet_ids, quantities, ship_dates, complete, statuses = columns
    dates, checked = _ship_dates(ship_dates, schema.timestamps), map(_STATUSES.__getitem__, statuses)
    return list(map(_build, zip(ids, pet_ids, quantities, dates, complete, checked, strict=True)))


def _ship_dates(texts: Iterable[str | None], convert: Callable[[str], str]) -> Iterable[str | None]:
    """Raises ValueError where one is not a timestamp."""
    texts = list(texts)
    canonical = [text for text in texts if text is not None and len(text) == _CANONICAL_LENGTH]
    if not are_canonical(canonical):
        return [None if text is None else convert(text) for text in texts]
    return [text if text is None or len(text) == _CANONICAL_LENGTH else convert(text) for text in texts]


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
