"""Write to a hidden name; rename when complete.

No file is written through a link, nor by root where another user can swap names.
"""

import math
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from petstore_server.domain.errors import Conflict, InvalidInput
from petstore_server.domain.timestamps import HOUR

TEMPORARY = "temporary files are not safe there; set TMPDIR"
"""The refusal of a directory for temporary files that other users can change."""

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
_FILE = "file"  # the name of every file while it is written
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # which does not follow a link
_OPEN_DESCRIPTOR = re.compile(r"/dev/std(out|err)|/(dev|proc/(self|[0-9]+))/fd/[0-9]+")


@dataclass(frozen=True)
class Partial:
    """A file that is being written. `path` is for programs that take no descriptor, such as SQLite."""

    path: Path
    _private: int
    _directory: int
    _target: Path

    def create(self, mode: str = "wb", **options: Any) -> IO[Any]:
        """Make the file, which only its owner can read whatever the umask, and open it as `open` does."""
        descriptor = os.open(_FILE, _NEW_FILE, 0o600, dir_fd=self._private)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, mode, **options)

    def put_in_place(self, *, replace: bool) -> None:
        """Flush the file to the disk, and only then give it its name. Raises Conflict unless it may `replace`.

        A link, or one of several names of a file, is replaced, and nothing is written to where it leads.
        """
        with os.fdopen(os.open(_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._private)) as file:
            os.fsync(file.fileno())
        name, private, directory = self._target.name, self._private, self._directory
        try:
            if not replace:
                os.link(_FILE, name, src_dir_fd=private, dst_dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            try:  # the file system may have no links: take the name before the file gets it
                os.close(os.open(name, _NEW_FILE, 0o600, dir_fd=directory))
            except FileExistsError:
                message = f"{self._target} was made meanwhile; try again, or choose another name."
                raise Conflict(message) from error
            replace = True
        if replace:
            os.rename(_FILE, name, src_dir_fd=private, dst_dir_fd=directory)
        os.fsync(directory)
        _remove(self.path.parent.name, directory)  # at once: the file may be written to for hours


@contextmanager
def partial_file(target: Path) -> Iterator[Partial]:
    """A file that is to get the name `target`; it is removed at the end if it did not.

    It is in a directory of its own, which no other user can enter, and is opened and named relative to descriptors.
    Only SQLite opens it by its path, which whoever can change the target's directory could make lead elsewhere: for
    root such a directory raises InvalidInput. A symbolic link as the target raises Conflict. An OSError names `target`.

    What killed processes left in this directory is removed first.
    """
    if os.geteuid() == 0:
        require_unshared(target.parent, f"root writes no file to {target.parent}")
    directory, hidden = os.open(target.parent, _DIRECTORY & ~os.O_NOFOLLOW), f".petstore-{os.urandom(4).hex()}.partial"
    path = target.with_name(hidden) / _FILE
    private = None
    try:
        with os.scandir(directory) as found:
            for name in [each.name for each in found if re.match(r"\.petstore-.*\.partial", each.name)]:
                _remove(name, directory, before=time.time() - _ABANDONED_SECONDS)
        if target.is_symlink():
            raise Conflict(f"{target} is a symbolic link; name the file itself, or choose another name.")
        private = _private_directory(hidden, directory)
        yield Partial(path, private, directory, target)
    except OSError as error:
        if error.filename in (_FILE, hidden, target.name, str(path)):  # which says nothing to an operator
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        _remove(hidden, directory)
        if private is not None:
            os.close(private)
        os.close(directory)


def require_unshared(directory: Path, consequence: str) -> None:
    """Raise InvalidInput with a remedy if another user can change a directory, or put another one in its place."""
    if place := _shared_part(directory.absolute()):
        owner = place.lstat().st_uid
        user = user_name(owner) if user_name(owner) != str(owner) else f"'#{owner}'"  # as sudo takes a number
        other = "" if owner in (0, os.geteuid()) else f"run this as its owner (sudo -u {user}), or "
        remedy = f"{other}choose a directory that, with all above it, only this user or root can change"
        raise InvalidInput(f"Other users can change {place}, so {consequence}: {remedy}.")


def _shared_part(directory: Path) -> Path | None:
    """The first part of the way to a directory that a user other than root and this one can change or swap.

    In a sticky directory, such as /tmp, others cannot remove or rename what is not theirs: it may be a part. Whoever
    owns / is trusted: where this process is in a user namespace, that may be a user without a number.
    """
    trusted = {0, os.geteuid(), Path("/").stat().st_uid}
    for place in (*reversed(directory.parents), directory):
        found = place.lstat()
        if found.st_uid not in trusted:
            return place
        if stat.S_ISLNK(found.st_mode):
            if inner := _shared_part(place.parent / place.readlink()):
                return inner
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
            return place
    return None


def opened_stream(name: str, mode: str, **options: Any) -> IO[Any] | None:
    """An open descriptor, a pipe or a device, which are written to and not replaced; None for any other file.

    Raises Conflict for a pipe of another user, who may have put it where a file was expected.
    """
    path = Path(name)
    if _OPEN_DESCRIPTOR.fullmatch(name):
        return path.open(mode, **options)
    found = path.lstat() if path.exists() or path.is_symlink() else None
    if found is None or stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
        return None
    if not stat.S_ISFIFO(found.st_mode) or found.st_uid in (0, os.geteuid()):
        opened = os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), mode, **options)
        if os.path.samestat(found, os.fstat(opened.fileno())):
            return opened
        opened.close()
    raise Conflict(f"{name} is a pipe of another user, or was replaced meanwhile; choose another name.")


def is_protected(file: Path, store: Path | None) -> bool:
    """Whether no command may write over a file: a store, its log or a backup. The configured `store` may be missing."""
    file = file.resolve()
    stem = next((Path(str(file).removesuffix(end)) for end in _COMPANIONS if file.name.endswith(end)), file)
    own = [] if store is None else [store, *(Path(f"{store}{end}") for end in _COMPANIONS)]
    linked = file.exists() and any(place.exists() and place.samefile(file) for place in own)
    return store == stem or linked or _begins_like_store(file) or (stem != file and _begins_like_store(stem))


def _begins_like_store(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(max(map(len, _BEGINS))).startswith(_BEGINS)


def _private_directory(name: str, parent: int) -> int:
    """Make a directory that only this user can enter; return its descriptor."""
    mask = os.umask(0o077)
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    finally:
        os.umask(mask)
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise Conflict("Another user swaps what is written to this directory; choose another one.")
    os.fchmod(descriptor, 0o700)
    return descriptor


def _remove(name: str, directory: int, before: float = math.inf) -> None:
    """Remove a private directory of this user, or a file of release 1.0.0, unless it was written since a time.

    The time is in Unix seconds. What cannot be removed remains.
    """
    from shutil import rmtree  # which loads much

    with suppress(OSError):  # it would hide the error for which the file is incomplete
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        written = found.st_mtime
        with suppress(OSError):
            written = max(written, os.stat(f"{name}/{_FILE}", dir_fd=directory, follow_symlinks=False).st_mtime)
        if found.st_uid == os.geteuid() and written < before:
            (rmtree if stat.S_ISDIR(found.st_mode) else os.unlink)(name, dir_fd=directory)


def user_name(number: int) -> str:
    """The name of a user of this machine; the number where there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
