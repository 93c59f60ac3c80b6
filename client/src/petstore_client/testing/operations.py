"""The operations of version 1 of the fake service, and what version 2 shares with them."""

import hashlib
import re

import httpx2
import msgspec

from petstore_client.testing.faults import Raw, error
from petstore_client.testing.store import Store

_IDENTIFIER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
JSON = {"content-type": "application/json"}


def list_orders(store: Store, request: httpx2.Request, _: str) -> Raw:
    """All orders, ascending by id."""
    return representation(request, msgspec.json.encode(sorted(store.orders.values(), key=lambda order: order.id or 0)))


def cancel_order(store: Store, _: httpx2.Request, number: str) -> Raw:
    """204, or the reason why the order cannot be cancelled."""
    order_id = identifier_of(number)
    if order_id is None or order_id not in store.orders:
        return order_not_found(number)
    if order_id in store.shipped:
        return error(409, "order_already_shipped", f"Order {number} has already shipped.")
    if order_id in store.cancelled:
        return error(409, "order_already_cancelled", f"Order {number} is already cancelled.")
    store.cancelled.add(order_id)
    return Raw(204, {}, ())


def get_pet(store: Store, _: httpx2.Request, number: str) -> Raw:
    """The pet, with the notices of a deprecated operation."""
    notices = {"deprecation": "@1793491200", "sunset": store.sunset}
    pet = store.pets.get(identifier_of(number))
    if pet is None:
        return error(404, "pet_not_found", "There is no pet with this identifier.", notices)
    return Raw(200, {**JSON, **notices}, (msgspec.json.encode(pet),))


def not_found(_: Store, __: httpx2.Request, ___: str) -> Raw:
    """The response on an unknown path."""
    return error(404, "not_found", "There is no such path.")


def representation(request: httpx2.Request, body: bytes) -> Raw:
    """200 with the body and its ETag, or 304."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if request.headers.get("if-none-match") == etag:
        return Raw(304, {"etag": etag}, ())
    return Raw(200, {**JSON, "etag": etag}, (body,))


def order_not_found(number: str) -> Raw:
    """The response for an order that does not exist."""
    if identifier_of(number) is None:
        return error(404, "invalid_order_id", "An order identifier is a whole number of at most 64 bits.")
    return error(404, "order_not_found", f"There is no order {number}.")


def identifier_of(text: str) -> int | None:
    """An identifier in a path, written as the service demands (D4), or None if it is not one."""
    return int(text) if _IDENTIFIER.fullmatch(text) and -(2**63) <= int(text) < 2**63 else None
