"""The order operations: listOrders and cancelOrder (spec S4)."""

from collections.abc import Callable

from petstore_server.domain.orders import CANCEL, parse_order_id
from petstore_server.http.request import Request
from petstore_server.http.responses import Response, accepts_gzip, matches
from petstore_server.ports import Actor, Orders

_LIST_HEADERS = [(b"cache-control", b"private, no-cache"), (b"vary", b"Accept-Encoding, Authorization")]


class OrderOperations:
    """Handlers over the orders port. `clock` gives Unix seconds."""

    def __init__(self, orders: Orders, clock: Callable[[], float]) -> None:
        self._orders = orders
        self._clock = clock

    async def list_orders(self, request: Request) -> Response:
        """Every order, from memory; 304 where the client holds the same bytes already (D8)."""
        snapshot = await self._orders.snapshot()
        zipped = accepts_gzip(request.headers.get(b"accept-encoding"))
        body = await snapshot.gzip() if zipped else snapshot.plain
        headers = [(b"etag", body.etag), *_LIST_HEADERS]
        if matches(request.headers.get(b"if-none-match"), body.etag):
            return Response(304, headers)
        headers.append((b"content-type", b"application/json"))
        if zipped:
            headers.append((b"content-encoding", b"gzip"))
        return Response(200, headers, body.chunks, body.length)

    async def cancel_order(self, request: Request) -> Response:
        """Cancel the order that the path names; answered once that is durable (D5).

        Raises InvalidOrderId, OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled.
        """
        order_id = parse_order_id(request.segments[-1])
        actor = f"key:{request.principal.key_id}" if request.principal else "unknown"
        await self._orders.change(order_id, CANCEL, Actor(actor, self._clock()))
        return Response(204, [])
