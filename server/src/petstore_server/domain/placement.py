"""Placing an order through the API: the request, its idempotency key and the result (D20)."""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from petstore_server.domain.errors import IdempotencyKeyReused
from petstore_server.domain.orders import INT64_MAX, Order
from petstore_server.domain.timestamps import DAY

KEY_LIFETIME = DAY
"""Seconds for which the response to a placed order is kept under its idempotency key."""


NO_IDENTIFIER_LEFT = "no identifier is left for a new order: order 9223372036854775807 exists"
"""Why an order cannot be placed in a store that uses the largest identifier."""


SPARE_IDENTIFIERS = 1 << 32

LARGEST_REMEMBERED = INT64_MAX - SPARE_IDENTIFIERS
"""The largest identifier that is remembered when its order is gone. Larger ones can be assigned again: otherwise an
import of one of them, even if it was undone, would leave too few for new orders."""


def largest_assigned(ids: Iterable[int]) -> int:
    """The largest of these identifiers of orders that no longer exist, for no new order to get it again; at least 0.

    Clients may still know such an order: they would cancel another one. Identifiers above LARGEST_REMEMBERED are left
    out.
    """
    return max((each for each in ids if 0 < each <= LARGEST_REMEMBERED), default=0)


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

    def replay(self, digest: bytes, order_id: int, body: bytes) -> "Placed":
        """The result for a key that was used before, with what was stored then.

        Raises IdempotencyKeyReused if the earlier request had another body.
        """
        if digest != self.digest:
            raise IdempotencyKeyReused
        return Placed(order_id, body, replayed=True)


class Placed(NamedTuple):
    """A placed order. `body` is the response's JSON: a replay has the bytes of the first response."""

    order_id: int
    body: bytes
    replayed: bool = False
