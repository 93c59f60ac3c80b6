"""Which records a file had so far, in bounded memory: no row of a file replaces what an earlier one has brought."""

import errno
import os
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from operator import lt

import apsw

MAX_ASCENDING = 2_000_000
"""Rows in ascending order, as most exports have them, that are kept in memory: 16 bytes each."""

_ADD = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
_FIND = "SELECT key, line FROM seen WHERE key IN (SELECT value FROM json_each(?))"
_CACHE_KIB = 8192  # in memory; the rest is in a temporary file that has no name
_BEFORE_ALL = -(2**63) - 1


class SeenRows:
    """The keys of the rows so far, 64-bit integers, each with the line on which it was first."""

    def __init__(self) -> None:
        self._keys, self._lines = array("q"), array("q")  # ascending, and greater than all others when they came
        self._greatest_other = _BEFORE_ALL
        self._database = apsw.Connection("")
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE seen (key INTEGER PRIMARY KEY, line INTEGER)")
        self._database.execute("BEGIN")  # and never the end: nothing of it is kept

    def add(self, keys: Sequence[int], lines: Sequence[int]) -> dict[int, int]:
        """Note rows; return those of them, by their place, whose key was on an earlier line, which it has for each.

        A row that is noted again is not one that repeats itself. Raises OSError if there is no room for them.
        """
        last = max(self._keys[-1] if self._keys else _BEFORE_ALL, self._greatest_other)
        ascends = bool(keys) and keys[0] > last and all(map(lt, keys, islice(keys, 1, None)))
        if ascends and len(self._keys) + len(keys) <= MAX_ASCENDING:
            self._keys += array("q", keys)  # twice as fast as to extend it by the list
            self._lines += array("q", lines)
            return {}
        try:
            return self._add(keys, lines)
        except (apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), tempfile.gettempdir()) from error

    def close(self) -> None:
        self._database.close()

    def _add(self, keys: Sequence[int], lines: Sequence[int]) -> dict[int, int]:
        first = dict[int, int]()  # the lines of those keys that are among the ascending ones
        if self._keys:
            places = {key: bisect_left(self._keys, key) for key in keys if self._keys[0] <= key <= self._keys[-1]}
            first = {key: self._lines[place] for key, place in places.items() if self._keys[place] == key}
        others = [(key, line) for key, line in zip(keys, lines, strict=True) if key not in first]
        self._greatest_other = max([self._greatest_other, *(key for key, _ in others)])
        before = self._database.total_changes()
        self._database.executemany(_ADD, others)
        if self._database.total_changes() - before == len(others) == len(keys):
            return {}
        first |= dict(self._database.execute(_FIND, (str([key for key, _ in others]),)))
        added = enumerate(zip(keys, lines, strict=True))
        return {place: first[key] for place, (key, line) in added if first[key] != line}
