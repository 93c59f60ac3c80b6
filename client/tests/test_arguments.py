"""Arguments: those that could be misunderstood are refused before anything is sent."""

from datetime import UTC, datetime, timedelta, timezone
from operator import attrgetter
from typing import Any

import pytest

from petstore_client import ConfigurationError, Order, Pet, errors, v2
from petstore_client.testing import FakePetstore
from testing.client_variants import Connect

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)
TOO_EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))
PLACED = {"pet_id": 3, "quantity": 1}
URL = "https://shop.example/orders"

WRONG_TYPES: list[tuple[str, dict[str, Any], str]] = [
    *(("cancel_order", {"order_id": wrong}, "An identifier must be an int") for wrong in ("../../pets/1", 1.0, True)),
    ("get_pet", {"pet_id": "1"}, "An identifier must be an int"),
    ("v2.get_order", {"order_id": "7"}, "An identifier must be an int"),
    ("v2.list_orders", {"ship_date_to": "2026-11-20T12:00:00Z"}, "ship_date_to must be a datetime"),
    *(("v2.list_orders", {"status": wrong}, "status must be a str") for wrong in (7, [None])),
    *(("v2.list_orders", {"pet_id": wrong}, "pet_id must be an int") for wrong in ("7", True)),
    ("v2.list_orders", {"complete": "false"}, "complete must be a bool"),
    ("v2.iter_orders", {"sort": 1}, "sort must be a str"),
    ("v2.iter_orders", {"limit": 1.5}, "limit must be an int"),
    ("v2.iter_orders", {"colour": "red"}, "no argument colour"),
    ("v2.list_changes", {"after": 7}, "after must be a str"),
    ("v2.list_changes", {"wait": "30"}, "wait must be an int"),
    ("v2.follow_changes", {"wait": "30"}, "wait must be an int"),
    ("v2.follow_changes", {"limit": 1.5}, "limit must be an int"),
    *(("v2.place_order", {**PLACED, "quantity": wrong}, "quantity must be an int") for wrong in ("1", True)),
    ("v2.place_order", {**PLACED, "pet_id": 1.0}, "pet_id must be an int"),
    ("v2.place_order", {**PLACED, "idempotency_key": 7}, "idempotency_key must be a str"),
    ("v2.put_order", {"order_id": "7"}, "order_id must be an int"),
    ("v2.put_order", {"order_id": 7, "complete": 1}, "complete must be a bool"),
    ("v2.put_order", {"order_id": 7, "create_only": "no"}, "create_only must be a bool"),
    ("v2.ship_order", {"order_id": 7, "ship_date": "2026-11-20"}, "ship_date must be a datetime"),
    ("v2.ship_order", {"order_id": 7, "if_match": 5}, "if_match must be a str"),
    ("v2.batch_orders", {"operations": [v2.Ship(1), v2.Ship("7")]}, "order_id must be an int"),  # type: ignore[arg-type]
    ("v2.batch_orders", {"operations": [{"operation": "ship", "orderId": 7}]}, "An operation must be a Put, Update"),
    ("v2.batch_orders", {"operations": 7}, "not iterable"),
    ("v2.webhooks.create", {"url": 7}, "url must be a str"),
    ("v2.webhooks.create", {"url": URL, "statuses": [7]}, "statuses must be a str"),
    ("v2.webhooks.update", {"webhook_id": "wh_1", "after": 7}, "after must be a str"),
    ("v2.webhooks.rotate", {"webhook_id": "wh_1", "grace": 1.5}, "grace must be an int"),
    ("v2.webhooks.get", {"webhook_id": 7}, "webhook_id must be a str"),
]
WRONG_VALUES: list[tuple[str, dict[str, Any], str]] = [
    ("v2.list_orders", {"updated_from": NAIVE}, "updated_from has no UTC offset"),
    ("v2.list_orders", {"ship_date_from": TOO_EARLY}, "ship_date_from is out of range"),
    ("v2.list_orders", {"status": ()}, "status is empty"),
    ("v2.iter_orders", {"status": "\ud83d\ude00"}, "status has a surrogate"),
    ("v2.get_usage", {"start": NAIVE}, "start has no UTC offset"),
    ("v2.place_order", {**PLACED, "ship_date": NAIVE}, "ship_date has no UTC offset"),
    ("v2.place_order", {**PLACED, "reference": "\udcff"}, "reference has a surrogate"),
    *(
        ("v2.place_order", {**PLACED, "idempotency_key": wrong}, "idempotency_key must be 1 to 255 visible")
        for wrong in ("", "two words", "x" * 256, "ключ")
    ),
    ("v2.update_order", {"order_id": 7, "ship_date": NAIVE}, "ship_date has no UTC offset"),
    *(
        ("v2.cancel_order", {"order_id": 7, "if_match": wrong}, "if_match must be the etag")
        for wrong in ("", "without quotes", '"a"\r\nX: 1')
    ),
    ("v2.complete_order", {"order_id": 7, "if_match": ""}, "if_match must be the etag"),
    ("v2.webhooks.create", {"url": URL, "statuses": []}, "statuses is empty"),
    *(
        ("v2.webhooks.delete", {"webhook_id": wrong}, "webhook_id must be the id")
        for wrong in ("", "..", "../usage", "wh_1/ping", "wh_1?", "wh_é", "wh 1")
    ),
]


@pytest.mark.parametrize(
    ("method", "arguments", "says", "error"),
    [*((*case, TypeError) for case in WRONG_TYPES), *((*case, ConfigurationError) for case in WRONG_VALUES)],
    ids=str,
)
def test_an_argument_that_could_be_misunderstood_is_refused_without_a_request(
    connect: Connect, method: str, arguments: dict[str, Any], says: str, error: type[Exception]
) -> None:
    fake = FakePetstore()
    with connect(fake) as petstore, pytest.raises(error, match=says):
        attrgetter(method)(petstore)(**arguments)
    assert [] == fake.requests


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 2**53 + 1, 0, -5])
def test_identifiers_use_all_64_bits(connect: Connect, number: int) -> None:
    fake = FakePetstore([Order(id=number)])
    with connect(fake) as petstore:
        petstore.cancel_order(number)
        assert [number] == [order.id for order in petstore.list_orders()]
    assert {number} == fake.cancelled


class Identifier:
    """Stands for an integer, as a `numpy.int64` does."""

    def __index__(self) -> int:
        return 7


def test_what_stands_for_an_int_is_an_identifier(connect: Connect) -> None:
    fake = FakePetstore([Order(id=7, pet_id=7), Order(id=8)], pets=[Pet(id=7)])
    with connect(fake) as petstore:
        assert [7] == [order.id for order in petstore.v2.list_orders(pet_id=Identifier()).data]
        assert 7 == petstore.v2.get_order(Identifier()).id
        with pytest.warns(DeprecationWarning, match="get_pet"):
            assert 7 == petstore.get_pet(Identifier()).id
        petstore.cancel_order(Identifier())
        with pytest.raises(errors.ConflictError):
            petstore.v2.cancel_order(Identifier())
        placed = petstore.v2.place_order(pet_id=Identifier(), quantity=Identifier())
        assert (7, 7) == (placed.pet_id, placed.quantity)
    assert {7} == fake.cancelled


def test_an_identifier_beyond_64_bits_is_refused_by_the_service(connect: Connect) -> None:
    with connect(FakePetstore()) as petstore, pytest.raises(errors.NotFoundError) as caught:
        petstore.cancel_order(2**63)
    assert "invalid_order_id" == caught.value.code


def test_every_filter_is_sent_by_its_name(connect: Connect) -> None:
    fake = FakePetstore()
    east = timezone(timedelta(hours=5, minutes=30))
    with connect(fake) as petstore:
        petstore.v2.list_orders(
            status=("pending", "shipped"),
            pet_id=-(2**63),
            complete=False,
            ship_date_from=datetime(2026, 11, 20, 17, 30, 0, 1, east),
            ship_date_to=NOON + timedelta(days=1),
            updated_from=NOON,
            reference=("PO 1", "ü"),
            sort="-updatedAt",
            limit=7,
        )
        petstore.v2.list_orders(status="cancelled")
    assert (
        "status=pending&status=shipped&petId=-9223372036854775808&complete=false"
        "&shipDateFrom=2026-11-20T12%3A00%3A00.000001Z&shipDateTo=2026-11-21T12%3A00%3A00Z"
        "&updatedFrom=2026-11-20T12%3A00%3A00Z&reference=PO%201&reference=%C3%BC&sort=-updatedAt&limit=7"
    ) == fake.requests[0].query
    assert "status=cancelled&limit=100" == fake.requests[1].query
