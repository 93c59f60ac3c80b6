"""`client.v2`: filters, pages, single orders, usage, and placing orders safely."""

import json
import pickle
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from petstore_client import Order, ResponseEvent, errors, v2
from petstore_client.testing import Answered, CutOff, Dropped, Failing, FakeClock, FakePetstore
from petstore_client.testing.faults import Fault, KeyInUse, RateLimited, TimedOut
from testing.client_variants import Connect, faulty

JSON = {"content-type": "application/json"}
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
START = datetime.fromtimestamp(1_800_000_000, UTC)
TIMES = b'"createdAt":"2026-11-20T12:00:00Z","updatedAt":"2026-11-20T12:00:00Z"'


def ids(orders: Any) -> list[int]:
    return [order.id for order in orders]


def test_orders_have_a_status_and_timestamps(connect: Connect) -> None:
    fake = FakePetstore([Order(id=1, pet_id=3, ship_date=NOON), Order(id=2)], shipped=[2])
    with connect(fake) as petstore:
        first, second = petstore.v2.list_orders().data
        assert v2.Order(id=1, pet_id=3, ship_date=NOON, status="pending", updated_at=START, created_at=START) == first
        assert "shipped" == second.status
        assert first == petstore.v2.get_order(1)
        fake.clock.sleep(60)
        petstore.v2.cancel_order(1)
        changed = petstore.v2.get_order(1)
    assert ("cancelled", START) == (changed.status, changed.created_at)
    assert START + timedelta(seconds=60) == changed.updated_at
    assert {
        "id": 1, "petId": 3, "shipDate": "2026-11-20T12:00:00Z", "status": "pending",
        "updatedAt": "2027-01-15T08:00:00Z", "createdAt": "2027-01-15T08:00:00Z",
    } == first.to_dict()  # fmt: skip
    assert isinstance(first, Order)
    assert [("v2", "/store/orders"), ("v2", "/store/orders/1")] == [(r.version, r.path) for r in fake.requests[:2]]


def test_pages_are_followed_by_their_cursors(connect: Connect) -> None:
    fake = FakePetstore([Order(id=number, pet_id=number % 2) for number in range(10)])
    with connect(fake) as petstore:
        first = petstore.v2.list_orders(pet_id=1, limit=3)
        assert ([1, 3, 5], True) == (ids(first.data), first.next_cursor is not None)
        last = petstore.v2.list_orders(pet_id=1, limit=3, cursor=first.next_cursor)
        assert ([7, 9], None) == (ids(last.data), last.next_cursor)


def test_an_iteration_is_lazy_and_holds_one_page(connect: Connect) -> None:
    fake = FakePetstore([Order(id=number) for number in range(2500)])
    with connect(fake) as petstore:
        orders: Any = petstore.v2.iter_orders()
        assert [] == fake.requests
        assert list(range(1000)) == [next(orders).id for _ in range(1000)]
        assert 1 == len(fake.requests)
        assert 1000 == next(orders).id
        assert 2 == len(fake.requests)
        orders.close()


def test_an_iteration_retries_each_page_and_repeats_no_order(connect: Connect) -> None:
    fake = FakePetstore([Order(id=number) for number in range(60)])
    faults: list[Fault] = [RateLimited(5), CutOff(300), Failing(503), Dropped(), TimedOut(), CutOff(1)]
    found = []
    with connect(fake, max_retries=1) as petstore:
        for order in petstore.v2.iter_orders(limit=10):
            found.append(order.id)
            if len(found) % 10 == 0:  # the next order is on the next page
                fake.then(*faults[:1])
                del faults[:1]
    assert list(range(60)) == found
    assert 5 + 6 == len(fake.requests)


def test_a_cursor_that_does_not_advance_ends_the_iteration_with_an_error(connect: Connect) -> None:
    fake = faulty([], *[Answered(200, b'{"data":[],"nextCursor":"same"}', JSON)] * 3)
    with connect(fake) as petstore, pytest.raises(errors.InvalidResponseError, match="endless"):
        list(petstore.v2.iter_orders())
    assert 2 == len(fake.requests)


WITHOUT_CREATED = b'{"data":[{"id":1,"status":"pending","updatedAt":"2026-11-20T12:00:00Z"}]}'


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"data":{}}', b'{"data":[{"id":1}]}', WITHOUT_CREATED, b'{"data":[],"nextCursor":7}', b"\xff"],
    ids=str,
)
def test_a_response_that_is_not_a_page_is_rejected(connect: Connect, body: bytes) -> None:
    fake = faulty([], Answered(200, body, JSON))
    with connect(fake) as petstore, pytest.raises(errors.InvalidResponseError, match="not a valid page"):
        petstore.v2.list_orders()


def test_a_page_may_be_large_but_not_endless(connect: Connect) -> None:
    order = b'{"id":1,"status":"pending",%s,"note":"%%s"}' % TIMES
    fake = FakePetstore()
    fake.then(Answered(200, b'{"data":[%s]}' % (order % (b"x" * 1_000_000)), JSON))
    fake.then(Answered(200, b'{"data":[%s]}' % (order % (b"x" * 5_000_000)), JSON))
    with connect(fake) as petstore:
        assert [1] == ids(petstore.v2.list_orders().data)
        with pytest.raises(errors.InvalidResponseError, match="more data"):
            petstore.v2.list_orders()


def test_both_versions_share_the_limits_and_the_options(connect: Connect) -> None:
    clock = FakeClock()
    fake = FakePetstore([Order(id=1)], per_minute=2, clock=clock)
    with connect(fake) as petstore:
        petstore.list_orders()
        petstore.v2.get_order(1)
        with pytest.raises(errors.RateLimitError) as caught:
            petstore.with_options(max_wait=0).v2.get_order(1)
        assert not caught.value.sent
        assert 1 == petstore.v2.get_order(1).id
    assert (3, 0) == (len(fake.requests), fake.early)
    assert clock.slept >= 59


def test_usage_shows_the_limits_and_the_requests(connect: Connect) -> None:
    fake = FakePetstore(per_minute=3, per_day=100)
    ban = {"began": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:02:00Z"}
    key = {"id": "k1", "scopes": ["orders:read"], "expiresAt": "2026-11-20T12:00:00Z", "lastBan": ban}
    entry = {"start": "2026-11-20T12:00:00Z", "admitted": 5, "refused": 1}
    of_an_older_service = {"plan": "new", "key": key, "windows": [], "history": [entry]}  # without `orders`
    with connect(fake) as petstore:
        usage = petstore.v2.get_usage()
        fake.then(Answered(200, json.dumps(of_an_older_service).encode(), JSON))
        by_day = petstore.v2.get_usage(granularity="day", start=NOON, end=NOON + timedelta(days=1))
    assert [("minute", 3, 2, 60), ("day", 100, 99, 86_400)] == [
        (each.name, each.limit, each.remaining, (each.reset - START).total_seconds()) for each in usage.windows
    ]
    assert ("fake", None, None, "all") == (usage.key.id, usage.key.expires_at, usage.key.last_ban, usage.orders)
    assert of_an_older_service == by_day.to_dict()
    assert [v2.UsageEntry(start=NOON, admitted=5, refused=1)] == by_day.history
    assert ["granularity=hour", "granularity=day&from=2026-11-20T12%3A00%3A00Z&to=2026-11-21T12%3A00%3A00Z"] == [
        request.query for request in fake.requests
    ]


def test_an_order_is_placed_with_a_key_of_its_own(connect: Connect) -> None:
    fake = FakePetstore([Order(id=41)])
    with connect(fake) as petstore:
        placed = petstore.v2.place_order(pet_id=3, quantity=1, ship_date=NOON)
        assert v2.Order(
            id=42, pet_id=3, quantity=1, ship_date=NOON, status="pending", updated_at=placed.updated_at,
            created_at=placed.updated_at,
        ) == placed  # fmt: skip
        petstore.v2.place_order(pet_id=3, quantity=1, ship_date=NOON)
        assert [41, 42, 43] == ids(petstore.list_orders())  # version 1 shows them as well
    keys = [request.headers["idempotency-key"] for request in fake.requests[:2]]
    assert 2 == len(set(keys))
    assert {"petId": 3, "quantity": 1, "shipDate": "2026-11-20T12:00:00Z"} == json.loads(fake.requests[0].body)
    assert ("POST", "application/json") == (fake.requests[0].method, fake.requests[0].headers["content-type"])


def test_a_key_that_stays_in_use_is_a_conflict(connect: Connect) -> None:
    fake = faulty([], *[KeyInUse()] * 3)
    with connect(fake, max_retries=2) as petstore, pytest.raises(errors.ConflictError) as caught:
        petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key="mine")
    assert ("idempotency_key_in_use", 1.0) == (caught.value.code, caught.value.retry_after)
    assert ("mine", "max_retries") == (caught.value.idempotency_key, caught.value.ended_by)
    assert caught.value.may_have_been_applied  # the other request may place it


@pytest.mark.parametrize("key", ["used", '"used"'])
def test_a_key_of_another_order_places_nothing(connect: Connect, key: str) -> None:
    fake = FakePetstore()
    with connect(fake) as petstore:
        petstore.v2.place_order(pet_id=3, quantity=5, idempotency_key="used")
        fake.then(Dropped())
        with pytest.raises(errors.APIStatusError, match="422 idempotency_key_reused") as caught:
            petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key=key)
    assert not caught.value.may_have_been_applied  # although the response to the first attempt was lost
    assert (3, 1) == (len(fake.requests), len(fake.orders))


def test_a_reference_in_use_leads_to_the_order_that_has_it(connect: Connect) -> None:
    first = v2.Order(id=7, reference="PO-1", account="fake", status="shipped", created_at=NOON, updated_at=NOON)
    fake = faulty([first], Dropped(applied=True))
    with connect(fake) as petstore:
        with pytest.raises(errors.ConflictError, match="Order 7 already has this reference") as caught:
            petstore.v2.place_order(pet_id=3, quantity=1, reference="PO-1")
        assert ("reference_in_use", 7) == (caught.value.code, caught.value.order_id)
        assert not caught.value.may_have_been_applied  # although the response to the first attempt was lost
        assert 7 == pickle.loads(pickle.dumps(caught.value)).order_id
        with pytest.raises(errors.ConflictError) as caught:
            petstore.v2.cancel_order(7)
        assert caught.value.order_id is None


@pytest.mark.parametrize(
    ("location", "order_id"),
    [
        ("https://api.example/v2/store/orders/7", 7),
        ("orders/-7", -7),
        ("7", 7),
        ("orders/7/x", None),
        ("orders/07", None),
        (f"orders/{'9' * 20}", None),
    ],
)
def test_an_order_is_read_from_any_form_of_its_address(connect: Connect, location: str, order_id: int | None) -> None:
    fake = FakePetstore()
    body = b'{"code":"reference_in_use","message":"Order 7 has it.","status":409}'
    fake.then(Answered(409, body, {**JSON, "location": location}))
    with connect(fake) as petstore, pytest.raises(errors.ConflictError) as caught:
        petstore.v2.place_order(pet_id=3, quantity=1, reference="PO-1")
    assert order_id == caught.value.order_id


def test_an_idempotency_key_can_be_a_uuid_and_a_replay_is_shown(connect: Connect) -> None:
    fake = FakePetstore()
    key = uuid.UUID(int=7)
    events: list[ResponseEvent] = []
    with connect(fake, on_response=events.append) as petstore:
        first = petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key=key)
        again = petstore.v2.place_order(pet_id=3, quantity=1, idempotency_key=str(key))
        assert events[-1] == petstore.last_response
    assert [False, True] == [event.replayed for event in events]
    assert [f"orders/{first.id}"] * 2 == [event.headers["Location"] for event in events]
    assert (first, {str(key)}) == (again, {request.headers["idempotency-key"] for request in fake.requests})


def test_values_that_this_version_does_not_know_are_accepted(connect: Connect) -> None:
    fake = FakePetstore()
    order = b'{"id":1,"status":"lost","colour":"red",' + TIMES + b"}"
    fake.then(Answered(200, order, {**JSON, "ratelimit": '"week";r=9;t=5, "minute";r=1;t=2;x=1'}))
    with connect(fake) as petstore:
        assert "lost" == petstore.v2.get_order(1).status
        fake.then(Answered(409, b'{"code":"order_lost","message":"Lost.","status":409}'))
        with pytest.raises(errors.ConflictError, match="order_lost"):
            petstore.v2.cancel_order(1)
        fake.then(Answered(418, b'{"code":"teapot","message":"Short and stout.","status":418}'))
        with pytest.raises(errors.APIStatusError, match="teapot"):
            petstore.v2.cancel_order(1)
