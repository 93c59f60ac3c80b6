"""Pages of orders: a walk finds every match once, also where pages end short because the work for a page is bounded."""

import pytest

from petstore_server.domain.lists import Filters, PageQuery, Sort
from petstore_server.domain.orders import Order
from petstore_server.store import search
from testing import search_model
from testing.search_model import SORTS, import_orders, in_order, instant, matches, model_of, position_of, walk
from testing.stores import Stores

DAY = "2026-11-{:02}T00:00:00Z"


@pytest.fixture(name="small_bounds")
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page walks 10 orders, and sorts 3, at most."""
    monkeypatch.setattr(search, "MAX_WORK", 10)
    monkeypatch.setattr(search, "NARROW", 3)


@pytest.mark.usefixtures("small_bounds")
async def test_a_page_ends_short_where_the_work_for_it_ends_and_the_walk_goes_on(each_backend: Stores) -> None:
    dates = (None, DAY.format(1), DAY.format(2), DAY.format(3))
    orders = [Order(number, 1, 1, dates[number % 4], number % 9 == 0) for number in range(45)]
    filters = Filters(complete=True, pet_id=1)
    async with each_backend.opened() as store:
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


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("first", ["wide", "narrow"])
async def test_a_walk_finds_each_match_once_where_a_filter_becomes_narrow_or_wide(
    each_backend: Stores, first: str
) -> None:
    dated = Filters(ship_date_from=instant(DAY.format(1)))
    late = [Order(number, ship_date=DAY.format(number % 28 + 1)) for number in range(30)]
    early = [order._replace(ship_date="2026-10-01T00:00:00Z") for order in late]
    async with each_backend.opened() as store:
        before = late if first == "wide" else [*early[:27], *late[27:]]
        await import_orders(store, before)
        query = PageQuery(dated, Sort(), 2)
        page = await store.search.page(query)
        assert [0, 1] if first == "wide" else [27, 28] == [row[5] for row in page.rows]
        assert page.next is not None
        await import_orders(store, early[2:27] if first == "wide" else [*late[:27], Order(30, ship_date=DAY.format(5))])
        rest = search_model.pages(store, query._replace(after=page.next))
        left = [27, 28, 29] if first == "wide" else [29, 30]
        assert left == [row[5] async for page in rest for row in page.rows]
