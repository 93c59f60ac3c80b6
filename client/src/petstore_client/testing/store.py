"""The orders and pets of the fake service, and when each order changed."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec.structs import asdict

from petstore_client import v2
from petstore_client._types import Clock, Order, Pet
from petstore_client.testing.limits import Limits
from petstore_client.testing.usage import History

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Tracked(NamedTuple):
    """An order of version 2, with the order of version 1 that it was made from."""

    source: Order
    order: v2.Order


class Placed(NamedTuple):
    """An order that was placed with an idempotency key: what was asked, the response, and when, in Unix seconds."""

    asked: object
    order_id: int
    body: bytes
    at: float


class Store:
    """Orders, pets and usage. Tests change `orders`, `shipped` and `cancelled` at any time; `track` finds out.

    `work_limit` is the number of orders that one page examines at most.
    """

    def __init__(
        self,
        orders: Iterable[Order],
        pets: Iterable[Pet],
        shipped: Iterable[int],
        sunset: str,
        clock: Clock,
        limits: Limits,
        work_limit: int,
    ) -> None:
        self.orders = {order.id: order for order in orders}
        self.pets = {pet.id: pet for pet in pets}
        self.shipped = set(shipped)
        self.cancelled: set[int] = set()
        self.sunset = sunset
        self.clock = clock
        self.limits = limits
        self.work_limit = work_limit
        self.history = History()
        self.placed: dict[str, Placed] = {}
        self._tracked: dict[int, Tracked] = {}
        self._last = _EPOCH
        self._highest_id = 0
        self.track()

    def tracked(self) -> dict[int, v2.Order]:
        """The orders of version 2, by id."""
        return {order_id: tracked.order for order_id, tracked in self._tracked.items()}

    def next_id(self) -> int:
        """An identifier that no order has had."""
        self._highest_id = max(self._highest_id, *self._tracked, 0) + 1
        return self._highest_id

    def track(self) -> None:
        """Note which orders have changed since the last time: all of them changed now, at the same time."""
        now = None
        for order_id, order in list(self.orders.items()):
            if order_id is None:
                continue
            source = self._adopt(order_id, order) if isinstance(order, v2.Order) else order
            known, status = self._tracked.get(order_id), self._status(order_id)
            if known and known.order.status == status and (known.source is source or known.source == source):
                continue
            now = now or self._next_timestamp()
            created = known.order.created_at if known else now
            fields = {**asdict(source), "id": order_id}
            changed = v2.Order(**fields, status=status, updated_at=now, created_at=created)
            self._tracked[order_id] = Tracked(source, changed)
        self._highest_id = max(self._highest_id, *self._tracked, 0)
        for order_id in self._tracked.keys() - self.orders.keys():
            del self._tracked[order_id]

    def _status(self, order_id: int) -> str:
        if order_id in self.shipped:
            return "shipped"
        return "cancelled" if order_id in self.cancelled else "pending"

    def _adopt(self, order_id: int, order: v2.Order) -> Order:
        """Take an order of version 2 with its status and its timestamps; version 1 shows the rest of it."""
        for status, ids in (("shipped", self.shipped), ("cancelled", self.cancelled)):
            (ids.add if order.status == status else ids.discard)(order_id)
        fields = asdict(order)
        source = Order(**{name: fields[name] for name in Order.__struct_fields__})
        self.orders[order_id] = source
        self._tracked[order_id] = Tracked(source, order)
        self._last = max(self._last, order.updated_at)
        return source

    def _next_timestamp(self) -> datetime:
        """The time of day, but later than that of each earlier change."""
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        self._last = max(now, self._last + timedelta(microseconds=1))
        return self._last
