"""The orders and pets of the fake service, and when each order changed."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from msgspec.structs import asdict

from petstore_client import v2
from petstore_client._types import Order, Pet
from petstore_client.testing.faults import Raw
from petstore_client.testing.limits import Limits


@dataclass(eq=False)
class Store:
    """What the service holds. Tests change the first four; `track` notes what has changed.

    `tracked` has the orders of version 2, and `placed`, by idempotency key, the request body and the response.
    """

    orders: dict[int | None, Order]
    pets: dict[int | None, Pet]
    shipped: set[int]
    cancelled: set[int]
    limits: Limits
    sunset: str
    work_limit: int
    placed: dict[str, tuple[bytes, Raw]] = field(default_factory=dict)
    references: dict[int, str | None] = field(default_factory=dict)
    history: int = 1  # another one after a restore
    tracked: dict[int, v2.Order] = field(default_factory=dict)
    highest_id: int = 0
    last_change: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    def track(self, now: float) -> None:
        """Note which orders have changed since the last time: all of them changed now, in Unix seconds."""
        changed_at = max(datetime.fromtimestamp(now, UTC), self.last_change + timedelta(microseconds=1))
        for number, order in [(number, order) for number, order in self.orders.items() if number is not None]:
            if isinstance(order, v2.Order):
                self._adopt(number, order)
            status = "shipped" if number in self.shipped else "cancelled" if number in self.cancelled else "pending"
            known = self.tracked.get(number)
            reference = self.references.get(number)
            fields = {**asdict(self.orders[number]), "id": number, "status": status, "reference": reference}
            if known is None or any(getattr(known, name) != value for name, value in fields.items()):
                self.last_change = changed_at
                created_at = known.created_at if known else changed_at
                self.tracked[number] = v2.Order(**fields, updated_at=changed_at, created_at=created_at)
        for number in self.tracked.keys() - self.orders.keys():
            del self.tracked[number]
        self.highest_id = max(self.highest_id, *self.tracked, 0)

    def _adopt(self, number: int, order: v2.Order) -> None:
        """Take an order of version 2 with its status and its timestamps; version 1 shows the rest of it."""
        for status, numbers in (("shipped", self.shipped), ("cancelled", self.cancelled)):
            (numbers.add if order.status == status else numbers.discard)(number)
        self.orders[number] = Order(**{name: getattr(order, name) for name in Order.__struct_fields__})
        self.tracked[number] = order
        self.references[number] = order.reference
        self.last_change = max(self.last_change, order.updated_at)
