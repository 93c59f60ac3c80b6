"""Creating, opening and migrating a store of each engine; every failure is one sentence that says what to do."""

import shutil
from pathlib import Path
from queue import Empty

import pytest

from petstore_server.engines import schema
from petstore_server.engines.postgres import opening as postgres_opening
from petstore_server.engines.schema import StoreSchema
from petstore_server.engines.sqlite import opening as sqlite_opening
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.runtime.opening import sqlite_path
from testing.cli import CommandLine
from testing.damage import execute
from testing.forked_work import migrate, migrate_at_once
from testing.preloaded import forking
from testing.stores import BY, Stores, opening, refusal
from testing.subprocesses import PATIENCE

LATEST = sqlite_opening.SCHEMA.latest
NEXT = LATEST + 1


def test_a_missing_store_is_created_and_announced_once(each_backend: Stores) -> None:
    name = each_backend.url.rpartition("/")[2]
    place = sqlite_path(each_backend.url) if each_backend.is_sqlite else f"in the database {name} on 127.0.0.1"
    at = "at " if each_backend.is_sqlite else ""
    assert [f"Created a new store {at}{place}."] == opening(each_backend.url, create=True)
    assert [] == opening(each_backend.url, create=True, upgrade=True)
    assert (LATEST, LATEST) == migrate(each_backend.url)


def add_migration(stores: Stores, folder: Path, monkeypatch: pytest.MonkeyPatch, statements: str) -> Path:
    """Give this program one more migration; return its file."""
    engine, module = ("sqlite", sqlite_opening) if stores.is_sqlite else ("postgres", postgres_opening)
    shutil.copytree(Path(schema.__file__).parent / "migrations" / engine, folder)
    further = folder / f"{NEXT:04}_further.sql"
    further.write_text(statements)
    monkeypatch.setattr(module, "SCHEMA", StoreSchema(str(folder)))
    return further


def test_no_program_sees_a_store_between_two_migrations(
    each_backend: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = add_migration(each_backend, tmp_path / "migrations", monkeypatch, "SELECT * FROM missing")
    refusal(each_backend.url, create=True)
    assert "There is no store" in refusal(each_backend.url)
    further.write_text("CREATE TABLE added (one integer)")
    assert [(0, NEXT), (NEXT, NEXT)] == [migrate(each_backend.url), migrate(each_backend.url)]


def test_an_older_store_is_migrated_only_where_that_is_asked_for(
    each_backend: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening(each_backend.url, create=True)
    execute(each_backend, "UPDATE petstore.clock SET last_order_id = 7")
    if each_backend.is_sqlite:
        path, copy = sqlite_path(each_backend.url), tmp_path / "copy.db"
        backup(path, copy)
    add_migration(each_backend, tmp_path / "migrations", monkeypatch, "CREATE TABLE added (one integer)")
    outdated = f"has schema version {LATEST}, and this program needs {NEXT}: migrate it."
    assert outdated in refusal(each_backend.url, create=True)
    checked = CommandLine(tmp_path, make=False)("db", "check", PETSTORE_DATABASE_URL=each_backend.url)
    assert (1, True) == (checked.code, outdated in checked.out + checked.err)
    assert [(LATEST, NEXT), (NEXT, NEXT)] == [migrate(each_backend.url), migrate(each_backend.url)]
    assert [] == opening(each_backend.url)
    if each_backend.is_sqlite:
        restore(path, copy, BY)
    assert [] == execute(each_backend, "SELECT * FROM added")
    assert [(7,)] == execute(each_backend, "SELECT last_order_id FROM petstore.clock")


def test_programs_that_start_together_migrate_once(each_backend: Stores) -> None:
    begin, reports = forking().Barrier(4), forking().Queue()
    given = (each_backend.url, begin, reports)
    processes = [forking().Process(target=migrate_at_once, args=given) for _ in range(4)]
    for process in processes:
        process.start()
    heard = [reports.get(timeout=PATIENCE) for _ in range(5)]
    for process in processes:
        process.join()
    with pytest.raises(Empty):
        reports.get(timeout=0.05)
    assert 1 == sum(isinstance(one, str) for one in heard)
    results = [one for one in heard if isinstance(one, tuple)]
    assert [((0, LATEST), None)] == [one for one in results if one[0][0] == 0]
    assert [(LATEST, None)] * 4 == [(versions[1], error) for versions, error in results]
