"""The operation cancelOrder, which both versions of the API have (spec S4; D5)."""

from collections.abc import Callable

from petstore_server.api.call import Call
from petstore_server.api.routes import Handler
from petstore_server.domain.keys import Principal
from petstore_server.domain.orders import CANCEL, parse_order_id
from petstore_server.domain.windows import Decision
from petstore_server.limits.activity import UsageRecorder
from petstore_server.server.response import Response
from petstore_server.store import Store


def cancel_order(
    store: Store,
    usage: UsageRecorder,
    clock: Callable[[], float],
    check_query: Callable[[bytes], object] = lambda query: None,
) -> Handler:
    """The handler over a store; `usage` counts what it cancels. `clock` gives Unix seconds.

    `check_query` raises if a version refuses the query. The handler cancels the order that the path names, and its
    response is sent once that is durable. It raises InvalidOrderId, OrderNotFound, OrderAlreadyShipped,
    OrderAlreadyCancelled, and what `check_query` raises.
    """

    async def handle(call: Call, principal: Principal, _: Decision) -> Response:
        order_id = parse_order_id(call.segments[-1])
        check_query(call.request.query)
        await store.orders.change(order_id, CANCEL, call.actor(principal, clock()))
        usage.cancelled(principal)
        return Response(204)

    return handle
