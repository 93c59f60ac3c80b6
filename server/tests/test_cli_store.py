"""`petstore db` and `openapi`."""

import errno
import os
import re
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import apsw
import pytest

from petstore_server.cli import db
from petstore_server.engines import sqlite
from petstore_server.engines.sqlite import connections, maintenance
from petstore_server.engines.sqlite.opening import SCHEMA
from testing.cli import CommandLine
from testing.damage import overwrite
from testing.documents import parse_yaml


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    cli.must("orders", "import", "-", stdin='{"id":1}\n')
    return cli


def test_migrating_creates_a_missing_store_and_then_changes_nothing(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "new.db", make=False)
    first = cli.must("db", "migrate", "--json")
    assert {"before": 0, "after": sqlite.opening.SCHEMA.latest} == first.json()
    assert str(cli.store) in first.err
    assert "nothing was changed" in cli.must("db", "migrate").out
    cli.store.unlink()
    assert "The new store has schema version 2.\n" == cli.must("db", "migrate").out


def test_a_sound_store_passes_the_check_and_a_damaged_one_fails(cli: CommandLine) -> None:
    assert {"sound": True, "problems": [], "indexesVerified": True} == cli.must("db", "check", "--json").json()
    cli.execute("UPDATE orders SET record = '{\"id\":2}'")
    done = cli("db", "check")
    assert 1 == done.code
    assert "Order 1" in done.out
    assert "petstore: The store is not sound: 1 problem.\n" == done.err


def test_a_store_of_a_newer_version_is_not_called_unsound(cli: CommandLine) -> None:
    cli.execute(f"PRAGMA user_version = {SCHEMA.latest + 1}")
    newer = f"newer than the {SCHEMA.latest} that this program knows; update petstore-server."
    unchecked = f"Not checked: The store at {cli.store} has schema version {SCHEMA.latest + 1}, {newer}"
    cli("db", "check").fails(1, unchecked)
    assert "" == cli("db", "check").out
    assert {"code": "store_unusable", "message": unchecked} == cli("db", "check", "--json").error()


def test_a_backup_can_be_restored(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    done = cli.must("db", "backup", str(target), "--json", "--as", "ann").json()
    assert {"backup": str(target), "removed": []} == done
    entry = cli.must("audit", "--json").json_lines()[-1]
    assert ("store.backup", "operator:ann", {"file": "backup.db"}) == (entry["action"], entry["actor"], entry["after"])
    cli.must("orders", "cancel", "1")
    done = cli.must("db", "restore", str(target), "--yes", "--json", "--as", "Ann").json()
    assert "pending" == cli.must("orders", "show", "1", "--json").json()["status"]
    assert {"restored": str(cli.store), "from": str(target)} == {key: done[key] for key in ("restored", "from")}
    previous = CommandLine(Path(done["kept"]))
    assert "cancelled" == previous.must("orders", "show", "1", "--json").json()["status"]
    lost = [entry["action"] for entry in previous.must("audit", "--since", entry["at"], "--json").json_lines()]
    assert ["store.backup", "order.cancel"] == lost
    assert (
        "Sessions of the console that are not in the backup have ended."
        in cli.must("db", "restore", str(target), "--yes", "--as", "Ann").err
    )
    last = cli.must("audit", "--json").json_lines()[-1]
    assert ("store.restore", "operator:Ann") == (last["action"], last["actor"])
    assert 6 == cli("db", "backup", str(target)).code
    assert 2 == cli("db", "restore", str(tmp_path / "missing.db"), "--yes").code


@pytest.mark.parametrize("damage", ["noted", "unreadable", None])
def test_a_restore_over_a_damaged_store_says_that_servers_have_to_be_restarted(
    cli: CommandLine, tmp_path: Path, damage: str | None
) -> None:
    cli.must("db", "backup", str(tmp_path / "backup.db"))
    if damage == "noted":
        cli.execute("UPDATE store SET damage = 'its file is damaged'")
    elif damage == "unreadable":
        overwrite(cli.store, slice(100, 2_000))
    done = cli.must("db", "restore", str(tmp_path / "backup.db"), "--yes")
    assert (damage is not None) == ("It was damaged: restart the servers, which accept no change before." in done.err)


def test_the_time_of_a_backup_is_that_of_its_beginning_as_its_name_is(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = datetime(2026, 11, 20, 9, 30, tzinfo=UTC).timestamp()
    times = chain([began], repeat(began + 600))
    monkeypatch.setattr(db, "time", SimpleNamespace(time=lambda: next(times)))
    done = cli.must("db", "backup", str(tmp_path / "orders.db"), "--keep", "5", "--json").json()
    assert str(tmp_path / "orders-20261120T093000Z.db") == done["backup"]
    assert "The last backup was made at 2026-11-20T09:30:00Z." in cli("doctor").out


@pytest.mark.parametrize("name", ["store.db", "link.db"])
def test_the_store_itself_is_not_restored(cli: CommandLine, tmp_path: Path, name: str) -> None:
    (tmp_path / "link.db").symlink_to(cli.store)
    cli("db", "restore", str(tmp_path / name), "--yes").fails(
        2, f"{tmp_path / name} is the store itself; give the file of a backup."
    )
    assert [] == list(tmp_path.glob("*before-restore*"))


def test_a_restore_needs_yes_if_it_cannot_ask(cli: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    cli.must("db", "backup", str(target))
    cli.must("orders", "cancel", "1")
    cli("db", "restore", str(target)).fails(2, "--yes")
    assert "cancelled" == cli.must("orders", "show", "1", "--json").json()["status"]
    cli.store.unlink()
    CommandLine(cli.store, make=False).must("db", "restore", str(target))  # replaces nothing
    assert "pending" == cli.must("orders", "show", "1", "--json").json()["status"]


def test_the_contract_is_printed_as_yaml_or_json(cli: CommandLine) -> None:
    text = cli.must("openapi").out
    assert text.startswith("openapi: 3.1.0\n")
    contract = cli.must("openapi", "--json", PETSTORE_BASE_URL="https://api.example.com/v1").json()
    assert "https://api.example.com/v1" == contract["servers"][0]["url"]
    assert set(parse_yaml(text)["paths"]) == set(contract["paths"])
    second = cli.must("openapi", "--api", "v2", "--json", PETSTORE_BASE_URL="https://api.example.com/v1").json()
    assert ("2.0.0-beta.2", "https://api.example.com/v2") == (second["info"]["version"], second["servers"][0]["url"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"not a database" * 1000, "its file is not a SQLite database"),
        (b"", "There is no store in"),
        (None, "is a database of another program"),
    ],
)
def test_a_backup_that_cannot_be_restored_gets_advice_for_a_restore(
    cli: CommandLine, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    backup = tmp_path / "backup.db"
    if content is None:
        CommandLine(backup).execute("CREATE TABLE other (id)")
    else:
        backup.write_bytes(content)
    done = cli("db", "restore", str(backup), "--yes")
    done.fails(1, problem, "Nothing was restored; choose another backup.\n")
    assert "PETSTORE_DATABASE_URL" not in done.err


def test_a_copy_that_cannot_start_gets_advice_for_a_copy(cli: CommandLine) -> None:
    to = {"PETSTORE_COPY_TO_URL": "postgresql://me:secret@127.0.0.1:1/x"}
    other = {"PETSTORE_DATABASE_URL": "postgresql://127.0.0.1:1/y"}
    with sqlite.lock_for_serving(cli.store, shared=False):
        held = cli("db", "copy", **to)
    for done, code, text in (
        (held, 1, "Stop it, and copy again.\n"),
        (cli("db", "copy", **to), 1, "Check the URL of the target.\n"),
        (cli("db", "copy", **to, **other), 2, "this command works on the file of a SQLite store"),
        (cli("db", "copy", "--to", "postgresql://me:sec@ret@127.0.0.1:1/x"), 2, "--to"),
    ):
        done.fails(code, text)
        assert "secret" not in done.err
        assert "ret@" not in done.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@127.0.0.1:1/x",
        "postgres://me:secret@127.0.0.1:1,127.0.0.1:2/x?sslmode=require",
        "postgresql:///x?host=/run/postgresql&password=secret",
        "postgresql://127.0.0.1:1/x?user=me&pass%77ord=secret",
        "postgresql://127.0.0.1:1/x?sslpassword=secret",
    ],
)
def test_a_copy_takes_a_password_from_the_environment_only(cli: CommandLine, url: str) -> None:
    refused = cli("db", "copy", "--to", url, PETSTORE_COPY_TO_URL=url)
    refused.fails(2, "Set PETSTORE_COPY_TO_URL to the URL instead.\n")
    assert "secret" not in refused.err
    taken = cli("db", "copy", PETSTORE_COPY_TO_URL=url)
    assert "must not hold a password" not in taken.err
    assert "secret" not in taken.err
    cli("db", "copy").fails(2, "env var: 'PETSTORE_COPY_TO_URL'")


def test_a_copy_takes_its_target_from_a_file(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("postgresql://me:s3cr3t@127.0.0.1:1/x\n")
    done = cli("db", "copy", PETSTORE_COPY_TO_URL_FILE=str(tmp_path / "target"))
    done.fails(1, "Check the URL of the target.\n")
    refused = cli("db", "copy", PETSTORE_COPY_TO_URL_FILE=str(tmp_path / "missing"))
    refused.fails(2, f"names {tmp_path}/missing, which cannot be read")
    assert "s3cr3t" not in done.err + refused.err


def test_a_copy_accepts_an_address_without_a_password_on_the_command_line(cli: CommandLine) -> None:
    done = cli("db", "copy", "--to", "postgresql://me@127.0.0.1:1/x?options=-c%20a:b&sslmode=disable")
    done.fails(1, "Check the URL of the target.\n")


def test_dated_backups_are_removed_except_for_the_newest_and_those_dated_in_the_future(
    cli: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    others = ["orders.db", "orders-2020.db", "orders-20201120T093000Z.db.old", "other-20201120T093000Z.db"]
    others.append("orders-20991120T093000Z.db")  # by a clock that was wrong: it does not count
    old = [f"orders-202011{day}T093000Z.db" for day in (18, 19, 20)]
    for name in (*others, *old):
        (folder / name).touch()
    done = cli.must("db", "backup", str(folder / "orders.db"), "--keep", "2", "--json").json()
    new = Path(done["backup"])
    assert re.fullmatch(r"orders-\d{8}T\d{6}Z\.db", new.name)
    assert [str(folder / name) for name in old[:2]] == done["removed"]
    assert {*others, old[2], new.name} == {each.name for each in folder.iterdir()}
    assert 1 == CommandLine(new).must("orders", "show", "1", "--json").json()["id"]
    assert 2 == cli("db", "backup", str(folder / "orders.db"), "--keep", "0").code


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


def test_backups_of_one_second_have_different_names(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 11, 20, 9, 30, tzinfo=UTC).timestamp()
    monkeypatch.setattr(db, "time", SimpleNamespace(time=lambda: at))
    made = [cli.must("db", "backup", str(tmp_path / "orders.db"), "--keep", "5", "--json").json() for _ in range(2)]
    names = [f"orders-20261120T0930{second}Z.db" for second in ("00", "01")]
    assert [{"backup": str(tmp_path / name), "removed": []} for name in names] == made


def test_a_backup_that_fails_removes_no_other(tmp_path: Path) -> None:
    (tmp_path / "orders-20261120T093000Z.db").touch()
    missing = CommandLine(tmp_path / "missing.db", make=False)
    assert 1 == missing("db", "backup", str(tmp_path / "orders.db"), "--keep", "1").code
    assert (tmp_path / "orders-20261120T093000Z.db").exists()


def test_a_backup_that_could_not_be_recorded_is_good_and_older_ones_are_removed(
    cli: CommandLine, tmp_path: Path
) -> None:
    old = tmp_path / "orders-20201120T093000Z.db"
    old.touch()
    cli.execute("UPDATE store SET damage = 'its file is damaged'")
    done = cli.must("db", "backup", str(tmp_path / "orders.db"), "--keep", "1", "--json")
    assert "The backup is good but was not recorded in the store: " in done.err
    assert [str(old)] == done.json()["removed"]
    assert Path(done.json()["backup"]).exists()
    assert not old.exists()


@pytest.mark.parametrize("command", [["backup", "{copies}/backup.db"], ["restore", "{store}", "--yes"]])
def test_a_disk_that_takes_no_copy_is_not_blamed_on_its_source(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    def connect_to_full_disk(path: Path, flags: int) -> apsw.Connection:
        connection = connections.connect(path, flags)
        connection.pragma("max_page_count", 1)
        return connection

    monkeypatch.setattr(maintenance, "connect", connect_to_full_disk)
    copies = tmp_path / "copies"
    copies.mkdir()
    words = [part.format(copies=copies, store=cli.store) for part in command]
    command_line = CommandLine(copies / "store.db" if "restore" in command else cli.store, make=False)
    done = command_line("db", *words)
    expected = f"the disk of {copies} is full; free some space and try again"
    done.fails(1, expected)
    assert str(cli.store) not in done.err
    monkeypatch.setattr(os, "mkdir", Mock(side_effect=PermissionError(errno.EACCES, "Denied")))
    done = command_line("db", *words)
    name = "store.db" if "restore" in command else "backup.db"
    assert f"petstore: {copies}/{name} cannot be used as a store: Denied. Check the disk" in done.err
    assert [] == list(copies.iterdir())
