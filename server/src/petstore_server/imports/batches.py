"""From an import file to batches of records: reading and checking, whatever the format."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, cast

from petstore_server.domain.errors import InvalidField
from petstore_server.imports.bulk import BulkOrders
from petstore_server.imports.csv_rows import csv_fields, read_csv
from petstore_server.imports.json_rows import json_array, json_fields, json_lines
from petstore_server.imports.kinds import ORDERS, RecordKind, Schema, T
from petstore_server.imports.options import EVERY_COLUMN, ReadOptions
from petstore_server.imports.rows import LONGEST_NAME, Piece, Reject, Row, UnreadableRow
from petstore_server.imports.source import Source


class Batch(NamedTuple, Generic[T]):
    """Records that can be stored together, and the rows next to them that were rejected.

    `rows` returns the rows of the records, which may read them again; `position` is the bytes of the file handled after
    this batch; `missing` has the fields that no row of the file has.
    """

    records: list[T]
    rejects: list[Reject]
    rows: Callable[[], list[Row]]
    position: int
    missing: frozenset[str]


def read_batches(source: Source, kind: RecordKind[T], options: ReadOptions) -> Iterator[Batch[T]]:
    """The records of the file in batches. Raises UnreadableFile where the file as a whole cannot be read."""
    schema = Schema(kind, options)
    text = source.text(options.encoding)
    file_format = source.format(options.file_format)
    fields_of = csv_fields if file_format == "csv" else json_fields
    for piece in _read(text, file_format, schema):
        rejects: list[Reject] = []
        records, rows = piece.records, piece.rows
        if records is None:
            records, checked = _check(piece.rows(), fields_of, schema, rejects)
            rows = checked.copy
        yield Batch(records, rejects, rows, int(source.position * piece.share), schema.missing)


def _read(text: Iterator[bytes], file_format: str, schema: Schema[T]) -> Iterator[Piece[T]]:
    bulk = BulkOrders(cast("Any", schema)) if schema.kind is cast("Any", ORDERS) else None
    if file_format == "csv":
        return read_csv(text, schema, bulk)
    return json_array(text, bulk) if file_format == "json" else json_lines(text, bulk)


def _check(
    rows: list[Row], fields_of: Callable[[Row, Schema[T]], dict[str, Any]], schema: Schema[T], rejects: list[Reject]
) -> tuple[list[T], list[Row]]:
    """The records with their rows; the rows that are not records are added to the rejects."""
    records: list[T] = []
    checked: list[Row] = []
    for row in rows:
        try:
            records.append(schema.kind.build(fields_of(row, schema)))
        except UnreadableRow as error:
            rejects.append(row.reject(error))
        except InvalidField as error:
            rejects.append(row.reject(_advised(error, schema.kind)))
        else:
            checked.append(row)
    return records, checked


def _advised(error: InvalidField, kind: RecordKind[Any]) -> InvalidField:
    """The error, with advice if the field is not one of this kind of record."""
    if error.field in kind.fields:
        return error
    name = error.field if len(error.field) <= LONGEST_NAME else f"'{EVERY_COLUMN}'"
    return InvalidField(error.field, f"{error.problem}; give --ignore-column {name} to leave it out")
