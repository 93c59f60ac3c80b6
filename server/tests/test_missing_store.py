"""A store that is missing, as when its disk is not mounted, or whose disk is read-only."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testing.cli import CommandLine
from testing.engines import PostgresEngine
from testing.process import PETSTORE, environment, petstore_process, serving
from testing.redis_engine import shared_redis
from testing.stores import Stores
from testing.subprocesses import PATIENCE

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


_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


def read_only(directory: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command for which a directory is mounted read-only."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(directory), *command],
        env=environ or None,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def petstore(store: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return read_only(store.parent, str(PETSTORE), *arguments, **environment(store))


@pytest.fixture(name="cli")
def _cli(tmp_path: Path) -> CommandLine:
    if shutil.which("unshare") is None or read_only(tmp_path, "true").returncode:
        pytest.skip("this user may not mount a directory read-only")
    directory = tmp_path / "100%41 #1"  # which a URI has to escape
    directory.mkdir()
    cli = CommandLine(directory / "orders.db")
    cli.must("accounts", "create", "acme", "--plan", "free")
    cli.must("orders", "import", "-", stdin='{"id":7}\n')
    return cli


@pytest.mark.parametrize("command", [["orders", "export", "-"], ["accounts", "list"], ["db", "check"]], ids=" ".join)
def test_a_command_reads_the_same_as_on_a_disk_that_can_be_written(cli: CommandLine, command: list[str]) -> None:
    done = petstore(cli.store, *command, "--json")
    assert (0, cli.must(*command, "--json").out) == (done.returncode, done.stdout), done.stderr


def test_a_backup_is_made_on_another_disk(cli: CommandLine, tmp_path: Path) -> None:
    done = petstore(cli.store, "db", "backup", str(tmp_path / "backup.db"))
    assert 0 == done.returncode, done.stderr
    assert 7 == CommandLine(tmp_path / "backup.db").must("orders", "show", "7", "--json").json()["id"]


def test_a_store_that_a_server_changes_through_another_mount_is_read_with_its_log(cli: CommandLine) -> None:
    with serving(cli.store):
        cli.must("orders", "cancel", "7")
        done = petstore(cli.store, "orders", "show", "7", "--json")
    assert (0, True) == (done.returncode, '"cancelled"' in done.stdout), done.stderr


def test_a_log_that_cannot_be_read_there_is_never_ignored(cli: CommandLine) -> None:
    log = Path(f"{cli.store}-wal")
    with serving(cli.store) as server:
        cli.must("orders", "cancel", "7")
        server.kill()
    Path(f"{cli.store}-shm").unlink()
    assert log.stat().st_size
    done = petstore(cli.store, "orders", "show", "7")
    assert (1, "") == (done.returncode, done.stdout)
    assert "Its disk is read-only: copy it and orders.db-wal to a disk that can be written, and use" in done.stderr


@pytest.mark.parametrize(
    "command",
    [["serve", "--port", "0", "--admin-port", "0"], ["db", "migrate"], ["orders", "cancel", "7"]],
    ids=" ".join,
)
def test_what_would_change_the_store_says_that_it_is_not_writable(cli: CommandLine, command: list[str]) -> None:
    done = petstore(cli.store, *command)
    assert 0 != done.returncode
    assert "not writable" in done.stderr
    assert "Traceback" not in done.stderr
