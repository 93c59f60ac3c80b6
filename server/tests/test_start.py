"""What a process imports: commands load only what they need. Which build runs: the version and the commit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

import petstore_server
from petstore_server import __version__, commit
from testing import needs
from testing.cli import CommandLine
from testing.process import serving
from testing.redis_engine import shared_redis
from testing.stores import new_store_file
from testing.subprocesses import PATIENCE

_SERVER = {"starlette", "uvicorn", "jinja2", "petstore_server.api", "petstore_server.server"}
_ENGINES = {"asyncio", "apsw", "msgspec", "psycopg", "petstore_server.store.engine", "petstore_server.engines"}
_OTHERS = {
    "rich",
    "petstore_server.engines.sqlite.maintenance",
    "yaml",
    "prometheus_client",
    "uvloop",
    "redis",
    "petstore_server.limits",
    "petstore_server.console",
}


def loaded(commands: list[list[str]], url: str = "") -> set[str]:
    """The names of all modules that are loaded after a new interpreter has run these commands, one after another."""
    code = f"""
import sys
from petstore_server.cli.main import main
for arguments in {commands!r}:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit:
        pass
print(*sys.modules, file=sys.stderr)
"""
    env = {**os.environ, "PETSTORE_DATABASE_URL": url}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_what_uses_no_store_starts_without_the_server_and_engines() -> None:
    found = loaded([["--version"], ["--help"], ["serve", "--help"], ["keys", "list", "-x"]])
    assert set() == found & (_SERVER | _ENGINES)


def test_a_command_starts_without_the_code_of_others() -> None:
    others = {"petstore_server.cli.orders", "petstore_server.cli.service", "petstore_server.imports.running"}
    assert set() == loaded([["keys", "--help"]]) & (others | _SERVER | _ENGINES)


@pytest.mark.parametrize(
    ("url", "engine"), [("sqlite:///{}/store.db", "apsw"), ("postgresql://petstore@127.0.0.1:1/petstore", "psycopg")]
)
def test_a_command_loads_the_engine_of_its_store_and_no_other_package(tmp_path: Path, url: str, engine: str) -> None:
    """Nor what lays tables out, because it does not print to a terminal."""
    CommandLine(tmp_path / "store.db").must("accounts", "create", "acme", "--plan", "free")
    commands = [["orders", "list"], ["accounts", "show", "acme"], ["accounts", "show", "acme", "--json"]]
    found = loaded(commands, url.format(tmp_path))
    assert {engine} == found & ({"apsw", "psycopg"} | _OTHERS | _SERVER)


def test_a_command_on_orders_starts_without_the_rules_for_keys_limits_and_usage(tmp_path: Path) -> None:
    new_store_file(tmp_path / "store.db")
    found = loaded([["orders", "list"]], f"sqlite:///{tmp_path / 'store.db'}")
    rules = {f"petstore_server.domain.{name}" for name in ("accounts", "bans", "keys", "usage", "windows")}
    parts = {f"petstore_server.store.{name}" for name in ("access", "listing", "usage")}
    assert {"petstore_server.store.orders"} == found & (rules | parts | {"petstore_server.store.orders", "_hashlib"})


def test_a_command_on_a_file_needs_no_event_loop_unless_it_does_several_things_together(tmp_path: Path) -> None:
    CommandLine(tmp_path / "store.db").must("accounts", "create", "acme", "--plan", "free")
    url = f"sqlite:///{tmp_path / 'store.db'}"
    commands = [["orders", "list"], ["keys", "create", "acme"], ["accounts", "show", "acme"], ["audit"]]
    assert "asyncio" not in loaded(commands, url)
    assert "asyncio" in loaded([["orders", "ship", "1"]], url)


_SHOW_MODULES = """
import os, signal, sys
from petstore_server.cli.main import main
from petstore_server.runtime import servers
from petstore_server.settings import read_settings

async def run_console(console):
    read_settings(os.environ)  # as an import of the console does
    print(*sys.modules, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

servers.run_console = run_console
sys.argv[1:] = ["serve", "--port", "0", "--admin-port", "0"]
main()
"""


def test_the_server_loads_no_driver_that_it_does_not_use_and_contracts_on_request(tmp_path: Path) -> None:
    new_store_file(tmp_path / "store.db")
    env = {
        **os.environ,
        "PETSTORE_DATABASE_URL": f"sqlite:///{tmp_path / 'store.db'}",
        "PETSTORE_DRAIN_DELAY_SECONDS": "0",
        "PETSTORE_PORT": "",  # which the option replaces
    }
    done = subprocess.run([sys.executable, "-c", _SHOW_MODULES], env=env, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "petstore_server.console.application" in modules
    assert set() == modules & {"yaml", "psycopg", "redis", "rich", "jsonschema", "opentelemetry"}


_INTERRUPTED = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "petstore_server.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Interrupting())
if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv[1:] = ["--version"]
from petstore_server.cli.start import main
try:
    main()
finally:
    print(signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.default_int_handler))
"""


@pytest.mark.parametrize(("ignored", "code", "handled"), [(False, -signal.SIGINT, False), (True, 0, True)])
def test_a_ctrl_c_while_modules_load_shows_no_traceback(ignored: bool, code: int, handled: bool) -> None:
    program = [sys.executable, "-c", _INTERRUPTED.format(ignored=ignored)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (code, "", handled) == (done.returncode, done.stderr, done.stdout.endswith("True\n"))


ROOT = Path(__file__).parents[2]
BRANCH = "ref: refs/heads/x\n"


@pytest.fixture(autouse=True)
def _uncached() -> None:
    commit.cache_clear()


def test_the_commit_that_is_checked_out_is_named(tmp_path: Path) -> None:
    if (ROOT / ".git").is_dir():  # otherwise this is a copy of the files
        git = needs.program("git")
        found = subprocess.run([git, "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert found.stdout[:12] == commit()
    shown = CommandLine(tmp_path / "unused.db", make=False)("--version").out
    assert f"petstore, version {__version__} (commit {commit()})\n" == shown


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"commit.txt": "a" * 40}, "a" * 12),
        ({"../../../.git/HEAD": "b" * 40 + "\n"}, "b" * 12),
        ({"../../../.git/HEAD": BRANCH, "../../../.git/refs/heads/x": "c" * 40 + "\n"}, "c" * 12),
        ({"../../../.git/HEAD": BRANCH, "../../../.git/packed-refs": f"{'d' * 40} refs/heads/x\n"}, "d" * 12),
        ({"../../../.git/HEAD": BRANCH, "../../../.git/packed-refs": "# none\n"}, "unknown"),
        ({"../../../.git": "gitdir: elsewhere\n"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_commit_is_that_of_the_wheel_or_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: str
) -> None:
    package = tmp_path / "server" / "src" / "petstore_server"
    package.mkdir(parents=True)
    for name, text in files.items():
        file = (package / name).resolve()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(petstore_server, "__file__", str(package / "__init__.py"))
    assert expected == commit()
    commit.cache_clear()


def test_the_log_and_the_metrics_name_the_build(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", "--workers", "2", PETSTORE_REDIS_URL=shared_redis().empty()) as server:
        [line] = [line for line in server.log.read_text().splitlines() if '"event":"serving"' in line]
        assert (__version__, commit()) == (json.loads(line)["version"], json.loads(line)["commit"])
        metrics = httpx2.get(f"{server.admin}/metrics", timeout=PATIENCE).text
        assert f'\npetstore_build_info{{commit="{commit()}",version="{__version__}"}} 1.0\n' in metrics
