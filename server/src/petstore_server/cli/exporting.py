"""`petstore orders export`: the file, which appears only when it is complete."""

import os
import stat
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import IO

import click

from petstore_server.cli.progress import progress
from petstore_server.cli.stores import with_store
from petstore_server.domain.errors import Conflict, InvalidInput
from petstore_server.imports.options import STDIN
from petstore_server.operations.exports import export_orders
from petstore_server.partial_files import partial_file, put_in_place
from petstore_server.store import Store

_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv"}


def export_to(target: str, file_format: str | None, force: bool) -> int:
    """Export all orders to a file, or stdout for `-`; return how many. Raises InvalidInput, Conflict, OSError."""
    chosen = file_format or _format_of(target)
    if target != STDIN and Path(target).is_file() and not force:
        raise Conflict(f"{target} exists; choose another name, or add --force to replace it.")

    async def export(store: Store) -> int:
        count = 0
        async with aclosing(export_orders(store, chosen)) as parts:
            with _opened(target) as file, progress("Exporting orders") as advance:
                async for part, count in parts:
                    file.write(part)
                    advance(count)
        return count

    return with_store(export)


def _format_of(target: str) -> str:
    """The format that the file's ending names; JSON Lines without an ending. Raises InvalidInput for other endings."""
    ending = Path(target).suffix.lower()
    if target == STDIN or not ending:
        return "jsonl"
    if ending not in _ENDINGS:
        known = ", ".join(_ENDINGS)
        raise InvalidInput(f"'{ending}' is not the ending of an export format ({known}); rename it or give --format.")
    return _ENDINGS[ending]


@contextmanager
def _opened(target: str) -> Iterator[IO[bytes]]:
    """Where the export goes: stdout, or a file that gets its name when it is complete and on disk."""
    path = Path(target)
    if target == STDIN or (path.exists() and not path.is_file()):  # a pipe or a device cannot be replaced
        with click.open_file(target, "wb") as stream:
            yield stream
            stream.flush()
        return
    path = path.resolve()  # a link remains, and points to the new file
    with partial_file(path) as partial:
        with _created(partial, path) as file:
            yield file
            file.flush()
        put_in_place(partial, path)


def _created(partial: Path, path: Path) -> IO[bytes]:
    """Create the partial file of `path`, with the mode of a file that it replaces; an OSError names `path`."""
    try:
        file = partial.open("xb")
    except OSError as error:  # the name of the partial file says nothing to an operator
        raise OSError(error.errno, error.strerror, str(path)) from None
    if path.exists():
        os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
    return file
