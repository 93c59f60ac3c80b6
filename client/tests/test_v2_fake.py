"""Version 2 of the fake service, held to a simple model."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore_client import Order, errors, v2
from petstore_client.testing import FakePetstore
from testing.client_variants import Connect

START = datetime.fromtimestamp(1_800_000_000, UTC)
DATES = st.none() | st.integers(0, 5).map(lambda hours: START + timedelta(hours=hours))
ORDERS = st.dictionaries(
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20),
    st.tuples(
        st.none() | st.integers(1, 2),
        st.none() | st.booleans(),
        DATES,
        st.sampled_from(["pending", "shipped", "cancelled"]),
        st.integers(0, 5),
        st.sampled_from([None, "a", "b", "c"]),
    ),
    max_size=12,
)
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "status": st.sampled_from([None, "pending", ("shipped", "cancelled")]),
    "pet_id": st.none() | st.integers(1, 2),
    "complete": st.none() | st.booleans(),
    "ship_date_from": DATES,
    "ship_date_to": DATES,
    "updated_from": DATES,
    "reference": st.sampled_from([None, "a", ("a", "b")]),
    "sort": st.sampled_from(["id", "-id", "shipDate", "-shipDate", "updatedAt", "-updatedAt"]),
    "limit": st.integers(1, 4),
}


def orders_of(drawn: dict[int, tuple[Any, ...]]) -> list[v2.Order]:
    return [
        v2.Order(
            id=order_id, pet_id=pet, complete=complete, ship_date=shipped, status=status,
            created_at=START, updated_at=START + timedelta(hours=hours), reference=reference,
        )
        for order_id, (pet, complete, shipped, status, hours, reference) in drawn.items()
    ]  # fmt: skip


def expected(orders: Iterable[v2.Order], filters: dict[str, Any]) -> list[int]:
    """What a list returns, written down as simply as possible."""
    statuses = [filters["status"]] if isinstance(filters["status"], str) else filters["status"]
    found = [
        order
        for order in orders
        if (statuses is None or order.status in statuses)
        and (filters["reference"] is None or (order.reference or "-") in filters["reference"])
        and (filters["pet_id"] is None or order.pet_id == filters["pet_id"])
        and (filters["complete"] is None or (order.complete is True) is filters["complete"])
        and (
            filters["ship_date_from"] is None
            or (order.ship_date is not None and order.ship_date >= filters["ship_date_from"])
        )
        and (
            filters["ship_date_to"] is None
            or (order.ship_date is not None and order.ship_date < filters["ship_date_to"])
        )
        and (filters["updated_from"] is None or order.updated_at >= filters["updated_from"])
    ]
    name = filters["sort"].removeprefix("-")
    attribute = {"id": "id", "shipDate": "ship_date", "updatedAt": "updated_at"}[name]
    found.sort(key=lambda order: order.id, reverse=filters["sort"].startswith("-"))
    dated = [order for order in found if getattr(order, attribute) is not None]
    dated.sort(key=lambda order: getattr(order, attribute), reverse=filters["sort"].startswith("-"))
    return [order.id for order in [*dated, *(order for order in found if getattr(order, attribute) is None)]]


def test_the_model_has_every_filter() -> None:
    assert {*v2.Filters.__annotations__, "limit"} == FILTERS.keys()


@settings(max_examples=30, deadline=None)
@given(drawn=ORDERS, filters=st.fixed_dictionaries(FILTERS), work_limit=st.integers(1, 15))
def test_following_the_pages_returns_each_match_once_in_order(
    drawn: dict[int, tuple[Any, ...]], filters: dict[str, Any], work_limit: int
) -> None:
    fake = FakePetstore(orders_of(drawn), work_limit=work_limit)
    with fake.client() as petstore:
        found = list(petstore.v2.iter_orders(**filters))
        assert expected(orders_of(drawn), filters) == [order.id for order in found]
        assert sorted(drawn) == [order.id for order in petstore.list_orders()]
    for order in found:
        assert fake.orders[order.id].pet_id == order.pet_id


@settings(max_examples=30, deadline=None)
@given(
    drawn=ORDERS,
    sort=st.sampled_from(["id", "-id", "shipDate", "-shipDate"]),
    changes=st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=8),
)
def test_orders_that_stay_are_returned_once_whatever_changes_meanwhile(
    drawn: dict[int, tuple[Any, ...]], sort: Any, changes: list[tuple[int, bool]]
) -> None:
    fake = FakePetstore(orders_of(drawn))
    found = []
    with fake.client() as petstore:
        to_do = list(changes)
        for order in petstore.v2.iter_orders(sort=sort, limit=1):
            found.append(order.id)
            if to_do:
                number, added = to_do.pop()
                if added:
                    fake.orders.setdefault(number, Order(id=number))
                elif number in fake.orders and number not in drawn:
                    del fake.orders[number]
    assert len(found) == len(set(found))
    assert set(drawn) <= set(found)


def raw(fake: FakePetstore, method: str, path: str, **options: Any) -> httpx2.Response:
    headers = {"authorization": f"Bearer {fake.api_key}", **options.pop("headers", {})}
    with httpx2.Client(transport=fake) as http:
        return http.request(method, fake.base_url.removesuffix("v1") + "v2" + path, headers=headers, **options)


def test_a_key_is_remembered_and_an_id_is_never_reused() -> None:
    fake = FakePetstore()

    def place(key: str) -> httpx2.Response:
        headers = {"content-type": "application/json", "idempotency-key": key}
        return raw(fake, "POST", "/store/orders", content=b'{"petId":1,"quantity":1}', headers=headers)

    first, again = place("k"), place("k")
    assert ("orders/1", None) == (first.headers["location"], first.headers.get("idempotency-replayed"))
    assert (first.content, "true") == (again.content, again.headers["idempotency-replayed"])
    del fake.orders[1]
    assert 2 == place("l").json()["id"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"petId":1}', b'{"petId":1,"quantity":"1"}'], ids=str)
def test_a_body_that_is_not_an_order_is_refused(body: bytes) -> None:
    fake = FakePetstore()
    response = raw(fake, "POST", "/store/orders", content=body, headers={"idempotency-key": "k"})
    assert (400, "invalid_body", {}) == (response.status_code, response.json()["code"], fake.orders)


def test_an_account_sees_all_orders_or_its_own_and_nothing_else() -> None:
    mine: Any = "mine"
    with pytest.raises(ValueError, match="all, own, not 'mine'"):
        FakePetstore(sees=mine)


def test_an_account_that_sees_its_own_orders_does_not_find_those_of_others(connect: Connect) -> None:
    others = v2.Order(id=3, status="pending", account="acme", created_at=START, updated_at=START)
    fake = FakePetstore([Order(id=1), Order(id=2), others], sees="own")
    with connect(fake) as petstore:
        assert "own" == petstore.v2.get_usage().orders
        assert [1, 2] == [order.id for order in petstore.list_orders()]
        assert [1, 2] == [order.id for order in petstore.v2.list_orders().data]
        assert [1, 2] == [order.id for order in petstore.v2.list_changes().data]
        for call in (petstore.v2.get_order, petstore.v2.cancel_order, petstore.cancel_order):
            with pytest.raises(errors.NotFoundError):
                call(3)
        placed = petstore.v2.place_order(pet_id=3, quantity=1)
        assert placed == petstore.v2.get_order(placed.id)
        petstore.cancel_order(1)
    assert {1} == fake.cancelled


def test_a_webhook_of_an_account_that_sees_its_own_orders_delivers_only_these() -> None:
    others = v2.Order(id=3, status="pending", account="acme", created_at=START, updated_at=START)
    fake = FakePetstore([Order(id=1), others], scopes=["orders:read", "webhooks:manage"], sees="own")
    got: list[int] = []
    url = "https://shop.example/orders"
    fake.receivers[url] = lambda _, body: got.extend(each["id"] for each in json.loads(body)["data"]["orders"])
    with fake.client() as petstore:
        petstore.v2.webhooks.create(url, after="beginning")
        fake.deliver()
    assert [1] == got
