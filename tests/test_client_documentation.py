"""The client's page of the guide: every example runs, and the tables match the code."""

import inspect
import os
import re
import runpy
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from petstore_client import V2, Client, ErrorCode, Order, PetstoreError
from petstore_client.testing import FakePetstore
from testing.documents import ROOT, SOURCE, block, read_yaml, run_script, table
from testing.forked_commands import petstore_in
from testing.process import new_key, put_orders, serving
from testing.subprocesses import environment_with

DOCUMENT = SOURCE / "api" / "guide" / "client.md"
GUIDE = SOURCE / "api" / "guide" / "guide.md"


def python_examples(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = python_examples(DOCUMENT)
COMMANDS = re.findall(r"<!-- command -->\n```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture(name="environ", scope="module")
def _environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a reader who follows the document: a service with 40 pending orders, and a key."""
    store = tmp_path_factory.mktemp("documented") / "store.db"
    put_orders(store, 40)
    key, _ = new_key(store)
    with serving(store) as server, petstore_in(store.parent) as programs:
        path = f"{programs}:{os.environ['PATH']}"
        yield environment_with(PATH=path, PETSTORE_BASE_URL=f"{server.api}/v1", PETSTORE_API_KEY=key)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_runs(
    example: str,
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "example.py"
    script.write_text(example)
    runpy.run_path(str(script), run_name="__main__")
    assert "" == capfd.readouterr().err


def test_the_copy_of_the_page_is_brought_up_to_date_by_a_program_that_ends_also_after_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = [each for each in EXAMPLES if "def mirror(" in each]
    script = tmp_path / "example.py"
    script.write_text(example)
    mirror = runpy.run_path(str(script))["mirror"]
    fake = FakePetstore([Order(id=1), Order(id=2)])
    monkeypatch.setattr(V2, "follow_changes", None)  # which does not end while nothing changes
    with closing(sqlite3.connect(":memory:")) as copy, fake.client() as petstore:
        for requests in (1, 2):
            mirror(petstore, copy)
            assert requests == len(fake.requests)
        del fake.orders[2]
        fake.cancelled.add(1)
        fake.restore()
        mirror(petstore, copy)
        assert [(1, "cancelled")] == copy.execute("SELECT * FROM mirrored_orders").fetchall()
    assert 4 == len(fake.requests)


def test_every_command_runs(environ: dict[str, str], tmp_path: Path) -> None:
    (script,) = COMMANDS
    done = run_script(script, environ, tmp_path)
    assert "" == done.stderr
    assert "\norder 21: cancelled\norder 22: cancelled\nplan  " in done.stdout
    assert (tmp_path / "orders.json").read_text().startswith('[{"id":1,')


def test_the_examples_here_and_in_the_guide_are_type_checked(tmp_path: Path) -> None:
    kept = str(ROOT / ".pytest_cache" / "d" / "mypy")  # what mypy found in the libraries takes three seconds
    for number, example in enumerate([*EXAMPLES, *python_examples(GUIDE)]):
        (tmp_path / f"example_{number}.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", kept, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "client" / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "" == done.stdout


def test_the_settings_table_matches_the_signature() -> None:
    parameters = inspect.signature(Client).parameters
    rows = table(DOCUMENT, "settings")
    assert list(parameters) == [row[0] for row in rows]
    for name, default, _ in rows:
        if name not in ("base_url", "api_key", "clock", "jitter"):
            assert repr(parameters[name].default) == default, name


def test_the_error_codes_are_those_of_both_contracts() -> None:
    contracts = [read_yaml(SOURCE / "api" / name) for name in ("openapi.yaml", "openapi-v2.yaml")]
    described = [contract["components"]["schemas"]["Error"]["properties"]["code"] for contract in contracts]
    codes = {code for each in described for code in each.get("enum", each.get("x-extensible-enum"))}
    assert sorted(codes) == list(get_args(ErrorCode))


def test_the_error_tree_matches_the_code() -> None:
    def tree(kind: type, depth: int = 0) -> list[str]:
        children: list[type] = kind.__subclasses__()
        return [f"{'  ' * depth}{kind.__name__}", *[line for child in children for line in tree(child, depth + 1)]]

    assert tree(PetstoreError) == block(DOCUMENT, "errors").splitlines()
