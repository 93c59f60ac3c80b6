"""JSON Lines and JSON arrays, row by row in bounded memory."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from petstore_server.formats.rows import (
    MAX_ROW_BYTES,
    SHOWN_BYTES,
    Reject,
    Row,
    UnreadableFile,
    not_utf8,
    numbered_lines,
    reject,
    too_long,
)

_CHUNK_BYTES = 1 << 18
_MAX_DEPTH = 8
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_BLANKS = re.compile(rb"[ \t\r\n]*")
_TOKENS = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*"|["{}\[\]]')
_NEXT_PLACE = re.compile(rb"[{\]]")
_CLOSING = {b"{": b"}", b"[": b"]"}


def read_json_lines(stream: BinaryIO) -> Iterator[Row | Reject]:
    """One record a line; blank lines are passed over."""
    for number, line in numbered_lines(stream):
        if len(line) > MAX_ROW_BYTES:
            yield too_long(number, line)
        elif raw := line.strip():
            yield _parse(number, raw)


def _parse(line: int, raw: bytes) -> Row | Reject:
    try:
        fields = _decode(raw)
    except UnicodeDecodeError as error:
        return not_utf8(line, error, raw)
    except msgspec.ValidationError as error:
        return reject(line, None, f"The row is no record: {error}.", raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return reject(line, None, f"The row is not valid JSON: {error}.", raw)
    # The decoder keeps the last of two fields of one name. Two quotes stand around each name and each text, so a
    # record that shows more of them than its fields explain is looked at again.
    texts = list(map(type, fields.values())).count(str)
    if raw.count(b'"') != 2 * (len(fields) + texts) and (name := _repeated_name(raw)) is not None:
        return reject(line, name, f"'{name}' stands in the record more than once.", raw)
    return Row(line, raw, fields)


def _repeated_name(raw: bytes) -> str | None:
    repeated: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        repeated.extend(name for name in names if names.count(name) > 1)

    json.loads(raw, object_pairs_hook=check)
    return repeated[0] if repeated else None


def read_json_array(stream: BinaryIO) -> Iterator[Row | Reject]:
    """The elements of one JSON array. Raises UnreadableFile where the file is none.

    What is no JSON is rejected up to the next opening brace, and reading goes on there: records are flat, so that
    is where the next one begins.
    """
    return _Array(stream).rows()


class _Array:
    """A window on the file: `_buffer` from `_at` on is still to be read, `_line` is the line there."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0
        self._line = 1
        self._ended = False

    def rows(self) -> Iterator[Row | Reject]:
        if self._next() != b"[":
            raise UnreadableFile("The file is no JSON array: it does not begin with '['; give --format jsonl or csv.")
        self._skip(1)
        separated = True  # whether a record may begin here: after the bracket or a comma
        while (found := self._next()) not in (b"]", b""):
            if found == b"," and not separated:
                self._skip(1)
                separated = True
            elif found == b"{":
                row = self._element()
                if separated or isinstance(row, Reject):
                    yield row
                else:
                    yield reject(row.line, None, "A comma is missing before this record.", row.raw)
                separated = isinstance(row, Reject) and row.raw.rstrip().endswith(",")
            else:
                yield self._reject_up_to_next(self._at, "This is no record; an object in braces was expected.")
                separated = True
        yield from self._end(found)

    def _end(self, found: bytes) -> Iterator[Reject]:
        if found == b"":
            yield Reject(self._line, None, "The array is not closed by ']': the file may have been cut off here.", "")
            return
        self._skip(1)
        if self._next():
            while len(self._buffer) - self._at < SHOWN_BYTES and self._read_on():
                pass
            raw = self._buffer[self._at : self._at + SHOWN_BYTES]
            yield reject(self._line, None, "Text follows the end of the array; from here on nothing was read.", raw)

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
        """The record that begins here. The first closing brace ends it, unless it stands in a text."""
        while (end := self._buffer.find(b"}", self._at)) < 0 and self._has_room() and self._read_on():
            pass
        if end >= 0:
            row = _parse(self._line, self._buffer[self._at : end + 1])
            if isinstance(row, Row):
                self._skip(end + 1 - self._at)
                return row
        while self._has_room() and self._read_on():
            pass
        matching = _matching_brace(self._buffer, self._at)
        if matching is None:
            return self._reject_up_to_next(
                self._at + 1, "The record is not valid JSON: a quote, brace or bracket is not closed."
            )
        row = _parse(self._line, self._buffer[self._at : matching])
        self._skip(matching - self._at)
        return row

    def _reject_up_to_next(self, start: int, reason: str) -> Reject:
        """Reject what stands from here to the next opening brace, or closing bracket, at or after `start`."""
        line, begin = self._line, self._at
        shown = b""
        offset = start - begin
        while True:
            match = _NEXT_PLACE.search(self._buffer, self._at + offset)
            end = match.start() if match else len(self._buffer)
            shown += self._buffer[self._at : end][: SHOWN_BYTES - len(shown)]
            self._skip(end - self._at)
            offset = 0
            if match or not self._read_on():
                return reject(line, None, reason, shown.rstrip())

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
        self._line += self._buffer.count(b"\n", self._at, end)
        self._at = end


def _matching_brace(buffer: bytes, start: int) -> int | None:
    """Where the object that begins at `start` ends, by quotes, braces and brackets alone; None if it does not."""
    awaited: list[bytes] = []
    for match in _TOKENS.finditer(buffer, start, start + MAX_ROW_BYTES):
        token = match[0]
        if token in _CLOSING:
            awaited.append(_CLOSING[token])
        elif token in (b"}", b"]"):
            if token != awaited.pop():
                return None
        elif token == b'"':  # a text that is not closed on its line
            return None
        if not awaited:
            return match.end()
        if len(awaited) > _MAX_DEPTH:
            return None
    return None
