"""Writing all orders to a file that can be imported again."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from petstore_server.cli.progress import progress
from petstore_server.domain.orders import ORDER_FIELDS, Order
from petstore_server.formats.reading import STDIN, format_by_ending
from petstore_server.ports import Store


async def export_orders(store: Store, target: str, file_format: str | None) -> int:
    """Write every order of one snapshot, ascending by id, and return how many; formats as in `reading`."""
    chosen = file_format or format_by_ending(target) or "jsonl"
    count = 0
    with _opened(target) as file, progress("Exporting orders") as advance:
        if chosen == "csv":
            file.write((",".join(ORDER_FIELDS) + "\n").encode())
        encode, between = _ENCODINGS[chosen]
        file.write(b"[\n" if chosen == "json" else b"")
        async for orders in store.orders.scan():
            if count:
                file.write(between)
            file.write(between.join(map(encode, orders)))
            count += len(orders)
            advance(count)
        if count:
            file.write(b"\n")
        file.write(b"]\n" if chosen == "json" else b"")
    return count


def _json_record(order: Order) -> bytes:
    return f'{order.record()[:-1]},"status":"{order.status}"}}'.encode()


def _csv_row(order: Order) -> bytes:
    """No cell needs quotes: they hold numbers, words and canonical moments."""
    complete = "" if order.complete is None else str(order.complete).lower()
    cells = (order.id, order.pet_id, order.quantity, order.ship_date, complete, order.status)
    return ",".join("" if cell is None else str(cell) for cell in cells).encode()


_ENCODINGS: dict[str, tuple[Callable[[Order], bytes], bytes]] = {
    "jsonl": (_json_record, b"\n"),
    "json": (_json_record, b",\n"),
    "csv": (_csv_row, b"\n"),
}


@contextmanager
def _opened(target: str) -> Iterator[IO[bytes]]:
    """Where the export goes: stdout, or a file that takes its name when it is whole and on disk, never before."""
    path = Path(target)
    if target == STDIN or (path.exists() and not path.is_file()):  # a pipe or a device cannot be renamed over
        with click.open_file(target, "wb") as stream:
            yield stream
            stream.flush()
        return
    path = path.resolve()  # a link stays a link to the new file
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
