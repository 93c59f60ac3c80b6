"""The order operations of version 1: listOrders and cancelOrder (spec S4)."""

from collections.abc import Callable

from petstore_server.domain.orders import CANCEL, parse_order_id
from petstore_server.http.errors import PreconditionFailed
from petstore_server.http.list_cache import ListCache
from petstore_server.http.request import Request
from petstore_server.http.responses import Response, accepts_gzip, matches
from petstore_server.store import Store


class OrderOperations:
    """Handlers over the store's orders. `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._list = ListCache(store.listing)
        self._clock = clock

    async def list_orders(self, request: Request) -> Response:
        """Every order, from memory; 304 if the client has the same bytes already (D8)."""
        snapshot = await self._list.current(request.turn)
        accept_encoding = request.headers.get(b"accept-encoding")
        body = await snapshot.gzip() if accept_encoding and accepts_gzip(accept_encoding) else snapshot.plain
        if_none_match = request.headers.get(b"if-none-match")
        return body.unchanged if if_none_match and matches(if_none_match, body.etag) else body.response

    async def cancel_order(self, request: Request) -> Response:
        """Cancel the order named in the path; the response is sent once that is durable (D5).

        Raises InvalidOrderId, OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled, PreconditionFailed.
        """
        order_id = parse_order_id(request.segments[-1])
        if request.headers.get(b"if-match", b"*") != b"*":
            CANCEL.apply(await self._store.orders.find(order_id))  # any other error comes first (RFC 9110 13.2.1)
            raise PreconditionFailed
        await self._store.orders.change(order_id, CANCEL, request.actor(self._clock()))
        return Response(204)
