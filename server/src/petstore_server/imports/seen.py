"""Which records a file had so far, in bounded memory: no row of a file replaces what an earlier one has brought."""

import errno
import os
import tempfile
from collections.abc import Sequence

import apsw

_ADD = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
_FIND = "SELECT key, line FROM seen WHERE key IN (SELECT value FROM json_each(?))"
_CACHE_KIB = 8192  # in memory; the rest is in a temporary file that has no name


class SeenRows:
    """The keys of the rows so far, 64-bit integers, each with the line on which it was first."""

    def __init__(self) -> None:
        self._database = apsw.Connection("")
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE seen (key INTEGER PRIMARY KEY, line INTEGER)")
        self._database.execute("BEGIN")  # and never the end: nothing of it is kept

    def add(self, keys: Sequence[int], lines: Sequence[int]) -> dict[int, int]:
        """Note rows; return those of them, by their place, whose key was on an earlier line, which it has for each.

        Raises OSError if there is no room for them.
        """
        try:
            return self._add(keys, lines)
        except (apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), tempfile.gettempdir()) from error

    def close(self) -> None:
        self._database.close()

    def _add(self, keys: Sequence[int], lines: Sequence[int]) -> dict[int, int]:
        before = self._database.total_changes()
        self._database.executemany(_ADD, zip(keys, lines, strict=True))
        if self._database.total_changes() - before == len(keys):
            return {}
        first = dict(self._database.execute(_FIND, (str(list(keys)),)))
        added = enumerate(zip(keys, lines, strict=True))
        return {place: first[key] for place, (key, line) in added if first[key] != line}
