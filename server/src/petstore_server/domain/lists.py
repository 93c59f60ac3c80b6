"""Filters, sorting and pages of orders (version 2, D20), with times in Unix microseconds; numbered pages."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from petstore_server.domain.digests import sha256
from petstore_server.domain.orders import Status, TrackedOrder, order_text

T = TypeVar("T")
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000  # orders on one page


class SortField(StrEnum):
    ID = "id"
    SHIP_DATE = "shipDate"
    UPDATED_AT = "updatedAt"


class Sort(NamedTuple):
    """The order of a list. Ties are sorted by id in the same direction."""

    field: SortField = SortField.ID
    descending: bool = False


BY_CHANGE = Sort(SortField.UPDATED_AT)
"""The order in which orders were last changed."""


class Position(NamedTuple):
    """A place in the sort order: that of an order with this sort value and id. `value` is None without a ship date."""

    value: int | None
    id: int


class ChangeClock(NamedTuple):
    """The clock of changes: what names its history, the number of transactions, and the time of the last change.

    The time is in Unix microseconds.
    """

    epoch: str
    change: int
    at: int


NO_OWNER = 0
"""Selects the orders without an owner; accounts have other identifiers."""


class Filters(NamedTuple):
    """The orders that a list returns. None, no statuses and no references mean all. Ranges do not include their end.

    `owner` is the id of the account that owns the orders, or NO_OWNER.
    """

    statuses: frozenset[Status] = frozenset()
    pet_id: int | None = None
    complete: bool | None = None
    ship_date_from: int | None = None
    ship_date_to: int | None = None
    updated_from: int | None = None
    references: frozenset[str] = frozenset()
    owner: int | None = None


class PageQuery(NamedTuple):
    """One page of a list: `limit` orders after `after`, or from the start."""

    filters: Filters
    sort: Sort
    limit: int = DEFAULT_LIMIT
    after: Position | None = None


class Page(NamedTuple):
    """Orders in sort order. `next` is the position after which the list goes on, None at its end.

    A page may be shorter than the limit, even empty, and still have a `next`: the work for one page is bounded.
    `rows` are as the store has them, for most pages only become text: each begins with the fields of a TrackedOrder,
    and has the id of the owner's account at the end.
    """

    rows: Sequence[tuple[Any, ...]]
    next: Position | None

    @property
    def owners(self) -> list[int | None]:
        """The ids of the accounts that own the orders."""
        return [row[7] for row in self.rows]

    @property
    def orders(self) -> list[TrackedOrder]:
        return [TrackedOrder(row[0], Status(row[1]), *row[2:5]) for row in self.rows]

    def text(self, accounts: Mapping[int, str] | None = None) -> str:
        """The orders as JSON texts, separated by commas; with the names of their owners if `accounts` has these."""
        if accounts is None:
            return ",".join([order_text(*row[:5]) for row in self.rows])
        return ",".join([order_text(*(*row[:5], accounts.get(row[7]))) for row in self.rows])


def query_digest(filters: Filters, sort: Sort) -> bytes:
    """Identify filters and sort, 8 bytes: a cursor is bound to them. The page size may differ between pages."""
    statuses, pet_id, complete, ship_date_from, ship_date_to, updated_from, references, owner = filters
    first = sorted(statuses), pet_id, complete, ship_date_from, ship_date_to, updated_from
    # Later than cursors, which stay valid. No owner has the text of references, which is a list.
    added = [value for value in (sorted(references), owner) if value not in ([], None)]
    identity = *first, *added, str(sort.field), sort.descending
    return sha256(repr(identity).encode())[:8]


class MatchCount(NamedTuple):
    """How many of those examined match; `more`, if not all were examined, that there may be others."""

    number: int
    more: bool


class NumberedPage(NamedTuple, Generic[T]):
    """One page of a list: `number` of `pages`, counted from 1; `total` items match."""

    items: Sequence[T]
    total: int
    number: int = 1
    pages: int = 1


def clamp_page(total: int, size: int, number: int) -> tuple[int, int]:
    """The number of a page of `size` items, and of all pages. A page beyond the last is the last one."""
    pages = max(1, -(-total // size))
    return min(max(1, number), pages), pages
