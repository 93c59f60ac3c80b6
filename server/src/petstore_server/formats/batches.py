"""From an import file to batches of records: reading and checking, whatever the format."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, cast

from petstore_server.domain.errors import InvalidField
from petstore_server.formats.bulk import BulkOrders
from petstore_server.formats.csv_rows import read_csv
from petstore_server.formats.json_rows import read_json_array, read_json_lines
from petstore_server.formats.kinds import ORDERS, ReadOptions, RecordKind, Schema, T
from petstore_server.formats.reading import Source
from petstore_server.formats.rows import PIECE_ROWS, Bulk, Piece, Reject, Row, invalid

BATCH_RECORDS = PIECE_ROWS
"""Records in a batch at most: storing them takes some 20 ms, so no cancel waits long (D6)."""


class Batch(NamedTuple, Generic[T]):
    """Records that can be stored together, and the rows next to them that were rejected.

    `rows` returns the rows of the records, which may read them again; `position` is the bytes of the file read so far.
    """

    records: list[T]
    rejects: list[Reject]
    rows: Callable[[], list[Row]]
    position: int


def read_batches(source: Source, kind: RecordKind[T], options: ReadOptions) -> Iterator[Batch[T]]:
    """The records of the file in batches. Raises UnreadableFile where the file as a whole cannot be read."""
    schema = Schema(kind, options)
    for piece in _read(source, schema, options):
        checked = Batch(piece.records, [], piece.rows, 0) if isinstance(piece, Bulk) else _check(piece, kind)
        rejects = checked.rejects
        count = len(checked.records)
        parts = max(-(-count // BATCH_RECORDS), 1)
        for number in range(parts):
            part = slice(count * number // parts, count * (number + 1) // parts)
            yield Batch(checked.records[part], rejects, partial(_part, checked.rows, part), source.position)
            rejects = []


def _part(rows: Callable[[], list[Row]], part: slice) -> list[Row]:
    return rows()[part]


def _read(source: Source, schema: Schema[T], options: ReadOptions) -> Iterator[Piece[T]]:
    stream = source.stream(options.encoding)
    bulk: Any = BulkOrders(cast("Any", schema)) if schema.kind is cast("Any", ORDERS) else None
    records_as_named = bulk and not schema.renames
    match source.format(options.file_format):
        case "csv":
            return read_csv(stream, schema, bulk and bulk.cells)
        case "json":
            return read_json_array(stream, schema, bulk.elements if records_as_named else None)
        case _:
            return read_json_lines(stream, schema, bulk.lines if records_as_named else None)


def _check(piece: list[Row | Reject], kind: RecordKind[T]) -> Batch[T]:
    """Build the records; a row that is not one becomes a reject."""
    records: list[T] = []
    rows: list[Row] = []
    rejects: list[Reject] = []
    for row in piece:
        if isinstance(row, Reject):
            rejects.append(row)
            continue
        try:
            records.append(kind.build(row.fields))
        except InvalidField as error:
            rejects.append(_rejected(row, error, kind))
        else:
            rows.append(row)
    return Batch(records, rejects, lambda: rows, 0)


def _rejected(row: Row, error: InvalidField, kind: RecordKind[Any]) -> Reject:
    if error.field in kind.fields:
        return invalid(row.line, error, row.raw)
    hint = f"{error.problem}; give --ignore-column {error.field} to leave it out"
    return invalid(row.line, InvalidField(error.field, hint), row.raw)
