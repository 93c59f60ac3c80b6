"""JSON Lines and JSON arrays."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from petstore_server.domain.errors import InvalidField
from petstore_server.domain.remedies import Remedy, choose
from petstore_server.imports import files
from petstore_server.imports.bulk import json_orders
from petstore_server.imports.files import FilePart, UnreadableFile, line_blocks
from petstore_server.imports.rejects import REJECT_FIELDS, Fault, Row, UnreadableRow
from petstore_server.imports.schema import Schema, named_twice

MAX_ARRAY_BYTES = 100 << 20  # of a JSON array: it is kept in memory, so that nothing of a malformed one is imported

JQ_ROUNDS = "jq 1.6 rounds numbers above 2^53"
_TOO_LARGE = f"The JSON array is larger than {MAX_ARRAY_BYTES >> 20} MB."
_AS_LINES = Remedy(
    f"convert it to JSON Lines, such as with jq -c '.[]' FILE > FILE.jsonl ({JQ_ROUNDS}), and import that"
)
_CORRECT_A_COPY = Remedy(
    "correct these lines in a copy of your file, save it in the same encoding, and import all of it"
)
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_verify = msgspec.json.Decoder(msgspec.Raw).decode  # makes no objects
_WINDOW_BYTES = 1 << 19
_Element = bytes | msgspec.Raw
_NOT_BLANK = re.compile(rb"\S")
_MARKS = re.compile(rb'\\.|["\[\]{},]', re.DOTALL)  # what matters for where an element ends


def json_lines(text: Iterable[bytes], schema: Schema[Any]) -> Iterator[FilePart]:
    """One record per line; blank lines are skipped."""
    first = True
    for block in line_blocks(text):
        if raws := list(filter(bytes.strip, block.lines)):
            if first:
                _require_lines(raws)
                _require_records(raws[0], schema)
            first = False
            lines = block.numbers()
            yield FilePart(json_orders(raws, schema), partial(_rows, raws, lines), lines)


def _require_lines(raws: Sequence[bytes]) -> None:
    """Raise UnreadableFile if these, the first lines of the file, are those of another format."""
    if raws[0].strip() == b"{" and raws[1:] and raws[1].lstrip().startswith(b'"'):
        problem = "The file has records over several lines; JSON Lines has one record per line."
        raise UnreadableFile(problem, choose("one_per_line"))
    if raws[0].lstrip().startswith(b"["):
        raise UnreadableFile("The file is not JSON Lines: it begins with '['.", choose("format", "json"))
    if not any(raw.lstrip().startswith(b"{") for raw in raws):
        raise UnreadableFile("The file is not JSON Lines: no line begins with '{'.", choose("format", "csv"))


def refuse_rejects(names: Collection[str], noun: str) -> None:
    """Raise UnreadableFile if a record with these names is a rejected row of an import."""
    if {*names} == {*REJECT_FIELDS}:
        problem = f"This is a list of rejected rows, not of {noun}s."
        raise UnreadableFile(problem, _CORRECT_A_COPY)


def _require_records(first: _Element, schema: Schema[Any]) -> None:
    """Raise UnreadableFile if the first record of the file is a rejected row of an import."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # which is a fault of the row
        refuse_rejects(_decode(first), schema.kind.noun)


def json_array(text: Iterable[bytes], schema: Schema[Any]) -> Iterator[FilePart]:
    """The elements of one JSON array, of which only a window is decoded at a time: [0,0,0] takes 40 times its size.

    Raises UnreadableFile if the text is not an array.
    """
    data = bytearray()
    for chunk in text:
        data += chunk
        if len(data) > MAX_ARRAY_BYTES:
            raise UnreadableFile(_TOO_LARGE, _AS_LINES)
    _require_array(data)
    first = True
    begin, last, line = data.index(b"[") + 1, data.rindex(b"]"), 1 + data.count(b"\n", 0, data.index(b"["))
    while begin < last:
        end, elements = _window(data, begin, last)
        if first and elements:
            _require_records(elements[0], schema)
        numbers = _lines(data, begin, line, elements)
        for at in range(0, len(elements), files.BLOCK_ROWS):
            block = slice(at, at + files.BLOCK_ROWS)
            raws, lines = list(map(bytes, elements[block])), numbers[block]
            yield FilePart(json_orders(raws, schema), partial(_rows, raws, lines), lines, end / last)
        first, begin, line = False, end + 1, line + data.count(b"\n", begin, end + 1)


def _window(data: bytearray, begin: int, last: int) -> tuple[int, Sequence[_Element]]:
    """About _WINDOW_BYTES of whole elements from `begin` on, and where the comma or bracket after them is.

    Of an overlong element, only more than MAX_ROW_BYTES bytes are returned.
    """
    most = min(begin + _WINDOW_BYTES, last)
    for end in (data.rfind(b"},", begin, most) + 1, data.rfind(b",", begin, most)) if most < last else (last,):
        if end > begin:
            with suppress(msgspec.DecodeError, RecursionError):  # a comma within an element leaves its end open
                return end, _decode_array(b"[" + data[begin:end] + b"]")
    elements = list[bytes]()
    for comma in _ends(data, begin):
        first, end, begin = next(_NOT_BLANK.finditer(data, begin)).start(), comma, comma + 1
        while data[end - 1] in b" \t\r\n":
            end -= 1
        elements.append(bytes(data[first : min(end, first + files.MAX_ROW_BYTES + 1)]))
        if begin > most:
            break
    return begin - 1, elements


def _ends(data: bytearray, begin: int) -> Iterator[int]:
    """Where the comma or bracket after each element is, from `begin` on."""
    depth, in_text = 0, False
    for mark in _MARKS.finditer(data, begin):
        character = mark[0]
        if character == b'"':
            in_text = not in_text
        elif in_text:
            continue
        elif depth == 0 and character in b",]":
            yield mark.start()
        elif character != b",":
            depth += 1 if character in b"[{" else -1


def _lines(data: bytearray, begin: int, line: int, elements: Sequence[_Element]) -> list[int]:
    """The number of the line on which each element begins, from `begin` on, which is on `line`."""
    numbers = list[int]()
    for raw in map(bytes, elements):
        at = data.index(raw, begin)  # before it are only blanks and a comma
        line += data.count(b"\n", begin, at)
        numbers.append(line)
        line, begin = line + raw.count(b"\n"), at + len(raw)
    return numbers


def _require_array(data: bytearray) -> None:
    """Raise UnreadableFile unless the text is one JSON array."""
    if (first := _NOT_BLANK.search(data)) and first[0] != b"[":
        raise _other_form(data)
    try:
        _verify(data)
    except RecursionError:
        raise UnreadableFile("The file is not an array of records: it is nested too deeply.") from None
    except msgspec.DecodeError as error:
        problem, _, place = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
        end = int(place.rstrip(")")) if place else len(data)
        begin = data.rfind(b"\n", 0, end) + 1
        line, column = data.count(b"\n", 0, end) + 1, end - begin + 1
        column -= sum(data.count(byte, begin, end) for byte in range(0x80, 0xC0))  # which continue a character
        reason = f"The file is not a JSON array: {problem} in line {line}, column {column}. Nothing of it was imported."
        raise UnreadableFile(reason) from None


def _other_form(data: bytearray) -> UnreadableFile:
    """The error for a text that is not an array: it may have one, or is something else."""
    problem = "The file is not a JSON array: it does not begin with '['."
    try:
        document = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return UnreadableFile(problem, choose("format", "jsonl" if data.lstrip().startswith(b"{") else "csv"))
    tables = (name for name, value in document.items() if bytes(value).startswith(b"["))
    if "id" not in document and (table := next(tables, None)):
        return UnreadableFile("The file is not a JSON array but an object around one.", _array_of(table))
    return UnreadableFile(problem, choose("format", "jsonl"))


def _rows(raws: list[bytes], lines: list[int]) -> list[Row]:
    """The rows; an overlong one has to stay too long, because its end is missing."""
    numbered = zip(lines, raws, strict=True)
    return [Row(line, raw if len(raw) > files.MAX_ROW_BYTES else raw.strip()) for line, raw in numbered]


def json_fields(row: Row, schema: Schema[Any]) -> tuple[dict[str, Any], list[InvalidField]]:
    """The fields of a record, and what is wrong with others. Raises UnreadableRow."""
    if len(row.raw) > files.MAX_ROW_BYTES:
        raise UnreadableRow(Fault(f"The row {files.TOO_LONG}."))
    try:
        fields = _decode(row.raw)
        # The decoder keeps the last of two fields with the same name. Each name and each text is enclosed in two
        # quotes, so a record with more quotes than its fields explain is examined again.
        texts = list(map(type, fields.values())).count(str)
        repeated = _repeated_name(row.raw) if row.raw.count(b'"') != 2 * (len(fields) + texts) else None
    except UnicodeDecodeError:
        raise UnreadableRow(files.NOT_UTF8) from None
    except msgspec.ValidationError as error:
        raise UnreadableRow(Fault(f"The row is not a record: {error}.")) from None
    except msgspec.DecodeError as error:
        message, problem = f"The row is not valid JSON: {error}.", "The row is not valid JSON."
        raise UnreadableRow(Fault(message, problem=problem)) from None
    except RecursionError:
        raise UnreadableRow(Fault("The row is nested too deeply.")) from None
    if repeated is not None:
        raise named_twice(repeated)
    tables = (name for name, value in fields.items() if _is_table(value) and name not in schema.cells)
    if not schema.name_orders(fields) and (around := next(tables, None)):  # else it has others in it, such as items
        raise UnreadableRow(Fault("The row is an object around an array of records.", _array_of(around)))
    return schema.adapt(fields)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "id" in value[0]


def _array_of(name: str) -> Remedy:
    """How to take an array out of the object that has it under this name."""
    quoted = json.dumps(name).replace("'", "\\u0027")  # which would end the argument in a shell
    path = f".{name}" if name.isidentifier() and name.isascii() else f".[{quoted}]"
    return choose("array", f"{path}[]")


def _repeated_name(raw: bytes) -> str | None:
    objects: list[list[str]] = []
    json.loads(raw, object_pairs_hook=lambda pairs: objects.append([name for name, _ in pairs]))
    return next((name for names in objects for name, count in Counter(names).items() if count > 1), None)
