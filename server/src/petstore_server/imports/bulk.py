"""Orders of a whole block of a file at once: several times as fast as row by row.

Each function accepts only blocks of which every row is a plain record, and then returns what reading row by row would
(a property test compares them). For all others it returns None, and the rows are read one by one, which finds reasons.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, ORDER_FIELDS, Order, Status
from petstore_server.domain.timestamps import are_canonical
from petstore_server.imports.kinds import Schema
from petstore_server.imports.rows import MAX_ROW_BYTES

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
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, KeyError)

# The fields are checked here, so the constructor, which runs in Python, can be skipped.
_build: Callable[[tuple[Any, ...]], Order] = partial(tuple.__new__, Order)


class BulkOrders:
    """Reads orders with the schema of one file."""

    def __init__(self, schema: Schema[Order]) -> None:
        self._schema = schema

    def records(self, raws: Sequence[bytes]) -> list[Order] | None:
        """The orders of JSON objects."""
        if self._schema.renames or max(map(len, raws)) > MAX_ROW_BYTES:
            return None
        data = b"[" + b",".join(raws) + b"]"
        try:
            return self._of_records(_decode_records(data), data.count(b'"'))
        except _UNREADABLE:
            return None

    def cells(self, fields: list[str | None], columns: list[Sequence[str]]) -> list[Order] | None:
        """The orders of CSV rows, given the cells of each column and its field (None: a column to leave out)."""
        texts: dict[str | None, Sequence[str]] = dict.fromkeys(ORDER_FIELDS, ("",) * len(columns[0]))
        texts |= zip(fields, columns, strict=True)
        try:
            ids, complete = _integers(texts["id"]), self._distinct("complete", texts["complete"])
            if None in ids or not {True, False, None}.issuperset(complete):
                return None
            return self._orders(
                ids,
                _integers(texts["petId"]),
                _integers(texts["quantity"]),
                [text or None for text in texts["shipDate"]],
                complete,
                self._distinct("status", texts["status"]),
            )
        except _UNREADABLE:
            return None

    def _of_records(self, records: list[_Record], quotes: int) -> list[Order] | None:
        columns: list[Sequence[Any]] = list(zip(*map(_values, records), strict=True))
        absent = [column.count(UNSET) for column in columns]
        # Each name and each text has two quotes. More of them: a name occurs twice, or a quote is escaped.
        names = len(records) * len(columns) - sum(absent)
        texts = sum(len(records) - absent[at] - columns[at].count(None) for at in (3, 5))
        if quotes != 2 * (names + texts):
            return None
        for at, count in enumerate(absent):
            if count:
                columns[at] = [None if value is UNSET else value for value in columns[at]]
        return self._orders(*columns)

    def _orders(self, *columns: Iterable[Any]) -> list[Order]:
        """Raises KeyError or ValueError where a status or a ship date is none."""
        ids, pet_ids, quantities, ship_dates, complete, statuses = columns
        dates, checked = self._ship_dates(ship_dates), map(_STATUSES.__getitem__, statuses)
        return list(map(_build, zip(ids, pet_ids, quantities, dates, complete, checked, strict=True)))

    def _ship_dates(self, texts: Iterable[str | None]) -> Iterable[str | None]:
        """Raises ValueError where one is not a timestamp."""
        texts, convert = list(texts), self._schema.timestamps
        canonical = [text for text in texts if text is not None and len(text) == _CANONICAL_LENGTH]
        if not are_canonical(canonical):
            return [None if text is None else convert(text) for text in texts]
        return [text if text is None or len(text) == _CANONICAL_LENGTH else convert(text) for text in texts]

    def _distinct(self, name: str, texts: Sequence[str]) -> list[Any]:
        """The values of cells of which few differ."""
        table = {text: self._schema.cells[name](text) if text else None for text in set(texts)}
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
