"""Trying mutants: whether the tests that reach a change fail because of it."""

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

from torture.mutants.changes import Mutant
from torture.mutants.coverage import Coverage, executor, measured, tests_of
from torture.mutants.groups import Group, files
from torture.mutants.processes import collected, in_child, passes

_PROCESSES = 2


class Attempt(NamedTuple):
    """What became of a mutant: "killed", "timeout", "survived", or "untested" if no test executes its lines."""

    mutant: Mutant
    result: str


_Functions = dict[tuple[str, tuple[str, int]], list[FunctionType]]


def _functions() -> _Functions:
    """All functions by file, name and first line."""
    gc.unfreeze()  # get_objects() leaves out what is frozen
    found: _Functions = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            found.setdefault((code.co_filename, (code.co_name, code.co_firstlineno)), []).append(each)
    return found


def _changed(code: CodeType, function: tuple[str, int]) -> CodeType:
    """The code of a function in that of its module."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    while inner:
        found = inner.pop()
        if (found.co_name, found.co_firstlineno) == function:
            return found
        inner += [each for each in found.co_consts if isinstance(each, CodeType)]
    raise LookupError(function)


def _exchanged(functions: _Functions, items: dict[str, pytest.Item], mutant: Mutant, names: list[str]) -> bool:
    """Put a mutant in the place of what has been imported; whether the tests pass."""
    if isinstance(mutant.code, str):
        original = mutant.path.read_text("utf-8")
        for module in list(sys.modules.values()):
            for name in [name for name, value in vars(module).items() if isinstance(value, str) and value == original]:
                setattr(module, name, mutant.code)
    elif mutant.function is not None:
        for function in functions[str(mutant.path), mutant.function]:
            function.__code__ = _changed(mutant.code, mutant.function)
    return passes([items[name] for name in names])


def _imported_anew(folder: Path, postgres: bool, mutant: Mutant, names: list[str]) -> bool:
    """Import the product with a mutant; whether the tests pass. Only for a process that has not imported it."""
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        return mutant.code if self.path == str(mutant.path) else original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
    passed = []
    files = {name.partition("::")[0]: None for name in names}
    status = collected(
        files,
        lambda items: passed.append(passes([items[name] for name in names if name in items])),
        folder,
        postgres=postgres,
    )
    return status == 0 and passed == [True]


def _start_engines(group: Group) -> None:
    """Start the engines that tests of this process share, or each child would start its own."""
    if redis := sys.modules.get("testing.redis_engine"):
        redis.shared_redis()
    if group.postgres:
        sys.modules["testing.engines"].shared_postgres()


def _attempt_all(
    group: Group, chosen: list[tuple[int, Mutant]], coverage: Coverage, folder: Path, results: int
) -> None:
    """Run the tests of each mutant; write its number and its result to a descriptor."""

    def attempt(number: int, mutant: Mutant, behaves: Callable[[Mutant, list[str]], bool]) -> None:
        names = tests_of(mutant, coverage)
        seconds = 60 + 5 * sum(coverage[name][0] for name in names)
        result = in_child(lambda: behaves(mutant, names), seconds) if names else "untested"
        os.write(results, f"{number} {result}\n".encode())

    def work(items: dict[str, pytest.Item]) -> None:
        _start_engines(group)
        behaves = partial(_exchanged, _functions(), items)
        for number, mutant in chosen:
            if not _at_import(mutant):
                attempt(number, mutant, behaves)

    for number, mutant in chosen:
        if _at_import(mutant):
            attempt(number, mutant, partial(_imported_anew, folder, group.postgres))
    collected(group.tests, work, folder, postgres=group.postgres)


def _at_import(mutant: Mutant) -> bool:
    """Whether the product has to be imported again. Code that needs no class cannot replace code with super()."""
    return (mutant.function is None or "super()" in mutant.text) and not isinstance(mutant.code, str)


def attempts(group: Group, chosen: list[Mutant]) -> Iterator[Attempt]:
    """Run the tests of each mutant, in _PROCESSES processes; yield each result as it comes."""
    with tempfile.TemporaryDirectory(prefix="petstore-mutants-") as name:
        folder = Path(name)
        paths = {executor(path) for source in group.sources for path in files(Path(source))}
        coverage = measured(group, paths, folder)
        results, writing = os.pipe()
        for share in range(_PROCESSES):
            if not os.fork():
                status = 1
                try:
                    shared = list(enumerate(chosen))[share::_PROCESSES]
                    _attempt_all(group, shared, coverage, folder / str(share), writing)
                    status = 0
                finally:
                    os._exit(status)
        os.close(writing)
        with open(results) as lines:
            for line in lines:
                number, result = line.split()
                yield Attempt(chosen[int(number)], result)
        if any(os.wait()[1] for _ in range(_PROCESSES)):
            raise RuntimeError("a process ended early")
