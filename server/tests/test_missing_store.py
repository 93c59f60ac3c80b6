"""A store that is missing, as when its disk is not mounted: only `petstore db migrate` and a restore create one."""

import json
import os
from pathlib import Path

import pytest

from testing.cli import CommandLine
from testing.engines import PostgresEngine
from testing.process import petstore_process
from testing.redis_engine import shared_redis
from testing.stores import Stores

COMMANDS = [
    ["serve", "--port", "0", "--admin-port", "0"],
    ["accounts", "create", "acme", "--plan", "free"],
    ["accounts", "list"],
    ["keys", "create", "acme"],
    ["keys", "list"],
    ["orders", "import", "-", "--rejects", "rejects.jsonl"],
    ["orders", "import", "-", "--dry-run"],
    ["orders", "export", "-"],
    ["orders", "list"],
    ["orders", "cancel", "1"],
    ["pets", "import", "-"],
    ["audit"],
    ["usage"],
    ["console"],
    ["db", "check"],
    ["db", "backup", "backup.db"],
]
ADVICE = (
    "Check that its disk is mounted and that PETSTORE_DATABASE_URL is right. `petstore db migrate` creates a new store."
)


def run(url: str, command: list[str], **more: str) -> tuple[int, str, str]:
    """Run a command; return its exit code, its output and the error in its last line, which a server logs."""
    if command[0] == "serve":
        process = petstore_process(Path("unused"), *command, PETSTORE_DATABASE_URL=url, **more)
        logged = json.loads(process.stderr)
        assert ("server failed", "error") == (logged["event"], logged["level"])
        return process.returncode, process.stdout, logged["reason"]
    done = CommandLine(Path("unused"), make=False)(*command, PETSTORE_DATABASE_URL=url, **more)
    return done.code, done.out, done.err.splitlines()[-1].removeprefix("petstore: ")


def test_a_command_names_the_missing_store_and_does_not_create_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mount" / "orders.db"
    missing = f"There is no store at {path}. {ADVICE}"
    for command in COMMANDS:
        assert (1, missing) == run(f"sqlite:///{path}", command)[::2], command
    code, _, error = run(f"sqlite:///{path}", ["db", "migrate"])
    assert (1, True) == (code, f"The directory {path.parent} does not exist. Mount its disk, create it" in error)
    assert [] == list(tmp_path.iterdir())
    path.parent.mkdir()
    for command in COMMANDS:
        assert (1, "", missing) == run("sqlite:///mount/orders.db", command), command
        assert [path.parent] == [*tmp_path.iterdir(), *path.parent.iterdir()], command


def test_a_database_without_a_store_is_named_and_left_empty(postgres: PostgresEngine, postgres_stores: Stores) -> None:
    name = postgres_stores.url.rpartition("/")[2]
    redis = {"PETSTORE_REDIS_URL": shared_redis().empty()}
    expected = (1, "", f"There is no store in the database {name} on 127.0.0.1. {ADVICE}")
    for command in COMMANDS:
        if command[:2] != ["db", "backup"]:
            assert expected == run(postgres_stores.url, command, **redis), command
    with postgres.admin(name) as admin:
        assert [] == admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'petstore'").fetchall()


def test_no_server_takes_the_lock_of_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    path.touch()
    code, _, error = run(f"sqlite:///{path}", COMMANDS[0])
    assert (1, True, b"") == (code, f"The store at {path} is empty (0 bytes)." in error, path.read_bytes())


def test_a_store_that_was_truncated_is_not_called_missing(tmp_path: Path) -> None:
    petstore = CommandLine(tmp_path / "store.db")
    petstore.must("db", "backup", str(tmp_path / "backup.db"))
    os.truncate(petstore.store, 0)
    truncated = f"The store at {petstore.store} is empty (0 bytes). Unless a program is creating it now, the file was"
    for command in (
        ["orders", "list"],
        ["db", "check"],
        ["db", "backup", str(tmp_path / "copy.db")],
        ["db", "migrate"],
    ):
        petstore(*command).fails(1, f"{truncated} truncated. `petstore db restore` brings a backup back.")
    assert truncated in petstore("doctor").out.replace("\n      ", " ")
    petstore.must("db", "restore", str(tmp_path / "backup.db"), "--yes")
    assert "The store is sound." in petstore.must("db", "check").out
