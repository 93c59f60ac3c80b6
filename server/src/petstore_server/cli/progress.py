"""Progress of long work on stderr, when somebody watches it on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from petstore_server.cli.output import wants_json


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; the function it gets is told how much is done, out of `total`.

    Shows nothing where stderr is no terminal, and with `--json`.
    """
    if wants_json() or not sys.stderr.isatty():
        yield lambda done: None
        return
    # Loaded here because it takes longer than most commands.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)
