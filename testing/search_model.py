"""What searches must return: a model of the store that is a dictionary, and its filters and sorts in plain Python."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from petstore_server.domain.lists import NO_OWNER, Filters, Page, PageQuery, Position, Sort, SortField
from petstore_server.domain.orders import Order, Status, TrackedOrder
from petstore_server.store import Store
from testing.stores import BY, all_orders

SORTS = [Sort(field, descending) for field in SortField for descending in (False, True)]


class Entry(NamedTuple):
    """An order with the timestamps that the store gave it, in Unix microseconds, and the id of its owner."""

    order: Order
    updated_at: int
    created_at: int
    owner: int | None = None

    @property
    def tracked(self) -> TrackedOrder:
        """The order as a page has it."""
        order = self.order
        return TrackedOrder(order.record(), order.status, self.updated_at, self.created_at, order.reference)


Model = dict[int, Entry]
"""All orders by id."""


@lru_cache(maxsize=1000)  # many orders share a date
def instant(ship_date: str | None) -> int | None:
    """A ship date in Unix microseconds."""
    if ship_date is None:
        return None
    return (datetime.fromisoformat(ship_date) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def matches(entry: Entry, filters: Filters) -> bool:
    """Whether the order belongs to the list."""
    order, ship_date = entry.order, instant(entry.order.ship_date)
    dated = filters.ship_date_from is not None or filters.ship_date_to is not None
    return (
        (not filters.statuses or order.status in filters.statuses)
        and filters.pet_id in (None, order.pet_id)
        and (not filters.references or order.reference in filters.references)
        and filters.complete in (None, order.complete is True)
        and not (dated and ship_date is None)
        and (filters.ship_date_from is None or ship_date is None or ship_date >= filters.ship_date_from)
        and (filters.ship_date_to is None or ship_date is None or ship_date < filters.ship_date_to)
        and (filters.updated_from is None or entry.updated_at >= filters.updated_from)
        and (filters.owner is None or (entry.owner or NO_OWNER) == filters.owner)
    )


def position_of(entry: Entry, sort: Sort) -> Position:
    """Where the order stands in the list."""
    values = {SortField.SHIP_DATE: instant(entry.order.ship_date), SortField.UPDATED_AT: entry.updated_at}
    return Position(values.get(sort.field, entry.order.id), entry.order.id)


def in_order(entries: Iterable[Entry], sort: Sort) -> list[Entry]:
    """The orders sorted; those without a value come last in both directions."""

    def key(entry: Entry) -> tuple[bool, int, int]:
        value, order_id = position_of(entry, sort)
        sign = -1 if sort.descending else 1
        return value is None, sign * (value or 0), sign * order_id

    return sorted(entries, key=key)


def expected(model: Model, filters: Filters, sort: Sort) -> list[TrackedOrder]:
    """The orders of all pages."""
    return [entry.tracked for entry in in_order(model.values(), sort) if matches(entry, filters)]


def all_filters(
    pet_id: int,
    ship_dates: tuple[int, int],
    updated_from: int,
    statuses: tuple[Status, Status],
    references: tuple[tuple[str, ...], ...] = (),
    owners: tuple[int, ...] = (),
) -> list[Filters]:
    """Every combination of filters, with these values."""
    first, last = ship_dates
    return [
        Filters(*values)
        for values in product(
            (frozenset[Status](), frozenset(statuses[:1]), frozenset(statuses)),
            (None, pet_id),
            (None, True, False),
            (None, first),
            (None, last),
            (None, updated_from),
            (frozenset[str](), *map(frozenset, references)),
            (None, *owners),
        )
    ]


async def pages(store: Store, query: PageQuery) -> AsyncIterator[Page]:
    """The page of the query and all after it."""
    for _ in range(10_000):
        page = await store.search.page(query)
        assert len(page.rows) <= query.limit
        yield page
        if page.next is None:
            return
        query = query._replace(after=page.next)
    raise AssertionError("the walk does not end")


async def walk(store: Store, filters: Filters, sort: Sort, limit: int = 7) -> list[TrackedOrder]:
    """The orders of all pages."""
    return [order async for page in pages(store, PageQuery(filters, sort, limit)) for order in page.orders]


async def model_of(store: Store) -> Model:
    """All orders of the store."""
    owners = {account.name: account.id for account in await store.accounts.list()}
    orders = sorted(await all_orders(store))
    return {
        order.id: Entry(order, found.updated_at, found.created_at, owners.get(order.account or ""))
        for order, found in zip(orders, await walk(store, Filters(), Sort(), 1000), strict=True)
    }


async def import_orders(store: Store, orders: Sequence[Order], size: int = 5_000) -> None:
    """Import the orders in batches: those of a batch have one time."""
    for start in range(0, len(orders), size):
        await store.orders.import_batch(orders[start : start + size], "import:1", BY)
