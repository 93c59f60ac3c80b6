"""The operations of the fake service, by API version."""

import hashlib
from collections.abc import Callable, Iterable

import httpx2
import msgspec

from petstore_client._types import Order, Pet
from petstore_client.testing.faults import Raw, error

JSON = {"content-type": "application/json"}


class Store:
    """The orders and pets of the fake service."""

    def __init__(self, orders: Iterable[Order], pets: Iterable[Pet], shipped: Iterable[int], sunset: str) -> None:
        self.orders = {order.id: order for order in orders}
        self.pets = {pet.id: pet for pet in pets}
        self.shipped = set(shipped)
        self.cancelled: set[int] = set()
        self.sunset = sunset


def list_orders(store: Store, request: httpx2.Request, _: str) -> Raw:
    """All orders, ascending by id."""
    body = msgspec.json.encode(sorted(store.orders.values(), key=lambda order: order.id or 0))
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if request.headers.get("if-none-match") == etag:
        return Raw(304, {"etag": etag}, ())
    return Raw(200, {**JSON, "etag": etag}, (body,))


def cancel_order(store: Store, _: httpx2.Request, number: str) -> Raw:
    """204, or the reason why the order cannot be cancelled."""
    order_id = _identifier(number)
    if order_id is None or order_id not in store.orders:
        return error(404, "order_not_found", f"There is no order {number}.")
    if order_id in store.shipped:
        return error(409, "order_already_shipped", f"Order {number} has already shipped.")
    if order_id in store.cancelled:
        return error(409, "order_already_cancelled", f"Order {number} is already cancelled.")
    store.cancelled.add(order_id)
    return Raw(204, {}, ())


def get_pet(store: Store, _: httpx2.Request, number: str) -> Raw:
    """The pet, with the notices of a deprecated operation."""
    notices = {"deprecation": "@1793491200", "sunset": store.sunset}
    pet = store.pets.get(_identifier(number))
    if pet is None:
        return error(404, "pet_not_found", "There is no pet with this identifier.", notices)
    return Raw(200, {**JSON, **notices}, (msgspec.json.encode(pet),))


def not_found(_: Store, __: httpx2.Request, ___: str) -> Raw:
    """The response on an unknown path."""
    return error(404, "not_found", "There is no such path.")


Operation = Callable[[Store, httpx2.Request, str], Raw]

OPERATIONS: dict[tuple[str, str, str], Operation] = {
    ("v1", "GET", "/store/orders"): list_orders,
    ("v1", "DELETE", "/store/orders/{id}"): cancel_order,
    ("v1", "GET", "/pets/{id}"): get_pet,
}
"""By version, method and path."""


def operate(store: Store, request: httpx2.Request, version: str, path: str) -> Raw:
    """The response of the real service to an admitted request."""
    collection, _, identifier = path.rpartition("/")
    operation = OPERATIONS.get((version, request.method, path)) or OPERATIONS.get(
        (version, request.method, f"{collection}/{{id}}"), not_found
    )
    return operation(store, request, identifier)


def _identifier(text: str) -> int | None:
    return int(text) if text.removeprefix("-").isdecimal() else None
