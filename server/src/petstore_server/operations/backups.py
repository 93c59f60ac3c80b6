"""Series of backups: how their files are named, and which of them are kept."""

import re
from pathlib import Path

from petstore_server.domain.timestamps import file_stamp


def stamped(file: Path, at: float) -> Path:
    """The name of the backup made at `at` (Unix seconds) in the series of `file`: orders-20261120T093000Z.db."""
    return file.with_name(f"{file.stem}-{file_stamp(at)}{file.suffix}")


def remove_oldest(file: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` backups in the series of `file`; return those removed, oldest first.

    Other files, also those with similar names, are not touched. Raises OSError.
    """
    name = re.compile(rf"{re.escape(file.stem)}-\d{{8}}T\d{{6}}Z{re.escape(file.suffix)}", re.ASCII)
    series = sorted(
        (each for each in file.parent.iterdir() if name.fullmatch(each.name) and each.is_file()),
        key=lambda each: each.name,
    )
    removed = series[: max(0, len(series) - keep)]
    for each in removed:
        each.unlink()
    return removed
