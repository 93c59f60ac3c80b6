"""`petstore db` and `openapi`."""

import errno
import os
from datetime import UTC, datetime
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import apsw
import pytest

from petstore_server.cli import db
from petstore_server.engines import sqlite
from petstore_server.engines.sqlite import connections, maintenance
from testing.cli import CommandLine


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    cli.must("orders", "import", "-", stdin='{"id":1}\n')
    return cli


def test_the_time_of_a_backup_is_that_of_its_beginning_as_its_name_is(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = datetime(2026, 11, 20, 9, 30, tzinfo=UTC).timestamp()
    times = chain([began], repeat(began + 600))
    monkeypatch.setattr(db, "time", SimpleNamespace(time=lambda: next(times)))
    done = cli.must("db", "backup", str(tmp_path / "orders.db"), "--keep", "5", "--json").json()
    assert str(tmp_path / "orders-20261120T093000Z.db") == done["backup"]
    assert "The last backup was made at 2026-11-20T09:30:00Z." in cli("doctor").out


def test_a_store_that_a_server_uses_is_not_copied(cli: CommandLine) -> None:
    with sqlite.lock_for_serving(cli.store, shared=False):
        cli("db", "copy", "--to", "postgresql://me@127.0.0.1:1/x").fails(1, "Stop it, and copy again.\n")


def test_a_backup_is_good_although_an_older_one_cannot_be_removed(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "orders-20201120T093000Z.db"
    old.touch()
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", str(old))))
    done = cli("db", "backup", str(tmp_path / "orders.db"), "--keep", "1")
    [new] = {*tmp_path.glob("orders-*.db")} - {old}
    good = f"The backup {new} is good, but an older one could not be removed.\n"
    done.fails(1, f"{good}petstore: {old}: Permission denied.\n")


@pytest.mark.parametrize("restores", [False, True])
def test_a_disk_that_takes_no_copy_is_not_blamed_on_its_source(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restores: bool
) -> None:
    def connect_to_full_disk(path: Path, flags: int) -> apsw.Connection:
        connection = connections.connect(path, flags)
        connection.pragma("max_page_count", 1)
        return connection

    monkeypatch.setattr(maintenance, "connect", connect_to_full_disk)
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    if restores:
        make = partial(CommandLine(copy, make=False), "db", "restore", str(cli.store), "--yes")
    else:
        make = partial(cli, "db", "backup", str(copy))
    full = make()
    full.fails(1, f"the disk of {copy.parent} is full; free some space and try again")
    assert str(cli.store) not in full.err
    monkeypatch.setattr(os, "mkdir", Mock(side_effect=PermissionError(errno.EACCES, "Denied")))
    assert f"petstore: {copy} cannot be used as a store: Denied. Check the disk" in make().err
    assert [] == list(copy.parent.iterdir())
