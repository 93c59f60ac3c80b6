"""`client.v2` for the shop's own systems: put, correct, ship and complete orders, one by one and in batches."""

import copy
import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx2
import pytest

from petstore_client import Client, Clock, Order, errors, v2
from petstore_client.testing import FakePetstore
from petstore_client.testing.faults import Answered, Dropped, Failing, Fault, RateLimited, Raw, Serve, TimedOut
from testing.client_variants import Connect, Own

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
JSON = {"content-type": "application/json"}
SCOPES = ["orders:read", "orders:cancel", "orders:write", "orders:manage"]


def shop(*orders: Order, faults: tuple[Fault, ...] = (), **options: Any) -> FakePetstore:
    """A fake service whose key manages orders."""
    fake = FakePetstore(orders, **{"scopes": SCOPES, "accounts": ["shop", "acme"], **options})
    fake.then(*faults)
    return fake


def paths(fake: FakePetstore) -> list[str]:
    return [f"{request.method} {request.path.removeprefix('/store/orders')}" for request in fake.requests]


def test_an_order_goes_from_its_own_number_to_complete(connect: Connect) -> None:
    fake = shop()
    east = timezone(timedelta(hours=2))
    with connect(fake) as petstore:
        petstore.v2.put_order(8, pet_id=3, quantity=2, ship_date=NOON.astimezone(east), reference="R-8", account="acme")
        petstore.v2.update_order(8, quantity=4, reference=None)
        petstore.v2.ship_order(8, ship_date=NOON + timedelta(hours=1))
        order = petstore.v2.complete_order(8)
        petstore.v2.put_order(9, pet_id=3, status="shipped", complete=True)
        petstore.v2.put_order(10)
        petstore.v2.ship_order(10)
    assert ("shipped", NOON + timedelta(hours=1), True) == (order.status, order.ship_date, order.complete)
    assert (3, 4, None, "acme") == (order.pet_id, order.quantity, order.reference, order.account)
    sent = [
        (path, json.loads(request.body or b"null")) for path, request in zip(paths(fake), fake.requests, strict=True)
    ]
    whole = {"petId": 3, "quantity": 2, "shipDate": "2026-11-20T12:00:00Z", "reference": "R-8", "account": "acme"}
    assert [
        ("PUT /8", whole),
        ("PATCH /8", {"quantity": 4, "reference": None}),
        ("POST /8/ship", {"shipDate": "2026-11-20T13:00:00Z"}),
        ("POST /8/complete", None),
        ("PUT /9", {"petId": 3, "complete": True, "status": "shipped"}),
        ("PUT /10", {}),
        ("POST /10/ship", None),
    ] == sent


def change(petstore: Client, name: str, **more: Any) -> Any:
    """Carry out one of the five on order 7, with a change if it needs one."""
    given = {"put": {"quantity": 5}, "update": {"quantity": 5}}.get(name, {})
    return getattr(petstore.v2, f"{name}_order")(7, **{**given, **more})


def prepared(name: str) -> FakePetstore:
    """A fake service with order 7, ready for this change."""
    return shop(Order(id=7, quantity=1), shipped=[7] if name == "complete" else [])


@pytest.mark.parametrize("name", ["put", "update", "ship", "complete", "cancel"])
def test_if_match_refuses_a_change_of_an_order_that_has_changed(connect: Connect, name: str) -> None:
    fake = prepared(name)
    with connect(fake) as petstore:
        before = petstore.v2.get_order(7)
        fake.orders[7] = Order(id=7, pet_id=1, quantity=1)
        with pytest.raises(errors.PreconditionFailedError, match="Nothing was changed") as caught:
            change(petstore, name, if_match=before.etag)
        assert (412, "precondition_failed") == (caught.value.status, caught.value.code)
        assert not caught.value.may_have_been_applied
        changed = change(petstore, name, if_match=petstore.v2.get_order(7).etag)
        if changed is not None:
            assert changed.etag == petstore.v2.get_order(7).etag
            assert petstore.v2.update_order(7, pet_id=2, if_match=changed.etag).pet_id == 2


def test_the_etag_is_kept_with_an_order_and_is_none_of_its_fields(connect: Connect) -> None:
    with connect(shop(Order(id=7))) as petstore:
        (listed,) = petstore.v2.list_orders().data
        read = petstore.v2.get_order(7)
        assert None is listed.etag
        assert petstore.last_response is not None
        assert petstore.last_response.etag == read.etag
        placed = petstore.v2.place_order(pet_id=1, quantity=1)
    assert (listed, listed.to_dict()) == (read, read.to_dict())
    assert {read.etag} == {
        each.etag for each in (pickle.loads(pickle.dumps(read)), copy.copy(read), copy.deepcopy(read))
    }
    assert (None, "shop") == (placed.etag, placed.account)


@pytest.mark.parametrize("name", ["get", "put", "update", "ship", "complete"])
def test_an_etag_that_a_proxy_has_removed_is_refused_as_a_condition(connect: Connect, name: str) -> None:
    def remove(_request: httpx2.Request, _clock: Clock, serve: Serve) -> Raw:
        response = serve()
        return replace(response, headers={key: value for key, value in response.headers.items() if key != "etag"})

    fake = prepared(name)
    fake.then(Own(remove))
    with connect(fake) as petstore:
        order = petstore.v2.get_order(7) if name == "get" else change(petstore, name)
        for each in (petstore.v2.update_order, petstore.v2.cancel_order):
            with pytest.raises(errors.ConfigurationError, match="if a proxy removes ETags"):
                each(7, if_match=order.etag)
        with pytest.raises(errors.ConfigurationError, match="if a proxy removes ETags"):
            petstore.v2.batch_orders([v2.Ship(7, if_match=order.etag)])
    assert 1 == len(fake.requests)


def test_an_order_that_cannot_be_read_after_a_lost_response_was_changed(connect: Connect) -> None:
    fake = shop(Order(id=7), scopes=["orders:manage"], faults=(Dropped(applied=True),))
    with connect(fake) as petstore, pytest.raises(errors.PermissionDeniedError, match="orders:read") as caught:
        petstore.v2.ship_order(7)
    assert caught.value.may_have_been_applied
    assert any("was changed" in note for note in caught.value.__notes__)


def test_the_deadline_bounds_a_change_with_the_order_that_is_read_after_it(connect: Connect) -> None:
    fake = shop(Order(id=7), faults=(Dropped(applied=True), RateLimited(1), Failing(503, retry_after=30)))
    with connect(fake, deadline=20) as petstore, pytest.raises(errors.ServerError) as caught:
        petstore.v2.ship_order(7)  # the second attempt finds it shipped; reading it would take too long
    assert ("deadline", True) == (caught.value.ended_by, caught.value.may_have_been_applied)


def test_an_order_that_is_to_be_created_only_is_never_replaced(connect: Connect) -> None:
    fake = shop(faults=(Dropped(applied=True),))
    with connect(fake) as petstore:
        created = petstore.v2.put_order(7, quantity=1, create_only=True)
        assert (["*", "*", None], [None, None, '"-"']) == (
            [request.headers.get("if-none-match") for request in fake.requests],
            [request.headers.get("if-match") for request in fake.requests],
        )
        assert created == petstore.v2.get_order(7)
        with pytest.raises(errors.PreconditionFailedError, match="exists already") as caught:
            petstore.v2.put_order(7, quantity=1, create_only=True)
        assert not caught.value.may_have_been_applied
        fake.then(Dropped(applied=False))
        with pytest.raises(errors.PreconditionFailedError, match="exists already") as caught:
            petstore.v2.put_order(7, quantity=2, create_only=True)
        assert caught.value.may_have_been_applied  # it may have been created, and changed since
    assert 1 == fake.orders[7].quantity


@pytest.mark.parametrize("name", ["put", "update"])
def test_a_change_that_is_refused_after_a_lost_response_may_have_been_applied_before(
    connect: Connect, name: str
) -> None:
    fake = prepared(name)

    def apply(request: Any, clock: Any, serve: Serve) -> Raw:
        serve()
        fake.orders[7] = Order(id=7, quantity=9)  # another program changes it, and cancels it
        fake.cancelled.add(7)
        raise httpx2.ReadError("lost", request=request)

    fake.then(Own(apply))
    with connect(fake) as petstore, pytest.raises(errors.ConflictError) as caught:
        change(petstore, name)
    assert ("order_already_cancelled", True) == (caught.value.code, caught.value.may_have_been_applied)


def outcomes(results: list[v2.BatchResult]) -> list[tuple[int, str]]:
    return [(each.status, each.error.code if each.error else "") for each in results]


def test_a_batch_has_an_outcome_for_each_operation_in_their_order(connect: Connect) -> None:
    fake = shop(Order(id=1), Order(id=2), Order(id=3), Order(id=4), shipped=[3])
    operations: list[v2.BatchOperation] = [
        v2.Ship(1, ship_date=NOON),
        v2.Put(8, quantity=2, reference="R", create_only=True),
        v2.Update(8, quantity=3),
        v2.Complete(3),
        v2.Cancel(2),
        v2.Cancel(3),
        v2.Put(9, reference="R"),
        v2.Ship(99),
        v2.Ship(4, if_match='"old"'),
        v2.Update(4),
    ]
    with connect(fake) as petstore:
        results = petstore.v2.batch_orders(iter(operations))
        assert [] == petstore.v2.batch_orders([])
        assert petstore.v2.get_order(8) == results[2].order
    assert operations == [each.operation for each in results]
    assert [
        (200, ""), (201, ""), (200, ""), (200, ""), (204, ""),
        (409, "order_already_shipped"), (409, "reference_in_use"), (404, "order_not_found"),
        (412, "precondition_failed"), (200, ""),
    ] == outcomes(results)  # fmt: skip
    conflict = results[6].error
    assert isinstance(conflict, errors.ConflictError)
    assert (8, fake.requests[0].headers["x-request-id"]) == (conflict.order_id, conflict.request_id)
    assert {False} == {each.error.may_have_been_applied for each in results if each.error}
    assert {None} == {each.order for each in results if each.status not in (200, 201)}
    assert results[:5] == pickle.loads(pickle.dumps(results))[:5]
    assert ["POST /batch", "GET /8"] == paths(fake)


def test_a_batch_is_split_by_number_and_by_size(connect: Connect) -> None:
    fake = shop(*(Order(id=number) for number in range(1201)))
    with connect(fake) as petstore:
        results = petstore.v2.batch_orders(v2.Ship(number) for number in range(1201))
        assert [500, 500, 201] == [len(json.loads(request.body)["operations"]) for request in fake.requests]
        assert list(range(1201)) == [each.order.id for each in results if each.order]
        del fake.requests[:]
        long = [v2.Put(5000 + number, reference=f"{number:03}" + "ü" * 1000) for number in range(300)]
        assert {201} == {each.status for each in petstore.v2.batch_orders(long)}
    sizes = [len(request.body) for request in fake.requests]
    assert 3 == len(sizes)
    assert 250 * 1024 < max(sizes) <= 256 * 1024


def test_an_order_that_a_batch_was_to_create_only_is_created_once(connect: Connect) -> None:
    fake = shop(Order(id=9, quantity=9), faults=(Dropped(applied=True),))
    puts = [v2.Put(number, quantity=1, create_only=True) for number in (8, 9)]
    with connect(fake) as petstore:
        created, refused = petstore.v2.batch_orders(puts)
    assert (200, 8, None) == (created.status, created.order and created.order.id, created.error)
    assert isinstance(refused.error, errors.PreconditionFailedError)
    assert refused.error.may_have_been_applied
    assert (9, 3) == (fake.orders[9].quantity, len(fake.requests))


def served(request: Any, clock: Any, serve: Serve) -> Raw:
    """No fault."""
    return serve()


def without(*numbers: int) -> Own:
    """The store fails for these operations of a batch, by their places."""

    def apply(request: Any, clock: Any, serve: Serve) -> Raw:
        sent = json.loads(request.content)["operations"]
        kept = [each for place, each in enumerate(sent) if place not in numbers]
        request._content = json.dumps({"operations": kept}).encode()
        request.stream = None
        raw = serve()
        results = iter(json.loads(b"".join(raw.pieces))["results"])
        failed = {"status": 503, "code": "service_unavailable", "message": "Retry."}
        whole = [failed if place in numbers else next(results) for place in range(len(sent))]
        return Raw(200, raw.headers, pieces=(json.dumps({"results": whole}).encode(),))

    return Own(apply)


def sent(fake: FakePetstore) -> list[list[tuple[str, int]]]:
    bodies = [json.loads(request.body)["operations"] for request in fake.requests]
    return [[(each["operation"], each["orderId"]) for each in operations] for operations in bodies]


def test_operations_that_the_store_failed_for_are_sent_again_with_the_later_ones_on_their_orders(
    connect: Connect,
) -> None:
    fake = shop(Order(id=1), Order(id=2), faults=(without(1, 3),))
    operations: list[v2.BatchOperation] = [
        v2.Ship(1),
        v2.Put(8, quantity=1),
        v2.Complete(1),
        v2.Update(2, quantity=2),
        v2.Ship(8),
        v2.Ship(2),
    ]
    with connect(fake) as petstore:
        results = petstore.v2.batch_orders(operations)
    assert [200, 201, 200, 200, 200, 200] == [each.status for each in results]
    assert [1, 8, 1, 2, 8, 2] == [each.order.id for each in results if each.order]
    assert {"shipped"} == {each.order.status for each in results[4:] if each.order}
    again = [("put", 8), ("update", 2), ("ship", 8), ("ship", 2)]
    assert [again, [("update", 2)]] == sent(fake)[1:]  # the last one reads the order that had shipped before


def test_an_operation_that_the_store_keeps_failing_for_is_its_own_error(connect: Connect) -> None:
    fake = shop(Order(id=1), Order(id=2), faults=(without(0), Failing(503), Failing(503)))
    with connect(fake, max_retries=2) as petstore:
        results = petstore.v2.batch_orders([v2.Ship(1), v2.Ship(2)])
    assert [(503, "service_unavailable"), (200, "")] == outcomes(results)
    assert results[0].error is not None
    assert results[0].error.may_have_been_applied
    assert 3 == len(fake.requests)
    fake = shop(Order(id=1), Order(id=2), faults=(without(0), *[Dropped(applied=True)] * 3))
    with connect(fake, max_retries=2) as petstore:
        results = petstore.v2.batch_orders([v2.Ship(1), v2.Ship(2)])
    assert [(503, "service_unavailable"), (200, "")] == outcomes(results)


def test_a_batch_that_fails_has_the_outcomes_of_the_requests_before(connect: Connect) -> None:
    fake = shop(*(Order(id=number) for number in range(600)), faults=(Own(served), *[Dropped(applied=True)] * 2))
    ships = [v2.Ship(number) for number in range(600)]
    with connect(fake, max_retries=1) as petstore:
        with pytest.raises(errors.APIConnectionError) as caught:
            petstore.v2.batch_orders(ships)
        assert [200] * 500 == [each.status for each in caught.value.batch_results]
        assert caught.value.may_have_been_applied
        assert 500 == len(pickle.loads(pickle.dumps(caught.value)).batch_results)
        again = petstore.v2.batch_orders(ships)
    assert {(409, "order_already_shipped")} == set(outcomes(again))
    assert () == errors.PetstoreError("x").batch_results


def test_orders_that_cannot_be_read_after_a_lost_response_are_none(connect: Connect) -> None:
    fake = shop(Order(id=1), faults=(Dropped(applied=True), Own(served), *[TimedOut()] * 2))
    with connect(fake, max_retries=1) as petstore:
        (result,) = petstore.v2.batch_orders([v2.Ship(1)])
    assert (200, None, None) == (result.status, result.order, result.error)


@pytest.mark.parametrize("body", [b"{}", b'{"results":[]}', b'{"results":[{"order":{}}]}'], ids=str)
def test_a_response_that_does_not_fit_the_batch_is_rejected(connect: Connect, body: bytes) -> None:
    fake = shop(Order(id=1), faults=(Answered(200, body, JSON),))
    with connect(fake) as petstore, pytest.raises(errors.InvalidResponseError) as caught:
        petstore.v2.batch_orders([v2.Ship(1)])
    assert caught.value.may_have_been_applied
