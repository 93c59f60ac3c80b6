"""The list of version 1 (spec S4)."""

from petstore_server.api.call import Call
from petstore_server.api.list_cache import ListCache
from petstore_server.api.responses import accepts_gzip, matches
from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import Decision
from petstore_server.server.response import Response
from petstore_server.store import Store


class ListOperations:
    """The handler of listOrders over the store's orders."""

    def __init__(self, store: Store) -> None:
        self._list = ListCache(store.listing)

    async def list_orders(self, call: Call, _: Principal, __: Decision) -> Response:
        """Every order, from memory; 304 if the client has the same bytes already (D8)."""
        request = call.request
        snapshot = await self._list.current(request.turn)
        accept_encoding = request.headers.get(b"accept-encoding")
        body = await snapshot.gzip() if accept_encoding and accepts_gzip(accept_encoding) else snapshot.plain
        if_none_match = request.headers.get(b"if-none-match")
        return body.unchanged if if_none_match and matches(if_none_match, body.etag) else body.response
