"""The operation cancelOrder, which both versions of the API have (spec S4; D5)."""

from collections.abc import Awaitable, Callable

from petstore_server.domain.orders import CANCEL, parse_order_id
from petstore_server.http.request import Request
from petstore_server.http.responses import Response
from petstore_server.store import Store


def cancel_order(
    store: Store, clock: Callable[[], float], check_query: Callable[[bytes], object] = lambda query: None
) -> Callable[[Request], Awaitable[Response]]:
    """The handler over a store. `clock` gives Unix seconds; `check_query` raises if a version refuses the query.

    The handler cancels the order that the path names, and its response is sent once that is durable. It raises
    InvalidOrderId, OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled, and what `check_query` raises.
    """

    async def handle(request: Request) -> Response:
        order_id = parse_order_id(request.segments[-1])
        check_query(request.query)
        await store.orders.change(order_id, CANCEL, request.actor(clock()))
        return Response(204)

    return handle
