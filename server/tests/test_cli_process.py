"""`petstore` as a process: exit codes, pipes, terminals, signals, full disks ."""

import json
import os
import pty
import resource
import select
import signal
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from testing.cli import CommandLine, Done
from testing.process import PETSTORE
from testing.stores import require_store_file
from testing.subprocesses import PATIENCE, end, free_port, kill, within


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PETSTORE_", "NO_COLOR"))}
    require_store_file(tmp_path / "store.db")
    return {**own, "PETSTORE_DATABASE_URL": f"sqlite:///{tmp_path / 'store.db'}", "TERM": "xterm-256color"}


def run(environment: dict[str, str], *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PETSTORE, *arguments],
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def prepare(environment: dict[str, str], *arguments: str, stdin: str = "") -> Done:
    """Run a command that must succeed, in this process, where no process is what is tested."""
    store = Path(environment["PETSTORE_DATABASE_URL"].removeprefix("sqlite:///"))
    return CommandLine(store).must(*arguments, stdin=stdin)


def on_a_terminal(environment: dict[str, str], *arguments: str, typed: bytes = b"") -> tuple[int, str]:
    """Run with a terminal as stdin, stdout and stderr; return the exit code and all that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([PETSTORE, *arguments], env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        os.write(ours, typed)
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # on Linux the other end has been closed
                break
            shown += piece
        return process.wait(PATIENCE), shown.decode()
    finally:
        os.close(ours)


def rows(count: int) -> str:
    return "".join(f'{{"id":{number}}}\n' for number in range(count))


def test_exit_codes_and_streams_of_a_process(environment: dict[str, str]) -> None:
    done = run(environment, "orders", "import", "-", stdin='{"id":1}\nbad\n')
    assert (3, "") == (done.returncode, done.stdout)
    assert 0 == run(environment, "orders", "cancel", "1").returncode
    assert 6 == run(environment, "orders", "cancel", "1").returncode
    assert 5 == run(environment, "orders", "cancel", "2").returncode
    assert 2 == run(environment, "orders", "cancel", "two").returncode
    assert 0 == run(environment, "--version").returncode


def test_the_installed_program_runs_a_command_and_exits_with_its_code(environment: dict[str, str]) -> None:
    done = subprocess.run([PETSTORE, "orders", "cancel", "1"], env=environment, capture_output=True, check=False)
    assert (5, b"") == (done.returncode, done.stdout)
    assert b"petstore: There is no order 1" in done.stderr


def test_a_reader_that_closes_the_pipe_is_not_an_error(environment: dict[str, str]) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(8_000))  # more than a pipe holds
    for command in (["orders", "list"], ["orders", "export", "-"], ["orders", "list", "--json"]):
        process = subprocess.Popen(
            [PETSTORE, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"" == process.stderr.read()
        process.stderr.close()
        assert 141 == process.wait(PATIENCE)


def without(environment: dict[str, str], closed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run with streams closed, which a shell names, such as `>&-`."""
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', str(PETSTORE), *arguments]
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


NO_STREAM = "petstore: The command needs stdin or stdout, which is closed."


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_result_that_a_closed_stdout_cannot_take_is_a_failure_in_one_line(
    environment: dict[str, str], closed: str
) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(3))
    prepare(environment, "accounts", "create", "acme", "--plan", "free")
    for command in (["accounts", "show", "acme"], ["orders", "list", "--json"], ["orders", "cancel", "1", "2"]):
        done = without(environment, closed, *command)
        assert (1, [NO_STREAM.removeprefix("petstore: ")]) == (done.returncode, [message(done.stderr)])
    assert 2 == prepare(environment, "orders", "list", "--json").out.count("cancelled")


def message(errors: str) -> str:
    """The message of the one line of stderr, whether it is JSON or not."""
    return str(json.loads(errors)["message"]) if errors.startswith("{") else errors.removeprefix("petstore: ").strip()


def test_a_new_key_that_a_closed_stdout_cannot_take_is_to_be_revoked(environment: dict[str, str]) -> None:
    prepare(environment, "accounts", "create", "acme", "--plan", "free")
    done = without(environment, ">&-", "keys", "create", "acme")
    key = prepare(environment, "keys", "list", "acme", "--json").json()[0]["id"]
    warning = f"The new key could not be printed; revoke it: petstore keys revoke {key}"
    assert (1, [warning, NO_STREAM]) == (done.returncode, done.stderr.splitlines())


def test_what_writes_nothing_to_stdout_succeeds_without_it(environment: dict[str, str], tmp_path: Path) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(3))
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        target = tmp_path / f"{len(closed)}.jsonl"
        done = without(environment, closed, "orders", "export", str(target))
        assert (0, "", 3) == (done.returncode, done.stdout, len(target.read_text().splitlines()))
        assert ("2" in closed) == ("" == done.stderr)


@pytest.mark.parametrize(
    "command", [["orders", "import", "-"], ["orders", "import", "-", "--dry-run"], ["keys", "find"]]
)
def test_a_closed_stdin_is_a_failure_in_one_line(environment: dict[str, str], command: list[str]) -> None:
    prepare(environment, "db", "migrate")
    done = without(environment, "<&-", *command)
    assert (1, NO_STREAM) == (done.returncode, done.stderr.strip())


def test_a_question_without_stdin_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    prepare(environment, "db", "migrate")
    prepare(environment, "db", "backup", str(tmp_path / "backup.db"))
    done = without(environment, "<&-", "db", "restore", str(tmp_path / "backup.db"))
    assert 2 == done.returncode
    assert "add --yes, because stdin is not a terminal" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("options", [[], ["--demo"]])
def test_a_server_without_streams_ends_with_0(
    environment: dict[str, str], tmp_path: Path, closed: str, options: list[str]
) -> None:
    port = free_port()
    served = {**environment, "TMPDIR": str(tmp_path)}
    command = [str(PETSTORE), "serve", "--port", "0", "--admin-port", str(port), *options]
    process = subprocess.Popen(["sh", "-c", f'exec "$0" "$@" {closed}', *command], env=served)
    try:
        within(20, lambda: is_ready(port))
        time.sleep(0.2)  # until a demo has tried to print its key
        assert 0 == end(process, signal.SIGTERM)
    finally:
        kill(process)


def is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def test_a_full_disk_under_stdout_is_one_line(environment: dict[str, str]) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(10))
    for command in (["orders", "list"], ["orders", "cancel", "1"]):
        with Path("/dev/full").open("w") as full:
            process = subprocess.run(
                [PETSTORE, *command],
                env=environment,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert 1 == process.returncode
        assert "petstore: No space left on device (free some space and try again).\n" == process.stderr


def test_the_limit_on_open_files_is_not_blamed_on_the_store(environment: dict[str, str]) -> None:
    subprocess.run([PETSTORE, "db", "migrate"], env=environment, check=True)
    limited = ["sh", "-c", f"ulimit -n 8; exec {PETSTORE} accounts list"]
    done = subprocess.run(limited, env=environment, capture_output=True, text=True, check=False)
    assert 1 == done.returncode
    assert "the limit on open files is reached. Raise that limit (ulimit -n, or the system's).\n" in done.stderr
    assert "permissions" not in done.stderr


def test_a_full_disk_under_the_store_is_one_line_and_keeps_what_was_committed(environment: dict[str, str]) -> None:
    prepare(environment, "db", "migrate")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))

    process = subprocess.run(
        [PETSTORE, "orders", "import", "-"],
        env=environment,
        input=rows(40_000),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert 1 == process.returncode
    lines = process.stderr.splitlines()
    assert lines[-1].startswith("petstore: This cannot be done now:")
    assert "Traceback" not in process.stderr
    kept = int(lines[0].split()[2])
    assert 0 < kept < 40_000
    assert kept == len(run(environment, "orders", "export", "-").stdout.splitlines())
    again = run(environment, "orders", "import", "-", stdin=rows(40_000))
    assert f"{40_000 - kept} created, {kept} unchanged" in again.stderr


def test_an_interrupted_import_ends_in_one_line_with_its_rejects_written(
    environment: dict[str, str], tmp_path: Path
) -> None:
    rejects = tmp_path / "rejects.jsonl"
    process = subprocess.Popen(
        [PETSTORE, "orders", "import", "-", "--rejects", str(rejects)],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write((rows(3_000) + "bad\n" + rows(60_000)).encode())
    process.stdin.flush()  # and not closed: the import waits for more
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not (rejects.exists() and rejects.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert 130 == process.returncode
    assert b"petstore: Interrupted." == errors.splitlines()[-1]
    assert b"Traceback" not in errors
    assert 3_001 == json.loads(rejects.read_text())["line"]


def test_colour_and_progress_are_for_terminals_only(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text(rows(1_000))
    _, shown = on_a_terminal(environment, "orders", "import", str(file))
    assert "Importing orders" in shown
    assert "\x1b[32mok  \x1b[0m  settings: " in on_a_terminal(environment, "doctor")[1]
    _, plain = on_a_terminal({**environment, "NO_COLOR": "1"}, "doctor")
    assert "\x1b[" not in plain
    piped = run(environment, "orders", "import", str(file))
    assert "Importing" not in piped.stderr
    assert "\x1b" not in piped.stderr + run(environment, "doctor").stdout
    assert "Importing" not in on_a_terminal(environment, "orders", "import", str(file), "--json")[1]


def test_a_restore_asks_on_a_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(1))
    backup = str(tmp_path / "backup.db")
    prepare(environment, "db", "backup", backup)
    prepare(environment, "orders", "cancel", "0")

    def status() -> str:
        return str(prepare(environment, "orders", "show", "0", "--json").json()["status"])

    code, shown = on_a_terminal(environment, "db", "restore", backup, typed=b"n\n")
    assert (1, "cancelled") == (code, status())
    assert "Nothing was restored." in shown
    assert (0, "cancelled") == (on_a_terminal(environment, "db", "check")[0], status())
    assert (0, "pending") == (on_a_terminal(environment, "db", "restore", backup, typed=b"y\n")[0], status())
    prepare(environment, "orders", "cancel", "0")
    assert (0, "pending") == (on_a_terminal(environment, "db", "restore", backup, "--yes")[0], status())


def test_ctrl_c_at_a_question_is_an_interruption(environment: dict[str, str], tmp_path: Path) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(1))
    backup = str(tmp_path / "backup.db")
    prepare(environment, "db", "backup", backup)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PETSTORE, "db", "restore", backup], env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    assert process.stderr is not None
    assert b"Replace" in os.read(process.stderr.fileno(), 1000)
    time.sleep(0.5)  # until it reads: a signal just before the read is only noticed after it
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert 130 == process.returncode
    assert b"petstore: Interrupted." == errors.splitlines()[-1]


def test_no_answer_to_a_question_changes_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    prepare(environment, "orders", "import", "-", stdin=rows(1))
    prepare(environment, "db", "backup", str(tmp_path / "backup.db"))
    code, shown = on_a_terminal(environment, "db", "restore", str(tmp_path / "backup.db"), typed=b"\x04")
    assert 1 == code
    assert "No answer was given; nothing was changed." in shown


def completions(environment: dict[str, str], words: str) -> list[str]:
    """What the shell offers for the last word."""
    asked = {"_PETSTORE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = run({**environment, **asked})
    assert "" == done.stderr
    return sorted(line.removeprefix("plain,") for line in done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(environment: dict[str, str], shell: str) -> None:
    done = run({**environment, "_PETSTORE_COMPLETE": f"{shell}_source"})
    assert (0, "") == (done.returncode, done.stderr)
    assert f"_PETSTORE_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("petstore orders c", ["cancel", "complete"]),
        ("petstore accounts set-plan acme e", ["enterprise"]),
        ("petstore keys rotate --g", ["--grace"]),
    ],
)
def test_the_shell_completes_commands_options_and_choices(
    environment: dict[str, str], words: str, offered: list[str]
) -> None:
    assert offered == completions(environment, words)


def test_the_shell_completes_account_names_and_key_ids(environment: dict[str, str]) -> None:
    missing = Path(environment["PETSTORE_DATABASE_URL"].removeprefix("sqlite:///")).with_name("missing.db")
    without_store = {**environment, "PETSTORE_DATABASE_URL": f"sqlite:///{missing}"}
    assert [] == completions(without_store, "petstore accounts show ac")
    assert not missing.exists()
    for name in ("acme", "acorn", "globex"):
        prepare(environment, "accounts", "create", name, "--plan", "free")
    assert ["acme", "acorn"] == completions(environment, "petstore accounts suspend ac")
    key = prepare(environment, "keys", "create", "acme", "--json").json()["id"]
    assert [key] == completions(environment, "petstore keys rotate key_")
    assert [] == completions({**environment, "PETSTORE_PORT": "many"}, "petstore keys rotate key_")
