"""Placing an order: the request with its idempotency key, and its result (D20)."""

from typing import NamedTuple

from petstore_server.domain.digests import sha256
from petstore_server.domain.orders import Order, TrackedOrder
from petstore_server.domain.timestamps import DAY

KEY_LIFETIME = DAY  # seconds for which an idempotency key gets the order that was placed with it


class Placement(NamedTuple):
    """A request to place an order. `key` identifies it; `ship_date` is RFC 3339 in UTC with `Z`, or None.

    `account` is the name of the account if its key sees the owners of orders.
    """

    account_id: int
    key: str
    pet_id: int
    quantity: int
    ship_date: str | None
    reference: str | None = None
    account: str | None = None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the body's content, 32 bytes: bodies that differ only in form have the same digest."""
        content = f"{self.pet_id} {self.quantity} {self.ship_date}"
        return sha256((content if self.reference is None else f"{content} {self.reference}").encode())

    @property
    def identity(self) -> tuple[int, str]:
        """The account and its key: requests with the same identity place one order."""
        return self.account_id, self.key

    @property
    def owned_reference(self) -> tuple[int, str] | None:
        """The account, which will own the order, and the reference, which no other of its orders may have."""
        return None if self.reference is None else (self.account_id, self.reference)

    def order(self, order_id: int) -> Order:
        return Order(order_id, self.pet_id, self.quantity, self.ship_date, reference=self.reference)

    def placed(self, order_id: int, at: int, *, replayed: bool) -> "Placed":
        """The result for an identifier and a time in Unix microseconds: the same bytes for a repeated request."""
        order = self.order(order_id)
        tracked = TrackedOrder(order.record(), order.status, at, at, order.reference, self.account)
        return Placed(order_id, tracked.text().encode(), replayed)


class Placed(NamedTuple):
    """A placed order. `body` is the response's JSON: a replay has the bytes of the first response."""

    order_id: int
    body: bytes
    replayed: bool = False
