"""Checks of a SQLite store's file, the disk it is on, and the clock of this machine."""

import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from petstore_server.domain.timestamps import format_unix
from petstore_server.operations.health import CheckResult

_MIB = 1 << 20
_UNITS = (("GiB", 30), ("MiB", 20))
LEAST_FREE = 64 * _MIB  # bytes that must be free on the disk

LARGE_LOG = 256 * _MIB  # bytes above which the store's log is too large

_QUICK_TO_READ = 200 * _MIB
_EARLIEST_NOW = 1_767_225_600  # 2026-01-01: this program is younger
_CLOCK_TOLERANCE = 60  # seconds
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_files(file: Path) -> Iterator[CheckResult]:
    """Permissions: this user and the service must be able to read and write, other users should not."""
    results = [*_access(file), *_owners(file), *_modes(file)]
    yield from results
    if file.exists() and not results:
        yield CheckResult("permissions", "ok", f"Only its owner can read and write {file}.")


def check_disk(file: Path, least_free: int = LEAST_FREE) -> Iterator[CheckResult]:
    """Space on the disk of the store, and the size of its log."""
    if not file.parent.is_dir():
        return
    free = shutil.disk_usage(file.parent).free
    size = file.stat().st_size if file.exists() else 0
    message = f"{_size(free)} are free in {file.parent}; the store takes {_size(size)}."
    if free < least_free:
        yield CheckResult("disk", "fail", message, "Free some space: changes fail on a full disk.")
    elif free < 2 * size:
        yield CheckResult("disk", "warn", message, "Free some space: a backup here needs as much again.")
    else:
        yield CheckResult("disk", "ok", message)
    log = file.with_name(file.name + "-wal")
    if log.exists() and log.stat().st_size > LARGE_LOG:
        remedy = "Look for an export or backup that does not end; the log shrinks after it has."
        yield CheckResult("log", "warn", f"The store's log {log} has {_size(log.stat().st_size)}.", remedy)


def check_clock(file: Path | None, now: float) -> CheckResult:
    """Whether `now`, in Unix seconds, is plausible."""
    remedy = "Set the clock and keep it right with NTP: limits and bans depend on it."
    if now < _EARLIEST_NOW:
        return CheckResult("clock", "fail", f"The clock says {format_unix(now)}.", remedy)
    if file is not None and file.exists() and file.stat().st_mtime > now + _CLOCK_TOLERANCE:
        message = f"The clock says {format_unix(now)}, and the store was written later than that."
        return CheckResult("clock", "warn", message, remedy)
    return CheckResult("clock", "ok", f"The clock says {format_unix(now)}.")


def is_quick_to_read(file: Path) -> bool:
    """Whether the whole store can be read in a few seconds."""
    return file.stat().st_size <= _QUICK_TO_READ


def _files(file: Path) -> list[Path]:
    """The files of the store that are there: its file, and SQLite's log and index of the log."""
    return [place for suffix in ("", "-wal", "-shm") if (place := file.with_name(file.name + suffix)).exists()]


def _access(file: Path) -> Iterator[CheckResult]:
    for place in (file.parent, *_files(file)):
        if place.exists() and not os.access(place, os.R_OK | os.W_OK):
            remedy = f"Run as the owner of {place}, or let this user read and write it."
            yield CheckResult("permissions", "fail", f"This user cannot read and write {place}.", remedy)


def _owners(file: Path) -> Iterator[CheckResult]:
    """What root's files mean for the service, which runs as the owner of the other ones; root itself can use all."""
    places = [place for place in (file, file.parent) if place.exists()]
    service = next((uid for place in places if (uid := place.stat().st_uid) != 0), 0)
    for place in _files(file):
        found = place.stat()
        if found.st_uid != service and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            user, owner = _user(service), _user(found.st_uid)
            message = f"{place} belongs to {owner}: a service that runs as {user} cannot use it."
            yield CheckResult("permissions", "fail", message, f"chown {user} {place}")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _modes(file: Path) -> Iterator[CheckResult]:
    for place in _files(file):
        if place.stat().st_mode & _OTHERS:
            mode = stat.S_IMODE(place.stat().st_mode)
            message = f"Other users of this machine have access to {place} (mode {mode:04o})."
            yield CheckResult("permissions", "warn", message, f"chmod 600 {place}")


def _size(count: int) -> str:
    unit, shift = next(((unit, shift) for unit, shift in _UNITS if count >= 10 << shift), ("KiB", 10))
    return f"{count >> shift} {unit}"
