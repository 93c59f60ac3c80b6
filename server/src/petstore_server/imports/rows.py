"""Rows of an import file, and those that are rejected: written to a file, and counted by reason for a summary."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TextIO

from petstore_server.domain.errors import DomainError, InvalidField, InvalidInput

MAX_ROW_BYTES = 1 << 20  # a longer row is rejected, so that memory stays bounded whatever the file contains

SHOWN_BYTES = 1 << 16  # the bytes of a rejected row that are quoted at most

TOO_LONG = f"is longer than {MAX_ROW_BYTES} bytes; raw shows its beginning"
NOT_UTF8 = "The row is not valid UTF-8, or not in the encoding given; give --encoding, such as windows-1252."

_MAX_GROUPS = 1000
LONGEST_NAME = 60  # of a column in reasons and their groups: a name may be as long as a row


class UnreadableFile(DomainError):
    """The file as a whole cannot be imported; nothing of it was, unless its decoder fails later in the file."""

    code = "unreadable_file"


class UnreadableRow(InvalidInput):
    """A row as a whole cannot be read. `problem` is the message without positions in the row."""

    field = None

    def __init__(self, message: str, problem: str | None = None) -> None:
        super().__init__(message)
        self.problem = problem or message


class Row(NamedTuple):
    """A row of the file; `line` is the physical line, from 1, on which it begins.

    `cells` are the texts of CSV by their fields, or what is wrong with the row ("has ...").
    """

    line: int
    raw: bytes
    cells: dict[str, str] | str = ""

    def reject(self, error: InvalidField | UnreadableRow) -> "Reject":
        """Reject the row; bytes that are not UTF-8 are quoted as \\xNN."""
        raw = self.raw[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
        return Reject(self.line, error.field, error.message, raw, error.problem)


class Reject(NamedTuple):
    """A row that was not imported. `column` is the field at fault, None for the whole row.

    `problem` is the reason without values and positions: rejects with equal problems are counted together.
    """

    line: int
    column: str | None
    reason: str
    raw: str
    problem: str


class Piece(NamedTuple):
    """A part of a file: its records if all of them could be read at once, and its rows, which may be read again.

    `share` is how much of what was read of the file the pieces so far contain, from 0 to 1.
    """

    records: list[Any] | None
    rows: Callable[[], list[Row]]
    share: float = 1.0


class Rejects:
    """Collects what was rejected, in bounded memory."""

    def __init__(self, file: TextIO | None = None) -> None:
        """Rows go to `file` as JSON Lines with `line`, `column`, `reason` and `raw`, if it is given."""
        self._file = file
        self._groups: dict[tuple[str, str], tuple[int, int, str]] = {}  # how many, and the first one's line and reason
        self.count = 0

    def add(self, reject: Reject) -> None:
        """Write the reject, and count it with those of the same column and problem."""
        self.count += 1
        if self._file is not None:
            fields = {"line": reject.line, "column": reject.column, "reason": reject.reason, "raw": reject.raw}
            self._file.write(json.dumps(fields, ensure_ascii=False) + "\n")
        key = (reject.column or "")[:LONGEST_NAME], reject.problem
        count, line, reason = self._groups.get(key, (0, reject.line, reject.reason))
        if count or len(self._groups) < _MAX_GROUPS:
            self._groups[key] = count + 1, line, reason

    def summary(self, most: int) -> Iterator[str]:
        """One line for each reason, at most `most` of them: how many rows, the reason, the first row's line."""
        shown = 0
        for count, line, reason in list(self._groups.values())[:most]:
            shown += count
            if count == 1:
                yield f"line {line}: {reason}"
            else:
                yield f"{count} rows: {reason.removesuffix('.')}, first in line {line}"
        if shown < self.count:
            yield f"{self.count - shown} rows for other reasons"
