"""Finding, creating, migrating and locking the store's file, with one sentence on a failure; its identity (D12)."""

import asyncio
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from itertools import product
from pathlib import Path

import apsw
import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import StoreUnusable
from petstore_server.engines.sqlite import connections, is_served
from petstore_server.engines.sqlite import opening as opening_module
from petstore_server.engines.sqlite.connections import connect_writer
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.store import Store
from testing.damage import overwrite
from testing.engines import PostgresEngine
from testing.stores import Stores, locked, opened, opened_at, opening, refusal


def test_a_relative_path_is_reported_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [f"Created a new store at {tmp_path / 'store.db'}."] == opening(Path("store.db"), create=True)
    assert (tmp_path / "store.db").is_file()


def test_a_damaged_file_does_not_stay_open(tmp_path: Path) -> None:
    """Also while the error is known: a restore would wait for the lock."""
    path = tmp_path / "store.db"
    opening(path, create=True)
    overwrite(path, slice(100, 10_100), b"\0")
    with pytest.raises(apsw.Error) as known:
        connect_writer(path)
    assert known.value.__traceback__ is not None
    assert str(path) not in [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]


def test_a_database_of_another_program_is_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    assert "another program" in refusal(path, create=True, upgrade=True)
    assert before == path.read_bytes()


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    opening(path, create=True)
    overwrite(path, slice(100, 2_000))  # the schema
    message = refusal(path)
    assert "damaged" in message
    assert "restore a backup" in message


def test_a_missing_directory_and_a_directory_in_its_place_are_named(tmp_path: Path) -> None:
    assert str(tmp_path / "missing") in refusal(tmp_path / "missing" / "store.db", create=True)
    assert "not a file" in refusal(tmp_path, create=True)


def test_a_store_or_a_directory_that_cannot_be_written_is_refused() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:  # which other users can reach, unlike pytest's
        directory = Path(name).resolve()
        opening(directory / "store.db", create=True)
        with closing(connect_writer(directory / "store.db")) as connection:
            connection.pragma("journal_mode", "delete")  # as that of a backup
        (directory / "store.db").chmod(0o444)
        directory.chmod(0o555)
        os.seteuid(user or 65_534)  # the superuser is not bound by permissions
        try:
            message = refusal(directory / "new.db", create=True, upgrade=True)
            assert (True, True) == (str(directory / "new.db") in message, "permissions" in message)
            for create, upgrade in product((False, True), repeat=2):
                message = refusal(directory / "store.db", create=create, upgrade=upgrade)
                assert f"The store at {directory / 'store.db'} is not writable; check its permissions" in message
        finally:
            os.seteuid(user)
        directory.chmod(0o755)


def test_a_store_that_another_process_migrates_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.01)
    path = tmp_path / "store.db"
    other = connect_writer(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    other.pragma("journal_mode", "wal")
    other.execute("BEGIN IMMEDIATE")
    finish = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    finish.start()
    assert [f"Created a new store at {path}."] == opening(path, create=True)
    finish.join()
    other.close()


def test_what_sqlite_does_not_wait_for_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_log, tries = opening_module.use_log, iter(range(100))

    def busy_at_first(connection: apsw.Connection, path: Path) -> None:
        if next(tries) < 3:
            raise apsw.BusyError  # as while the last user of the log removes it
        use_log(connection, path)

    monkeypatch.setattr(opening_module, "use_log", busy_at_first)
    assert [f"Created a new store at {tmp_path / 'store.db'}."] == opening(tmp_path / "store.db", create=True)


def test_only_servers_with_redis_share_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first, second = locked(path, shared=True), locked(path, shared=True)
    first.close()
    with pytest.raises(StoreUnusable, match="already uses"):
        locked(path, shared=False)
    second.close()
    with locked(path, shared=False):
        for shared in (False, True):
            with pytest.raises(StoreUnusable, match="PETSTORE_REDIS_URL") as caught:
                locked(path, shared=shared)
            assert str(path) in caught.value.message


def test_a_server_waits_for_a_command_that_only_looks_at_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    held = locked(path, shared=False)
    looking = threading.Timer(0.2, held.close)
    looking.start()
    locked(path, shared=False, wait_seconds=20).close()
    looking.join()


def test_another_name_of_the_same_file_is_the_same_store(tmp_path: Path) -> None:
    opening(tmp_path / "store.db", create=True)
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "hard.db").hardlink_to(tmp_path / "store.db")
    with locked(tmp_path / "store.db", shared=False):
        for name in ("link.db", "elsewhere/hard.db"):
            assert is_served(tmp_path / name, shared=True)
            with pytest.raises(StoreUnusable):
                locked(tmp_path / name, shared=False)
    locked(tmp_path / "elsewhere" / "hard.db", shared=False).close()


_WRITES_AT_ONCE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = DELETE")  # only while no other program has the store open
    print("only user")
except sqlite3.OperationalError as error:
    print(error)
"""


def test_the_lock_leaves_sqlites_own_locks(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    opening(path, create=True)

    def seen_by_another_process() -> str:
        command = [sys.executable, "-c", _WRITES_AT_ONCE, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    connection = connect_writer(path)
    connection.execute("SELECT * FROM clock").fetchall()
    assert "database is locked" == seen_by_another_process()
    locked(path, shared=False).close()  # closing a descriptor would release the locks of this process
    with locked(path, shared=True):
        assert not is_served(path, shared=True)
        assert is_served(path, shared=False)
    assert "database is locked" == seen_by_another_process()
    connection.close()
    with locked(path, shared=False):
        assert "only user" == seen_by_another_process()


def test_a_server_that_starts_while_its_file_is_replaced_locks_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, restored = tmp_path / "store.db", tmp_path / "restored.db"
    opening(path, create=True)
    restored.touch()
    flock = fcntl.flock

    def replaced_meanwhile(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if restored.exists():
            restored.rename(path)

    monkeypatch.setattr(fcntl, "flock", replaced_meanwhile)
    with locked(path, shared=False):
        assert 0 == path.stat().st_size
        assert is_served(path, shared=True)


def test_a_store_that_is_created_meanwhile_is_not_taken_for_that_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    complete = partial(opening_module._migrate, path, create=True, upgrade=True)
    creating = threading.Thread(target=complete)

    def create(_: object, sql: str, __: object) -> bool:
        if "schema_version" in sql:
            creating.start()
            creating.join(0.3)  # it has to wait for the connection, so its end cannot be awaited here
        return True

    with closing(connect_writer(path)) as connection:
        connection.exec_trace = create
        assert 0 == opening_module.schema_version(connection, path)
    creating.join()
    assert [] == opening(path)


async def identity(opening: AbstractAsyncContextManager[Store]) -> str:
    async with opening as store:
        return await store.engine.identity()


async def test_identity_and_epoch_stay_the_same_and_no_other_store_has_the_identity(each_backend: Stores) -> None:
    """They sign cursors and tokens, which any server must accept at any time."""
    async with each_backend.opened() as one, each_backend.opened() as other:
        first = await one.engine.identity(), await one.epoch()
        assert first == (await other.engine.identity(), await other.epoch())
    if not each_backend.is_sqlite:  # it is not read again
        assert first[1] == await one.epoch()
    async with each_backend.opened() as again:
        assert first == (await again.engine.identity(), await again.epoch())
    assert first[0] != await identity(each_backend.another().opened())


@pytest.mark.parametrize("recorded", ["1", "9" * 20])
async def test_a_file_that_is_not_the_recorded_one_has_another_epoch(tmp_path: Path, recorded: str) -> None:
    """A copy that took its place: the number of its inode may be lower or higher."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        first = await store.epoch()
    with closing(connect_writer(path)) as connection:
        connection.execute("UPDATE store SET file = ?", (recorded,))
    async with opened(path) as store:
        assert first != await store.epoch()


async def test_a_restore_keeps_the_identity_of_the_store_that_it_replaces(tmp_path: Path) -> None:
    production, staging, file = tmp_path / "production.db", tmp_path / "staging.db", tmp_path / "backup.db"
    before = [await identity(opened(production)), await identity(opened(staging))]
    backup(production, file)
    for store in (production, staging):
        restore(store, file, Actor("operator:test", 1.0))
    assert before == [await identity(opened(production)), await identity(opened(staging))]
    shutil.copyfile(production, tmp_path / "copy.db")
    assert await identity(opened(tmp_path / "copy.db")) not in before
    restore(tmp_path / "new.db", file, Actor("operator:test", 1.0))
    assert await identity(opened(tmp_path / "new.db")) not in before


def test_a_postgresql_dump_restored_into_another_database_has_another_identity(
    postgres: PostgresEngine, postgres_stores: Stores
) -> None:
    original, restored = postgres_stores.url, postgres_stores.another().url
    dump = postgres.data / "dump.sql"
    first = asyncio.run(identity(opened_at(original)))
    postgres.tool("pg_dump", "--format=plain", f"--file={dump}", original)
    postgres.tool("psql", "--quiet", f"--file={dump}", restored)
    assert first != asyncio.run(identity(opened_at(restored)))
