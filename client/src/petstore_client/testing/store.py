"""The orders and pets of the fake service, when each order changed, positions in their order, and tokens of these."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import httpx2
from msgspec.structs import asdict, replace

from petstore_client import v2
from petstore_client._types import Order, Pet
from petstore_client.testing.faults import Raw
from petstore_client.testing.limits import Limits

LAST_ID = 2**63 - 1
MAX_ASSIGNED_ID = 2**53 - 1  # larger identifiers are imported or put, and do not count as assigned

Sees = Literal["all", "own"]
"""The orders that an account sees, as `getUsage` says it."""

Place = tuple[int, int, int]
"""Where an order is in a sort order, as a key that sorts ascending."""

FIRST: Place = (0, 0, -(2**63))
"""The position before every change."""

Receiver = Callable[[dict[str, str], bytes], httpx2.Response | int | None]
"""Receives a message: its headers, by names in lower case, and its body. Returns the response, or its status.

None is 204.
"""


class Refusal(Exception):
    """An operation that the service refuses.

    `order_id` is the order that has the reference already, and `scope` the one that the key lacks.
    """

    def __init__(self, status: int, code: str, message: str, order_id: int | None = None, scope: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.order_id = order_id
        self.scope = scope


@dataclass(eq=False)
class Subscription:
    """A webhook of the fake service, and what it does not show: its place in the order of changes of a `history`."""

    webhook: v2.Webhook
    history: int
    place: Place
    replay: int = 0
    generation: int = 1
    previous_until: float = 0.0  # Unix seconds until which the secret of the generation before signs
    failures: int = 0
    next_at: float = 0.0


class Placed(NamedTuple):
    """The body of a request that placed an order, the response, and when that was, in Unix seconds."""

    content: bytes
    raw: Raw
    at: float


@dataclass(eq=False)
class Store:
    """What the service holds. Tests change the first four; `track` notes what has changed.

    `tracked` has the orders of version 2, and `placed` what was placed, by idempotency key.
    `accounts` are the names of all accounts; the first is that of the `key`, which sees all orders or its own.
    `receivers` are by the URLs of webhooks.
    """

    orders: dict[int | None, Order]
    pets: dict[int | None, Pet]
    shipped: set[int]
    cancelled: set[int]
    limits: Limits
    sunset: str
    work_limit: int
    key: v2.UsageKey
    accounts: list[str]
    assigned_ids_from: int | None
    receivers: dict[str, Receiver]
    has_webhooks: bool
    sees: Sees
    webhooks: dict[str, Subscription] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    placed: dict[str, Placed] = field(default_factory=dict)
    placed_ids: set[int] = field(default_factory=set)
    history: int = 1  # another one after a restore
    tracked: dict[int, v2.Order] = field(default_factory=dict)
    highest_id: int = 0
    last_change: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def visible(self) -> dict[int, v2.Order]:
        """The orders that exist for the account of the key."""
        if self.sees == "all":
            return self.tracked
        return {number: order for number, order in self.tracked.items() if order.account == self.accounts[0]}

    def require_scope(self, scope: str) -> None:
        """Raise Refusal unless the key has a scope."""
        if scope not in self.key.scopes:
            raise Refusal(403, "insufficient_scope", f"This API key lacks the scope '{scope}'.", scope=scope)

    def track(self, now: float) -> None:
        """Note which orders have changed since the last time: all of them changed now, in Unix seconds."""
        changed_at = self._after_the_last(now)
        for number, order in [(number, order) for number, order in self.orders.items() if number is not None]:
            if isinstance(order, v2.Order):
                self._adopt(number, order)
            self._track(number, changed_at)
        for number in self.tracked.keys() - self.orders.keys():
            del self.tracked[number]
        assigned = (number for number in self.tracked if number <= MAX_ASSIGNED_ID)
        self.highest_id = max(self.highest_id, *assigned, (self.assigned_ids_from or 1) - 1)

    def write(self, order: v2.Order, now: float) -> v2.Order:
        """Set an order that is changed now, and return it with the time."""
        self._set(order.id, order)
        known = self.tracked.get(order.id)
        self.last_change = self._after_the_last(now)
        created_at = known.created_at if known else self.last_change
        changed = replace(order, updated_at=self.last_change, created_at=created_at)
        self.tracked[order.id] = changed
        return changed

    def changed_after(self, place: Place) -> list[tuple[Place, v2.Order]]:
        """The orders that have changed after a position, in the order of their last change, each with its position."""
        places = sorted((place_of(order), order) for order in self.visible.values())
        return [each for each in places if each[0] > place]

    def token_of(self, place: Place) -> str:
        """The token of a position: the history, and the position in it."""
        return "_".join(map(str, (self.history, *place)))

    def position_after(self, token: str) -> Place:
        """The position of a token, or "now". Raises Refusal."""
        if token == "now":  # noqa: S105 - not a secret
            return 0, _microseconds(self.last_change), LAST_ID
        if not re.fullmatch(r"\d+_\d+_\d+_-?\d+", token):
            raise Refusal(400, "invalid_cursor", "This token is not one of this service.")
        history, first, at, order_id = map(int, token.split("_"))
        if history != self.history:
            raise Refusal(410, "changes_reset", "The store was restored: read everything again, into an empty copy.")
        return first, at, order_id

    def _after_the_last(self, now: float) -> datetime:
        return max(datetime.fromtimestamp(now, UTC), self.last_change + timedelta(microseconds=1))

    def _track(self, number: int, changed_at: datetime) -> None:
        status = "shipped" if number in self.shipped else "cancelled" if number in self.cancelled else "pending"
        account = self.accounts[0] if self.sees == "own" else None  # of an order of version 1, which does not say it
        unknown = v2.Order(id=number, status="", updated_at=changed_at, created_at=changed_at, account=account)
        known = self.tracked.get(number, unknown)
        order = replace(known, **{**asdict(self.orders[number]), "id": number, "status": status})
        if order != known:
            self.last_change = changed_at
            self.tracked[number] = replace(order, updated_at=changed_at)

    def _adopt(self, number: int, order: v2.Order) -> None:
        """Take an order of version 2 with its status and its timestamps."""
        self._set(number, order)
        self.tracked[number] = order
        if order.account is not None and order.account not in self.accounts:
            self.accounts.append(order.account)
        self.last_change = max(self.last_change, order.updated_at)

    def _set(self, number: int, order: v2.Order) -> None:
        """Set what tests see: the order of version 1 and the sets of its states."""
        self.orders[number] = Order(**{name: getattr(order, name) for name in Order.__struct_fields__})
        for status, numbers in (("shipped", self.shipped), ("cancelled", self.cancelled)):
            (numbers.add if order.status == status else numbers.discard)(number)


def place_of(order: v2.Order, sort: str = "updatedAt") -> Place:
    """Where an order is in the sort order."""
    sign = -1 if sort.startswith("-") else 1
    date = {"id": None, "shipDate": order.ship_date, "updatedAt": order.updated_at}[sort.removeprefix("-")]
    if date is None:  # without a ship date: last in both directions
        return 1, 0, sign * order.id
    return 0, sign * _microseconds(date), sign * order.id


def _microseconds(date: datetime) -> int:
    return int(date.timestamp()) * 1_000_000 + date.microsecond
