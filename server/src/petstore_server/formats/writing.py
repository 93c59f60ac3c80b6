"""Orders as the bytes of an export, in each format that can be imported again."""

from collections.abc import Callable, Sequence
from pathlib import Path

from petstore_server.domain.errors import InvalidInput
from petstore_server.domain.orders import ORDER_FIELDS, Order
from petstore_server.formats.reading import STDIN

_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv"}


def export_format(name: str, given: str | None) -> str:
    """The format of an export to this file: the given one, else by its ending, JSON Lines without an ending.

    Raises InvalidInput for an ending of another format.
    """
    ending = Path(name).suffix.lower()
    if given or name == STDIN or not ending:
        return given or "jsonl"
    if ending not in _ENDINGS:
        known = ", ".join(_ENDINGS)
        raise InvalidInput(f"'{ending}' is not the ending of an export format ({known}); rename it or give --format.")
    return _ENDINGS[ending]


class OrderWriter:
    """Encodes orders, batch after batch."""

    def __init__(self, file_format: str) -> None:
        self._encode, self._between = _ENCODINGS[file_format]
        self.header = {"csv": (",".join(ORDER_FIELDS) + "\n").encode(), "json": b"[\n"}.get(file_format, b"")
        self._footer = b"]\n" if file_format == "json" else b""
        self._empty = True

    def batch(self, orders: Sequence[Order]) -> bytes:
        """The orders, after those of the batches before."""
        text = self._between.join(map(self._encode, orders))
        if not self._empty:
            text = self._between + text
        self._empty = self._empty and not orders
        return text

    def footer(self) -> bytes:
        """What ends the file."""
        return self._footer if self._empty else b"\n" + self._footer


def _json_record(order: Order) -> bytes:
    return f'{order.record()[:-1]},"status":"{order.status}"}}'.encode()


def _csv_row(order: Order) -> bytes:
    """No cell needs quotes: they hold numbers, words and canonical timestamps."""
    complete = "" if order.complete is None else str(order.complete).lower()
    cells = (order.id, order.pet_id, order.quantity, order.ship_date, complete, order.status)
    return ",".join("" if cell is None else str(cell) for cell in cells).encode()


_ENCODINGS: dict[str, tuple[Callable[[Order], bytes], bytes]] = {
    "jsonl": (_json_record, b"\n"),
    "json": (_json_record, b",\n"),
    "csv": (_csv_row, b"\n"),
}
