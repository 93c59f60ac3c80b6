"""Orders of a whole piece of a file at once: several times as fast as row by row.

Each function accepts only pieces of which every row is a plain record, and then returns what reading row by row would
(a property test compares them). For all others it returns None, and the rows are read one by one, which finds reasons.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from petstore_server.domain.orders import INT64_MAX, INT64_MIN, ORDER_FIELDS, Order, Status
from petstore_server.domain.timestamps import are_canonical
from petstore_server.formats.kinds import Schema

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class _Record(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    id: Int64
    pet_id: Int64 | UnsetType | None = UNSET
    quantity: Int64 | UnsetType | None = UNSET
    ship_date: str | UnsetType | None = UNSET
    complete: bool | UnsetType | None = UNSET
    status: Status | UnsetType | None = UNSET


_decode_lines = msgspec.json.Decoder(_Record).decode_lines
_decode_array = msgspec.json.Decoder(list[_Record]).decode
_decode_integers = msgspec.json.Decoder(list[Int64]).decode
_CANONICAL_LENGTH = len("2026-11-01T10:00:00Z")
_STATUSES: dict[str | None, Status] = {None: Status.PENDING, **{str(status): status for status in Status}}
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, KeyError)

# The fields are checked here, so the constructor, which runs in Python, can be skipped.
_build: Callable[[tuple[Any, ...]], Order] = partial(tuple.__new__, Order)


class BulkOrders:
    """Reads orders with the schema of one file."""

    def __init__(self, schema: Schema[Order]) -> None:
        self._cells = schema.cells
        self._timestamps = schema.timestamps

    def lines(self, data: bytes) -> list[Order] | None:
        """The orders of JSON Lines."""
        try:
            return self._orders(_decode_lines(data), data)
        except _UNREADABLE:
            return None

    def elements(self, data: bytes) -> list[Order] | None:
        """The orders of JSON objects with commas between them."""
        try:
            return self._orders(_decode_array(b"[" + data + b"]"), data)
        except _UNREADABLE:
            return None

    def cells(self, fields: list[str | None], columns: list[Sequence[str]]) -> list[Order] | None:
        """The orders of CSV rows, given the cells of each column and its field (None: a column to leave out)."""
        try:
            known = dict(zip(fields, columns, strict=True))
            empty = ("",) * len(columns[0])
            return self._of_columns({name: known.get(name, empty) for name in ORDER_FIELDS})
        except _UNREADABLE:
            return None

    def _orders(self, records: list[_Record], data: bytes) -> list[Order] | None:
        columns: list[list[Any]] = [
            [record.id for record in records],
            [record.pet_id for record in records],
            [record.quantity for record in records],
            [record.ship_date for record in records],
            [record.complete for record in records],
            [record.status for record in records],
        ]
        absent = [column.count(UNSET) for column in columns]
        null = [column.count(None) for column in columns]
        # Each name and each text has two quotes. More of them: a name occurs twice, or a quote is escaped.
        names = len(records) * len(columns) - sum(absent)
        texts = sum(len(records) - absent[at] - null[at] for at in (3, 5))
        if data.count(b'"') != 2 * (names + texts):
            return None
        for at, count in enumerate(absent):
            if count:
                columns[at] = [None if value is UNSET else value for value in columns[at]]
        columns[3] = self._ship_dates(columns[3])
        if absent[5] or null[5]:
            columns[5] = [status or Status.PENDING for status in columns[5]]
        return list(map(_build, zip(*columns, strict=True)))

    def _of_columns(self, texts: dict[str, Sequence[str]]) -> list[Order] | None:
        def distinct(name: str) -> list[Any]:
            """The values of cells of which few differ."""
            table = {text: self._cells[name](text) if text else None for text in set(texts[name])}
            return [table[text] for text in texts[name]]

        statuses = distinct("status")
        if not _STATUSES.keys() >= set(statuses):
            return None
        complete = distinct("complete")
        ids = _integers(texts["id"])
        if not {True, False, None}.issuperset(complete) or None in ids:
            return None
        columns = (
            ids,
            _integers(texts["petId"]),
            _integers(texts["quantity"]),
            self._ship_dates([text or None for text in texts["shipDate"]]),
            complete,
            map(_STATUSES.__getitem__, statuses),
        )
        return list(map(_build, zip(*columns, strict=True)))

    def _ship_dates(self, texts: list[str | None]) -> list[str | None]:
        """Raises ValueError where one is not a timestamp."""
        canonical = [text for text in texts if text is not None and len(text) == _CANONICAL_LENGTH]
        if not are_canonical(canonical):
            return [None if text is None else self._timestamps(text) for text in texts]
        if len(canonical) == len(texts):
            return texts
        return [text if text is None or len(text) == _CANONICAL_LENGTH else self._timestamps(text) for text in texts]


def _integers(texts: Sequence[str]) -> list[int | None]:
    """Whole numbers in plain form, None for empty cells. Raises ValueError, or what the decoder raises, for others."""
    given = [text for text in texts if text]
    listed = f"[{','.join(given)}]"
    values = _decode_integers(listed)
    if len(values) != len(given) or "-0" in listed:  # the plain form is that of JSON, except for -0
        raise ValueError("not in plain form")
    if len(given) == len(texts):
        return list[int | None](values)
    following = iter(values)
    return [next(following) if text else None for text in texts]
