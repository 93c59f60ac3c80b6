"""What a process imports: commands start quickly because they load only what they need."""

import subprocess
import sys

import pytest

_SERVER = {"starlette", "uvicorn", "jinja2", "httptools", "petstore_server.http"}


def loaded(code: str) -> set[str]:
    """The names of all modules that are loaded after a new interpreter has run this code."""
    shown = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    done = subprocess.run([sys.executable, "-c", shown + code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def command(*arguments: str) -> str:
    return f"import sys; sys.argv[1:] = {list(arguments)!r}; from petstore_server.cli.main import main; main()"


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("keys", "--help"), ("serve", "--help")])
def test_commands_start_without_the_server(arguments: tuple[str, ...]) -> None:
    assert set() == loaded(command(*arguments)) & _SERVER


def test_a_command_starts_without_the_code_of_others() -> None:
    others = {"petstore_server.cli.orders", "petstore_server.cli.doctor", "petstore_server.formats.batches"}
    assert set() == loaded(command("keys", "--help")) & others


def test_the_server_starts_without_what_only_a_request_for_a_contract_needs() -> None:
    found = loaded("import petstore_server.cli.serving")
    assert "petstore_server.http.documentation" in found
    assert "yaml" not in found
