"""Version 1 of the API: its operations and its routes (spec S4, S8.3)."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from petstore_server.api.errors import Gone
from petstore_server.api.headers import deprecation_notices
from petstore_server.api.list_cache import ListCache
from petstore_server.api.representation import accepts_gzip, body_response
from petstore_server.api.routes import Call, Handler, Operation, Route
from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.keys import Principal, Scope
from petstore_server.domain.orders import CANCEL, is_int64, parse_order_id
from petstore_server.domain.windows import Decision
from petstore_server.server.messages import Response
from petstore_server.settings import Settings
from petstore_server.store import Store

_CACHING = b"cache-control: private, no-cache\r\nvary: Authorization\r\n"


def routes(store: Store, clock: Callable[[], float], settings: Settings) -> list[Route]:
    """The routes of version 1 over a store. `clock` gives Unix seconds."""
    list_orders = Operation("listOrders", Scope.ORDERS_READ, _list_orders(store))
    cancel = Operation("cancelOrder", Scope.ORDERS_CANCEL, cancel_order(store, clock))
    get_pet = Operation("getPet", Scope.PETS_READ, _get_pet(store, clock, settings.pets_sunset))
    notices = deprecation_notices(settings.pets_deprecated_at, settings.pets_sunset)
    return [
        Route("/v1/store/orders", {"GET": list_orders, "HEAD": list_orders}),
        Route("/v1/store/orders/{orderId}", {"DELETE": cancel}),
        Route("/v1/pets/{petId}", {"GET": get_pet, "HEAD": get_pet}, notices),
    ]


def cancel_order(
    store: Store, clock: Callable[[], float], check_query: Callable[[bytes], object] = lambda query: None
) -> Handler:
    """The handler of cancelOrder, which version 2 has too (spec S4; D5).

    `clock` gives Unix seconds. `check_query` raises if a version refuses the query. The handler's response is sent once
    the cancel is durable. It raises InvalidOrderId, OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled.
    """

    async def handle(call: Call, principal: Principal, _: Decision) -> Response:
        order_id = parse_order_id(call.segments[-1])
        check_query(call.request.query)
        await store.orders.change(order_id, CANCEL, call.actor(principal, clock()), principal.account_id)
        return Response(204)

    return handle


def _list_orders(store: Store) -> Handler:
    orders = ListCache(store.listing)

    async def list_orders(call: Call, _: Principal, __: Decision) -> Response:
        """Every order, from memory; 304 if the client has the same bytes already (D8)."""
        headers = call.request.headers
        snapshot = await orders.current(call.request.turn)
        chosen = await snapshot.gzip() if accepts_gzip(headers) else snapshot.plain
        return chosen.answer(headers)

    return list_orders


def _get_pet(store: Store, clock: Callable[[], float], sunset: datetime) -> Handler:
    ends = sunset.timestamp()

    async def get_pet(call: Call, _: Principal, __: Decision) -> Response:
        """One pet. Raises Gone, and PetNotFound (also for an identifier that is not an int64)."""
        if clock() >= ends:
            raise Gone
        text = call.segments[-1]
        if not is_int64(text):
            raise PetNotFound
        pet = await store.pets.find(int(text))
        body = msgspec.json.encode(pet.fields())
        return body_response((body,), len(body), "application/json", _CACHING)

    return get_pet
