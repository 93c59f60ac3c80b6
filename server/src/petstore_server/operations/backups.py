"""Backups: make and record one, name those of a series, and remove the oldest of it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from petstore_server.domain.errors import DomainError
from petstore_server.domain.timestamps import FILE_STAMP, file_stamp


class Backup(NamedTuple):
    """A good backup, and those of its series that were removed, oldest first."""

    file: Path
    removed: list[Path]


def back_up(
    file: Path,
    keep: int | None,
    at: float,
    *,
    copy: Callable[[Path], None],
    record: Callable[[str], None],
    not_recorded: Callable[[DomainError], None],
) -> Backup:
    """Make a backup at `at` (Unix seconds): in `file`, or, with `keep`, in its series, of which so many are kept.

    `copy` writes and verifies the file; `record` notes its name in the store. `not_recorded` gets the error of a store
    that cannot be written, which does not make the backup a failure. Raises what `copy` raises, and OSError.
    """
    target = file if keep is None else _stamped(file, at)
    copy(target)
    try:
        record(target.name)
    except DomainError as error:  # the backup is good
        not_recorded(error)
    return Backup(target, [] if keep is None else _remove_oldest(file, keep))


def _stamped(file: Path, at: float) -> Path:
    """The name of the backup made at `at` (Unix seconds) in the series of `file`: orders-20261120T093000Z.db.

    Of several made in one second, each gets the next second that is free.
    """
    while (stamped := file.with_name(f"{file.stem}-{file_stamp(at)}{file.suffix}")).exists():
        at += 1
    return stamped


def _remove_oldest(file: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` backups in the series of `file`; return those removed, oldest first.

    Other files, also those with similar names, are not touched. Raises OSError.
    """
    name = re.compile(rf"{re.escape(file.stem)}-{FILE_STAMP}{re.escape(file.suffix)}", re.ASCII)
    series = sorted(
        (each for each in file.parent.iterdir() if name.fullmatch(each.name) and each.is_file()),
        key=lambda each: each.name,
    )
    removed = series[: max(0, len(series) - keep)]
    for each in removed:
        each.unlink()
    return removed
