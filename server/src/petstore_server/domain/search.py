"""Filtering, sorting and paging of orders, as rules on values (version 2 of the interface, D20).

A storage engine finds candidates through its indexes; whether an order matches, and where it stands in the sort order,
is decided here for every engine. Timestamps are Unix microseconds.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from petstore_server.domain.orders import Order, Status
from petstore_server.domain.timestamps import format_timestamp

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
"""Orders on one page."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SortField(StrEnum):
    ID = "id"
    SHIP_DATE = "shipDate"
    UPDATED_AT = "updatedAt"


class Sort(NamedTuple):
    """The order of a list. Ties are sorted by id in the same direction."""

    field: SortField = SortField.ID
    descending: bool = False


class IndexEntry(NamedTuple):
    """What filters and sorts look at: one order, without its record."""

    id: int
    status: Status
    pet_id: int | None
    complete: bool
    ship_date: int | None
    updated_at: int
    created_at: int | None


class TrackedOrder(NamedTuple):
    """An order of version 2: its record and status, with the timestamps of its last change and of its creation.

    `record` is the JSON text that `Order.record` writes. `created_at` is None for orders older than the search index.
    """

    record: str
    status: Status
    updated_at: int
    created_at: int | None

    def order(self) -> Order:
        """The order without its timestamps. Raises ValueError for a damaged record."""
        fields = json.loads(self.record)
        if not isinstance(fields, dict) or "id" not in fields:
            raise ValueError(self.record)
        pet_id, quantity, ship_date, complete = map(fields.get, ("petId", "quantity", "shipDate", "complete"))
        return Order(fields["id"], pet_id, quantity, ship_date, complete, self.status)

    def text(self) -> str:
        """The Order of version 2 as JSON text: the fields of version 1, `status`, `createdAt` and `updatedAt`."""
        return self.record[:-1] + _text_end(self.status, self.updated_at, self.created_at)


class Position(NamedTuple):
    """A place in the sort order: that of an order with this sort value and id. `value` is None without a ship date."""

    value: int | None
    id: int


@dataclass(frozen=True, slots=True)
class Filters:
    """The orders that a list returns. None, and no statuses, mean all; ranges include their start, not their end."""

    statuses: frozenset[Status] = frozenset()
    pet_id: int | None = None
    complete: bool | None = None
    ship_date_from: int | None = None
    ship_date_to: int | None = None
    updated_from: int | None = None

    def matches(self, entry: IndexEntry) -> bool:
        """Whether the order belongs to the list."""
        if not self.matches_status_and_pet(entry):
            return False
        if self.complete is not None and entry.complete is not self.complete:
            return False
        if self.updated_from is not None and entry.updated_at < self.updated_from:
            return False
        return self._in_ship_range(entry.ship_date)

    def matches_status_and_pet(self, order: IndexEntry | Order) -> bool:
        """Whether the order has one of the statuses, and the pet."""
        if self.statuses and order.status not in self.statuses:
            return False
        return self.pet_id is None or order.pet_id == self.pet_id

    def _in_ship_range(self, ship_date: int | None) -> bool:
        if self.ship_date_from is None and self.ship_date_to is None:
            return True
        if ship_date is None:
            return False
        if self.ship_date_from is not None and ship_date < self.ship_date_from:
            return False
        return self.ship_date_to is None or ship_date < self.ship_date_to


class Query(NamedTuple):
    """One page of a list: `limit` orders after `after`, or from the start."""

    filters: Filters
    sort: Sort
    limit: int = DEFAULT_LIMIT
    after: Position | None = None


class Page(NamedTuple):
    """Orders in sort order. `next` is the position after which the list goes on, None at its end.

    A page may be shorter than the limit, even empty, and still have a `next`: the work for one page is bounded.
    `rows` are as the store has them, for most pages only become text: each begins with the fields of a TrackedOrder.
    """

    rows: Sequence[tuple[Any, ...]]
    next: Position | None

    @property
    def orders(self) -> list[TrackedOrder]:
        """The orders as values."""
        return [TrackedOrder(row[0], Status(row[1]), row[2], row[3]) for row in self.rows]

    def text(self) -> str:
        """The orders as JSON texts, separated by commas."""
        return ",".join([row[0][:-1] + _text_end(row[1], row[2], row[3]) for row in self.rows])


SortKey = tuple[bool, int, int]


def sort_key(position: Position, sort: Sort) -> SortKey:
    """A key by which Python sorts positions ascending; orders without a value come last in both directions."""
    sign = -1 if sort.descending else 1
    return position.value is None, sign * (position.value or 0), sign * position.id


def query_digest(filters: Filters, sort: Sort) -> bytes:
    """Identify filters and sort, 8 bytes: a cursor is bound to them. The page size may differ between pages."""
    text = repr(
        (
            sorted(filters.statuses),
            filters.pet_id,
            filters.complete,
            filters.ship_date_from,
            filters.ship_date_to,
            filters.updated_from,
            str(sort.field),
            sort.descending,
        )
    )
    return sha256(text.encode()).digest()[:8]


def microseconds(timestamp: datetime) -> int:
    """An aware datetime in Unix microseconds."""
    return (timestamp - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(value: int) -> datetime:
    """Unix microseconds as an aware datetime in UTC. Raises OverflowError beyond the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=value)


@lru_cache(maxsize=4096)  # orders of one import share a timestamp
def timestamp_text(value: int) -> str:
    """Unix microseconds as RFC 3339 in UTC with `Z`. Raises OverflowError beyond the years 1 to 9999."""
    return format_timestamp(from_microseconds(value))


@lru_cache(maxsize=4096)
def _text_end(status: str, updated_at: int, created_at: int | None) -> str:
    """What the text of an order adds to its record; orders of one import share it."""
    created = "" if created_at is None else f'"createdAt":"{timestamp_text(created_at)}",'
    return f',"status":"{status}",{created}"updatedAt":"{timestamp_text(updated_at)}"}}'
