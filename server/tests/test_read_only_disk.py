"""A store on a disk that is mounted read-only: what reads it works, and what would change it says why it does not."""

import shutil
import subprocess
from pathlib import Path

import pytest

from testing.cli import CommandLine
from testing.process import PETSTORE, environment, serving
from testing.subprocesses import PATIENCE

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
