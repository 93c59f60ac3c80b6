"""Backup, restore and check of the store."""

import asyncio
import os
import pwd
import shutil
import threading
import time
from contextlib import closing, nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import apsw
import pytest

from petstore_server.api.list_cache import ListCache
from petstore_server.domain.errors import Conflict, InvalidInput, StoreUnusable
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.placements import Placement
from petstore_server.engines.sqlite import connections, migrate
from petstore_server.engines.sqlite import maintenance as sqlite_maintenance
from petstore_server.engines.sqlite.maintenance import backup, check, restore
from petstore_server.engines.sqlite.opening import SCHEMA
from petstore_server.operations.health_machine import check_files
from petstore_server.runtime import opening
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.damage import overwrite
from testing.documents import ROOT
from testing.stores import BY, add_key, all_orders, body, locked, log, opened, opened_file

ADDED_TRIGGER = "CREATE TRIGGER spy AFTER UPDATE ON orders BEGIN DELETE FROM keys; END"
KEPT = "store.db.before-restore-19700101T001640Z"
CONTENT, HEADER = slice(100, None), slice(16)
"""Parts of a file: all but its header, and the bytes by which SQLite recognises a database."""


def test_git_ignores_what_a_restore_keeps() -> None:
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert any(fnmatch(KEPT, pattern) for pattern in ignored)


async def filled(path: Path, count: int = 3) -> Path:
    """A store with some orders, closed."""
    async with opened(path) as store:
        await store.orders.import_batch([Order(number, number) for number in range(count)], "import:1", BY)
    return path


async def cancelled_in(store: Store) -> set[int]:
    """The identifiers of the cancelled orders."""
    orders = await all_orders(store)
    return {order.id for order in orders if order.status is Status.CANCELLED}


async def listed(path: Path) -> bytes:
    async with opened(path) as store:
        return await body(store)


def execute(path: Path, *statements: str) -> None:
    with opened_file(path) as connection:
        for statement in statements:
            connection.execute(statement)


def modes_in(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in directory.iterdir()}


async def test_a_backup_is_one_sound_file_with_everything_and_a_store_as_any_other_in_its_place(tmp_path: Path) -> None:
    store, target = await filled(tmp_path / "store.db", 20_000), tmp_path / "copy.db"
    steps: list[tuple[int, int]] = []
    backup(store, target, lambda done, pages: steps.append((done, pages)))
    assert steps[-1][0] == steps[-1][1] > 100
    assert sorted(modes_in(tmp_path)) == ["copy.db", "store.db"]
    assert b"\x01\x01" == target.read_bytes()[18:20]  # of the file format: no log next to it
    assert [] == check(target)
    assert await listed(target) == await listed(store)
    assert b"\x02\x02" == target.read_bytes()[18:20]


async def test_no_store_gets_or_removes_the_log_of_one_that_was_moved(tmp_path: Path) -> None:
    path, copy, kept = await filled(tmp_path / "store.db", 300), tmp_path / "copy.db", tmp_path / "store.db-wal"
    backup(path, copy)
    expected = copy.read_bytes()
    with opened_file(path) as lost:
        lost.execute("UPDATE orders SET status = 'cancelled' WHERE id = 3")
        path.rename(tmp_path / "moved.db")
        refused = rf"{kept} is the log of another file, which was there before"
        for make in (lambda: migrate(path), lambda: restore(path, copy, BY)):
            with pytest.raises(StoreUnusable, match=refused):
                make()
        shutil.copy(copy, path)
        for use in (
            lambda: migrate(path),
            lambda: check(path),
            lambda: backup(path, tmp_path / "new.db"),
            lambda: restore(path, copy, BY),
            lambda: restore(tmp_path / "restored.db", path, BY),
            lambda: locked(path, shared=False),
        ):
            with pytest.raises(StoreUnusable, match=refused):
                use()
        assert expected == path.read_bytes()
        kept.rename(tmp_path / "moved.db-wal")
    assert [] == check(path)
    async with opened(path) as store, opened(tmp_path / "moved.db") as moved:
        assert (set(), {3}) == (await cancelled_in(store), await cancelled_in(moved))


async def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    store, target = await filled(tmp_path / "store.db"), tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(Conflict, match="exists already"):
        backup(store, target)
    assert "precious" == target.read_text()
    with pytest.raises(InvalidInput, match="does not exist"):
        backup(store, tmp_path / "missing" / "copy.db")
    with pytest.raises(StoreUnusable, match="no store at"):
        backup(tmp_path / "nothing.db", tmp_path / "copy2.db")


async def test_a_backup_under_load_is_one_consistent_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petstore_server.engines.sqlite.maintenance._PAGES_A_STEP", 50)
    path = await filled(tmp_path / "store.db", 10_000)
    stop = threading.Event()
    changes = 0
    steps: list[int] = []

    async def work() -> None:
        nonlocal changes
        while not stop.is_set():
            await store.orders.change(changes, CANCEL, BY)
            changes += 1

    def step(copied: int, total: int) -> None:
        steps.append(copied)
        waited = changes
        while changes == waited and not working.done():  # something is changed between any two steps
            time.sleep(0.001)

    async with opened(path) as store:
        working = asyncio.create_task(work())
        await asyncio.to_thread(backup, path, tmp_path / "copy.db", step)
        stop.set()
        await working
    assert len(steps) > 3
    assert sorted(steps) == steps  # it never began again
    assert [] == check(tmp_path / "copy.db")
    async with opened(tmp_path / "copy.db") as copy:
        cancelled = await cancelled_in(copy)
        assert set(range(len(cancelled))) == cancelled
        assert [entry.action for entry in await log(copy)].count("order.cancel") == len(cancelled)


async def test_a_damaged_store_gives_no_backup_and_the_reason_names_it_and_not_its_copy(tmp_path: Path) -> None:
    store = await filled(tmp_path / "store.db", 5_000)
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(store.read_bytes())
    overwrite(damaged, slice(-40_000, -20_000), b"\x5a")
    reason = f": The store at {damaged} cannot be read: its file is damaged."
    with pytest.raises(StoreUnusable) as caught:
        backup(damaged, tmp_path / "copy.db")
    assert caught.value.message == f"The store at {damaged} is not sound, so no backup was made{reason}"
    assert ["damaged.db", "store.db"] == sorted(modes_in(tmp_path))
    with pytest.raises(StoreUnusable) as caught:
        restore(store, damaged, BY)
    assert caught.value.message.endswith(reason)
    assert 0 < len(check(damaged)) <= 100


async def test_a_running_store_sees_a_restore_with_its_next_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
        cache = ListCache(store.listing)
        before, access = (await cache.current()).plain, await store.access_version()
        backup(path, tmp_path / "copy.db")
        await store.orders.import_batch([Order(3)], "import:2", BY)
        await add_key(store)
        later, later_access = (await cache.current()).plain, await store.access_version()
        lost, epoch = await store.listing.current(), await store.epoch()
        restore(path, tmp_path / "copy.db", BY)
        assert epoch != await store.epoch()
        assert before == (await cache.current()).plain
        assert later.etag != before.etag
        assert await store.access_version() not in (access, later_access)
        assert [] == await store.accounts.list()
        # The same number of changes as before leads to other bytes: they must not be taken for the old ones.
        await store.orders.import_batch([Order(4)], "import:3", BY)
        assert [b'[{"id":1},{"id":2},{"id":4}]'] == (await cache.current()).plain.whole.chunks
        found = await store.listing.current()
        assert (lost.mark.change, False) == (found.mark.change, lost.mark.history == found.mark.history)
        await store.check()
        assert (await store.orders.change(1, CANCEL, BY)).status is Status.CANCELLED
    assert [] == check(path)
    assert sorted(modes_in(tmp_path)) == ["copy.db", "store.db", KEPT]


async def test_a_restore_keeps_the_previous_content_and_is_recorded(tmp_path: Path) -> None:
    path = await filled(tmp_path / "store.db")
    backup(path, tmp_path / "copy.db")
    async with opened(path) as store:
        await store.orders.import_batch([Order(9)], "import:2", BY)
    before = await listed(path)
    kept = restore(path, tmp_path / "copy.db", BY)
    assert tmp_path / KEPT == kept
    assert [] == check(kept)
    assert before == await listed(kept)
    async with opened(path) as store:
        first = await store.epoch()
    assert tmp_path / f"{KEPT}-2" == restore(path, tmp_path / "copy.db", BY)
    async with opened(path) as store:
        assert first != await store.epoch()
        entries = [entry[1:7] for entry in await log(store) if entry.action == "store.restore"]
    assert [(BY.at, BY.name, "store.restore", "store", {"kept": f"{KEPT}-2"}, {"backup": "copy.db"})] == entries


@pytest.mark.parametrize("mask", [0, 0o777])
async def test_files_of_a_store_can_be_read_by_their_owner_only_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    before = os.umask(mask)
    try:
        async with opened(path) as store:
            await store.orders.import_batch([Order(1)], "import:1", BY)
            assert modes_in(tmp_path) == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)
        backup(path, copy)
        with locked(path, shared=False):
            restore(path, copy, BY)
        assert {0o600} == set(modes_in(tmp_path).values())
    finally:
        os.umask(before)


async def test_a_restore_under_load_shows_one_store_or_the_other_and_keeps_each_change_in_one(tmp_path: Path) -> None:
    path = await filled(tmp_path / "store.db", 5_000)
    backup(path, tmp_path / "copy.db")
    old = await listed(path)
    seen: list[bytes] = []
    acknowledged: set[int] = set()
    async with opened(path) as store:
        await store.orders.import_batch([Order(number) for number in range(5_000, 9_000)], "import:2", BY)
        new = await body(store)
        restoring = asyncio.create_task(asyncio.to_thread(restore, path, tmp_path / "copy.db", BY))
        while not restoring.done():
            seen.append(await body(store))
            await store.orders.change(len(acknowledged), CANCEL, BY)  # which raises if it was cancelled before
            acknowledged.add(len(acknowledged))
        await restoring
        assert set(seen) <= {old, new}
        assert old == await body(store)
    async with opened(tmp_path / KEPT) as kept, opened(path) as restored:
        assert acknowledged == await cancelled_in(kept) | await cancelled_in(restored)
    assert [] == check(path)


async def test_a_restore_makes_a_store_where_none_or_a_part_of_one_is(tmp_path: Path) -> None:
    path = await filled(tmp_path / "store.db")
    backup(path, tmp_path / "copy.db")
    (tmp_path / "empty.db").touch()  # as a creation leaves it that was interrupted, then or later
    execute(tmp_path / "begun.db", "PRAGMA journal_mode = WAL")
    for name, is_kept in (("new.db", False), ("empty.db", False), ("begun.db", True)):
        assert is_kept == (restore(tmp_path / name, tmp_path / "copy.db", BY) is not None)
        assert await listed(tmp_path / name) == await listed(path)


async def test_no_account_gets_the_identifier_of_one_that_a_restore_removed(tmp_path: Path) -> None:
    path = await filled(tmp_path / "store.db")
    backup(path, tmp_path / "copy.db")
    async with opened(path) as store:
        await add_key(store, "one", "known")
        removed = await store.accounts.find("known")
    for _ in range(2):  # the second time, the store lacks it already
        restore(path, tmp_path / "copy.db", BY)
    async with opened(path) as store:
        await add_key(store, "two", "new")
        assert removed.id + 1 == (await store.accounts.find("new")).id


async def test_an_order_that_is_placed_for_an_account_which_a_restore_has_removed_is_the_shops(tmp_path: Path) -> None:
    """As a server does until it notices the restore: an import can then name another owner."""
    path = await filled(tmp_path / "store.db")
    backup(path, tmp_path / "copy.db")
    async with opened(path) as store:
        await add_key(store)
        removed = await store.accounts.find("zoo")
        restore(path, tmp_path / "copy.db", BY)
        placed = await store.orders.place(Placement(removed.id, "key", 7, 1, None, "PO-7"), BY)
        await add_key(store, "new", "new")
        order = Order(placed.order_id, 7, 1, reference="PO-7", account="new")
        await store.orders.import_batch([order], "import:1", BY, replace_placed=True)
        assert "new" == (await store.orders.find(placed.order_id)).account


@pytest.mark.parametrize(("damaged", "served"), [(CONTENT, False), (HEADER, True), (None, True)])
async def test_a_restore_replaces_a_store_that_cannot_be_opened(
    tmp_path: Path, damaged: slice | None, served: bool
) -> None:
    path = await filled(tmp_path / "store.db", 300)
    expected = await listed(path)
    backup(path, tmp_path / "copy.db")
    if damaged is not None:
        overwrite(path, damaged)
    else:
        os.truncate(path, 5000)
    broken = path.read_bytes()
    with locked(path, shared=False) if served else nullcontext():
        kept = restore(path, tmp_path / "copy.db", BY)
    assert kept is not None
    assert broken == kept.read_bytes()
    assert b"\x02\x02" == path.read_bytes()[18:20]  # of the format: a log, so reading locks no server out
    assert expected == await listed(path)
    assert [] == check(path)
    assert sorted(modes_in(tmp_path)) == ["copy.db", "store.db", kept.name]


async def test_a_restore_does_not_replace_a_damaged_store_that_a_server_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.05)
    path = await filled(tmp_path / "store.db", 300)
    backup(path, tmp_path / "copy.db")
    async with opened(path):
        with path.open("r+b") as file:
            file.write(b"\xff" * 16)
        broken = path.read_bytes()
        with pytest.raises(StoreUnusable, match=r"locked\. Stop the servers, and restore again\."):
            restore(path, tmp_path / "copy.db", BY)
        assert broken == path.read_bytes()
    kept = restore(path, tmp_path / "copy.db", BY)
    assert kept is not None
    assert [] == check(path)


async def test_a_restore_does_not_replace_what_is_not_a_store(tmp_path: Path) -> None:
    backup(await filled(tmp_path / "store.db"), tmp_path / "copy.db")
    notes, theirs = tmp_path / "notes.txt", tmp_path / "theirs.db"
    notes.write_text("These are my notes. " * 500)
    execute(theirs, "CREATE TABLE theirs (id INTEGER)")
    for target in (notes, theirs):
        before = target.read_bytes()
        with pytest.raises(StoreUnusable, match=r"not a store|another program"):
            restore(target, tmp_path / "copy.db", BY)
        assert before == target.read_bytes()
    assert sorted(modes_in(tmp_path)) == ["copy.db", "notes.txt", "store.db", "theirs.db"]


async def test_a_restore_of_anything_but_a_sound_backup_changes_nothing(tmp_path: Path) -> None:
    path = await filled(tmp_path / "store.db")
    before = await listed(path)
    (tmp_path / "text.db").write_text("no database " * 500)
    (tmp_path / "empty.db").touch()
    execute(tmp_path / "other.db", "CREATE TABLE theirs (id INTEGER)")
    for name in ("newer.db", "damaged.db", "added.db"):
        backup(path, tmp_path / name)
    execute(tmp_path / "newer.db", f"PRAGMA user_version = {SCHEMA.latest + 1}")
    execute(tmp_path / "damaged.db", "DROP INDEX orders_by_revision", "UPDATE orders SET record = 'x' WHERE id = 2")
    execute(tmp_path / "added.db", ADDED_TRIGGER)
    for name, reason in (
        ("missing.db", "no backup"),
        ("text.db", "not a SQLite database"),
        ("empty.db", "no store in"),
        ("other.db", "another program"),
        ("newer.db", "newer than"),
        ("damaged.db", "nothing was restored: Order 2 "),
        ("added.db", "nothing was restored: The table orders has a trigger, spy"),
    ):
        with pytest.raises(StoreUnusable, match=reason) as caught:
            restore(path, tmp_path / name, BY)
        assert name in caught.value.message
    assert before == await listed(path)
    assert not [name for name in modes_in(tmp_path) if name.endswith(".partial")]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE orders SET record = '{\"id\":1,' WHERE id = 1", "Order 1 has a record that cannot be read"),
        ('UPDATE orders SET record = \'{"id":1,"x":2}\' WHERE id = 1', "'x' is not a field"),
        ("UPDATE orders SET record = '[1]' WHERE id = 1", "Order 1 has a record that cannot be read"),
        ("UPDATE orders SET record = '{\"id\":2}' WHERE id = 1", "Order 1 has a record that names order 2."),
        ("UPDATE orders SET record = '{\"id\": 1}' WHERE id = 1", "Order 1 has a record in another form"),
        ("UPDATE orders SET status = 'lost' WHERE id = 1", "status 'lost' is none of"),
        ("UPDATE orders SET pet_id = 9 WHERE id = 1", "Order 1 has columns that differ from its record."),
        ("INSERT INTO bans VALUES ('key_gone', 1, 2, 1)", "A row of bans refers to a row of keys that is not there."),
        ("PRAGMA user_version = 0", "There is no store at "),
        (ADDED_TRIGGER, "The table orders has a trigger, spy, which another program has added: drop it."),
    ],
)
async def test_a_check_says_what_is_wrong(tmp_path: Path, statement: str, problem: str) -> None:
    path = await filled(tmp_path / "store.db")
    assert [] == check(path)
    execute(path, "PRAGMA ignore_check_constraints = ON", statement)
    assert problem in " ".join(check(path))


def test_a_store_that_another_program_keeps_locked_is_not_called_unsound(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.must("db", "check")
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.05)
    with opened_file(cli.store) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE; UPDATE store SET damage = NULL").fetchall()
        cli("db", "check").fails(1, "another program keeps it locked. Try again when it has finished.")
    monkeypatch.setattr(sqlite_maintenance, "_problems", Mock(side_effect=apsw.BusyError))
    done = cli("db", "backup", str(cli.store.with_name("copy.db")))
    locked_copy = f"its copy in {cli.store.parent} cannot be used as a store: another program keeps it locked."
    assert f"The store at {cli.store} could not be verified, so no backup was made: {locked_copy}" in done.err
    monkeypatch.setattr(opening, "check_store", Mock(side_effect=StoreUnusable("It is locked.", "Try again.")))
    assert "The store was not read in full: It is locked. Try again." in cli("doctor", "--json").out
    monkeypatch.undo()
    assert "The store is sound." in cli.must("db", "check").out


_SERVICE = 65_534


@pytest.fixture(name="directory_of_the_service")
def _directory_of_the_service(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to other users")
    directory = tmp_path / "service"
    directory.mkdir()
    os.chown(directory, _SERVICE, _SERVICE)
    return directory


async def test_a_store_that_root_creates_belongs_to_the_user_of_the_service(directory_of_the_service: Path) -> None:
    path = directory_of_the_service / "store.db"
    async with opened(path) as store:
        await store.orders.import_batch([Order(1)], "i", BY)
        assert {"store.db", "store.db-wal", "store.db-shm"} == {file.name for file in path.parent.iterdir()}
        assert {_SERVICE} == {file.stat().st_uid for file in path.parent.iterdir()}
    assert ["ok"] == [result.level for result in check_files(path)]


async def test_what_root_copies_belongs_to_root_whoever_owns_the_store(directory_of_the_service: Path) -> None:
    path = directory_of_the_service / "store.db"
    backup_path = path.with_name("backup.db")
    async with opened(path) as store:
        await store.orders.import_batch([Order(1)], "i", BY)
    foreign = f"Other users can change {path.parent}.*sudo -u {pwd.getpwuid(_SERVICE).pw_name}"
    with pytest.raises(InvalidInput, match=foreign):
        backup(path, backup_path)
    with pytest.raises(InvalidInput, match=foreign):
        restore(path, path, BY)
    assert ["store.db"] == [file.name for file in path.parent.iterdir()]
    os.chown(path.parent, 0, 0)
    backup(path, backup_path)
    kept = restore(path, backup_path, BY)
    assert kept is not None
    owners = {file: file.stat().st_uid for file in path.parent.iterdir()}
    assert {path: _SERVICE, backup_path: 0, kept: 0} == owners


def test_the_doctor_finds_what_belongs_to_root_in_the_directory_of_the_service(directory_of_the_service: Path) -> None:
    path = directory_of_the_service / "store.db"
    migrate(path)
    log = path.with_name("store.db-wal")
    log.touch(mode=0o600)
    [result] = check_files(path)
    assert (result.level, result.remedy) == ("fail", f"chown {pwd.getpwuid(_SERVICE).pw_name} {log}")
    os.chown(path.parent, 0, 0)  # the owner of the store's file is enough
    assert [result] == list(check_files(path))
    os.chown(log, _SERVICE, _SERVICE)
    assert ["ok"] == [result.level for result in check_files(path)]


def test_the_doctor_finds_what_this_user_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    migrate(path)
    monkeypatch.setattr(os, "access", lambda place, mode: place != path or not mode & os.W_OK)
    remedy = f"Run as the owner of {path}, or let this user read and write it."
    assert [("permissions", "fail", f"This user cannot read and write {path}.", remedy)] == [
        result[:4] for result in check_files(path)
    ]


async def test_a_backup_and_a_restored_store_are_on_the_disk_before_they_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await filled(tmp_path / "store.db")
    flushed: set[int] = set()
    fsync, link = os.fsync, os.link
    named = []

    def note_flush(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def note_name(file: str, target: str, **options: Any) -> None:
        assert os.stat(file, dir_fd=options["src_dir_fd"]).st_ino in flushed
        named.append(target)
        flushed.clear()
        link(file, target, **options)

    directory = tmp_path.stat().st_ino  # noqa: ASYNC240
    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(os, "link", note_name)
    backup(path, tmp_path / "copy.db")
    assert directory in flushed
    kept = restore(path, tmp_path / "copy.db", BY)
    assert kept is not None
    assert directory in flushed
    assert ["copy.db", kept.name] == named


def test_each_connection_has_the_settings_that_its_use_needs(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    migrate(path)
    every = {"foreign_keys": 1}  # references between tables are checked
    reading = every | {"query_only": 1, "cache_size": -8000}
    for connect, settings in (
        # FULL: a commit is flushed before it is acknowledged.
        (connections.connect_writer, every | {"synchronous": 2, "fullfsync": 1, "journal_size_limit": 1 << 26}),
        (connections.connect_reader, reading),
        (connections.connect_inline, reading | {"busy_timeout": 50}),
    ):
        with closing(connect(path)) as connection:
            assert settings == {name: connection.pragma(name) for name in settings}
            assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)
