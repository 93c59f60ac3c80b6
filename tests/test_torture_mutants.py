"""`make mutants`: which changes it makes, and that it knows which of them a test notices."""

import ctypes
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from torture.mutants.__main__ import EXPLAINED, expanded, explanations, missing
from torture.mutants.changes import mutants
from torture.mutants.groups import GROUPS, files
from torture.mutants.processes import in_child

_PR_GET_CHILD_SUBREAPER = 37
SOURCE = '''
"""What is changed, and what is not."""

LIMIT = 2

def within(count: int, least: int = 0) -> bool:
    """Whether a count is allowed."""
    if count < least:
        raise ValueError("too few")
    return count <= LIMIT

def unused() -> None:
    print(1)

def end() -> None:
    raise SystemExit(7)
'''
TESTS = """
import pytest
from subject import end, within
from testing import preloaded

def test_two_are_within():
    assert within(2) is True

def test_four_are_not_within():
    assert within(4) is False

def test_less_than_nothing_is_refused():
    with pytest.raises(ValueError):
        within(-1)

def test_another_process_ends_with_seven():
    process = preloaded.forking().Process(target=end)
    process.start()
    process.join()
    assert process.exitcode == 7
"""
INI = """
[pytest]
addopts = --disable-plugin-autoload -p pytest_timeout -p _hypothesis_pytestplugin
"""
RUN = """
from pathlib import Path
from torture.mutants.groups import Group
from torture.mutants.attempts import attempts
from torture.mutants.changes import mutants
from torture.mutants.groups import GROUPS
found = list(mutants(Path("subject.py").resolve()))
for mutant, result in attempts(Group(("subject.py",), ("test_subject.py",)), [*found[:2], *found[3:10], *found[-2:]]):
    print(f"{result}: {mutant.text}")
"""


def changes(path: Path, source: str) -> list[str]:
    path.write_text(source)
    return [mutant.text for mutant in mutants(path)]


def test_each_line_of_a_module_is_changed_but_for_texts_and_types(tmp_path: Path) -> None:
    assert [
        "LIMIT = 2  =>  LIMIT = 3",
        "LIMIT = 2  =>  LIMIT = 1",
        "def within(count: int, least: int=0) -> bool:  =>  def within(count: int, least: int=1) -> bool:",
        "within: if count < least:  =>  if count <= least:",
        "within: if count < least:  =>  if count >= least:",
        "within: raise ValueError('too few')  =>  (removed)",
        "within: return count <= LIMIT  =>  return None",
        "within: return count <= LIMIT  =>  return count < LIMIT",
        "within: return count <= LIMIT  =>  return count > LIMIT",
        "unused: print(1)  =>  (removed)",
        "unused: print(1)  =>  print(2)",
        "unused: print(1)  =>  print(0)",
        "end: raise SystemExit(7)  =>  (removed)",
        "end: raise SystemExit(7)  =>  raise SystemExit(8)",
        "end: raise SystemExit(7)  =>  raise SystemExit(6)",
    ] == changes(tmp_path / "subject.py", SOURCE)


def test_a_change_that_changes_nothing_is_left_out(tmp_path: Path) -> None:
    assert ["pair = (min(*c), d)  =>  pair = (max(*c), d)", "no: return False  =>  return True"] == changes(
        tmp_path / "subject.py",
        "same = f(a, a)\nwith suppress(A, B): pass\npair = (min(*c), d)\ntext = data.decode('utf-8')\n"
        "def no(): return False\n",
    )


def test_a_lua_script_is_changed_but_for_its_comments(tmp_path: Path) -> None:
    assert [
        "if used < 1 then -- not > 2  =>  if used <= 1 then",
        "if used < 1 then -- not > 2  =>  if used < (1 + 1) then",
        "used = used + left  =>  used = used - left",
        "used = used + left  =>  (removed)",
    ] == changes(tmp_path / "count.lua", "if used < 1 then -- not > 2\n    used = used + left\nend")


def test_a_mutant_is_noticed_if_a_test_fails_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text(SOURCE)
    (tmp_path / "test_subject.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(INI)
    environment = {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert {
        "survived: LIMIT = 2  =>  LIMIT = 3",  # no test tries three
        "killed: LIMIT = 2  =>  LIMIT = 1",
        "survived: within: if count < least:  =>  if count <= least:",
        "killed: within: if count < least:  =>  if count >= least:",
        "killed: within: raise ValueError('too few')  =>  (removed)",
        "killed: within: return count <= LIMIT  =>  return None",
        "killed: within: return count <= LIMIT  =>  return count < LIMIT",
        "killed: within: return count <= LIMIT  =>  return count > LIMIT",
        "untested: unused: print(1)  =>  (removed)",
        "killed: end: raise SystemExit(7)  =>  raise SystemExit(8)",
        "killed: end: raise SystemExit(7)  =>  raise SystemExit(6)",
    } == set(done.stdout.splitlines())


def test_the_sources_and_tests_of_every_group_exist() -> None:
    named = [path for group in GROUPS.values() for path in (*group.sources, *group.tests)]
    assert [] == [path for path in named if not (Path(__file__).parents[1] / path).exists()]


def test_each_explanation_is_for_a_file_of_a_group() -> None:
    sources = {path for group in GROUPS.values() for source in group.sources for path in files(Path(source))}
    explained = tomllib.loads(EXPLAINED.read_text("utf-8"))
    assert set() == explained.keys() - {"/".join(path.parts[-2:]) for path in sources}


@pytest.mark.system
def test_each_explanation_is_for_a_mutant() -> None:
    explained = explanations()
    sources = {path for group in GROUPS.values() for source in group.sources for path in files(Path(source))}
    named = [path for path in sources if any("/".join(path.parts[-2:]) == file for file, _ in explained)]
    found = [mutant for path in named for mutant in mutants(path)]
    assert [] == missing(found, expanded(found, explained))


def test_an_explanation_without_its_mutant_is_missing_and_one_with_an_asterisk_is_for_many(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text("LIMIT = 2\n")
    found = list(mutants(tmp_path / "subject.py"))
    file = f"{tmp_path.name}/subject.py"
    assert [f"{file}: LIMIT = 7"] == missing(found, {(file, "LIMIT = 7"), (file, found[0].text), ("other.py", "x")})
    every = {(file, mutant.text) for mutant in found}
    assert every | {(file, "MOST = *")} == expanded(found, {(file, "LIMIT = *"), (file, "MOST = *")})


def test_a_child_leaves_no_process_behind_and_later_ones_go_to_init() -> None:
    ready, writing = os.pipe()

    def run() -> bool:
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return os.write(writing, f"{process.pid}".encode()) > 0

    assert "survived" == in_child(run, 60.0)
    started = int(os.read(ready, 20))
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts))
    assert 0 == adopts.value
