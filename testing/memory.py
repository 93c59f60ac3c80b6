"""Where tests keep files: in memory if the system offers that. Databases on a disk take longer than all else."""

import os
import shutil
from functools import cache
from pathlib import Path

_FOLDER = Path("/dev/shm")
_NEEDED = 3 << 30
"""Bytes that must be free: a run uses about half of them at the same time."""


@cache
def memory() -> str | None:
    """A directory in memory, or None for the default one."""
    usable = _FOLDER.is_dir() and os.access(_FOLDER, os.W_OK) and not os.statvfs(_FOLDER).f_flag & os.ST_NOEXEC
    return str(_FOLDER) if usable and shutil.disk_usage(_FOLDER).free >= _NEEDED else None
