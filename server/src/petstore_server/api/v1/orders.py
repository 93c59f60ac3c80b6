"""The list of version 1 (spec S4)."""

from petstore_server.api.call import Call
from petstore_server.api.list_cache import ListCache
from petstore_server.api.representation import accepts_gzip
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
        headers = call.request.headers
        snapshot = await self._list.current(call.request.turn)
        chosen = await snapshot.gzip() if accepts_gzip(headers) else snapshot.plain
        return chosen.answer(headers)
