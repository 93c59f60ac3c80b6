"""The smoke test of an installed service passes on this Python, and fails where the service does not work."""

import subprocess
import sys
from pathlib import Path

from testing.process import PETSTORE
from testing.subprocesses import PATIENCE

SMOKE = Path(__file__).with_name("smoke.py")


def smoke(command: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, SMOKE, command], capture_output=True, text=True, timeout=5 * PATIENCE, check=False
    )


def test_an_installed_service_serves_every_request() -> None:
    done = smoke(PETSTORE)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert done.stdout.endswith("10 passed, 0 failed\n")


def test_the_key_of_a_running_server_comes_from_the_environment() -> None:
    command = [sys.executable, str(SMOKE), "--url", "http://127.0.0.1:1"]
    for each in (command, [*command, "--key", "pso_live_x"]):
        done = subprocess.run(each, env={}, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert 2 == done.returncode
    assert "unrecognized arguments: --key" in done.stderr


def test_a_service_that_leaves_cancels_without_a_response_fails(tmp_path: Path) -> None:
    """The fault that one interpreter did not show: since Python 3.12, `create_task` refuses a generator."""
    command = tmp_path / "petstore"
    command.write_text(
        f"""#!{sys.executable}
from petstore_server.server import connection, eager

def refuse(work, late):
    try:
        work.send(None)
    except StopIteration as finished:
        return finished.value
    raise TypeError("a coroutine was expected")

connection.run_eagerly = refuse
from petstore_server.cli.main import main
main()
"""
    )
    command.chmod(0o755)
    done = smoke(command)
    assert 1 == done.returncode, done.stdout
    assert "a list has every order: " in done.stderr
