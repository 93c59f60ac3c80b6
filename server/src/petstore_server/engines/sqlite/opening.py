"""Finding, creating, migrating and locking the store's file; every way in which that fails is one sentence."""

import fcntl
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import apsw

from petstore_server.domain.errors import NoStore, StoreDamaged, StoreUnusable
from petstore_server.engines.schema import StoreSchema
from petstore_server.engines.sqlite import connections
from petstore_server.engines.sqlite.connections import CREATE, connect_writer, transaction
from petstore_server.engines.sqlite.serial import SerialEngine
from petstore_server.store import Store

APPLICATION_ID = 0x50455453  # written into every store's header by the first migration

SCHEMA = StoreSchema("sqlite")

MIGRATION_SECONDS = 120.0  # for which another program may migrate a store, of a million orders for example
# In a file that took the place of another, or was moved, what was seen in the one before may be gone.
_SET_FILE = """
    UPDATE store SET epoch = iif(file = '', epoch, lower(hex(randomblob(16)))), file = ?1 WHERE file <> ?1
"""
_LINKED = "Correct PETSTORE_DATABASE_URL: name a file in a directory that only the service can change."
_MODES, _WITHOUT_LOG = slice(18, 20), b"\1\1"  # in the header of a file: it has no log, as each backup
_EMPTY = "Unless a program is creating it now, the file was truncated."
_PAUSE = 0.01  # seconds between attempts
_SEVERAL_SERVERS = "Stop it, or set PETSTORE_REDIS_URL for both, so that they count limits together."

# Descriptors that held a lock or read a header, by device and inode; kept open, because closing any descriptor of a
# file releases SQLite's own locks on it in the whole process. Linux keeps flock apart from those locks.
kept_descriptors: dict[tuple[int, int], list[int]] = defaultdict(list)


async def open_store(path: Path, *, create: bool, upgrade: bool, serial: bool = False) -> Store:
    """Open the store after `migrate`, which the other arguments are for; `serial`: for use without an event loop.

    Raises StoreUnusable.
    """
    migrate(path, create=create, upgrade=upgrade)
    path = path.resolve()  # noqa: ASYNC240 - a start has nothing else to do meanwhile
    with unusable_on_error(path):
        if serial:
            return Store(SerialEngine(path))
        from petstore_server.engines.sqlite.engine import SqliteEngine  # which loads asyncio

        return Store(SqliteEngine(path))


def migrate(
    path: Path, announce: Callable[[str], None] = lambda _: None, *, create: bool = True, upgrade: bool = True
) -> tuple[int, int]:
    """Make a missing store where `create`, bring an older one up to date where `upgrade`.

    Return the schema version before and after; `announce` a store that is created. Raises StoreUnusable. Of several
    programs, one does this and the others wait, also where SQLite does not: while one adds or removes the log. A file
    of 0 bytes is refused unless another program is creating it.
    """
    path = resolved(path)
    deadline = monotonic() + connections.BUSY_SECONDS
    with unusable_on_error(path):
        is_new = create and not path.exists()
        while True:
            try:
                require_place(path, file_too=not is_new)
                before = _migrate(path, create=create, upgrade=upgrade)
                break
            except apsw.BusyError:
                if monotonic() >= deadline:
                    raise
            except StoreDamaged:  # it is empty
                if not create or monotonic() >= deadline:
                    raise
            sleep(_PAUSE)
    if before == 0:
        announce(f"Created a new store at {path}.")
    return before, max(before, SCHEMA.latest)


def resolved(path: Path) -> Path:
    """The file to which the name of a store leads. Raises StoreUnusable for a link like those that Linux can refuse.

    In a sticky directory, such as /tmp, each user can put a link where another one wants to have a store.
    """
    with unusable_on_error(path):
        if path.is_symlink():
            link, directory = path.lstat(), path.parent.stat()
            if directory.st_mode & stat.S_ISVTX and link.st_uid not in (0, os.geteuid(), directory.st_uid):
                raise StoreUnusable(f"{path} is a link of another user in a shared directory.", _LINKED)
        return path.resolve()


def _migrate(path: Path, *, create: bool, upgrade: bool) -> int:
    """What `migrate` does, once; return the version before."""
    with closing(connect_writer(path, CREATE if create else apsw.SQLITE_OPEN_READWRITE)) as connection:
        before = schema_version(connection, path)
        read_only = connection.readonly("main")
        if read_only and (create or upgrade or not connections.on_read_only_disk(path)):
            raise StoreUnusable(f"The store at {path} is not writable; check its permissions and the file system's.")
        # A file without a schema may be one that another process is creating now.
        if SCHEMA.must_migrate(before, f"at {path}", create=create, upgrade=upgrade):
            before = apply_migrations(connection, path)
        if not read_only:
            use_log(connection, path)
            inode = str(path.stat().st_ino)
            if connection.execute("SELECT file FROM store").get != inode:
                connection.execute(_SET_FILE, (inode,))
        return before


def require_place(path: Path, *, file_too: bool) -> None:
    """Raise StoreUnusable unless the directory is there (and the file with some content, where asked for)."""
    if file_too and not path.exists():
        raise NoStore(f"There is no store at {path}.")
    if file_too and path.is_file() and path.stat().st_size == 0:
        raise StoreDamaged(f"The store at {path} is empty (0 bytes).", _EMPTY)
    if not path.parent.is_dir():
        raise StoreUnusable(
            f"The directory {path.parent} does not exist.",
            "Mount its disk, create it, or correct PETSTORE_DATABASE_URL.",
        )
    if path.exists() and not path.is_file():
        raise StoreUnusable(f"{path} is not a file.", "Correct PETSTORE_DATABASE_URL.")
    require_own_log(path)


def require_own_log(path: Path) -> None:
    """Raise StoreUnusable for a backup that was not opened yet, or no file, next to the log of a file that was there.

    SQLite would write that log into the backup, which damages it, or remove it, and with it the last changes of a store
    that was moved. A store says that it has a log before it is there.
    """
    with suppress(OSError):  # there is no log, or connecting says why the file cannot be read
        if Path(f"{path}-wal").stat().st_size and (not path.exists() or _header(path)[_MODES] == _WITHOUT_LOG):
            raise StoreUnusable(
                f"{path}-wal is the log of another file, which was there before {path.name}.",
                "Move it away, or put that file back.",
            )


def _header(path: Path) -> bytes:
    descriptor = _opened(path)
    try:
        return os.pread(descriptor, _MODES.stop, 0)
    finally:
        _keep(descriptor)


def schema_version(connection: apsw.Connection, path: Path) -> int:
    """The store's schema version, 0 for an empty file. Raises StoreUnusable if it is not ours, or too new."""
    with connection:  # one state of the file: another program may be creating the store
        version = int(connection.pragma("user_version"))
        is_ours = connection.pragma("application_id") == APPLICATION_ID
        is_empty = connection.pragma("schema_version") == 0
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(store)")]
        migration = connection.execute("SELECT migration FROM store").get if "migration" in columns else None
    if not is_ours and (version or not is_empty):
        raise StoreUnusable(f"{path} is a database of another program.", "Correct PETSTORE_DATABASE_URL.")
    return SCHEMA.known(version, migration, f"at {path}")


def apply_migrations(connection: apsw.Connection, path: Path) -> int:
    """Apply what is missing in one transaction; return the version before.

    So other programs see the store before or after it. A second one waits, and then finds nothing to do.
    """
    connection.set_busy_handler(connections.patience(MIGRATION_SECONDS))
    use_log(connection, path)
    with transaction(connection, "IMMEDIATE"):
        before = schema_version(connection, path)
        if before < SCHEMA.latest:
            for script in SCHEMA.missing(before):
                connection.execute(script)
            connection.execute("UPDATE store SET migration = ?", (SCHEMA.latest,))
            connection.pragma("user_version", max(int(connection.pragma("user_version")), SCHEMA.required))
    return before


def use_log(connection: apsw.Connection, path: Path) -> None:
    """Write changes to a log next to the file first (WAL). The file keeps this mode, but a backup does not have it.

    Readers then never wait for a writer, nor a writer for readers, and a commit is one flush. Raises StoreUnusable.
    """
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreUnusable(f"The file system of {path} shares no memory between programs; use a local disk.")


@contextmanager
def unusable_on_error(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into StoreUnusable, naming the store."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        kind = StoreDamaged if isinstance(error, apsw.NotADBError | apsw.CorruptError) else StoreUnusable
        raise kind(
            f"{path} cannot be used as a store: {connections.plain_words(error)}.", _advice(error, path)
        ) from error


def _advice(error: apsw.Error | OSError, path: Path) -> str:
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return "Check PETSTORE_DATABASE_URL, or restore a backup."
    if isinstance(error, apsw.BusyError):
        return "Try again when it has finished."
    if connections.is_disk_full(error):
        return "Free some space and try again."
    if connections.is_limit_of_files(error):
        return "Raise that limit (ulimit -n, or the system's)."
    if isinstance(error, apsw.CantOpenError) and connections.on_read_only_disk(path):
        return f"Its disk is read-only: copy it and {path.name}-wal to a disk that can be written, and use that copy."
    return "Check the disk and the permissions of the file and its directory."


@contextmanager
def lock_for_serving(
    path: Path, *, shared: bool, wait_seconds: float = 0, advice: str = _SEVERAL_SERVERS
) -> Iterator[None]:
    """Lock the store's file for a server: exclusive without Redis, `shared` with it (D12).

    The system releases the lock after a crash. Raises NoStore; StoreUnusable, with this advice, if another server holds
    the lock in a way that excludes this one for longer than `wait_seconds`.
    """
    path = path.resolve()
    require_place(path, file_too=True)
    deadline = monotonic() + wait_seconds
    with unusable_on_error(path):
        while (descriptor := _acquired(path, shared=shared)) is None:
            if monotonic() >= deadline:
                raise StoreUnusable(f"Another server already uses the store at {path}.", advice)
            sleep(_PAUSE)
    try:
        yield
    finally:
        _release(descriptor)


def is_served(path: Path, *, shared: bool) -> bool:
    """Whether a server holds a lock that excludes one like this; False where this user may not read the file."""
    try:
        descriptor = _acquired(path, shared=shared)
    except OSError:
        return False
    if descriptor is not None:
        _release(descriptor)
    return descriptor is None


def _acquired(path: Path, *, shared: bool) -> int | None:
    """A descriptor that holds the lock of the file with this name; None if another one excludes it. Raises OSError."""
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            _release(descriptor)
            return None
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        _release(descriptor)  # another file was put into place meanwhile


def _release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    _keep(descriptor)


def _opened(path: Path) -> int:
    """A descriptor of the file, to be passed to `_keep`. Raises OSError."""
    status = path.stat()
    descriptors = kept_descriptors[status.st_dev, status.st_ino]
    return descriptors.pop() if descriptors else os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _keep(descriptor: int) -> None:
    status = os.fstat(descriptor)
    kept_descriptors[status.st_dev, status.st_ino].append(descriptor)
