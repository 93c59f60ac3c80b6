"""Pages of orders: a walk finds every match once, also where pages end short because the work for a page is bounded."""

import random
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import product

import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import DamagedRecord
from petstore_server.domain.lists import Filters, PageQuery
from petstore_server.domain.orders import Order, Status
from petstore_server.operations.orders import list_orders
from petstore_server.store import Store, search
from testing import search_model
from testing.damage import set_record
from testing.search_model import SORTS, import_orders, in_order, instant, matches, model_of, position_of, walk
from testing.stores import Stores

DAY = "2026-11-{:02}T00:00:00Z"


@pytest.fixture(name="small_bounds")
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page walks 10 orders, and sorts 3, at most."""
    monkeypatch.setattr(search, "MAX_WORK", 10)
    monkeypatch.setattr(search, "NARROW", 3)


@pytest.mark.usefixtures("small_bounds")
async def test_a_page_ends_short_where_the_work_for_it_ends_and_the_walk_goes_on(store: Store) -> None:
    dates = (None, DAY.format(1), DAY.format(2), DAY.format(3))
    orders = [Order(number, 1, 1, dates[number % 4], number % 9 == 0) for number in range(45)]
    filters = Filters(complete=True, pet_id=1)
    await import_orders(store, orders, 4)
    model = await model_of(store)
    for sort in SORTS:
        every = in_order(model.values(), sort)
        matching = [entry.tracked for entry in every if matches(entry, filters)]
        page = await store.search.page(PageQuery(filters, sort, 5))
        assert [entry.tracked for entry in every[:10] if matches(entry, filters)] == page.orders, sort
        assert position_of(every[9], sort) == page.next, sort
        for limit in (1, 2, 5, 1000):
            assert matching == await walk(store, filters, sort, limit), (sort, limit)


FILTERS = (
    Filters(),
    Filters(pet_id=2),
    Filters(complete=False, pet_id=2),
    Filters(ship_date_from=instant(DAY.format(2))),
)


@pytest.mark.usefixtures("small_bounds")
async def test_a_walk_returns_what_matches_throughout_exactly_once_whatever_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are about as many orders of pet 2 as are sorted at most, so that its filter becomes narrow and wide."""
    monkeypatch.setattr(search, "NARROW", 12)
    chance = random.Random(0)
    dates = (None, None, *[DAY.format(day) for day in range(1, 4)])

    def some_order(number: int) -> Order:
        return Order(
            number, chance.choice((None, 1, 1, 2)), 1, chance.choice(dates), chance.choice((None, True, False))
        )

    await import_orders(store, [some_order(number) for number in range(0, 40, 2)])
    for sort, filters in product(SORTS, FILTERS):
        history = [await model_of(store)]
        walked: list[int] = []
        async for page in search_model.pages(store, PageQuery(filters, sort, chance.choice((2, 3)))):
            walked += [row[5] for row in page.rows]
            await import_orders(store, [some_order(chance.randrange(40))])
            history.append(await model_of(store))
        lasting = {
            number
            for number, entry in history[0].items()
            if all(
                matches(state[number], filters) and position_of(state[number], sort) == position_of(entry, sort)
                for state in history
            )
        }
        assert all(walked.count(number) == 1 for number in lasting), (sort, filters)


# Lists for operators, on one snapshot

ACTOR = Actor("operator:test", 1_795_000_000.0)
COUNT = 2500
STATUSES = (Status.PENDING, Status.SHIPPED, Status.CANCELLED, Status.PENDING)


def order(number: int) -> Order:
    return Order(number, number % 7, 2, "2026-11-20T09:30:00.5Z", number % 2 == 0, STATUSES[number % 4])


async def fill(store: Store) -> list[Order]:
    orders = [order(number) for number in range(-5, COUNT)]
    await store.orders.import_batch(orders, "import", ACTOR)
    return orders


async def found(store: Store, *statuses: Status, pet_id: int | None = None, limit: int | None = None) -> list[Order]:
    filters = Filters(frozenset(statuses), pet_id)
    return [each async for batch in list_orders(store, filters, limit) for each in batch]


async def test_orders_are_found_by_status_and_pet_in_any_number(store: Store) -> None:
    orders = await fill(store)
    assert orders == await found(store)
    assert orders[:1001] == await found(store, limit=1001)
    pending = [each for each in orders if each.status is Status.PENDING]
    assert pending == await found(store, Status.PENDING)
    for limit in (1, 999, 1000, 1001):
        assert pending[:limit] == await found(store, Status.PENDING, limit=limit)
    several = [each for each in orders if each.status is not Status.PENDING and each.pet_id == 3]
    assert several == await found(store, Status.SHIPPED, Status.CANCELLED, pet_id=3)
    assert [] == await found(store, pet_id=99)


async def test_a_list_that_is_left_early_ends_its_transaction_at_once(store: Store) -> None:
    await fill(store)
    abandoned: list[AsyncGenerator[object]] = []
    usual = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=abandoned.append)  # gets those that are left to the garbage collector
    try:
        assert 1 == len(await found(store, limit=1))
        async with aclosing(list_orders(store)) as batches:
            await anext(batches)
    finally:
        sys.set_asyncgen_hooks(*usual)
    assert [] == abandoned


async def test_a_damaged_record_fails_the_list_that_shows_it(each_backend: Stores, store: Store) -> None:
    await fill(store)
    set_record(each_backend, 7, "{")
    for statuses in ((), (Status.PENDING,)):
        with pytest.raises(DamagedRecord):
            await found(store, *statuses)
    assert [order(2)] == await found(store, Status.CANCELLED, limit=1, pet_id=2)
