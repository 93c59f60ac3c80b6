"""Backup, restore and check of the store's file."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from petstore_server.domain.errors import Conflict, InvalidInput, ServiceUnavailable, StoreUnusable, advising
from petstore_server.domain.placement import LARGEST_REMEMBERED, largest_assigned
from petstore_server.domain.timestamps import file_stamp
from petstore_server.partial_files import partial_file
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, record
from petstore_server.storage.orders import MOST_PROBLEMS, order_problem
from petstore_server.storage.sqlite.connections import (
    CREATE,
    connect,
    connect_reader,
    connect_writer,
    plain_words,
    snapshot,
)
from petstore_server.storage.sqlite.engine import run
from petstore_server.storage.sqlite.opening import (
    SCHEMA,
    apply_migrations,
    lock_for_serving,
    require_place,
    schema_version,
    unusable_on_error,
    use_log,
)
from petstore_server.storage.sqlite.orders import NOT_AGAIN
from petstore_server.storage.statements import only

Progress = Callable[[int, int], None]
"""Is called with the number of pages that are done, and of all."""

# A backup contains no record of itself, because that is made when it is complete.
_KEEP_LAST_BACKUP = "UPDATE store SET backed_up_at = nullif(max(coalesce(backed_up_at, 0), ?), 0)"
_PAGES_A_STEP = 1000


def backup(path: Path, target: Path, progress: Progress | None = None) -> None:
    """Copy the current state of the store while servers continue to work.

    The copy is verified before it gets its name; it is one file, without a log next to it. Raises StoreUnusable,
    Conflict if the target exists already, InvalidInput if its directory does not, and ServiceUnavailable if the disk
    of the target is full.
    """
    path, target = path.resolve(), target.resolve()
    require_place(path, file_too=True)
    if target.exists():
        raise Conflict(f"{target} exists already; choose another name.")
    if not target.parent.is_dir():
        raise InvalidInput(f"The directory {target.parent} does not exist; create it or choose another name.")
    with partial_file(target) as copy:
        with unusable_on_error(path):
            _copy(path, copy, progress)
        _require_sound(copy, f"The store at {path} is damaged, so no backup was made")
        with unusable_on_error(target):
            _put_in_place(copy, target)


def restore(path: Path, source: Path, actor: Actor) -> Path | None:
    """Replace the store's content by a backup; running servers see it with their next read.

    Return the file that keeps the previous content, next to the store; None if there was no store. The backup is
    verified and migrated in a copy, which gets a new epoch, the store's identity and an audit entry, before the store
    changes. A store too damaged to be opened is replaced as a file, for which no server may run. Raises StoreUnusable,
    and ServiceUnavailable if the disk is full.
    """
    path, source = path.resolve(), source.resolve()
    require_place(path, file_too=False)
    if not source.is_file():
        raise StoreUnusable(f"There is no backup at {source}.")
    kept = _unused_name(path, actor.at) if path.exists() else None
    identity = _of_store(path, "identity") or secrets.token_hex(8)
    backed_up_at = _of_store(path, "backed_up_at") or 0.0
    with partial_file(path) as copy:
        with advising("Nothing was restored; choose another backup."), unusable_on_error(source):
            _copy(source, copy, None)
            with _naming_full_disk(copy):
                _begin_epoch(copy, source, kept, identity, backed_up_at, actor)
        _require_sound(copy, f"The backup at {source} is damaged, so nothing was restored")
        with unusable_on_error(path):
            _replace_content(copy, path, kept)
    return kept


def readable_by_others(path: Path) -> list[Path]:
    """Return the files of the store (the store itself, its log) that users other than its owner can read."""
    path = path.resolve()
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    return [file for file in files if file.exists() and file.stat().st_mode & 0o044]


def check(path: Path) -> list[str]:
    """What is wrong with the store, in plain words; empty if it is sound. Raises StoreUnusable if there is none."""
    path = path.resolve()
    require_place(path, file_too=True)
    try:
        connection = connect_reader(path)
        try:
            with snapshot(connection):
                return list(islice(_problems(connection, path), MOST_PROBLEMS))
        finally:
            connection.close()
    except apsw.Error as error:
        return [f"The store at {path} cannot be read: {plain_words(error)}."]
    except StoreUnusable as error:
        return [error.message]


def _problems(connection: apsw.Connection, path: Path) -> Iterator[str]:
    version = schema_version(connection, path)
    if outdated := SCHEMA.outdated(version, f"at {path}"):
        yield outdated
        return
    for (result,) in connection.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})"):
        if result != "ok":
            yield f"The file is damaged: {result}."
    for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"A row of {table} refers to a row of {parent} that is not there."
    for order in connection.execute("SELECT id, record, status FROM orders ORDER BY id"):
        problem = order_problem(order)
        if problem:
            yield problem


def _copy(source: Path, copy: Path, progress: Progress | None) -> None:
    """Copy the current state of a store into a new file, without a log next to it."""
    original, duplicate = connect_reader(source), connect(copy, CREATE)
    try:
        if schema_version(original, source) == 0:
            raise StoreUnusable(f"There is no store in {source}.")
        # One read transaction for all steps: otherwise the copy would begin again after every change.
        with _naming_full_disk(copy), snapshot(original), duplicate.backup("main", original, "main") as steps:
            original.execute("SELECT epoch FROM store").fetchall()
            while not steps.done:
                steps.step(_PAGES_A_STEP)
                if progress is not None:
                    progress(steps.page_count - steps.remaining, steps.page_count)
        duplicate.pragma("journal_mode", "delete")
    finally:
        duplicate.close()
        original.close()


@contextmanager
def _naming_full_disk(copy: Path) -> Iterator[None]:
    """Say that the disk of a copy is full, instead of that its source cannot be used. Raises ServiceUnavailable."""
    try:
        yield
    except apsw.FullError as error:
        raise ServiceUnavailable(f"the disk of {copy.parent} is full; free some space and try again") from error


def _begin_epoch(copy: Path, source: Path, kept: Path | None, identity: str, backed_up_at: float, actor: Actor) -> None:
    """Migrate the copy, record the restore, and mark the copy as another history, so that no cache is used for it."""
    connection = connect_writer(copy)
    try:
        apply_migrations(connection, source)
        with connection:
            connection.execute("UPDATE store SET epoch = lower(hex(randomblob(16))), identity = ?", (identity,))
            connection.execute(_KEEP_LAST_BACKUP, (backed_up_at,))
            connection.execute("DELETE FROM console_sessions")  # those ended since the backup must not come back
            before = None if kept is None else {"kept": kept.name}
            run(connection, only(record(actor, "store.restore", "store", Change(before, {"backup": source.name}))))
        connection.pragma("journal_mode", "delete")
    finally:
        connection.close()


def _largest_assigned(path: Path) -> int:
    """The largest identifier that the store has assigned to an order, for no new order to get it again."""
    queries = (
        "SELECT last_order_id FROM order_index_state",
        f"SELECT max(id) FROM orders WHERE id <= {LARGEST_REMEMBERED}",  # noqa: S608 - a constant
    )
    return largest_assigned(found for query in queries if (found := _value_in(path, query)) is not None)


def _of_store(path: Path, column: str) -> Any:
    """A value of the store's one row; None if there is none that can be read."""
    return _value_in(path, f"SELECT {column} FROM store")  # noqa: S608 - a constant


def _value_in(path: Path, query: str) -> Any:
    """The one value that a query gives; None if the store cannot be read, or has none."""
    try:
        connection = connect_reader(path)
        try:
            return connection.execute(query).get
        finally:
            connection.close()
    except (apsw.Error, OSError):
        return None


def _unused_name(path: Path, at: float) -> Path:
    """Return a name next to the store for its previous content, made of the time (Unix seconds)."""
    name = f"{path.name}.before-restore-{file_stamp(at)}"
    names = (path.with_name(name + suffix) for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    return next(kept for kept in names if not kept.exists())


def _replace_content(copy: Path, path: Path, kept: Path | None) -> None:
    try:
        _write_over(copy, path, kept)
    except (apsw.NotADBError, apsw.CorruptError):
        with advising("Stop it, and restore again."):
            lock = lock_for_serving(path, shared=False)
        with lock:
            if kept is not None:
                kept.unlink(missing_ok=True)  # a copy that was complete before the damage was found
                path.rename(kept)
            for log in ("-wal", "-shm"):
                file = path.with_name(path.name + log)
                if file.exists():
                    file.rename(path.with_name(f"{kept.name if kept else path.name}{log}"))
            _put_in_place(copy, path)


def _write_over(copy: Path, path: Path, kept: Path | None) -> None:
    """Replace the content in one transaction: readers see the store before or after it, and nothing in between."""
    source, destination = connect_writer(copy), connect_writer(path, CREATE)
    try:
        use_log(destination, path)  # so that the present content can be read while the transaction is open
        with destination.backup("main", source, "main") as steps:
            # This begins the transaction: nothing can change between the copy that is kept and the new content.
            steps.step(0)
            if kept is not None:
                _keep(path, kept)
                source.execute(NOT_AGAIN, (_largest_assigned(kept),))
            while not steps.done:
                steps.step(-1)
        use_log(destination, path)
    finally:
        destination.close()
        source.close()


def _keep(path: Path, kept: Path) -> None:
    """Copy the store's present content, damaged or not, to a separate file, and flush it to the disk."""
    with partial_file(kept) as copy:
        original, duplicate = connect_reader(path), connect(copy, CREATE)
        try:
            with duplicate.backup("main", original, "main") as steps:
                while not steps.done:
                    steps.step(-1)
            duplicate.pragma("journal_mode", "delete")
        finally:
            duplicate.close()
            original.close()
        _put_in_place(copy, kept)


def _require_sound(copy: Path, otherwise: str) -> None:
    problems = check(copy)
    if problems:
        raise StoreUnusable(f"{otherwise}: {problems[0]}")


def _put_in_place(copy: Path, target: Path) -> None:
    """Give a complete file its name, and flush both to the disk."""
    copy.rename(target)
    _flush(target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    """Have the system write a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
