"""JSON Lines and JSON arrays."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import msgspec

from petstore_server.domain.errors import InvalidField
from petstore_server.imports import files
from petstore_server.imports.files import Block, Piece, Row, UnreadableFile, UnreadableRow, line_blocks
from petstore_server.imports.kinds import Schema, json_orders

MAX_ARRAY_BYTES = 100 << 20  # of a JSON array: it is decoded as one document, which has to fit into memory

_TOO_LARGE = (
    f"The JSON array is larger than {MAX_ARRAY_BYTES >> 20} MB; convert it to JSON Lines, such as with "
    "jq -c '.[]' FILE > FILE.jsonl, and import that."
)
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def json_lines(text: Iterable[bytes], schema: Schema[Any]) -> Iterator[Piece]:
    """One record per line; blank lines are skipped."""
    for block in line_blocks(text):
        if raws := list(filter(bytes.strip, block.lines)):
            yield Piece(json_orders(raws, schema), partial(_rows, raws, partial(_numbers, block)))


def _numbers(block: Block) -> list[int]:
    return [number for number, line in enumerate(block.lines, block.number) if line.strip()]


def json_array(text: Iterable[bytes], schema: Schema[Any]) -> Iterator[Piece]:
    """The elements of one JSON array. Raises UnreadableFile where the text is not one."""
    data = bytearray()
    for chunk in text:
        data += chunk
        if len(data) > MAX_ARRAY_BYTES:
            raise UnreadableFile(_TOO_LARGE)
    elements = _elements(data)
    begins = cache(partial(_lines, data, elements))  # which only rejects need
    for at in range(0, len(elements), files.BLOCK_ROWS):
        raws = list(map(bytes, elements[at : at + files.BLOCK_ROWS]))
        yield Piece(json_orders(raws, schema), partial(_rows, raws, begins, at), (at + len(raws)) / len(elements))


def _lines(data: bytearray, elements: list[msgspec.Raw]) -> list[int]:
    """The number of the line on which each element begins."""
    numbers, line, end = list[int](), 1, 0
    for raw in map(bytes, elements):
        begin = data.index(raw, end)  # before it are only blanks and a comma or the opening bracket
        line += data.count(b"\n", end, begin)
        numbers.append(line)
        line, end = line + raw.count(b"\n"), begin + len(raw)
    return numbers


def _elements(data: bytearray) -> list[msgspec.Raw]:
    try:
        return _decode_array(data)
    except msgspec.ValidationError:
        raise UnreadableFile("The file is not a JSON array: it does not begin with '['; give --format.") from None
    except RecursionError:
        raise UnreadableFile("The file is not an array of records: it is nested too deeply.") from None
    except msgspec.DecodeError as error:
        problem, _, place = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
        before = data[: int(place.rstrip(")")) if place else len(data)]
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        reason = f"The file is not a JSON array: {problem} in line {line}, column {column}. Nothing of it was imported."
        raise UnreadableFile(reason) from None


def _rows(raws: list[bytes], numbers: Callable[[], list[int]], at: int = 0) -> list[Row]:
    """The rows; an overlong one has to stay too long, because its end is missing."""
    numbered = zip(numbers()[at : at + len(raws)], raws, strict=True)
    return [Row(number, raw if len(raw) > files.MAX_ROW_BYTES else raw.strip()) for number, raw in numbered]


def json_fields(row: Row, schema: Schema[Any]) -> dict[str, Any]:
    """The fields of a record. Raises UnreadableRow, InvalidField."""
    if len(row.raw) > files.MAX_ROW_BYTES:
        raise UnreadableRow(f"The row {files.TOO_LONG}.")
    try:
        fields = _decode(row.raw)
        # The decoder keeps the last of two fields with the same name. Each name and each text is enclosed in two
        # quotes, so a record with more quotes than its fields explain is examined again.
        texts = list(map(type, fields.values())).count(str)
        repeated = _repeated_name(row.raw) if row.raw.count(b'"') != 2 * (len(fields) + texts) else None
    except UnicodeDecodeError:
        raise UnreadableRow(files.NOT_UTF8) from None
    except msgspec.ValidationError as error:
        raise UnreadableRow(f"The row is not a record: {error}.") from None
    except msgspec.DecodeError as error:
        raise UnreadableRow(f"The row is not valid JSON: {error}.", "The row is not valid JSON.") from None
    except RecursionError:
        raise UnreadableRow("The row is nested too deeply.") from None
    if repeated is not None:
        raise InvalidField(repeated, "occurs more than once in the record")
    return schema.adapt(fields)


def _repeated_name(raw: bytes) -> str | None:
    objects: list[list[str]] = []
    json.loads(raw, object_pairs_hook=lambda pairs: objects.append([name for name, _ in pairs]))
    return next((name for names in objects for name, count in Counter(names).items() if count > 1), None)
