"""Backup, restore and check of the store's file."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import apsw

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import (
    Conflict,
    InvalidInput,
    ServiceUnavailable,
    StoreNewer,
    StoreOutdated,
    StoreUnusable,
    replacing_remedy,
)
from petstore_server.domain.orders import MAX_ASSIGNED_ID
from petstore_server.domain.timestamps import file_stamp
from petstore_server.engines.sqlite import connections, opening
from petstore_server.engines.sqlite.connections import CREATE, connect, connect_reader, connect_writer, transaction
from petstore_server.engines.sqlite.dialect import LAST_ACCOUNT, translated
from petstore_server.partial_files import is_protected, partial_file
from petstore_server.store.audit import INSERT_ENTRY, audit_row
from petstore_server.store.damage import DAMAGED, Damage
from petstore_server.store.records import CHECKED, MAX_PROBLEMS, order_problem, trigger_problem

_MAX_USUAL = MAX_ASSIGNED_ID - (1 << 32)
# What a restore does not take back: the identity, the last backup (a backup contains no record of itself, because that
# is made when it is complete), and identifiers that were assigned. Clients may still know an order that the backup
# lacks: a new one with its identifier would be taken for it. Of the largest identifiers few are left for new orders, so
# a restore gives these back. That of the last account is in the record of the restore, for `dialect.new_account`.
_CARRY_OVER = f"""
    UPDATE store SET identity = previous.identity,
        backed_up_at = nullif(max(coalesce(store.backed_up_at, 0), coalesce(previous.backed_up_at, 0)), 0)
    FROM previous.store AS previous;
    UPDATE clock SET last_order_id = max(last_order_id, coalesce(previous.id, 0))
    FROM (
        SELECT max(id) AS id FROM previous.orders WHERE id <= {_MAX_USUAL}
        UNION ALL SELECT last_order_id FROM previous.clock WHERE last_order_id <= {_MAX_USUAL} ORDER BY id DESC LIMIT 1
    ) AS previous;
    UPDATE audit SET "after" = json_set("after", '$.lastAccount', previous.id)
    FROM ({LAST_ACCOUNT.format(schema="previous")}) AS previous
    WHERE audit.id = (SELECT max(id) FROM audit) AND previous.id > (SELECT coalesce(max(id), 0) FROM accounts);
"""
_NEW_HISTORY = """
    UPDATE store SET epoch = lower(hex(randomblob(16))), identity = lower(hex(randomblob(8))), file = '',
        damage = NULL
"""
# Copied over the store, the content may get the store's inode, and must begin a new history all the same.
_IS_COPY = "UPDATE store SET file = 'copy'"
_PAGES_A_STEP = 1000
_DAMAGED = "The file is damaged"
_MARK = slice(68, 72)  # where a SQLite file has its application id


def backup(path: Path, target: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Copy the current state of the store while servers continue to work.

    The copy is verified before it gets its name. The store may lack migrations. `progress` gets the pages copied, and
    all. Raises StoreUnusable, Conflict if the target exists, InvalidInput if its directory does not, and
    ServiceUnavailable if its disk is full.
    """
    path, target = opening.resolved(path), target.absolute()
    opening.require_place(path, file_too=True)
    if target.exists() or is_protected(target, path):
        raise Conflict(f"{target} exists already, or belongs to a store; choose another name.")
    if not target.parent.is_dir():
        raise InvalidInput(f"The directory {target.parent} does not exist; create it or choose another name.")
    with opening.unusable_on_error(target), partial_file(target) as copy:
        copy.create().close()
        with opening.unusable_on_error(path):
            _require_store(path)
            _copy(path, copy.path, progress)
        _require_sound(copy.path, path, "The store", "no backup was made", older=True)
        copy.put_in_place(replace=False)


def restore(path: Path, source: Path, actor: Actor) -> Path | None:
    """Replace the store's content by a backup in one transaction; running servers see it with their next read.

    Return the file that keeps the previous content, next to the store; None if there was no store. The backup is
    verified and migrated in a copy, which gets a new epoch, the store's identity and an audit entry, before the store
    changes. Raises StoreUnusable, and ServiceUnavailable if the disk is full.
    """
    path, source = opening.resolved(path), source.resolve()
    opening.require_place(path, file_too=False)
    if not source.is_file():
        raise StoreUnusable(f"There is no backup at {source}.")
    kept = _unused_name(path, actor.at) if path.exists() and path.stat().st_size else None
    with opening.unusable_on_error(path), partial_file(path) as partial:
        partial.create().close()
        copy = partial.path
        with replacing_remedy("Nothing was restored; choose another backup."), opening.unusable_on_error(source):
            _require_store(source)
            _copy(source, copy)
            with _translating_disk_full(copy):
                _begin_epoch(copy, source, kept, actor)
        _require_sound(copy, source, "The backup", "nothing was restored")
        made = set[Path]()
        with opening.unusable_on_error(path):
            try:
                _write_over(copy, path, kept, made)
            except (apsw.NotADBError, apsw.CorruptError):
                _require_mark(path)
            else:
                return kept
        # Not while the error is handled: until then it keeps its connection open, and with it SQLite's locks.
        with replacing_remedy("Stop the servers, and restore again."), opening.unusable_on_error(path):
            _write_over(copy, path, kept, made, damaged=True)
    return kept


def was_damaged(kept: Path) -> bool:
    """Whether a store, whose content a restore has kept, cannot be read or has a note of damage."""
    with opening.unusable_on_error(kept):
        try:
            with closing(connect_reader(kept)) as connection:
                return connection.execute("SELECT damage FROM store").get is not None
        except (apsw.CorruptError, apsw.NotADBError):
            return True
        except apsw.SQLError:  # of an older release, which has no notes
            return False


def check(path: Path, *, older: bool = False) -> list[str]:
    """What is wrong with the store, in plain words; empty if it is sound. It may lack migrations where `older`.

    Raises StoreUnusable if there is none, if it is of another version, or if it cannot be read for another reason,
    such as a lock.

    Damage to the file is saved in it, so that no process accepts a change.
    """
    path = opening.resolved(path)
    opening.require_place(path, file_too=True)
    with opening.unusable_on_error(path):
        try:
            with closing(connect_reader(path)) as connection, transaction(connection):
                problems = list(islice(_problems(connection, path, older=older), MAX_PROBLEMS))
            damaged = any(problem.startswith(_DAMAGED) for problem in problems)
        except (apsw.CorruptError, apsw.NotADBError, apsw.IOError) as error:
            problems = [f"The store at {path} cannot be read: {connections.plain_words(error)}."]
            damaged = isinstance(error, apsw.CorruptError)
        except (StoreNewer, StoreOutdated):
            raise
        except StoreUnusable as error:
            return [error.message]
    if damaged:
        with suppress(apsw.Error, OSError), closing(connect_writer(path)) as connection:
            connection.execute(translated(Damage.SAVE), (f"{_DAMAGED.lower()}{DAMAGED}",))
    return problems


def _problems(connection: apsw.Connection, path: Path, *, older: bool) -> Iterator[str]:
    opening.SCHEMA.must_migrate(opening.schema_version(connection, path), f"at {path}", upgrade=older)
    for name, table in connection.execute("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger'"):
        yield trigger_problem(name, table)
    for (result,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
        if result != "ok":
            yield f"{_DAMAGED}: {result}."
    for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"A row of {table} refers to a row of {parent} that is not there."
    yield from filter(None, map(order_problem, connection.execute(f"{translated(CHECKED)} ORDER BY id")))


def _require_store(path: Path) -> None:
    opening.require_own_log(path)
    with closing(connect_reader(path)) as connection:
        if opening.schema_version(connection, path) == 0:
            raise StoreUnusable(f"There is no store in {path}.")


def _copy(source: Path, copy: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Copy the current state of a store into a new file, without a log next to it; opened, it begins a new history."""
    with closing(connect_reader(source)) as original, closing(connect(copy, CREATE)) as duplicate:
        # One read transaction for all steps: otherwise the copy would begin again after every change.
        with _translating_disk_full(copy), transaction(original), duplicate.backup("main", original, "main") as steps:
            original.execute("SELECT * FROM sqlite_schema").fetchall()
            while not steps.done:
                steps.step(_PAGES_A_STEP)
                progress(steps.page_count - steps.remaining, steps.page_count)
        with _translating_disk_full(copy):
            duplicate.pragma("journal_mode", "delete")
            if duplicate.pragma("user_version"):  # not of a file whose creation was interrupted
                duplicate.execute(_IS_COPY)


@contextmanager
def _translating_disk_full(copy: Path) -> Iterator[None]:
    """Say that the disk of a copy is full, instead of that its source cannot be used. Raises ServiceUnavailable."""
    try:
        yield
    except apsw.FullError as error:
        raise ServiceUnavailable(f"the disk of {copy.parents[1]} is full; free some space and try again") from error


def _begin_epoch(copy: Path, source: Path, kept: Path | None, actor: Actor) -> None:
    """Migrate the copy, record the restore, and mark the copy as another history, so that no cache is used for it."""
    with closing(connect_writer(copy)) as connection:
        opening.apply_migrations(connection, source)
        with transaction(connection):
            connection.execute(_NEW_HISTORY)
            connection.execute("DELETE FROM console_sessions")  # those ended since the backup must not come back
            before = None if kept is None else {"kept": kept.name}
            entry = audit_row(actor, "store.restore", "store", Change(before, {"backup": source.name}))
            connection.execute(translated(INSERT_ENTRY), entry)
        connection.pragma("journal_mode", "delete")


def _unused_name(path: Path, at: float) -> Path:
    """Return a name next to the store for its previous content, made of the time (Unix seconds)."""
    name = f"{path.name}.before-restore-{file_stamp(at)}"
    names = (path.with_name(name + suffix) for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    return next(kept for kept in names if not os.path.lexists(kept))


def _write_over(copy: Path, path: Path, kept: Path | None, made: set[Path], *, damaged: bool = False) -> None:
    """Replace the content in one transaction: readers see the store before or after it, and nothing in between.

    The previous content is `kept`, if that is given, and then `made`; what an earlier call made is replaced.

    A file that is too `damaged` to be read is overwritten unread, unless a server has it open, which locks it.
    """
    with (
        path.open(mode="rb") if damaged else nullcontext() as unreadable,  # closed last, which releases SQLite's locks
        closing(connect_writer(copy)) as source,
        closing(connect(path) if damaged else connect_writer(path, CREATE)) as destination,
    ):
        version = 0
        if damaged:  # the file is taken for an empty one, so that it can be overwritten whatever is in it
            destination.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
        else:
            version = opening.schema_version(destination, path)  # what is not a store is not replaced
            opening.use_log(destination, path)  # so that the present content can be read while the transaction is open
        with destination.backup("main", source, "main") as steps:
            # This begins the transaction: nothing can change between the copy that is kept and the new content.
            steps.step(0)
            if kept is not None:
                _keep(path, kept, unreadable, replace=kept in made)
                made.add(kept)
                if version:
                    source.execute("ATTACH ? AS previous", (str(kept),))
                    source.execute(_CARRY_OVER)
            try:
                while not steps.done:
                    steps.step(-1)
            except apsw.FullError:  # the content is as it was, and on a full disk a copy of it takes what space is left
                if kept is not None and not damaged:
                    kept.unlink()
                raise
        destination.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
        opening.use_log(destination, path)


def _keep(path: Path, kept: Path, unreadable: BinaryIO | None, *, replace: bool) -> None:
    """Copy the store's present content to a separate file, and flush it to the disk.

    What SQLite cannot read is copied as bytes: SQLite has written its log into the file before.
    """
    with partial_file(kept) as copy:
        with copy.create() as duplicate:
            if unreadable is not None:
                shutil.copyfileobj(unreadable, duplicate)
        if unreadable is None:
            _copy(path, copy.path)
        copy.put_in_place(replace=replace)


def _require_mark(path: Path) -> None:
    """Raise StoreUnusable unless a file that cannot be opened has the mark of a store in its header."""
    with path.open("rb") as file:  # no connection is open, whose locks closing this would release
        if file.read(_MARK.stop)[_MARK] != opening.APPLICATION_ID.to_bytes(4):
            advice = "Correct PETSTORE_DATABASE_URL; if the file was a store, move it away and restore again."
            raise StoreUnusable(f"{path} is not a store, so it is not replaced.", advice)


def _require_sound(copy: Path, original: Path, what: str, otherwise: str, *, older: bool = False) -> None:
    """Raise StoreUnusable if a copy is not sound. The message names the original, because the copy is removed."""
    try:
        problems, fault, named = check(copy, older=older), "is not sound", str(original)
    except StoreUnusable as error:
        problems, fault, named = [error.message], "could not be verified", f"its copy in {copy.parents[1]}"
    if problems:
        problem = problems[0].replace(str(copy), named)
        raise StoreUnusable(f"{what} at {original} {fault}, so {otherwise}: {problem}")
