"""Export all orders, with their status, in a form that can be imported again."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from petstore_server.formats.writing import OrderWriter
from petstore_server.store import Store


async def export_orders(store: Store, file_format: str) -> AsyncGenerator[tuple[bytes, int]]:
    """Yield the file in parts, each with the number of orders so far: one snapshot, ascending by id."""
    writer = OrderWriter(file_format)
    count = 0
    yield writer.header, count
    async with aclosing(store.orders.scan()) as batches:
        async for orders in batches:
            count += len(orders)
            yield writer.batch(orders), count
    yield writer.footer(), count
