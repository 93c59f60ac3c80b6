"""Version 2 of the fake service, held to a simple model."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore_client import Order, v2
from petstore_client.testing import FakeClock, FakePetstore

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
    ),
    max_size=12,
)
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "status": st.sampled_from([None, "pending", ("shipped", "cancelled")]),
    "pet_id": st.none() | st.integers(1, 2),
    "complete": st.none() | st.booleans(),
    "ship_date_from": DATES,
    "updated_from": DATES,
    "sort": st.sampled_from(["id", "-id", "shipDate", "-shipDate", "updatedAt", "-updatedAt"]),
    "limit": st.integers(1, 4),
}


def orders_of(drawn: dict[int, tuple[Any, ...]]) -> list[v2.Order]:
    return [
        v2.Order(
            id=order_id, pet_id=pet, complete=complete, ship_date=shipped, status=status,
            updated_at=START + timedelta(hours=hours),
        )
        for order_id, (pet, complete, shipped, status, hours) in drawn.items()
    ]  # fmt: skip


def expected(orders: Iterable[v2.Order], filters: dict[str, Any]) -> list[int]:
    """What a list returns, written down as simply as possible."""
    statuses = [filters["status"]] if isinstance(filters["status"], str) else filters["status"]
    found = [
        order
        for order in orders
        if (statuses is None or order.status in statuses)
        and (filters["pet_id"] is None or order.pet_id == filters["pet_id"])
        and (filters["complete"] is None or (order.complete is True) is filters["complete"])
        and (
            filters["ship_date_from"] is None
            or (order.ship_date is not None and order.ship_date >= filters["ship_date_from"])
        )
        and (filters["updated_from"] is None or order.updated_at >= filters["updated_from"])
    ]
    name = filters["sort"].removeprefix("-")
    attribute = {"id": "id", "shipDate": "ship_date", "updatedAt": "updated_at"}[name]
    found.sort(key=lambda order: order.id, reverse=filters["sort"].startswith("-"))
    dated = [order for order in found if getattr(order, attribute) is not None]
    dated.sort(key=lambda order: getattr(order, attribute), reverse=filters["sort"].startswith("-"))
    return [order.id for order in [*dated, *(order for order in found if getattr(order, attribute) is None)]]


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("colour=red", "'colour' is not a parameter"),
        ("petId=1&petId=2", "more than once"),
        ("petId=007", "'petId' must be"),
        ("petId=", "'petId' must be"),
        ("complete=yes", "'complete' must be true or false"),
        ("updatedFrom=2026-11-20", "'updatedFrom' must be an RFC 3339"),
        ("updatedFrom=2026-11-20T12:00:00", "offset"),
        ("updatedFrom=2026-11-20T24:00:00Z", "'updatedFrom' must be an RFC 3339"),
        ("updatedFrom=2026-11-20T12:00:00%2B00:60", "'updatedFrom' must be an RFC 3339"),
        ("cursor=", "'cursor' must be"),
    ],
)
def test_a_malformed_query_is_refused_as_by_the_real_service(query: str, message: str) -> None:
    response = raw(FakePetstore(), "GET", f"/store/orders?{query}")
    assert (400, "invalid_parameter") == (response.status_code, response.json()["code"])
    assert message in response.json()["message"]


def test_zeros_after_six_decimals_are_accepted_as_by_the_real_service() -> None:
    query = "updatedFrom=2026-11-20T12:00:00.1234560000Z"
    assert 200 == raw(FakePetstore(), "GET", f"/store/orders?{query}").status_code


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"petId":1}', "lacks the field 'quantity'"),
        (b'{"petId":1,"quantity":1.0}', "'quantity' must be"),
        (b'{"petId":1,"quantity":1e3}', "'quantity' must be"),
        (b'{"petId":1,"quantity":true}', "'quantity' must be"),
        (b'{"petId":1,"quantity":1,"petId":1}', "more than once"),
        (b'{"petId":1,"quantity":1,"id":9}', "'id', which is not a field"),
        (b'{"petId":1,"quantity":1,"shipDate":null}', "'shipDate' must be"),
        (b'{"petId":1,"quantity":1,"shipDate":"soon"}', "'shipDate' must be"),
    ],
    ids=str,
)
def test_a_malformed_body_is_refused_as_by_the_real_service(body: bytes, message: str) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    response = raw(FakePetstore(), "POST", "/store/orders", content=body, headers=headers)
    assert (400, "invalid_body") == (response.status_code, response.json()["code"])
    assert message in response.json()["message"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"idempotency-key": "k"}, 415, "unsupported_media_type"),
        ({"idempotency-key": "k", "content-type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content-type": "application/json"}, 400, "idempotency_key_missing"),
        ({"content-type": "application/json", "idempotency-key": "two words"}, 400, "invalid_parameter"),
    ],
    ids=str,
)
def test_wrong_headers_of_a_placement_are_refused(headers: dict[str, str], status: int, code: str) -> None:
    fake = FakePetstore()
    response = raw(fake, "POST", "/store/orders", content=b'{"petId":1,"quantity":1}', headers=headers)
    assert (status, code) == (response.status_code, response.json()["code"])
    assert {} == fake.orders


def test_a_key_is_remembered_for_a_day_and_an_id_is_never_reused() -> None:
    clock = FakeClock()
    fake = FakePetstore(clock=clock)
    headers = {"content-type": "application/json", "idempotency-key": "k"}

    def place() -> httpx2.Response:
        return raw(fake, "POST", "/store/orders", content=b'{"petId":1,"quantity":1}', headers=headers)

    first, again = place(), place()
    assert ("/v2/store/orders/1", None) == (first.headers["location"], first.headers.get("idempotency-replayed"))
    assert (first.content, "true") == (again.content, again.headers["idempotency-replayed"])
    del fake.orders[1]
    clock.advance(86_400)
    assert 2 == place().json()["id"]


def test_an_altered_cursor_is_refused() -> None:
    fake = FakePetstore([Order(id=1), Order(id=2)])
    cursor = raw(fake, "GET", "/store/orders?limit=1").json()["nextCursor"]
    assert 200 == raw(fake, "GET", f"/store/orders?limit=1000&cursor={cursor}").status_code
    for wrong in (cursor[:-1], cursor[::-1], "x" + cursor[1:], cursor + "x"):
        assert "invalid_cursor" == raw(fake, "GET", f"/store/orders?cursor={wrong}").json()["code"]
    assert "invalid_cursor" == raw(fake, "GET", f"/store/orders?sort=-id&cursor={cursor}").json()["code"]
