"""Which tests reach which statements, kept until a test file or a source changes."""

import builtins
import hashlib
import json
import os
import time
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from torture.mutants.changes import Mutant, noted
from torture.mutants.groups import Group
from torture.mutants.processes import collected, in_child, passes

_KEPT = Path("build/mutants")
_MAX_SECONDS = 300.0  # of tests for one mutant; most are noticed by one of the first

Coverage = dict[str, tuple[float, list[tuple[str, int]]]]
"""For each test: its seconds, and the lines that it executes."""


def _measure(tests: Iterable[str], paths: set[str], folder: Path, *, postgres: bool) -> Coverage:
    """Run each test, and note the statements in these files that it reaches. Tests that fail are left out."""
    coverage: Coverage = {}
    reached: set[tuple[str, int]] = set()
    builtins.__dict__["_reached"] = reached.add
    file = folder.with_name("reached")

    def in_other_process() -> None:
        """Write what a process that a test forks reaches: it may be killed, and may close all that it has inherited."""
        known = set(reached)

        def note(place: tuple[str, int]) -> None:
            if place not in known:
                known.add(place)
                with file.open("a") as written:
                    written.write(f"{json.dumps(place)}\n")

        builtins.__dict__["_reached"] = note

    os.register_at_fork(after_in_child=in_other_process)
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        return noted(Path(self.path)) if self.path in paths else original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]

    def work(items: dict[str, pytest.Item]) -> None:
        for name, item in items.items():
            reached.clear()
            file.write_bytes(b"")
            began = time.perf_counter()
            if passes([item]):
                seconds = time.perf_counter() - began
                reached.update(tuple(json.loads(line)) for line in file.read_text().splitlines())
                coverage[name] = (seconds, sorted(reached))

    collected(tests, work, folder, postgres=postgres)
    return coverage


def executor(path: Path) -> str:
    """The module that executes what is in a file."""
    return str(path if path.suffix == ".py" else path.with_name("redis.py"))


def tests_of(mutant: Mutant, coverage: Coverage) -> list[str]:
    """The tests that may notice a mutant, the fastest first, up to _MAX_SECONDS.

    What is done at import, such as a table, may be noticed by every test: those that execute its module come first.
    """
    path = executor(mutant.path)
    reached = {name: {line for file, line in lines if file == path} for name, (_, lines) in coverage.items()}
    if mutant.function is None:
        names = sorted(coverage, key=lambda name: (not reached[name], coverage[name][0]))
    else:
        names = sorted((name for name in coverage if mutant.line in reached[name]), key=lambda name: coverage[name][0])
    chosen, total = [], 0.0
    for name in names:
        total += coverage[name][0]
        if total > _MAX_SECONDS:
            break
        chosen.append(name)
    return chosen


def measured(group: Group, paths: set[str], folder: Path) -> Coverage:
    """What each test reaches, measured for the test files that have changed since the last run."""
    sources = b"".join(Path(path).read_bytes() for path in sorted(paths)) + bytes([group.postgres])
    kept = {test: _KEPT / hashlib.sha256(sources + Path(test).read_bytes()).hexdigest() for test in group.tests}
    new = [test for test, file in kept.items() if not file.exists()]

    def measure(tests: list[str]) -> bool:
        found = _measure(tests, paths, folder / "measured", postgres=group.postgres)
        for test in tests:
            mine = {name: value for name, value in found.items() if name.startswith(f"{test}::")}
            kept[test].write_text(json.dumps(mine))
        return True

    _KEPT.mkdir(parents=True, exist_ok=True)
    if new and in_child(lambda: measure(new), 3600) != "survived":
        raise RuntimeError("the tests did not run")
    return {name: value for file in kept.values() for name, value in json.loads(file.read_text()).items()}
