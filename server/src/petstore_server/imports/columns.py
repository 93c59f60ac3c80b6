"""The columns of a file, with examples of what they contain: what an operator chooses fields for."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from petstore_server.domain.orders import Order
from petstore_server.imports.csv_rows import read_csv
from petstore_server.imports.files import Source
from petstore_server.imports.json_rows import refuse_rejects
from petstore_server.imports.kinds import ORDERS
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.schema import Schema

_MOST_EXAMPLES = 3
_MAX_TEXT = 40  # characters of an example
_BEGIN_CHUNKS = 8  # of a JSON file, of 64 KiB
_MAX_RECORDS = 100
_JSON = json.JSONDecoder()
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair: an import refuses records with such a name


class Column(NamedTuple):
    """A column of CSV, or a name in JSON records, with the first different texts in it."""

    name: str
    examples: tuple[str, ...]


class _EveryColumn(Schema[Order]):
    """Takes each column as a field with its place as the name."""

    def header(self, names: list[str]) -> list[tuple[str, ...]]:
        self.names = names
        self.cells = {str(place): _no_value for place in range(len(names))}  # nothing is lost if a cell looks damaged
        return [(place,) for place in self.cells]


def _no_value(_: str) -> object:
    raise ValueError


def read_columns(file: BinaryIO, name: str, file_format: str | None, encoding: str | None) -> list[Column]:
    """The columns of an open file, of whose beginning they are read. Raises UnreadableFile, OSError.

    None are found in a JSON file that does not begin with a record.
    """
    source = Source(file, name, None)
    text = source.text(encoding)
    if source.format(file_format) == "csv":
        schema = _EveryColumn(ORDERS, ReadOptions(file_format, encoding))
        rows = [row.cells for part in islice(read_csv(text, schema), 1) for row in part.rows()]
        cells = [each for each in rows if isinstance(each, dict)]
        return [_column(name, [each.get(str(place), "") for each in cells]) for place, name in enumerate(schema.names)]
    records = _first_records(b"".join(islice(text, _BEGIN_CHUNKS)).decode("utf-8", "replace"))
    refuse_rejects(records[0] if records else (), ORDERS.noun)
    names = list(dict.fromkeys(column for record in records for column in record if not _HALF.search(column)))
    return [_column(column, [_shown(record.get(column)) for record in records]) for column in names]


def _column(name: str, texts: Iterable[str]) -> Column:
    different = dict.fromkeys(text for text in (" ".join(text.split())[:_MAX_TEXT] for text in texts) if text)
    return Column(name, tuple(islice(different, _MOST_EXAMPLES)))


def _first_records(text: str) -> Sequence[dict[str, Any]]:
    """The records at the beginning of JSON Lines or of an array."""
    records: list[dict[str, Any]] = []
    at = len(text) - len(text.lstrip(" \t\r\n["))
    with suppress(ValueError, RecursionError):  # the end of what was read, or something else than a record
        while len(records) < _MAX_RECORDS and text.startswith("{", at):
            record, at = _JSON.raw_decode(text, at)
            records.append(record)
            at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
    return records


def _shown(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
