"""SIGTERM and SIGHUP end a command as Ctrl-C does: it cleans up, reports, and exits with 128 + the signal."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from testing.cli import CommandLine
from testing.preloaded import PipedProcess
from testing.process import begin_demo, environment_with_store, petstore, put_orders
from testing.subprocesses import PATIENCE, busy, waits_for_stdin, waits_to_open, waits_to_read, within, writes_to_stdout

ENDINGS = [(signal.SIGTERM, "Interrupted by SIGTERM."), (signal.SIGHUP, "Interrupted by SIGHUP.")]
WRITERS = [
    ["db", "backup", "n.db", "--keep", "2"],
    ["db", "restore", "backup.db", "--yes"],
    ["orders", "export", "o.csv"],
]
ORDERS = 30_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that takes some time to copy, and a backup of it."""
    store = tmp_path_factory.mktemp("filled") / "store.db"
    put_orders(store, ORDERS, ',"quantity":2')
    assert 0 == petstore(store, "db", "backup", str(store.with_name("backup.db"))).returncode
    return store


ignore_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
"""As a shell does for what a script starts in the background."""
ignore_hangup = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)


def begin(store: Path, *arguments: str, prepare: Callable[[], object] | None = None) -> PipedProcess:
    return PipedProcess(arguments, environment_with_store(store), prepare)


def hidden(directory: Path) -> list[Path]:
    return list(directory.glob(".*"))


def stopped_while_it_writes(
    store: Path, command: list[str], how: signal.Signals, prepare: Callable[[], object] | None = None
) -> PipedProcess:
    """Start the command in the store's directory, and send it the signal while there is a hidden file.

    A command that was quicker than this process is started again.
    """
    before = visible(store.parent)
    for _ in range(100):
        process = begin(store, *command, prepare=prepare)
        while not hidden(store.parent) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(how)
        if process.wait(PATIENCE) != 0 and before == visible(store.parent):
            return process
        process.communicate()
        for name in visible(store.parent) - before:
            (store.parent / name).unlink()
    raise AssertionError("the command is always quicker")


def visible(directory: Path) -> set[str]:
    """The names of the files that are not hidden, without those of SQLite's log."""
    return {name for name in names(directory) if not name.startswith(".")}


def names(directory: Path) -> set[str]:
    """The names of the files, without those of SQLite's log, which a command that was killed leaves."""
    return {each.name for each in directory.iterdir() if not each.name.startswith("store.db-")}


@pytest.mark.parametrize(
    ("how", "message", "prepare"),
    [(signal.SIGINT, "Interrupted.", None), (*ENDINGS[0], None), (*ENDINGS[1], ignore_ctrl_c)],
)
def test_a_signal_ends_an_import_which_reports_what_it_imported(
    cli: CommandLine, tmp_path: Path, how: signal.Signals, message: str, prepare: Callable[[], object] | None
) -> None:
    rejects = tmp_path / "rejects.jsonl"
    process = begin(cli.store, "orders", "import", "-", "--rejects", str(rejects), prepare=prepare)
    rows = [f'{{"id":{number}}}\n' for number in range(70_000)]
    process.stdin.write("".join([*rows[:5_000], "bad\n", *rows[5_000:]]))
    process.stdin.flush()  # and not closed: the import waits for more
    within(PATIENCE, lambda: rejects.exists() and bool(rejects.read_text()))
    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE)
    assert 128 + how == process.returncode, errors
    assert f"petstore: {message}" == errors.splitlines()[-1]
    assert 5_001 == json.loads(rejects.read_text())["line"]
    stopped = re.search(r"Stopped after (\d+) orders; what was imported is in the store \((import-\w+)\)", errors)
    assert stopped, errors
    kept = len(cli.must("orders", "export", "-").out.splitlines())
    run = cli.must("imports", "show", stopped[2], "--json").json()
    assert (int(stopped[1]), kept, "interrupted") == (kept, run["created"], run["state"])
    assert kept > 0


@pytest.mark.parametrize(
    ("command", "how", "message", "prepare"),
    [(WRITERS[0], *ENDINGS[0], None), (WRITERS[1], *ENDINGS[0], ignore_ctrl_c), (WRITERS[2], *ENDINGS[1], None)],
)
def test_a_signal_ends_what_writes_a_file_which_is_removed(
    filled: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    how: signal.Signals,
    message: str,
    prepare: Callable[[], object] | None,
) -> None:
    monkeypatch.chdir(filled.parent)
    before = names(filled.parent)
    process = stopped_while_it_writes(filled, [*command, "--json"], how, prepare)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (128 + how, message) == (process.returncode, json.loads(errors)["message"])
    assert before == names(filled.parent)


@pytest.mark.parametrize("command", WRITERS)
def test_what_a_killed_process_left_is_removed_by_the_next_one_after_six_hours(
    filled: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(filled.parent)
    stopped_while_it_writes(filled, command, signal.SIGKILL).communicate(timeout=PATIENCE)
    (left,) = [file for file in hidden(filled.parent) if file.suffix == ".partial"]
    others = [left.with_name(name) for name in (f".x{left.name}", left.name.replace(".partial", ".other"))]
    log = left.with_name(".petstore-0123abcd.partial-journal")  # as release 1.0.0 leaves it
    try:
        for file in (*others, log):
            file.touch()
            os.utime(file, (0, 0))
        os.utime(left, (0, 0))  # what is written last is the file in it
        (left / "file").touch()
        repeat = [*command, "--force"] if "export" in command else command
        assert 0 == petstore(filled, *repeat).returncode
        assert left.exists()
        assert not log.exists()
        six_hours_ago = time.time() - 6 * 3600 - 1
        for place in (left / "file", left):
            os.utime(place, (six_hours_ago, six_hours_ago))
        assert 0 == petstore(filled, *repeat).returncode
        assert sorted(others) == sorted(hidden(filled.parent))
    finally:
        shutil.rmtree(left, ignore_errors=True)
        for file in others:
            file.unlink(missing_ok=True)


@pytest.mark.parametrize(("prepare", "ignored"), [(ignore_ctrl_c, signal.SIGINT), (ignore_hangup, signal.SIGHUP)])
def test_a_command_goes_on_after_a_signal_that_it_was_started_to_ignore(
    filled: Path, prepare: Callable[[], object], ignored: signal.Signals
) -> None:
    process = begin(filled, "orders", "import", "-", "--dry-run", prepare=prepare)
    within(PATIENCE, lambda: waits_for_stdin(process.pid))
    process.send_signal(ignored)
    _, errors = process.communicate('{"id":1}\n', timeout=PATIENCE)
    assert 0 == process.returncode, errors
    assert "1 replaced" in errors, errors


def test_a_signal_ends_a_command_whose_output_nothing_reads(filled: Path) -> None:
    process = begin(filled, "orders", "export", "-")
    process.stdout.read(1)
    within(PATIENCE, lambda: writes_to_stdout(process.pid))  # the pipe is full
    process.send_signal(signal.SIGTERM)
    assert 143 == process.wait(PATIENCE)
    process.communicate()


def test_a_signal_before_a_demo_serves_leaves_nothing_behind(tmp_path: Path) -> None:
    process = begin_demo(tmp_path)
    within(PATIENCE, lambda: bool(list(tmp_path.iterdir())))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 143), errors  # 0 if it serves already
    assert [] == list(tmp_path.iterdir())


def test_ctrl_c_shows_no_traceback_wherever_it_arrives() -> None:
    code = """
import click, logging, weakref
from petstore_server.cli import main
from petstore_server.cli.commands import Command

class Object: pass

def ctrl_c(_=None): raise KeyboardInterrupt

def command():
    held = Object()
    reference = weakref.ref(held, ctrl_c)
    logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=KeyboardInterrupt())
    del held  # in the callback, and then where nothing handles it
    ctrl_c()

test = Command("test", callback=command)
main.petstore = lambda: test.invoke(click.Context(test))
main.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (130, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("has_writer", [True, False])
def test_a_signal_ends_an_import_within_a_second_that_waits_for_a_named_pipe(
    cli: CommandLine, tmp_path: Path, has_writer: bool, how: signal.Signals
) -> None:
    cli.must("orders", "list")
    pipe = tmp_path / "orders.jsonl"
    os.mkfifo(pipe)
    process = begin(cli.store, "orders", "import", str(pipe))
    if has_writer:
        writer = os.open(pipe, os.O_WRONLY)
        os.write(writer, b'{"id":1}\n')
        within(PATIENCE, lambda: waits_to_read(process.pid, pipe))
    else:
        within(PATIENCE, lambda: waits_to_open(process.pid))
    begun = time.monotonic()
    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - begun < 1 + busy()
    assert 128 + how == process.returncode, errors
    assert errors.splitlines()[-1].startswith("petstore: Interrupted")
    if has_writer:
        os.close(writer)
