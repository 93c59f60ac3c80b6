"""Rows and rejects: what reading an import file yields, and the lines it is read from."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from petstore_server.domain.errors import DomainError, InvalidField

T = TypeVar("T")

MAX_ROW_BYTES = 1 << 20
"""A longer row is rejected, so that memory stays bounded whatever the file contains."""

SHOWN_BYTES = 1 << 16
"""The bytes of a rejected row that are quoted at most."""

PIECE_ROWS = 6000
"""About as many rows as are read, and stored, at a time."""

_FIRST_BLOCK_BYTES = 1 << 16
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 12, 3 << 18


class Row(NamedTuple):
    """A record of the file; `line` is the physical line, from 1, on which it begins."""

    line: int
    raw: bytes
    fields: dict[str, Any]


class Reject(NamedTuple):
    """A row that was not imported. `column` is the field at fault, None for the whole row.

    `problem` is the reason without values and positions: rejects with equal problems are counted together.
    """

    line: int
    column: str | None
    reason: str
    raw: str
    problem: str


class Bulk(NamedTuple, Generic[T]):
    """Records that were read all at once. `rows` reads their rows, one per record, in case one is needed."""

    records: list[T]
    rows: Callable[[], list[Row]]


Piece = Bulk[T] | list[Row | Reject]
"""A part of a file: its records, or, where one of its rows is unusual, the rows one by one."""


class UnreadableFile(DomainError):
    """The file as a whole cannot be imported; nothing of it was, unless its decoder fails later in the file."""

    code = "unreadable_file"


def reject(line: int, column: str | None, reason: str, raw: bytes, problem: str | None = None) -> Reject:
    """Reject a row; bytes that are not UTF-8 are quoted as \\xNN."""
    return Reject(line, column, reason, raw[:SHOWN_BYTES].decode("utf-8", "backslashreplace"), problem or reason)


def invalid(line: int, error: InvalidField, raw: bytes) -> Reject:
    """Reject a row for one of its fields."""
    return reject(line, error.field, error.message, raw, error.problem)


def too_long(line: int, raw: bytes) -> Reject:
    """Reject a row that exceeds MAX_ROW_BYTES; only its beginning is quoted."""
    return reject(line, None, f"The row is longer than {MAX_ROW_BYTES} bytes; raw shows its beginning.", raw)


def not_utf8(line: int, raw: bytes) -> Reject:
    """Reject a row with bytes that are not text in the file's encoding."""
    problem = "The row is not valid UTF-8, or not in the encoding given; give --encoding, such as windows-1252."
    return reject(line, None, problem, raw)


class Block(NamedTuple):
    """Whole lines of a file, the first of which has this number (from 1)."""

    number: int
    data: bytes


class LineReader:
    """The physical lines of a file, in blocks or one by one; lines can be given back."""

    def __init__(self, stream: BinaryIO, number: int = 1) -> None:
        self._stream = stream
        self._pending: deque[bytes] = deque()
        self._size = _FIRST_BLOCK_BYTES
        self.number = number  # of the next line

    def block(self) -> Block | None:
        """Lines that were not taken yet, about PIECE_ROWS of them; None at the end of the file."""
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
        else:
            data = self._read()
        if not data:
            return None
        block = Block(self.number, data)
        self.number += data.count(b"\n") + (not data.endswith(b"\n"))
        return block

    def give_back_block(self, block: Block) -> int:
        """Give back the block that was taken last; return the number of the first line after it."""
        end = self.number
        lines = block.data.split(b"\n")
        self._pending.extendleft(line + b"\n" for line in reversed(lines[:-1]))
        if lines[-1]:
            self._pending.append(lines[-1])
        self.number = block.number
        return end

    def line(self) -> tuple[int, bytes] | None:
        """The next line with its number and its line end; of an overlong one, more than MAX_ROW_BYTES bytes."""
        if not self._pending:
            block = self.block()
            if block is None:
                return None
            self.give_back_block(block)
        number = self.number
        self.number += 1
        return number, self._pending.popleft()

    def give_back(self, lines: list[tuple[int, bytes]]) -> None:
        """Give back the lines that were taken last."""
        self._pending.extendleft(line for _, line in reversed(lines))
        self.number -= len(lines)

    def _read(self) -> bytes:
        data = self._stream.read(self._size)
        if data and not data.endswith(b"\n"):
            data += self._stream.readline(MAX_ROW_BYTES)
            if len(data) >= MAX_ROW_BYTES and not data.endswith(b"\n"):
                self._skip_line()
                data += b"\n"
        if lines := data.count(b"\n"):
            wanted = len(data) * (PIECE_ROWS - 100) // lines
            self._size = min(max(wanted, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)
        return data

    def _skip_line(self) -> None:
        while rest := self._stream.readline(MAX_ROW_BYTES):
            if rest.endswith(b"\n"):
                return


def lines_of(reader: LineReader, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines up to the one with the number `end`, or all."""
    while (end is None or reader.number < end) and (line := reader.line()) is not None:
        yield line
