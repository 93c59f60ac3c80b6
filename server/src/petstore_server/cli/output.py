"""Output of the command line: data on stdout, messages on stderr, safe for a terminal.

Everything printed passes through `write`, `write_json` or `log_to_stderr`. They escape control characters, so that a
note, a cell of an import file or an argument cannot move the cursor, change colours or forge a line. Messages hide API
keys, which may have been typed in place of an id.
"""

import io
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import Any, Protocol

import click

from petstore_server.domain.texts import UNSAFE, escape_unsafe, hide_keys, in_words

_PLAIN = str.maketrans({"→": "->", "…": "...", "≤": "<=", "–": "-", "█": "#", "░": "."})  # without UTF-8
_MIN_CELL = 12  # columns; a cell is never narrower


def wants_json() -> bool:
    """Whether the running command was given `--json`."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get("json"))


def prepare_streams() -> None:
    """Open the streams with which this process did not start; have stdout and stderr replace what their encoding lacks.

    To use a closed stdin or stdout then fails with EBADF; what is written to a closed stderr is lost.
    """
    for name, mode, access in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, access)
            os.set_inheritable(descriptor, True)  # or the processes of workers would be without it
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 - for the whole process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """Discard what is buffered for stdout, so that writing it does not fail at exit."""
    with suppress(io.UnsupportedOperation):  # a program that calls the command line may keep its output in memory
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write(text: str) -> None:
    """Write data to stdout, buffered: the text brings its own line ends."""
    sys.stdout.write(_encodable(escape_unsafe(text), sys.stdout))


def write_json(value: Any) -> None:
    """Write one JSON value as a line of stdout, whose encoding can hold it."""
    text = json.dumps(value, ensure_ascii=not _is_utf8(sys.stdout), separators=(",", ":"))
    sys.stdout.write(UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def log_to_stderr(*lines: str) -> None:
    """Write lines, which are not data, to stderr. A stderr that nothing reads any more is ignored."""
    # Where a key is hidden, the line is percent-decoded, and may then have other characters to escape.
    _write_to_stderr("".join(f"{printable(hide_keys(printable(line)))}\n" for line in lines))


def log_json(fields: Mapping[str, str]) -> None:
    """Write texts to stderr, as `log_to_stderr` does, in one JSON object."""
    _write_to_stderr(json.dumps({name: hide_keys(printable(text)) for name, text in fields.items()}) + "\n")


def _write_to_stderr(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(_encodable(text, sys.stderr))
        sys.stderr.flush()


def comment(text: str) -> None:
    """Write one line about the result to stderr, but not with `--json`."""
    if not wants_json():
        log_to_stderr(text)


def show(value: Any, plain: Callable[[], str]) -> None:
    """Write a result to stdout: as JSON with `--json`, else the text of `plain`."""
    if wants_json():
        write_json(value)
    else:
        write(plain() + "\n")


def show_done(value: Any, message: str) -> None:
    """Report what a command has done, which is not data: as JSON on stdout with `--json`, else a line on stderr."""
    if wants_json():
        write_json(value)
    else:
        log_to_stderr(message)


def show_secret(value: Any, secret: str, otherwise: str) -> None:
    """Show a secret that is not shown again; if that fails, report what to do `otherwise`. Raises OSError."""
    try:
        show(value, lambda: secret)
        sys.stdout.flush()
    except OSError:
        log_to_stderr(otherwise)
        raise


def warn_of_suspension(account: str, effect: str) -> None:
    """Report on stderr that the account is suspended, and the effect of that."""
    resume = f"petstore accounts resume {shlex.quote(account)}"
    log_to_stderr(f"The account {account} is suspended: {effect} until `{resume}`.")


def printable(value: object) -> str:
    """The value as text of one line without control characters; None is `-`, and True is `true`."""
    if value is None or isinstance(value, bool):
        return "-" if value is None else str(value).lower()
    return escape_unsafe(str(value)).replace("\n", "\\n").replace("\t", "\\t")


def plural(count: int, noun: str) -> str:
    """A number with its noun: "1 key", "2 keys"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def details(pairs: Iterable[tuple[str, object]]) -> str:
    """Name (or that of a JSON field) and value, one pair per line, wrapped on a terminal; None and "" as `-`."""
    rows = [(in_words(name) + ":", _cell(value)) for name, value in pairs]
    names = max(columns(name) for name, _ in rows)
    return "\n".join(wrapped(f"{_padded(name, names)}  {value}", names + 2) for name, value in rows)


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is; None if it is not a terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil  # which loads much

    return shutil.get_terminal_size().columns


def wrapped(line: str, indent: int) -> str:
    """The line, broken at words to fit the terminal that stdout is, with `indent` spaces before all but the first."""
    width = terminal_width()
    if width is None or columns(line) <= width or width <= 2 * indent:
        return line
    return line[:indent] + f"\n{' ' * indent}".join(_broken(line[indent:], width - indent))


def write_rows(rows: Sequence[Sequence[object]], sides: str, widths: list[int]) -> None:
    """Write rows of a long table as they come, each cell to its side (`<` or `>`); `widths` grow with the cells."""
    lines = [list(map(printable, row)) for row in rows]
    widths[:] = map(max, widths, _widths(lines))
    for line in lines:
        write("  ".join(map(_padded, line, widths, sides)).rstrip() + "\n")


def table(titles: Sequence[str], rows: Sequence[Sequence[object]], shrinks: Collection[str] = ()) -> str:
    """Rows in columns under a header; None and "" are shown as `-`.

    On a terminal that is too narrow, columns without a value are left out, then cells of the columns that shrink are
    wrapped; if that is not enough, each row becomes a block of names and values.
    """
    lines = [titles, *(list(map(_cell, row)) for row in rows)]
    widths, width = _widths(lines), terminal_width()
    if rows and width is not None and _total(widths) > width:
        filled = [texts for texts in zip(*lines, strict=True) if any(text != "-" for text in texts[1:])]
        titles, *cells = lines = list(zip(*filled, strict=True)) if filled else lines
        widths = _widths(lines)
        least = [min(size, _MIN_CELL) if title in shrinks else size for title, size in zip(titles, widths, strict=True)]
        if _total(least) > width:
            return "\n\n".join(details(zip(map(str.lower, titles), row, strict=True)) for row in cells)
        while _total(widths) > width:
            widths[max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))] -= 1
    parts = (part for line in lines for part in zip_longest(*map(_broken, line, widths), fillvalue=""))
    return "\n".join("  ".join(map(_padded, part, widths)).rstrip() for part in parts)


def _cell(value: object) -> str:
    return "-" if value == "" else printable(value)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(columns, texts)) for texts in zip(*lines, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _broken(text: str, width: int) -> list[str]:
    if columns(text) <= width:
        return [text]
    from rich.console import Console  # takes longer to import than most commands
    from rich.text import Text

    return [part.plain.rstrip() for part in Text(text).wrap(Console(width=width), width, overflow="fold")]


class Advance(Protocol):
    """Shows how far the work has come: `done` of `total`, `count`, which the rate counts (None: `done`), and `more`."""

    def __call__(self, done: int, total: int | None = None, count: int | None = None, more: str = "") -> None: ...


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Show a line while the block runs, on a terminal and without `--json`: the part done, the rate, the time left."""
    if wants_json() or not sys.stderr.isatty():
        yield lambda done, total=None, count=None, more="": None
        return
    from rich.console import Console  # takes longer to import than most commands
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    parts = "{task.description}", BarColumn(20), TaskProgressColumn(), TimeRemainingColumn(), "{task.fields[counted]}"
    console = Console(stderr=True)
    shown = Progress(*parts, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = shown.add_task(what, total=None, counted="")
    began = time.monotonic()

    def advance(done: int, total: int | None = None, count: int | None = None, more: str = "") -> None:
        count = done if count is None else count
        rate = count / max(time.monotonic() - began, 0.001)
        shown.start()  # not earlier: a message about the store may come first
        shown.update(task, completed=done, total=total, counted=f"{count:,}, {rate:,.0f}/s{more and ', '}{more}")

    try:
        yield advance
    finally:
        shown.stop()


def _encodable(text: str, stream: Any) -> str:
    return text if text.isascii() or _is_utf8(stream) else text.translate(_PLAIN)


def _is_utf8(stream: Any) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def _padded(text: str, width: int, side: str = "<") -> str:
    space = " " * (width - columns(text))
    return text + space if side == "<" else space + text


def columns(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # not loaded for most output

    return cell_len(text)
