"""Files that get their name when they are complete; until then they have a hidden name in the same directory."""

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from petstore_server.domain.timestamps import HOUR

_COMPANIONS = ("-wal", "-shm", "-journal")  # of SQLite's files, next to them
# A database of SQLite, its log (WAL) and that one's index in both byte orders, its journal, and what pg_dump writes.
_BEGINS = (
    b"SQLite format 3\0",
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
    b"\x18\xe2\x2d\x00",
    b"\x00\x2d\xe2\x18",
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    b"PGDMP",
    b"toc.dat\0",
    b"--\n-- PostgreSQL database",
)
_ABANDONED_SECONDS = 6 * HOUR  # a process that is at work writes more often


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """A hidden name for a file that is to get the name `target`; whatever has it at the end is removed.

    Files that killed processes left in this directory are removed first. An OSError names `target` instead.
    """
    _remove(target.parent.glob(".petstore-*.partial*"), before=time.time() - _ABANDONED_SECONDS)
    partial = target.with_name(f".petstore-{os.urandom(4).hex()}.partial")
    try:
        yield partial
    except OSError as error:
        if error.filename == str(partial):  # which says nothing to an operator
            error.filename = str(target)
        raise
    finally:
        _remove(partial.with_name(partial.name + suffix) for suffix in ("", *_COMPANIONS))


def put_in_place(file: Path, target: Path, *, replace: bool) -> None:
    """Flush a file to the disk, and only then give it its name. Raises FileExistsError unless it may `replace`."""
    _flush(file)
    if not replace:
        try:
            os.link(file, target)
        except FileExistsError:
            raise
        except OSError:  # the file system has no links: take the name before the file gets it
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            file.rename(target)
    else:
        file.rename(target)
    _flush(target.parent)


def is_protected(file: Path, store: Path | None) -> bool:
    """Whether no command may write over a file: a store, its log or a backup. The configured `store` may be missing."""
    file = file.resolve()
    stem = next((file.with_name(file.name.removesuffix(end)) for end in _COMPANIONS if file.name.endswith(end)), file)
    own = [] if store is None else [store, *(store.with_name(store.name + end) for end in _COMPANIONS)]
    linked = file.exists() and any(place.exists() and place.samefile(file) for place in own)
    return store == stem or linked or _begins_like_store(file) or (stem != file and _begins_like_store(stem))


def _begins_like_store(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(max(map(len, _BEGINS))).startswith(_BEGINS)


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
