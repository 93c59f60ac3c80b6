"""Processor cores, processor time of processes, and a description of the machine. Linux only."""

import os
import platform
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.results import Machine

ROOT = Path(__file__).resolve().parents[1]
CHANGED = "+"
"""Marks a revision with local changes."""

WRITTEN = ("bench/results.json", "bench/results.md", "docs/performance.md")
"""What `make bench` writes into the repository."""


class BenchError(Exception):
    """A benchmark cannot be carried out; the message says why and what to do."""


class Cores(NamedTuple):
    """The core that each side is pinned to. With two cores, databases share the one of the load."""

    server: int
    load: int
    database: int
    usable: tuple[int, ...]


def cores() -> Cores:
    """Choose the cores from those that this process may use."""
    usable = tuple(sorted(os.sched_getaffinity(0)))
    if len(usable) < 2:
        raise BenchError("The benchmarks need two processor cores: one for the server, one for the load.")
    return Cores(usable[0], usable[1], usable[2] if len(usable) > 2 else usable[1], usable)


def pinned(core: int | str, command: Sequence[str | Path]) -> list[str]:
    """The command, started on one core, or on several with commas between.

    `taskset` replaces itself, so the process keeps its identifier.
    """
    return ["taskset", "-c", str(core), *map(str, command)]


@contextmanager
def this_process_on(core: int) -> Iterator[None]:
    """Keep the calling thread, and the processes that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process and its living children have used, in seconds."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(_ticks(process) for process in (str(pid), *children)) / os.sysconf("SC_CLK_TCK")


def _ticks(process: str) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0  # a child that has just ended
    return sum(map(int, fields[11:15]))  # its own time and that of children it has waited for


def program(name: str) -> str | None:
    """The path of an installed program; Debian keeps nginx outside the search path of ordinary users."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def describe() -> Machine:
    """Describe the machine and the programs that the measurements depend on."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = {
        "Python": platform.python_version(),
        "SQLite (reference)": sqlite3.sqlite_version,
        "nginx": _version("nginx", "-v"),
        "wrk": _version("wrk", "-v"),
        "redis-benchmark": _version("redis-benchmark", "--version"),
    }
    return Machine(
        processor=model[1] if model else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages / 2**30, 1),
        load_average=round(os.getloadavg()[0], 2),
        versions={name: version for name, version in versions.items() if version},
    )


def _version(name: str, option: str) -> str:
    path = program(name)
    if path is None:
        return ""
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)*", done.stdout + done.stderr)
    return found[0] if found else ""


def revision() -> str:
    """The commit that is measured, with `+` if files differ from it that this program does not write."""
    commit = _git("describe", "--always", "--abbrev=10", "--exclude=*")
    changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN))
    return f"{commit or 'unknown'}{'' if commit and not changed else CHANGED}"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
