"""JSON Lines and JSON arrays, in pieces, in bounded memory."""

import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, Generic

import msgspec

from petstore_server.domain.errors import InvalidField
from petstore_server.formats.kinds import Schema, T
from petstore_server.formats.rows import (
    MAX_ROW_BYTES,
    PIECE_ROWS,
    SHOWN_BYTES,
    Block,
    Bulk,
    LineReader,
    Piece,
    Reject,
    Row,
    UnreadableFile,
    invalid,
    lines_of,
    not_utf8,
    reject,
    too_long,
)

BulkRecords = Callable[[bytes], list[T] | None]
"""Builds all records of a part of the file; None where one of them is unusual."""

_CHUNK_BYTES = 1 << 18
_MAX_WINDOW_BYTES = 3 << 18
_MAX_DEPTH = 8
_MAX_CREDIT = _MAX_DEPTH * MAX_ROW_BYTES
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_BLANKS = re.compile(rb"[ \t\r\n]*")
_TOKENS = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*"|["{}\[\]]')
_NEXT_PLACE = re.compile(rb'(?<!\\)"|[{\[\]]')
_AFTER = {b'"': re.compile(rb"[ \t\r\n]*[,\]]"), b"[": re.compile(rb"[ \t\r\n]*[^ \t\r\n]")}
"""What follows a text or an array that is an element: a comma or bracket; anything. A stray quote may pair with the
next text's, a stray bracket with the last one of the file."""
_NOT_CLOSED = (
    "The record is not valid JSON: a quote, brace or bracket is not closed "
    f"within {MAX_ROW_BYTES} bytes and {_MAX_DEPTH} levels of nesting."
)
_CLOSING = {b"{": b"}", b"[": b"]"}


def read_json_lines(stream: BinaryIO, schema: Schema[T], bulk: BulkRecords[T] | None) -> Iterator[Piece[T]]:
    """One record per line; blank lines are skipped. `bulk` takes whole lines."""
    lines = LineReader(stream)
    while (block := lines.block()) is not None:
        records = bulk(block.data) if bulk and len(block.data) <= MAX_ROW_BYTES else None
        if records is not None:
            yield Bulk(records, partial(_reread, block, schema))
        else:
            yield list(_read_lines(LineReader(io.BytesIO(block.data), block.number), schema))


def _reread(block: Block, schema: Schema[Any]) -> list[Row]:
    lines = LineReader(io.BytesIO(block.data), block.number)
    return [row for row in _read_lines(lines, schema) if isinstance(row, Row)]


def _read_lines(lines: LineReader, schema: Schema[Any]) -> Iterator[Row | Reject]:
    for number, line in lines_of(lines):
        if len(line) > MAX_ROW_BYTES:
            yield too_long(number, line)
        elif raw := line.strip():
            yield _parse(number, raw, schema)


def _parse(line: int, raw: bytes, schema: Schema[Any]) -> Row | Reject:
    try:
        fields = _decode(raw)
        # The decoder keeps the last of two fields with the same name. Each name and each text is enclosed in two
        # quotes, so a record with more quotes than its fields explain is examined again.
        texts = list(map(type, fields.values())).count(str)
        repeated = _repeated_name(raw) if raw.count(b'"') != 2 * (len(fields) + texts) else None
    except UnicodeDecodeError:
        return not_utf8(line, raw)
    except msgspec.ValidationError as error:
        return reject(line, None, f"The row is not a record: {error}.", raw)
    except msgspec.DecodeError as error:
        return reject(line, None, f"The row is not valid JSON: {error}.", raw, "The row is not valid JSON.")
    except RecursionError:
        return reject(line, None, "The row is nested too deeply.", raw)
    if repeated is not None:
        return invalid(line, InvalidField(repeated, "occurs more than once in the record"), raw)
    try:
        return Row(line, raw, schema.adapt(fields))
    except InvalidField as error:
        return invalid(line, error, raw)


def _repeated_name(raw: bytes) -> str | None:
    repeated: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        names = set()
        for name, _ in pairs:
            if name in names:
                repeated.append(name)
            names.add(name)

    json.loads(raw, object_pairs_hook=check)
    return repeated[0] if repeated else None


def read_json_array(stream: BinaryIO, schema: Schema[T], bulk: BulkRecords[T] | None) -> Iterator[Piece[T]]:
    """The elements of one JSON array. `bulk` takes elements with the commas between them.

    Text that is not JSON is rejected up to the next opening brace, and reading goes on there: records are flat, so
    that is where the next one begins. Braces and brackets in arrays and texts between records do not count. Raises
    UnreadableFile where the file is not an array.
    """
    return _Array(stream, schema).pieces(bulk)


class _Array(Generic[T]):
    """A window on the file: `_buffer` from `_at` on is still to be read, and begins at `_line` and `_offset`."""

    def __init__(self, stream: BinaryIO, schema: Schema[T], line: int = 1) -> None:
        self._stream = stream
        self._schema = schema
        self._buffer = b""
        self._at = 0
        self._line = line
        self._offset = 0
        self._ended = False
        self._separated = True  # whether a record may begin here: after the bracket or a comma
        self._size = _CHUNK_BYTES // 2
        self._credit = _MAX_CREDIT  # bytes that may be searched in vain, so that the time is linear in the file

    def pieces(self, bulk: BulkRecords[T] | None) -> Iterator[Piece[T]]:
        """The elements, in bulk where possible."""
        if self._next() != b"[":
            raise UnreadableFile("The file is not a JSON array: it does not begin with '['; give --format.")
        self._skip(1)
        while not self._ends(found := self._next()):
            if self._skip_comma(found):
                continue
            window, line = self._window(), self._line
            records = bulk(window) if bulk and self._separated and found == b"{" else None
            if records:
                self._skip(len(window))
                self._separated = False
                self._size = min(max(len(window) * (PIECE_ROWS - 100) // len(records), 1), _MAX_WINDOW_BYTES)
                yield Bulk(records, partial(self._reread, line, window))
            else:
                yield list(self._rows(self._offset + max(len(window), 1)))
        yield list(self._end(found))

    def _rows(self, end: int) -> Iterator[Row | Reject]:
        """The elements that begin before the offset `end`, one by one."""
        while not self._ends(found := self._next()) and self._offset < end:
            if self._skip_comma(found):
                continue
            if found == b"{":
                separated, self._separated = self._separated, False
                row = self._element()
                if separated or isinstance(row, Reject):
                    yield row
                else:
                    yield reject(row.line, None, "A comma is missing before this record.", row.raw)
            else:
                yield self._reject_text(self._other(), "This is not a record; an object in braces was expected.")

    def _ends(self, found: bytes) -> bool:
        """Whether the array, or the file, ends here: a bracket before a comma, bracket or brace is not the array's."""
        while found == b"]" and self._has_room():
            match = _BLANKS.match(self._buffer, self._at + 1)
            if match and match.end() < len(self._buffer):
                return self._buffer[match.end()] not in b",]}"
            if not self._read_on():
                break
        return found in (b"]", b"")

    def _skip_comma(self, found: bytes) -> bool:
        if found != b"," or self._separated:
            return False
        self._skip(1)
        self._separated = True
        return True

    def _end(self, found: bytes) -> Iterator[Reject]:
        if found == b"":
            reason = "The array is not closed by ']': the file may have been cut off here."
            yield reject(self._line, None, reason, b"")
            return
        self._skip(1)
        if self._next():
            while len(self._buffer) - self._at < SHOWN_BYTES and self._read_on():
                pass
            raw = self._buffer[self._at : self._at + SHOWN_BYTES]
            yield reject(self._line, None, "Text follows the end of the array; it was not read.", raw)

    def _window(self) -> bytes:
        """What can be read in bulk: from here to a closing brace."""
        while len(self._buffer) - self._at < self._size and self._read_on():
            pass
        return self._buffer[self._at : self._buffer.rfind(b"}", self._at, self._at + self._size) + 1]

    def _reread(self, line: int, window: bytes) -> list[Row]:
        pieces = _Array(io.BytesIO(b"[" + window + b"]"), self._schema, line).pieces(None)
        return [row for piece in pieces for row in piece if isinstance(row, Row)]

    def _next(self) -> bytes:
        """The next byte that is not blank, which `_at` then points at; nothing at the end of the file."""
        while True:
            match = _BLANKS.match(self._buffer, self._at)
            self._skip(match.end() - self._at if match else 0)
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._read_on():
                return b""

    def _element(self) -> Row | Reject:
        """The record that begins here. The first closing brace ends it, unless it is inside a text."""
        while (end := self._buffer.find(b"}", self._at)) < 0 and self._has_room() and self._read_on():
            pass
        if end >= 0:
            row = _parse(self._line, self._buffer[self._at : end + 1], self._schema)
            if isinstance(row, Row) or row.column is not None:  # valid JSON
                self._skip(end + 1 - self._at)
                return row
        if not (length := self._length()):
            return self._reject_text(1, _NOT_CLOSED)
        row = _parse(self._line, self._buffer[self._at : self._at + length], self._schema)
        self._skip(length)
        return row

    def _reject_text(self, count: int, reason: str) -> Reject:
        """Reject `count` bytes, and what follows them up to the next record or the end of the array."""
        line, shown = self._line, bytearray()
        while count:
            shown += self._buffer[self._at : self._at + min(count, SHOWN_BYTES - len(shown))]
            self._skip(count)
            count = self._other()
        self._separated = True
        return reject(line, None, reason, bytes(shown).rstrip())

    def _other(self) -> int:
        """How many bytes from here are in no record; 0 where a record begins, and at the end of the array."""
        if self._at == len(self._buffer) and not self._read_on():
            return 0
        match = _NEXT_PLACE.search(self._buffer, self._at)
        if match is None or match.start() > self._at:
            return (match.start() if match else len(self._buffer)) - self._at
        if match[0] == b"]":
            return not self._ends(match[0])
        if match[0] == b"{":
            return 0
        length = self._length()
        return length if length and _AFTER[match[0]].match(self._buffer, self._at + length) else 1

    def _length(self) -> int:
        """The bytes of the object, array or text that begins here; 0 if it does not end."""
        while self._has_room() and self._read_on():
            pass
        end, is_closed = _matching_end(self._buffer, self._at, self._at + min(self._credit, MAX_ROW_BYTES))
        if is_closed:
            return end - self._at
        self._credit -= end - self._at
        return 0

    def _has_room(self) -> bool:
        return len(self._buffer) - self._at <= MAX_ROW_BYTES

    def _read_on(self) -> bool:
        if self._ended:
            return False
        chunk = self._stream.read(_CHUNK_BYTES)
        self._ended = not chunk
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _skip(self, count: int) -> None:
        end = self._at + count
        self._offset += count
        self._credit = min(self._credit + _MAX_DEPTH * count, _MAX_CREDIT)
        self._line += self._buffer.count(b"\n", self._at, end)
        self._at = end


def _matching_end(buffer: bytes, start: int, limit: int) -> tuple[int, bool]:
    """Where the object, array or text at `start` ends, by quotes, braces and brackets only, and True.

    Where it does not end before `limit`: how far it was searched, and False.
    """
    awaited: list[bytes] = []
    for match in _TOKENS.finditer(buffer, start, limit):
        token = match[0]
        if token in _CLOSING:
            awaited.append(_CLOSING[token])
        elif token in (b"}", b"]"):
            if token != awaited.pop():
                return match.end(), False
        elif token == b'"':  # a text that is not closed on its line
            line_end = buffer.find(b"\n", match.end(), limit)
            return line_end if line_end >= 0 else min(limit, len(buffer)), False
        if not awaited:
            return match.end(), True
        if len(awaited) > _MAX_DEPTH:
            return match.end(), False
    return min(limit, len(buffer)), False
