"""Placing an order through the API: the request, its idempotency key and the result (D20)."""

from hashlib import sha256
from typing import NamedTuple

from petstore_server.domain.lists import TrackedOrder
from petstore_server.domain.orders import Order
from petstore_server.domain.timestamps import DAY

KEY_LIFETIME = DAY
"""Seconds for which an idempotency key gets the order that was placed with it."""

NO_IDENTIFIER_LEFT = "no identifier is left for a new order: order 9223372036854775807 exists"
"""Why an order cannot be placed in a store that uses the largest identifier."""


class Placement(NamedTuple):
    """A request to place an order. `key` is its idempotency key, unique within the account.

    `ship_date` is in canonical form (RFC 3339 in UTC with `Z`), or None.
    """

    account_id: int
    key: str
    pet_id: int
    quantity: int
    ship_date: str | None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the body's content, 32 bytes: bodies that differ only in form have the same digest."""
        return sha256(f"{self.pet_id} {self.quantity} {self.ship_date}".encode()).digest()

    def order(self, order_id: int) -> Order:
        """The order to store, pending."""
        return Order(order_id, self.pet_id, self.quantity, self.ship_date)

    def placed(self, order_id: int, at: int, *, replayed: bool) -> "Placed":
        """The result, given the order's identifier and the time of its placement in Unix microseconds.

        It follows from the request, so a repeated request gets the same bytes without their being kept.
        """
        order = self.order(order_id)
        return Placed(order_id, TrackedOrder(order.record(), order.status, at, at).text().encode(), replayed)


class Placed(NamedTuple):
    """A placed order. `body` is the response's JSON: a replay has the bytes of the first response."""

    order_id: int
    body: bytes
    replayed: bool = False
