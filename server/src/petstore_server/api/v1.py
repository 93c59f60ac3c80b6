"""Version 1 of the API: its operations and its routes (spec S4, S8.3)."""

from collections.abc import Callable

import msgspec

from petstore_server.api.errors import Gone
from petstore_server.api.headers import deprecation_notices
from petstore_server.api.list_cache import ListCache, OwnLists
from petstore_server.api.representation import accepts_gzip, json_response
from petstore_server.api.routes import Call, Operation, Route
from petstore_server.domain.errors import PetNotFound
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import CANCEL, is_int64, parse_order_id
from petstore_server.server.messages import Response
from petstore_server.settings import Settings
from petstore_server.store import Store

_CACHING = b"Cache-Control: private, no-cache\r\nVary: Authorization\r\n"


def routes(store: Store, clock: Callable[[], float], settings: Settings) -> list[Route]:
    """The routes of version 1 over a store. `clock` gives Unix seconds."""
    handlers = _Handlers(store, clock, settings.pets_sunset.timestamp())
    list_orders = Operation("listOrders", Scope.ORDERS_READ, handlers.list_orders)
    cancel = Operation("cancelOrder", Scope.ORDERS_CANCEL, handlers.cancel_order)
    get_pet = Operation("getPet", Scope.PETS_READ, handlers.get_pet)
    notices = deprecation_notices(settings.pets_deprecated_at, settings.pets_sunset)
    return [
        Route("/v1/store/orders", {"GET": list_orders, "HEAD": list_orders}),
        Route("/v1/store/orders/{orderId}", {"DELETE": cancel}),
        Route("/v1/pets/{petId}", {"GET": get_pet, "HEAD": get_pet}, notices),
    ]


class _Handlers:
    def __init__(self, store: Store, clock: Callable[[], float], pets_sunset: float) -> None:
        self._store = store
        self._clock = clock
        self._pets_sunset = pets_sunset
        self._orders = ListCache(store.listing)
        self._own = OwnLists(store.listing)

    async def list_orders(self, call: Call) -> Response:
        """Every order that the account sees, from memory; 304 if the client has the same bytes already (D8, D21)."""
        headers, turn, owner = call.request.headers, call.request.turn, call.caller.owner
        zipped = accepts_gzip(headers)
        if owner is not None:
            return (await self._own.form(owner, turn, zipped=zipped)).answer(headers)
        snapshot = self._orders.known(turn) or await self._orders.current(turn)
        chosen = await snapshot.gzip() if zipped else snapshot.plain
        return chosen.answer(headers)

    async def cancel_order(self, call: Call) -> Response:
        """Cancel an order; the response is sent once that is durable (spec S4; D5).

        Raises InvalidOrderId, OrderNotFound, OrderAlreadyShipped, OrderAlreadyCancelled.
        """
        order_id, caller = parse_order_id(call.parameter), call.caller
        actor = call.actor(self._clock())
        await self._store.orders.change(order_id, CANCEL, actor, caller.account_id, owner=caller.owner)
        call.cancelled = True
        return Response(204)

    async def get_pet(self, call: Call) -> Response:
        """One pet. Raises Gone, and PetNotFound (including for an identifier that is not an int64)."""
        if self._clock() >= self._pets_sunset:
            raise Gone
        text = call.parameter
        if not is_int64(text):
            raise PetNotFound
        pet = await self._store.pets.find(int(text))
        body = msgspec.json.encode(pet.fields())
        return json_response(body, _CACHING)
