"""Files that get their name when they are complete; until then they have a hidden name in the same directory."""

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from petstore_server.domain.timestamps import FILE_STAMP, HOUR

_ABANDONED_SECONDS = 6 * HOUR  # a process that is at work writes more often
_SQLITE_LOGS = ("-journal", "-wal", "-shm")


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """A hidden name for a file that is to get the name `target`; whatever has it at the end is removed.

    Files that killed processes left for this target are removed first, and for others of its series: those whose names
    differ only in the time.
    """
    _remove_abandoned(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
    finally:
        for suffix in ("", *_SQLITE_LOGS):
            with suppress(OSError):  # it would hide the error for which the file is incomplete
                partial.with_name(partial.name + suffix).unlink()


def put_in_place(file: Path, target: Path) -> None:
    """Give a complete file its name, replacing what has it, and flush both to the disk."""
    file.rename(target)
    for path in (target, target.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_abandoned(target: Path) -> None:
    series = re.sub(FILE_STAMP, lambda _: FILE_STAMP, re.escape(target.name))
    name = re.compile(rf"\.{series}\.[0-9a-f]{{8}}\.partial({'|'.join(_SQLITE_LOGS)})?", re.ASCII)
    with suppress(OSError):  # it is enough that the next process removes them
        for file in target.parent.iterdir():
            if name.fullmatch(file.name) and file.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                file.unlink()
