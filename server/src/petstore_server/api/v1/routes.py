"""The routes of version 1."""

from collections.abc import Callable

from petstore_server.api.cancellation import cancel_order
from petstore_server.api.deprecation import deprecation_notices
from petstore_server.api.routes import Operation, Route
from petstore_server.api.v1.orders import ListOperations
from petstore_server.api.v1.pets import PetOperations
from petstore_server.domain.keys import Scope
from petstore_server.limits.activity import UsageRecorder
from petstore_server.settings import Settings
from petstore_server.store import Store


def routes(store: Store, usage: UsageRecorder, clock: Callable[[], float], settings: Settings) -> list[Route]:
    """The routes of version 1 over a store; `usage` counts cancelled orders. `clock` gives Unix seconds."""
    pets = PetOperations(store, clock, settings.pets_sunset)
    list_orders = Operation("listOrders", Scope.ORDERS_READ, ListOperations(store).list_orders)
    cancel = Operation("cancelOrder", Scope.ORDERS_CANCEL, cancel_order(store, usage, clock))
    get_pet = Operation("getPet", Scope.PETS_READ, pets.get_pet)
    notices = deprecation_notices(settings.pets_deprecated_at, settings.pets_sunset)
    return [
        Route("/v1/store/orders", {"GET": list_orders, "HEAD": list_orders}),
        Route("/v1/store/orders/{orderId}", {"DELETE": cancel}),
        Route("/v1/pets/{petId}", {"GET": get_pet, "HEAD": get_pet}, notices),
    ]
