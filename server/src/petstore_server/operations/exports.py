"""Export all orders, with their status, in a form that can be imported again."""

from collections.abc import Callable

from petstore_server.formats.writing import OrderWriter
from petstore_server.ports import Store


async def export_orders(
    store: Store,
    file_format: str,
    write: Callable[[bytes], object],
    on_batch: Callable[[int], None] = lambda count: None,
) -> int:
    """Write every order of one snapshot, ascending by id, and return how many there are.

    `on_batch` is called with the number of orders written so far.
    """
    writer = OrderWriter(file_format)
    count = 0
    write(writer.header)
    async for orders in store.orders.scan():
        write(writer.batch(orders))
        count += len(orders)
        on_batch(count)
    write(writer.footer())
    return count
