"""Files that get their name when they are complete; until then they have a hidden name in the same directory."""

import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from petstore_server.domain.timestamps import HOUR

_ABANDONED_SECONDS = 6 * HOUR  # a process that is at work writes more often


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """A hidden name for a file that is to get the name `target`; whatever has it at the end is removed.

    Files that killed processes left in this directory are removed first. An OSError names `target` instead.
    """
    _remove(target.parent.glob(".petstore-*.partial*"), before=time.time() - _ABANDONED_SECONDS)
    partial = target.with_name(f".petstore-{secrets.token_hex(4)}.partial")
    try:
        yield partial
    except OSError as error:
        if error.filename == str(partial):  # which says nothing to an operator
            error.filename = str(target)
        raise
    finally:
        _remove(partial.with_name(partial.name + suffix) for suffix in ("", "-journal", "-wal", "-shm"))


def put_in_place(file: Path, target: Path) -> None:
    """Flush a complete file to the disk, and only then give it its name, replacing what has it."""
    _flush(file)
    file.rename(target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(files: Iterable[Path], before: float = math.inf) -> None:
    """Remove those that exist and were written before a time, in Unix seconds; what cannot be removed remains."""
    for file in files:
        with suppress(OSError):  # it would hide the error for which the file is incomplete
            if file.stat().st_mtime < before:
                file.unlink()
