"""What reading an import file yields: rows, and rejects for what is none."""

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from petstore_server.domain.errors import DomainError

MAX_ROW_BYTES = 1 << 20
"""A longer row is rejected, so that memory stays bounded whatever the file holds."""

SHOWN_BYTES = 1 << 16
"""How much of a rejected row is quoted at most."""


class Row(NamedTuple):
    """A record as it stands in the file; `line` is the physical line, from 1, on which it begins."""

    line: int
    raw: bytes
    fields: dict[str, Any]


class Reject(NamedTuple):
    """A row that was not taken in. `column` is the field at fault, None where it is the whole row."""

    line: int
    column: str | None
    reason: str
    raw: str


class UnreadableFile(DomainError):
    """The file as a whole cannot be imported: nothing was taken in."""

    code = "unreadable_file"


def reject(line: int, column: str | None, reason: str, raw: bytes) -> Reject:
    """Reject a row; bytes that are no UTF-8 are quoted as \\xNN."""
    return Reject(line, column, reason, raw[:SHOWN_BYTES].decode("utf-8", "backslashreplace"))


def too_long(line: int, raw: bytes) -> Reject:
    """Reject a row that is beyond the bound; only its beginning is quoted."""
    return reject(line, None, f"The row is longer than {MAX_ROW_BYTES} bytes; raw shows its beginning.", raw)


def not_utf8(line: int, error: UnicodeDecodeError, raw: bytes) -> Reject:
    """Reject a row that holds bytes which are no UTF-8."""
    return reject(line, None, f"The row is not valid UTF-8: {error.reason} (0x{error.object[error.start]:02x}).", raw)


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The physical lines with their numbers, from 1, and their ends; of an overlong one the first MAX_ROW_BYTES + 1."""
    number = 0
    readline = stream.readline
    while line := readline(MAX_ROW_BYTES + 1):
        number += 1
        if len(line) > MAX_ROW_BYTES and not line.endswith(b"\n"):
            _skip_line(stream)
        yield number, line


def _skip_line(stream: BinaryIO) -> None:
    while rest := stream.readline(MAX_ROW_BYTES):
        if rest.endswith(b"\n"):
            return
