"""Progress of long work: a line on stderr, if that is a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from petstore_server.cli.output import wants_json


class Advance(Protocol):
    """Shows how far the work has come."""

    def __call__(self, done: int, total: int | None = None, count: int | None = None, note: str = "") -> None:
        """`done` is compared with `total`, if that is known; `count` is what the rate counts: `done` if not given."""


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Show a line while the block runs: the part that is done, how many, how many a second, the time left.

    Shows nothing if stderr is not a terminal, and with `--json`.
    """
    if wants_json() or not sys.stderr.isatty():
        yield lambda done, total=None, count=None, note="": None
        return
    from rich.console import Console  # takes longer to import than most commands
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = "{task.description}", BarColumn(20), TaskProgressColumn(), TimeRemainingColumn(), "{task.fields[counted]}"
    console = Console(stderr=True)
    shown = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = shown.add_task(what, total=None, counted="")
    began = time.monotonic()

    def advance(done: int, total: int | None = None, count: int | None = None, note: str = "") -> None:
        count = done if count is None else count
        rate = count / max(time.monotonic() - began, 0.001)
        shown.start()  # not earlier: a message about the store may come first
        shown.update(task, completed=done, total=total, counted=f"{count:,}, {rate:,.0f}/s{note and ', '}{note}")

    try:
        yield advance
    finally:
        shown.stop()
