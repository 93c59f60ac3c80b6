"""Export orders, with their status, in a form that can be imported again."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from petstore_server.domain.orders import ORDER_FIELDS, Order
from petstore_server.domain.search import Filters
from petstore_server.store import Store


async def export_orders(
    store: Store,
    file_format: str,
    filters: Filters = Filters(),  # noqa: B008 - immutable
) -> AsyncGenerator[tuple[bytes, int]]:
    """Yield the file in parts, each with the number of orders so far, ascending by id.

    They are one snapshot. The formats are those of imports: jsonl, json and csv.
    """
    begin, encode, between, end = _FORMATS[file_format]
    count = 0
    yield begin, count
    async with aclosing(store.orders.scan(filters)) as batches:
        async for orders in batches:
            if orders:
                yield (between if count else b"") + between.join(map(encode, orders)), count + len(orders)
                count += len(orders)
    yield (b"\n" if count else b"") + end, count


def _json_record(order: Order) -> bytes:
    return f'{order.record()[:-1]},"status":"{order.status}"}}'.encode()


def _csv_row(order: Order) -> bytes:
    """No cell needs quotes: they hold numbers, words and canonical timestamps."""
    complete = "" if order.complete is None else str(order.complete).lower()
    cells = (order.id, order.pet_id, order.quantity, order.ship_date, complete, order.status)
    return ",".join("" if cell is None else str(cell) for cell in cells).encode()


_FORMATS: dict[str, tuple[bytes, Callable[[Order], bytes], bytes, bytes]] = {
    "jsonl": (b"", _json_record, b"\n", b""),
    "json": (b"[\n", _json_record, b",\n", b"]\n"),
    "csv": (",".join(ORDER_FIELDS).encode() + b"\n", _csv_row, b"\n", b""),
}
"""What a file begins with, a record, what is between records, and what ends the file."""
