"""Rejected rows: written to a file as JSON Lines, and counted by reason for a summary."""

import json
from collections.abc import Iterator
from typing import TextIO

from petstore_server.formats.rows import Reject

_MAX_GROUPS = 1000
_NAME_LENGTH = 60  # of a column by which rejects are grouped: a name may be as long as a row


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
        key = (reject.column or "")[:_NAME_LENGTH], reject.problem
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
