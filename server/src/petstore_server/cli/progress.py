"""Progress of long work: a line on stderr, if that is a terminal."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from petstore_server.cli.output import wants_json, write_status

_INTERVAL = 0.1  # seconds between two updates of the line
_LEAST_BAR_COLUMNS, _MOST_BAR_COLUMNS = 5, 20
_MIN_SECONDS = 1.0  # before this, a rate is not worth showing


class State(NamedTuple):
    """How far the work has come after `elapsed` seconds: `done` of `total`; `counted` is what the rate counts."""

    elapsed: float
    done: int
    total: int | None
    counted: int
    note: str = ""


class Advance(Protocol):
    """Shows how far the work has come."""

    def __call__(self, done: int, count: int | None = None, note: str = "") -> None:
        """`done` is compared with the total; `count` is what the rate counts, `done` if it is not given."""


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """Show a line while the block runs: the part of `total` that is done, how many, how many a second, the time left.

    Shows nothing if stderr is not a terminal, and with `--json`.
    """
    if wants_json() or not sys.stderr.isatty():
        yield lambda done, count=None, note="": None
        return
    began = time.monotonic()
    shown_at = 0.0

    def advance(done: int, count: int | None = None, note: str = "") -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at >= _INTERVAL:
            shown_at = now
            state = State(now - began, done, total, done if count is None else count, note)
            write_status(progress_line(what, state, shutil.get_terminal_size().columns - 1))

    try:
        yield advance
    finally:
        write_status("")


def progress_line(what: str, state: State, width: int) -> str:
    """The line, at most `width` columns long; the bar gets the room that is left."""
    parts = [f"{state.counted:,}"]
    if state.elapsed >= _MIN_SECONDS:
        parts.append(f"{state.counted / state.elapsed:,.0f}/s")
        if state.total and state.done:
            parts.append(f"{_clock(state.elapsed * max(state.total - state.done, 0) / state.done)} left")
        else:
            parts.append(_clock(state.elapsed))
    if state.note:
        parts.append(state.note)
    text = ", ".join(parts)
    if state.total:
        share = min(state.done / state.total, 1.0)
        text = f"{int(share * 100):3d} %  {text}"
        columns = min(_MOST_BAR_COLUMNS, width - len(what) - len(text) - len("  [] "))
        if columns >= _LEAST_BAR_COLUMNS:
            full = int(share * columns)
            text = f"[{'#' * full}{'.' * (columns - full)}] {text}"
    return f"{what}  {text}"[:width]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
