"""The orders and pets of the fake service, and when each order changed."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec.structs import asdict

from petstore_client import v2
from petstore_client._types import Order, Pet
from petstore_client.testing.faults import Raw
from petstore_client.testing.limits import Limits


class Tracked(NamedTuple):
    """An order of version 2, with the order of version 1 that it was made from."""

    source: Order
    order: v2.Order


@dataclass(eq=False)
class Store:
    """What the service holds. Tests change the first four; `track` notes what has changed.

    `placed` has, by idempotency key, the body of the request that placed an order, and the response.
    """

    orders: dict[int | None, Order]
    pets: dict[int | None, Pet]
    shipped: set[int]
    cancelled: set[int]
    limits: Limits
    sunset: str
    work_limit: int
    placed: dict[str, tuple[bytes, Raw]] = field(default_factory=dict)
    tracked: dict[int, Tracked] = field(default_factory=dict)
    highest_id: int = 0
    _last: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    def track(self, now: float) -> None:
        """Note which orders have changed since the last time: all of them changed now, in Unix seconds."""
        changed_at = max(datetime.fromtimestamp(now, UTC), self._last + timedelta(microseconds=1))
        for number, order in [(number, order) for number, order in self.orders.items() if number is not None]:
            source = self._adopt(number, order) if isinstance(order, v2.Order) else order
            status = "shipped" if number in self.shipped else "cancelled" if number in self.cancelled else "pending"
            known = self.tracked.get(number)
            if known is None or known.order.status != status or known.source != source:
                self._last = changed_at
                created_at = known.order.created_at if known else changed_at
                fields = {**asdict(source), "id": number, "status": status}
                changed = v2.Order(**fields, updated_at=changed_at, created_at=created_at)
                self.tracked[number] = Tracked(source, changed)
        for number in self.tracked.keys() - self.orders.keys():
            del self.tracked[number]
        self.highest_id = max(self.highest_id, *self.tracked, 0)

    def _adopt(self, number: int, order: v2.Order) -> Order:
        """Take an order of version 2 with its status and its timestamps; version 1 shows the rest of it."""
        for status, numbers in (("shipped", self.shipped), ("cancelled", self.cancelled)):
            (numbers.add if order.status == status else numbers.discard)(number)
        fields = asdict(order)
        source = self.orders[number] = Order(**{name: fields[name] for name in Order.__struct_fields__})
        self.tracked[number] = Tracked(source, order)
        self._last = max(self._last, order.updated_at)
        return source
