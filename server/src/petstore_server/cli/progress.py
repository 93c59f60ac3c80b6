"""Progress of long work: a line on stderr, if that is a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from petstore_server.cli.output import wants_json, write_status

_INTERVAL = 0.1  # seconds between two updates of the line
_BAR_COLUMNS = 20
_MIN_SECONDS = 1.0  # before this, a rate is not worth showing


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
            write_status(progress_line(what, now - began, done, total, done if count is None else count, note))

    try:
        yield advance
    finally:
        write_status("")


def progress_line(what: str, elapsed: float, done: int, total: int | None, count: int, note: str = "") -> str:
    """The line after `elapsed` seconds."""
    parts = [f"{count:,}"]
    if elapsed >= _MIN_SECONDS:
        parts.append(f"{count / elapsed:,.0f}/s")
        if total and done:
            parts.append(f"{_clock(elapsed * max(total - done, 0) / done)} left")
        else:
            parts.append(_clock(elapsed))
    if note:
        parts.append(note)
    return f"{what}  {_bar(done, total)}{', '.join(parts)}"


def _bar(done: int, total: int | None) -> str:
    if not total:
        return ""
    share = min(done / total, 1.0)
    full = int(share * _BAR_COLUMNS)
    return f"[{'#' * full}{'.' * (_BAR_COLUMNS - full)}] {int(share * 100):3d} %  "


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
