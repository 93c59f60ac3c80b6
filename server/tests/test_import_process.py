"""`petstore orders import` as a process: input from a terminal, interruptions, progress."""

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

from testing.process import PETSTORE, environment, petstore
from testing.stores import require_store_file


class Terminal:
    """A command whose stdin, stdout and stderr are a terminal."""

    def __init__(self, store: Path, *arguments: str) -> None:
        require_store_file(store)
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [PETSTORE, *arguments],
            env=environment(store, TERM="xterm"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.shown = ""

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        """Wait until the terminal shows the pattern."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            assert self._read(), self.shown

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(30)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 30)[0]:
            return False
        try:
            self.shown += os.read(self._ours, 65_536).decode()
        except OSError:  # on Linux the other end has been closed
            return False
        return True


def orders_in(store: Path) -> int:
    return petstore(store, "orders", "export", "-").stdout.count("\n")


def test_on_a_terminal_an_import_says_that_it_reads_it(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    terminal = Terminal(store, "orders", "import", "-")
    terminal.wait_for("end with Ctrl-D")
    terminal.type(b'{"id":1}\n{"id":2}\n\x04')
    assert 0 == terminal.end(), terminal.shown
    assert 2 == orders_in(store)


def test_one_interrupt_ends_an_import_that_waits_for_input(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "store.db", "orders", "import", "-")
    terminal.wait_for("stop with Ctrl-C")
    terminal.type(b'{"id":1}\n')
    time.sleep(1)  # until the store is open and the thread waits for the terminal
    terminal.process.send_signal(signal.SIGINT)
    assert 130 == terminal.end()
    assert "petstore: Interrupted." in terminal.shown
    assert "Traceback" not in terminal.shown
    assert "Fatal" not in terminal.shown


def test_an_interrupted_import_keeps_and_counts_what_it_has_committed(tmp_path: Path) -> None:
    store, file = tmp_path / "store.db", tmp_path / "orders.csv"
    file.write_text("id,status\n" + "x,lost\n" + "".join(f"{number},\n" for number in range(600_000)))
    terminal = Terminal(store, "orders", "import", str(file))
    terminal.wait_for(r"━+.* \d+%.* [1-9][\d,]+, [\d,]+/s, 1 rejected")
    terminal.process.send_signal(signal.SIGINT)
    assert 130 == terminal.end()
    stopped = re.search(r"Stopped after (\d+) orders", terminal.shown)
    assert stopped, terminal.shown
    assert orders_in(store) == int(stopped[1])
    assert "line 2: id 'x' is not a whole number in plain digits." in terminal.shown


def test_an_import_shows_no_progress_in_a_pipe(tmp_path: Path) -> None:
    done = petstore(
        tmp_path / "store.db", "orders", "import", "-", text="".join(f'{{"id":{n}}}\n' for n in range(9000))
    )
    assert "\r" not in done.stderr
    assert "\x1b" not in done.stderr


def test_progress_shows_the_part_the_number_the_rate_and_the_rejects(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text("bad\n" + "".join(f'{{"id":{n}}}\n' for n in range(60_000)))
    terminal = Terminal(tmp_path / "store.db", "orders", "import", str(file))
    assert 3 == terminal.end()
    shown = terminal.shown
    assert re.search(r"Importing orders .*\d+%.* [\d,]+, [\d,]+/s, 1 rejected", shown)
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
    assert "60000 created" in shown.rpartition("\x1b[2K")[2]  # the line is gone
