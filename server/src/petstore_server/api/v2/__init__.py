"""Version 2 of the API: filtered pages, single orders, placing orders, usage (D20)."""

from collections.abc import Callable

from petstore_server.api.routes import Operation, Route
from petstore_server.api.v1 import cancel_order
from petstore_server.api.v2.orders import PATH, OrderOperations
from petstore_server.api.v2.parameters import NO_PARAMETERS
from petstore_server.api.v2.usage import ReadUsage, get_usage
from petstore_server.domain.keys import Scope
from petstore_server.limits.activity import UsageRecorder
from petstore_server.store import Store


def routes(store: Store, usage: UsageRecorder, read_usage: ReadUsage, clock: Callable[[], float]) -> list[Route]:
    """The routes of version 2 over a store. `usage` counts cancelled orders, `read_usage` reads the usage history."""
    orders = OrderOperations(store, clock)
    list_orders = Operation("v2.listOrders", Scope.ORDERS_READ, orders.list_orders)
    place_order = Operation("v2.placeOrder", Scope.ORDERS_WRITE, orders.place_order)
    get_order = Operation("v2.getOrder", Scope.ORDERS_READ, orders.get_order)
    cancel = Operation("v2.cancelOrder", Scope.ORDERS_CANCEL, cancel_order(store, usage, clock, NO_PARAMETERS.read))
    read = Operation("v2.getUsage", None, get_usage(read_usage, clock))
    return [
        Route(PATH, {"GET": list_orders, "HEAD": list_orders, "POST": place_order}),
        Route(f"{PATH}/{{orderId}}", {"GET": get_order, "HEAD": get_order, "DELETE": cancel}),
        Route("/v2/usage", {"GET": read, "HEAD": read}),
    ]
