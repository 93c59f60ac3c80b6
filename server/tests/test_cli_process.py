"""`petstore` as a process: exit codes, pipes, terminals, signals, full disks."""

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from testing.cli import CommandLine, Done
from testing.forked_commands import petstore_in
from testing.preloaded import PetstoreProcess
from testing.process import PETSTORE, environment
from testing.stores import require_store_file
from testing.subprocesses import PATIENCE, end, free_port, kill, waits_for_stdin, within


def environ(cli: CommandLine) -> dict[str, str]:
    """The environment of a process on the store of `cli`."""
    require_store_file(cli.store)
    return {name: value for name, value in environment(cli.store, TERM="xterm").items() if name != "NO_COLOR"}


@pytest.fixture(autouse=True, scope="module")
def _forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A `petstore` in PATH that is forked: most of these tests would take longest to start one."""
    with petstore_in(tmp_path_factory.mktemp("programs")) as programs, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", programs, prepend=os.pathsep)
        yield


def run(
    cli: CommandLine, *arguments: str, stdin: str = "", streams: str = "", program: str = "petstore", **settings: str
) -> Done:
    """Run with streams changed as a shell does for this text, such as `>&-`, which closes stdout."""
    command = ["sh", "-c", f'exec "$0" "$@" {streams}', program, *arguments]
    env = {**environ(cli), **settings}
    done = subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


class Terminal:
    """A command whose stdin, stdout and stderr are a terminal."""

    def __init__(self, cli: CommandLine, *arguments: str, **settings: str) -> None:
        self._ours, theirs = pty.openpty()
        self._theirs = os.fdopen(theirs)  # kept until the process, which opens it by its name, has ended
        name = Path(os.ttyname(theirs))
        self.process = PetstoreProcess(arguments, {**environ(cli), **settings}, name, name, stdin=name)
        self.shown = ""

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def wait_for(self, text: str) -> None:
        """Wait until the terminal shows the text."""
        while text not in self.shown:
            assert self._read(), self.shown

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        ready = select.select([self._ours, self.process.sentinel], [], [], PATIENCE)[0]
        if not ready:
            return False
        if self._ours not in ready:
            self._theirs.close()
        try:
            self.shown += os.read(self._ours, 65_536).decode()
        except OSError:  # on Linux the other end has been closed
            return False
        return True


def rows(count: int) -> str:
    return "".join(f'{{"id":{number}}}\n' for number in range(count))


def test_the_installed_program_runs_a_command_and_exits_with_its_code(cli: CommandLine) -> None:
    run(cli, "orders", "import", "-", stdin='{"id":1}\nbad\n', program=str(PETSTORE)).fails(3)
    run(cli, "orders", "cancel", "2", streams="<&-", program=str(PETSTORE)).fails(5, "petstore: There is no order 2")


def test_a_reader_that_closes_the_pipe_is_not_an_error(cli: CommandLine) -> None:
    cli.must("orders", "import", "-", stdin=rows(8_000))  # more than a pipe holds
    for command in (["orders", "list"], ["orders", "export", "-"]):
        process = subprocess.Popen(
            [PETSTORE, *command], env=environ(cli), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        assert b"" == process.communicate(timeout=PATIENCE)[1]
        assert 141 == process.returncode


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["keys", "--help"], ["keys", "list", "--help"]])
def test_help_that_nothing_reads_is_not_an_error(cli: CommandLine, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stdout:
        done = subprocess.run([PETSTORE, *arguments], env=environ(cli), stdout=stdout, stderr=subprocess.PIPE)
    assert (141, b"") == (done.returncode, done.stderr)


NO_STREAM = "The command needs stdin or stdout, which is closed."


def test_a_result_that_a_closed_stdout_cannot_take_is_a_failure_in_one_line(cli: CommandLine) -> None:
    cli.must("orders", "import", "-", stdin=rows(3))
    done = run(cli, "orders", "list", "--json", streams="<&- >&-")
    done.fails(1)
    assert NO_STREAM == done.error()["message"]
    done = run(cli, "orders", "cancel", "1", "2", streams=">&-")
    done.fails(1)
    assert f"petstore: {NO_STREAM}\n" == done.err
    assert 2 == cli.must("orders", "list", "--json").out.count("cancelled")


def test_a_secret_that_a_closed_stdout_cannot_take_is_to_be_replaced(acme: CommandLine) -> None:
    secret = {"PETSTORE_WEBHOOK_SECRET": "a text that signs, of 32 bytes or more"}
    for command, remedy in (
        ("keys create acme", "The new key could not be printed; revoke it: petstore keys revoke key_"),
        ("webhooks create acme https://a.example", "could not be printed; replace it: petstore webhooks rotate wh_"),
    ):
        done = run(acme, *command.split(), streams=">&-", **secret)
        done.fails(1, remedy, f"\npetstore: {NO_STREAM}\n")


def test_what_writes_nothing_to_stdout_succeeds_without_it(cli: CommandLine, tmp_path: Path) -> None:
    cli.must("orders", "import", "-", stdin=rows(3))
    for closed in (">&-", "<&- >&- 2>&-"):
        target = tmp_path / f"{len(closed)}.jsonl"
        done = run(cli, "orders", "export", str(target), streams=closed)
        assert 0 == done.code
        assert 3 == len(target.read_text().splitlines())
        assert ("2" in closed) == ("" == done.err)


def test_a_closed_stdin_is_a_failure_in_one_line_and_no_answer_to_a_question(cli: CommandLine, backup: str) -> None:
    for command in (["orders", "import", "-"], ["keys", "find"]):
        done = run(cli, *command, streams="<&-")
        done.fails(1)
        assert f"petstore: {NO_STREAM}\n" == done.err
    done = run(cli, "db", "restore", backup, streams="<&-")
    done.fails(2, "add --yes, because stdin is not a terminal")


def test_a_server_without_streams_ends_with_0(cli: CommandLine, tmp_path: Path) -> None:
    port = free_port()
    served = {**environ(cli), "TMPDIR": str(tmp_path)}
    command = [str(PETSTORE), "serve", "--demo", "--port", "0", "--admin-port", str(port)]
    process = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *command], env=served)
    try:
        within(PATIENCE, lambda: is_ready(port))
        time.sleep(0.2)  # a demo tries to print its key
        assert 0 == end(process, signal.SIGTERM)
    finally:
        kill(process)


def is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def test_a_full_disk_under_stdout_is_one_line(cli: CommandLine) -> None:
    cli.must("orders", "import", "-", stdin=rows(10))
    done = run(cli, "orders", "list", streams=">/dev/full")
    done.fails(1)
    assert "petstore: No space left on device (free some space and try again).\n" == done.err


def test_colour_and_progress_are_for_terminals_only(cli: CommandLine) -> None:
    for settings, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal(cli, "doctor", **settings)
        terminal.end()
        assert coloured == ("\x1b[32mok  \x1b[0m  settings: " in terminal.shown)
        assert coloured == ("\x1b[" in terminal.shown)
    piped = cli.must("orders", "import", "-", stdin=rows(9_000))
    assert not {"\r", "\x1b"} & set(piped.err + cli.must("doctor").out)


def test_progress_shows_the_part_the_number_the_rate_and_the_rejects(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text("bad\n" + rows(60_000))
    terminal = Terminal(cli, "orders", "import", str(file))
    assert 3 == terminal.end()
    shown = terminal.shown
    assert re.search(r"Importing orders .*\d+%.* [\d,]+, [\d,]+/s, 1 rejected", shown)
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
    assert "60000 created" in shown.rpartition("\x1b[2K")[2]  # the line is gone


def test_an_import_from_a_terminal_says_how_to_end_or_to_stop_it(cli: CommandLine) -> None:
    terminal = Terminal(cli, "orders", "import", "-")
    terminal.wait_for("end with Ctrl-D")
    terminal.type(b'{"id":1}\n{"id":2}\n\x04')
    assert 0 == terminal.end(), terminal.shown
    assert "stop with Ctrl-C" in terminal.shown
    assert 2 == len(cli.must("orders", "list", "--json").json_lines())


@pytest.fixture
def backup(cli: CommandLine, tmp_path: Path) -> str:
    """A backup of a store with one order."""
    cli.must("orders", "import", "-", stdin=rows(1))
    cli.must("db", "backup", str(tmp_path / "backup.db"))
    return str(tmp_path / "backup.db")


def test_a_restore_asks_on_a_terminal(cli: CommandLine, backup: str) -> None:
    cli.must("orders", "cancel", "0")
    answers = (
        (b"n\n", 1, "Nothing was restored.", "cancelled"),
        (b"\x04", 1, "No answer was given; nothing was changed.", "cancelled"),
        (b"y\n", 0, "", "pending"),
    )
    for typed, code, message, status in answers:
        terminal = Terminal(cli, "db", "restore", backup)
        terminal.type(typed)
        assert code == terminal.end()
        assert message in terminal.shown
        assert status == cli.must("orders", "show", "0", "--json").json()["status"]


def test_ctrl_c_at_a_question_is_an_interruption(cli: CommandLine, backup: str) -> None:
    terminal = Terminal(cli, "db", "restore", backup)
    terminal.wait_for("Replace")
    within(PATIENCE, lambda: waits_for_stdin(terminal.process.pid))  # a signal just before the read is noticed after it
    terminal.process.send_signal(signal.SIGINT)
    assert 130 == terminal.end()
    assert terminal.shown.endswith("? [y/N]: petstore: Interrupted.\r\n")
