"""Connections to the store's file, and the meaning of SQLite's errors."""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from petstore_server.domain.errors import ServiceUnavailable

CREATE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE  # how a connection is opened that may make the file
BUSY_SECONDS = 5.0  # for which a writer waits for another process; our transactions take milliseconds
INLINE_BUSY_MILLISECONDS = 50  # for which a read on the event loop waits, for a recovery after a crash


def connect(path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE, *settings: str) -> apsw.Connection:
    """Open a connection that waits for its turn, with these pragmas.

    Raises apsw.Error, and OSError for a file that cannot be created.
    """
    name = str(path)
    if re.search("[\ud800-\udfff]", name):
        raise OSError(errno.EILSEQ, "the name of a file that SQLite opens must be UTF-8")
    if flags & apsw.SQLITE_OPEN_CREATE:
        create_private(path)
    # SQLite keeps shared memory next to the file, which it cannot make there. Without a log it needs none.
    if on_read_only_disk(path) and not any(Path(f"{path}{end}").exists() for end in ("-wal", "-journal")):
        name, flags = f"file:{quote(name)}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags=flags)
    try:
        # SQLite's waiting grows to 100 ms between tries, and so starves behind an importer that commits back to back.
        connection.set_busy_handler(patience(BUSY_SECONDS))
        # Off by default in SQLite: without it a reference to a missing account or key would be kept.
        connection.execute("PRAGMA foreign_keys = ON")
        # Otherwise SQLite plans a join again for every value that is bound, which triples the cost of looking up a key.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()  # the error would keep it, and its locks, open
        raise
    return connection


def on_read_only_disk(path: Path) -> bool:
    """Whether the file exists on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def create_private(path: Path) -> None:
    """Create a missing store that only its owner can read, whatever the umask; SQLite's log is like it. Raises OSError.

    If root creates it, it gets the owner of its directory: the service runs as that user.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, 0o600)
        if os.geteuid() == 0:
            owner = path.parent.stat()
            with suppress(PermissionError):  # in a container, root may lack that right
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


def connect_writer(path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    """Open a connection whose commits are durable when they return. Raises apsw.Error."""
    return connect(
        path,
        flags,
        # An acknowledged cancel survives a power failure (D5): each commit flushes the log, not only checkpoints.
        "synchronous = FULL",
        # Only on macOS: there a flush reaches the disk's medium only if it is requested in this way.
        "fullfsync = ON",
        # After a long export has kept the log from being reused, give its space back beyond 64 MiB.
        "journal_size_limit = 67108864",
    )


def connect_inline(path: Path) -> apsw.Connection:
    """Open a connection for reads of a few microseconds on the event loop itself."""
    # Only the event loop's thread uses it: without SQLite's locks around every call, a page takes a sixth less time.
    connection = connect_reader(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX)
    connection.set_busy_timeout(INLINE_BUSY_MILLISECONDS)
    return connection


def connect_reader(path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    """Open a connection that cannot write."""
    return connect(
        path,
        flags,
        # Not opened read-only: the first to open a store after a crash must be able to recover its log.
        "query_only = ON",
        # A page of version 2 may read 1,500 orders from as many places of the file: 8,000 KiB keep them for the next.
        "cache_size = -8000",
    )


@contextmanager
def transaction(connection: apsw.Connection, mode: str = "DEFERRED") -> Iterator[None]:
    """One transaction: what reads in it sees one state. IMMEDIATE keeps other writers off from the start."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        roll_back(connection)


def roll_back(connection: apsw.Connection) -> None:
    """Undo what was not committed. SQLite may have done so by itself, and a disk that fails may fail this too."""
    with suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def unavailable(error: apsw.Error | OSError) -> ServiceUnavailable:
    return ServiceUnavailable(f"the store cannot be used: {plain_words(error)}", full=is_disk_full(error))


def is_disk_full(error: Exception) -> bool:
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


def plain_words(error: Exception) -> str:
    """An error of SQLite or of the system in plain words, without SQL."""
    if is_limit_of_files(error):
        return "the limit on open files is reached"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    known = (words for kind, words in _PLAIN_WORDS.items() if isinstance(error, kind))
    return next(known, f"SQLite reports {error}")


def is_limit_of_files(error: Exception) -> bool:
    """Whether a file could not be opened because this process, or the system, may not open more files."""
    if isinstance(error, OSError):
        return error.errno in _LIMITS
    if not isinstance(error, apsw.CantOpenError):
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as failure:
        return failure.errno in _LIMITS
    return False


_LIMITS = errno.EMFILE, errno.ENFILE  # of the process, of the system
_PLAIN_WORDS: dict[type[apsw.Error], str] = {
    apsw.FullError: "the disk is full",
    apsw.BusyError: "another program keeps it locked",
    apsw.LockedError: "another program keeps it locked",
    apsw.ProtocolError: "another program keeps it locked",
    apsw.NoMemError: "there is not enough memory",
    apsw.ReadOnlyError: "it is not writable",
    apsw.PermissionsError: "permission is denied",
    apsw.CantOpenError: "its file, or the log files next to it, cannot be opened",
    apsw.NotADBError: "its file is not a SQLite database",
    apsw.CorruptError: "its file is damaged",
    apsw.IOError: "the disk reports an error",
    apsw.ConnectionClosedError: "it is closed",
    apsw.CursorClosedError: "it is closed",
    apsw.InterruptError: "it was interrupted",
    apsw.InternalError: "SQLite has failed",
    apsw.SchemaChangeError: "another program changes its tables",
}
ENVIRONMENT = tuple(_PLAIN_WORDS)
"""Errors for which no value is at fault. Every other one concerns the statement that it ended, and its caller only."""


def patience(seconds: float) -> Callable[[int], bool]:
    """A busy handler that tries again every millisecond for up to `seconds`."""
    ends = 0.0

    def wait(tries: int) -> bool:
        nonlocal ends
        if tries == 0:
            ends = time.monotonic() + seconds
        time.sleep(0.001)
        return time.monotonic() < ends

    return wait
