"""The records and types of version 2 of the API (beta), which `client.v2` uses."""

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self, SupportsIndex, TypedDict

from msgspec import UNSET, UnsetType, field

from petstore_client._types import Order as OrderV1
from petstore_client._types import Record, Timestamp
from petstore_client.errors import APIStatusError

__all__ = [
    "UNSET", "Attempt", "Ban", "BatchOperation", "BatchResult", "Cancel", "Changes", "Complete", "Filters",
    "Granularity", "Order", "Page", "Put", "RevealedWebhook", "Ship", "Sort", "Status", "UnsetType", "Update", "Usage",
    "UsageEntry", "UsageKey", "UsageWindow", "Webhook", "WebhookState",
]  # fmt: skip

Status = Literal["pending", "shipped", "cancelled"]
"""The statuses of an order, by which a list can be filtered."""

Sort = Literal["id", "-id", "shipDate", "-shipDate", "updatedAt", "-updatedAt"]
"""The sort orders of a list; `-` means descending."""

Granularity = Literal["hour", "day"]
"""The length of one entry of the usage history."""

WebhookState = Literal["active", "paused"]
"""The states of a webhook that a program can set."""


class Filters(TypedDict, total=False):
    """Which orders a list has, and in which order. None, the default, means all of them.

    status: the status of the orders, or several, such as ("pending", "shipped").
    pet_id: the identifier of the pet.
    complete: whether the orders are complete; False matches those without the field too.
    ship_date_from, ship_date_to: aware datetimes, inclusive and exclusive; either excludes orders without a ship date.
    updated_from: an aware datetime; orders that have changed since, inclusive.
    reference: the `reference` of the orders, or several.
    sort: "id" (the default), "shipDate" or "updatedAt", or "-id" and so on for descending; orders without a ship date
        come last.
    """

    status: Status | Collection[Status] | None
    pet_id: SupportsIndex | None
    complete: bool | None
    ship_date_from: datetime | None
    ship_date_to: datetime | None
    updated_from: datetime | None
    reference: str | Collection[str] | None
    sort: Sort


class Order(OrderV1, frozen=True, kw_only=True, omit_defaults=True, gc=True, dict=True):
    """An order of version 2: the fields of version 1, its status and the times of its creation and last change.

    `status` is one of `Status`; a later server may send others. `created_at` is when the order was first imported, put
    or placed. `reference` is the number of the order in the system of its owner, or None. `account` is the name of the
    account that owns it: only a key with the scope `orders:manage` of an account that sees all orders gets it. All
    datetimes are aware.
    """

    id: int
    status: str
    created_at: Timestamp = field(name="createdAt")
    updated_at: Timestamp = field(name="updatedAt")
    reference: str | None = None
    account: str | None = None

    @property
    def etag(self) -> str | None:
        """The ETag of a response with this order only, for `if_match`; None if it came in another way.

        It is empty if a proxy has removed it; `if_match` refuses that.

        `get_order` and the calls that change one order return orders with it; lists, changes, `place_order` and
        batches do not. It is not a field: equal orders may differ in it.
        """
        return self.__dict__.get("etag")

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> Any:
        return _restored, (super().__reduce__(), self.etag)


def _restored(reduced: tuple[Any, tuple[Any, ...]], etag: str | None) -> Order:
    """The order that was pickled."""
    order: Order = reduced[0](*reduced[1])
    vars(order)["etag"] = etag
    return order


class Page(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One page of a list. `next_cursor` gets the next page; it is None on the last one.

    `data` may be shorter than the limit, even empty, although there is a next page.
    """

    data: list[Order]
    next_cursor: str | None = field(default=None, name="nextCursor")


class Changes(Record, frozen=True, kw_only=True, gc=False):
    """One page of changes: orders in the order of their last change, each as it is now.

    `next` is the token from which to continue, and `more` says whether there is something already.
    """

    data: list[Order]
    next: str
    more: bool


class UsageWindow(Record, frozen=True, kw_only=True, gc=False):
    """One limit of the account, after the request was counted. It resets at `reset_timestamp`, a Unix timestamp."""

    name: str
    limit: int
    remaining: int
    reset_timestamp: int = field(name="reset")

    @property
    def reset(self) -> datetime:
        """When the window resets, an aware datetime in UTC by the server's clock."""
        return datetime.fromtimestamp(self.reset_timestamp, UTC)


class UsageEntry(Record, frozen=True, kw_only=True, gc=False):
    """The requests of one hour or day, which began at `start`, an aware datetime. `refused` counts 429s."""

    start: Timestamp
    admitted: int
    refused: int


class Ban(Record, frozen=True, kw_only=True, gc=False):
    """A ban of a key, from `began` until `ended`, aware datetimes."""

    began: Timestamp
    ended: Timestamp


class UsageKey(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The key of the request. `expires_at`, an aware datetime, and `last_ban` are None if there is none."""

    id: str
    scopes: list[str]
    expires_at: Timestamp | None = field(default=None, name="expiresAt")
    last_ban: Ban | None = field(default=None, name="lastBan")


class Usage(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The plan of the account, its limits, and its requests by hour or day; hours without requests are left out.

    `orders` says which orders the account sees and may cancel, "all" or its "own"; None if the service does not say.
    """

    plan: str
    key: UsageKey
    windows: list[UsageWindow]
    history: list[UsageEntry]
    orders: str | None = None


class Attempt(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An attempt to deliver a message: when it began, an aware datetime, and how many milliseconds it took.

    `status` is that of the receiver's response, None without one. `excerpt` is the beginning of the text of the
    response, or why there was none.
    """

    at: Timestamp
    status: int | None = None
    milliseconds: int
    excerpt: str


class Webhook(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A webhook: the service sends changes of the account's orders to `url`, as signed messages.

    `statuses` are those of the orders that it sends, None for all. `state` is "active", "paused", "stopped" (by the
    service, after three days of failures) or "ended"; a later server may send others. `lag` is the age in seconds
    of the first change that is not delivered yet, 0 if there is none. `failing_since` is the time of the first failed
    attempt since the last success, or None, and `attempts` are the last 20, oldest first. All datetimes are aware.
    """

    id: str
    url: str
    statuses: list[str] | None = None
    state: str
    created_at: Timestamp = field(name="createdAt")
    lag: int
    failing_since: Timestamp | None = field(default=None, name="failingSince")
    attempts: list[Attempt]


class RevealedWebhook(Webhook, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A webhook with its `secret`, which is shown this once, and which repr() hides. It verifies messages."""

    secret: str

    def __repr__(self) -> str:
        return super().__repr__().replace(self.secret, "***")

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, "***" if name == "secret" else value) for name, value in super().__rich_repr__()]


@dataclass(frozen=True, slots=True)
class Put:
    """An operation of `batch_orders`: what `put_order` does, with the same arguments."""

    order_id: SupportsIndex
    _: KW_ONLY
    pet_id: SupportsIndex | None = None
    quantity: SupportsIndex | None = None
    ship_date: datetime | None = None
    complete: bool | None = None
    status: Status | None = None
    reference: str | None = None
    account: str | None = None
    if_match: str | None = None
    create_only: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """An operation of `batch_orders`: what `update_order` does, with the same arguments."""

    order_id: SupportsIndex
    _: KW_ONLY
    pet_id: SupportsIndex | UnsetType | None = UNSET
    quantity: SupportsIndex | UnsetType | None = UNSET
    ship_date: datetime | UnsetType | None = UNSET
    complete: bool | UnsetType | None = UNSET
    reference: str | UnsetType | None = UNSET
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class Ship:
    """An operation of `batch_orders`: what `ship_order` does, with the same arguments."""

    order_id: SupportsIndex
    _: KW_ONLY
    ship_date: datetime | None = None
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """An operation of `batch_orders`: what `complete_order` does, with the same arguments."""

    order_id: SupportsIndex
    _: KW_ONLY
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """An operation of `batch_orders`: what `cancel_order` does, with the same arguments."""

    order_id: SupportsIndex
    _: KW_ONLY
    if_match: str | None = None


BatchOperation = Put | Update | Ship | Complete | Cancel
"""An operation of `batch_orders`, on one order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The outcome of one `operation` of `batch_orders`.

    `status` is the HTTP status that a call of its own would have got. `error` is the exception that the call would have
    raised; None if the operation succeeded. `order` is the order after the operation; None with an error, after a
    cancel, and if it could not be read after a lost response.
    """

    operation: BatchOperation
    status: int
    order: Order | None = None
    error: APIStatusError | None = None
