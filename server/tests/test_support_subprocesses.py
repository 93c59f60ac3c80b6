"""Processes that tests start are always ended, and what hung is reported."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from testing import preloaded
from testing.postgres_programs import copy_programs, wheels
from testing.preloaded import LOADED, PipedProcess, forking
from testing.process import PETSTORE, environment_with_store
from testing.subprocesses import PATIENCE, descendants, end, running

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""


def start(program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout as output:
        assert "ready\n" == output.readline()
    return process


def test_a_process_that_does_not_end_is_killed_with_its_children_and_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("what it did last")
    process = start(STUBBORN)
    family = [process.pid, *descendants(process.pid)]
    assert 2 == len(family)
    with pytest.raises(AssertionError, match=r"(?s)SIGTERM.*time\.sleep\(600\).*what it did last"):
        end(process, signal.SIGTERM, log, patience=0.2)
    assert [] == running(family)


def test_a_command_that_does_not_end_while_a_test_reads_its_output_is_killed(tmp_path: Path) -> None:
    process = PipedProcess(["serve", "--port", "0", "--admin-port", "0"], environment_with_store(tmp_path / "store.db"))
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.1)
    assert -signal.SIGKILL == process.returncode


def _prepare() -> None:
    os.write(1, b"prepared\n")


@pytest.mark.parametrize(
    ("anew", "prepare", "command", "output"),
    [
        (False, _prepare, "multiprocessing.forkserver", "prepared\n"),
        (True, _prepare, "-c\0import pickle", "prepared\n"),
        (True, None, f"{PETSTORE}\0serve", ""),
    ],
    ids=["forked", "prepared", "installed"],
)
def test_a_server_is_forked_or_started_as_a_user_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    anew: bool,
    prepare: Callable[[], None] | None,
    command: str,
    output: str,
) -> None:
    monkeypatch.setattr(preloaded, "START_ANEW", anew)
    environ = environment_with_store(tmp_path / "store.db")
    process = PipedProcess(["serve", "--port", "0", "--admin-port", "0"], environ, prepare)
    assert any('"event":"serving"' in line for line in process.stderr)
    assert command in Path(f"/proc/{process.pid}/cmdline").read_text()
    process.send_signal(signal.SIGTERM)
    assert output == process.communicate(timeout=PATIENCE)[0]
    assert 0 == process.returncode


def _report_missing(reports: "Queue[list[str]]") -> None:
    reports.put([module for module in LOADED if module not in sys.modules])


def test_a_server_that_a_test_starts_has_all_modules_loaded() -> None:
    reports: Queue[list[str]] = forking().Queue()
    process = forking().Process(target=_report_missing, args=(reports,))
    process.start()
    assert [] == reports.get(timeout=PATIENCE)
    process.join()


def test_a_copy_of_postgresql_uses_its_own_libraries(tmp_path: Path) -> None:
    program = copy_programs(max(wheels()), tmp_path) / "bin" / "initdb"
    trace = {"LD_TRACE_LOADED_OBJECTS": "1"}
    loaded = subprocess.run([program], env=trace, capture_output=True, text=True, check=True).stdout
    [library] = [line for line in loaded.splitlines() if line.strip().startswith("libpq")]
    assert str(tmp_path) in library
