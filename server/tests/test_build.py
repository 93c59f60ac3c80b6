"""Which build runs: the version and the commit, on the command line, in the log and as a metric."""

import json
import subprocess
from pathlib import Path

import httpx2
import pytest

import petstore_server
from petstore_server import __version__, commit
from testing import needs
from testing.cli import CommandLine
from testing.process import serving
from testing.redis_engine import shared_redis
from testing.subprocesses import PATIENCE

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
