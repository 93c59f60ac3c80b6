"""The shop's own systems over HTTP: what each operation leads to, and what it leaves in the log (D22)."""

import json
from typing import Any

import httpx2
import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.orders import MAX_ASSIGNED_ID, Order, Status
from testing.partners import ORDERS, Partner, partner
from testing.service import Service, code, embedded
from testing.stores import log

ALL, OWN = VisibleOrders.ALL, VisibleOrders.OWN
PENDING, SHIPPED, CANCELLED = "pending", "shipped", "cancelled"
DATE = "2026-11-01T10:00:00Z"
TIMES = ("createdAt", "updatedAt")
MALFORMED_ORDERS = (
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff",
    b'{"petId":1,"petId":2}',
    b'{"petId":"1"}',
    b'{"petId":1.0}',
    b'{"petId":true}',
    b'{"quantity":9223372036854775808}',
    b'{"shipDate":"2026-11-01"}',
    b'{"shipDate":7}',
    b'{"complete":"true"}',
    b'{"reference":""}',
    b'{"reference":" a"}',
    b'{"reference":"\\ud800"}',
    b'{"reference":"' + b"a" * 65 + b'"}',
    b'{"id":8}',
    b'{"updatedAt":"2026-11-01T10:00:00Z"}',
    b"[" * 60_000,
)
MALFORMED_PUTS = (
    *MALFORMED_ORDERS,
    b'{"status":"gone"}',
    b'{"status":1}',
    b'{"account":""}',
    b'{"account":1}',
    b'{"account":"missing"}',
    b'{"account":"\\u0000"}',
    b'{"account":"\\ud800"}',
    b'{"account":"' + b"a" * 1_000 + b'"}',
)
MALFORMED_UPDATES = (*MALFORMED_ORDERS, b'{"status":"shipped"}', b'{"account":"zoo"}')
MALFORMED_SHIPMENTS = (b"[]", b'{"shipDate":"today"}', b'{"shipDate":1}', b'{"petId":1}', b"\xff")

pytestmark = pytest.mark.usefixtures("each_deployment")


async def shop(service: Service) -> Partner:
    return await partner(service, ALL)


def shown(response: httpx2.Response) -> dict[str, Any]:
    """The order of a response, without its times."""
    assert response.headers["cache-control"] == "no-store"
    return {name: value for name, value in response.json().items() if name not in TIMES}


async def entries(service: Service, order_id: int) -> list[tuple[str, object, object]]:
    """What the log has about an order, the oldest entry first."""
    found = [entry for entry in await log(service.backend.store) if entry.subject == f"order:{order_id}"]
    for entry in found:
        assert entry.actor.startswith("key:")
    return [(entry.action, entry.before, entry.after) for entry in found]


async def one_of_each(service: Service, first: int = 0, *, reference: bool = False) -> None:
    """Store the orders 1 (pending), 2 (shipped), 3 (cancelled) and 4 (shipped and complete), `first` orders later."""
    states = ((Status.PENDING, None), (Status.SHIPPED, None), (Status.CANCELLED, None), (Status.SHIPPED, True))
    await service.orders(
        *(
            Order(number, 1, 1, None, complete, status, f"R-{number}" if reference else None)
            for number, (status, complete) in enumerate(states, first + 1)
        )
    )


async def test_a_put_creates_replaces_and_leaves_unchanged(service: Service) -> None:
    client = await shop(service)
    created = await client.put(8, petId=3, quantity=-1, shipDate="2026-11-01T11:00:00+01:00", reference="R-17")
    expected = {
        "id": 8,
        "petId": 3,
        "quantity": -1,
        "shipDate": DATE,
        "status": PENDING,
        "reference": "R-17",
    }
    assert (201, "8", expected) == (created.status_code, created.headers["location"], shown(created))
    assert created.json()["createdAt"] == created.json()["updatedAt"]
    read = await client.get(f"{ORDERS}/8")
    assert (created.content, created.headers["etag"]) == (read.content, read.headers["etag"])
    again = await client.put(8, petId=3, quantity=-1, shipDate=DATE, reference="R-17", complete=None)
    assert (200, created.content, "location" in again.headers) == (again.status_code, created.content, False)
    replaced = await client.put(8, quantity=2, status=SHIPPED, complete=True)
    assert {"id": 8, "quantity": 2, "complete": True, "status": SHIPPED} == shown(replaced)
    assert (200, created.json()["createdAt"]) == (replaced.status_code, replaced.json()["createdAt"])
    assert replaced.json()["updatedAt"] > created.json()["updatedAt"]
    assert replaced.headers["etag"] == (await client.get(f"{ORDERS}/8")).headers["etag"] != created.headers["etag"]
    [(first, before, after), (second, replaced_fields, replacement)] = await entries(service, 8)
    assert ("order.put", "order.put", None) == (first, second, before)
    assert expected == after
    assert {"petId": 3, "quantity": -1, "shipDate": DATE, "reference": "R-17", "status": PENDING} == replaced_fields
    new = {"quantity": 2, "complete": True, "status": SHIPPED}
    assert new == replacement


async def test_a_put_of_what_has_shipped_or_is_cancelled_is_refused_unless_it_is_equal(service: Service) -> None:
    client = await shop(service)
    await one_of_each(service)
    for order_id, status, refusal in ((2, SHIPPED, "order_already_shipped"), (3, CANCELLED, "order_already_cancelled")):
        assert 200 == (await client.put(order_id, petId=1, quantity=1, status=status)).status_code
        for fields in ({"petId": 1, "quantity": 2, "status": status}, {"petId": 1, "quantity": 1}, {}):
            refused = await client.put(order_id, **fields)
            assert (409, refusal) == code(refused)
            assert "can no longer be replaced" in refused.json()["message"]
        assert [] == await entries(service, order_id)


async def test_only_a_put_that_names_its_account_replaces_a_placed_order(service: Service) -> None:
    client, buyer, other = await shop(service), await partner(service, ALL), await partner(service)
    number = await buyer.placed("a")
    assert 200 == (await client.put(number, petId=1, quantity=1)).status_code  # nothing changes
    for name in (None, other.account):
        refused = await client.put(number, petId=2, account=name)
        assert (409, "account_mismatch") == code(refused)
    assert (409, "account_mismatch") == code(await client.put(number, petId=1, quantity=1, account=other.account))
    replaced = await client.put(number, petId=2, account=buyer.account)
    assert {"id": number, "petId": 2, "status": PENDING, "account": buyer.account} == shown(replaced)
    for unnamed in (await client.put(number, petId=2), await client.put(number, petId=2, account=None)):
        assert (200, buyer.account) == (unnamed.status_code, unnamed.json()["account"])


async def test_a_put_keeps_the_owner_and_sets_one_only_once(service: Service) -> None:
    client, one, two = await shop(service), await partner(service), await partner(service)
    assert one.account == (await client.put(8, account=one.account)).json()["account"]
    assert one.account == (await client.put(8, petId=5)).json()["account"]
    assert (409, "account_mismatch") == code(await client.put(8, petId=5, account=two.account))
    await one_of_each(service)
    for order_id in (1, 2, 3, 4):
        status = {1: PENDING, 3: CANCELLED}.get(order_id, SHIPPED)
        complete = True if order_id == 4 else None
        fields: dict[str, Any] = {"petId": 1, "quantity": 1, "status": status, "complete": complete}
        assert 404 == (await two.get(f"{ORDERS}/{order_id}")).status_code
        given = await client.put(order_id, **fields, account=two.account)
        assert (200, two.account) == (given.status_code, given.json()["account"])
        assert 200 == (await two.get(f"{ORDERS}/{order_id}")).status_code
        assert (409, "account_mismatch") == code(await client.put(order_id, **fields, account=one.account))
        [(action, before, after)] = await entries(service, order_id)
        assert isinstance(after, dict)
        assert ("order.put", {}, two.account) == (action, before or {}, after["account"])


async def test_an_account_with_own_orders_puts_its_own_only(service: Service) -> None:
    own, other, client = await partner(service), await partner(service), await shop(service)
    number, theirs = await own.placed("a"), await other.placed("a")
    for name in (None, own.account):
        assert {"id": number, "petId": 7, "status": PENDING} == shown(await own.put(number, petId=7, account=name))
    assert 201 == (await client.put(500)).status_code
    for order_id in (theirs, 500, 501, MAX_ASSIGNED_ID + 1):
        for headers in ({}, {"If-None-Match": "*"}):
            assert (404, "order_not_found") == code(await own.put(order_id, headers, petId=7))
        assert (412, "precondition_failed") == code(await own.put(order_id, {"If-Match": "*"}, petId=7))
    refused = {name: (await own.put(number, petId=8, account=name)).json() for name in (other.account, "missing")}
    assert refused["missing"] == refused[other.account]
    assert "invalid_body" == refused["missing"]["code"]
    assert "account" not in (await client.get(f"{ORDERS}/500")).json()


@embedded
async def test_if_none_match_creates_only(service: Service) -> None:
    client = await shop(service)
    only_new = {"If-None-Match": "*"}
    assert 201 == (await client.put(8, only_new, petId=1)).status_code
    for fields in ({"petId": 1}, {"petId": 2}):
        assert (412, "precondition_failed") == code(await client.put(8, only_new, **fields))
    for malformed in ('"a"', "", "a", "*, *", '*, "a"'):
        assert (400, "invalid_parameter") == code(await client.put(9, {"If-None-Match": malformed}))
    assert (412, "precondition_failed") == code(await client.put(9, {**only_new, "If-Match": "*"}))
    assert 404 == (await client.get(f"{ORDERS}/9")).status_code


@embedded
async def test_malformed_requests_are_refused_and_change_nothing(service: Service) -> None:
    client = await shop(service)
    await one_of_each(service)
    kind = {"Content-Type": "application/json"}
    for method, path, bodies in (
        ("PUT", f"{ORDERS}/1", MALFORMED_PUTS),
        ("PATCH", f"{ORDERS}/1", MALFORMED_UPDATES),
        ("POST", f"{ORDERS}/1/ship", MALFORMED_SHIPMENTS),
    ):
        for body in bodies:
            refused = await client.send(method, path, content=body, headers={**kind, "If-Match": '"old"'})
            assert (400, "invalid_body") == code(refused), (method, body)
        for media_type in ("text/plain", "application/json; charset=latin-1", ""):
            refused = await client.send(method, path, content=b"{}", headers={"Content-Type": media_type})
            assert (415, "unsupported_media_type") == code(refused)
        zipped = await client.send(method, path, content=b"{}", headers={**kind, "Content-Encoding": "gzip"})
        assert (415, "unsupported_media_type") == code(zipped)
    for method, path in (("PUT", ""), ("PATCH", ""), ("POST", "/ship"), ("POST", "/complete"), ("DELETE", "")):
        for text in ("01", "+1", "9223372036854775808", "x", "1.0"):
            refused = await client.send(method, f"{ORDERS}/{text}{path}", json={})
            assert (404, "invalid_order_id") == code(refused), (method, text)
        assert (400, "invalid_parameter") == code(await client.send(method, f"{ORDERS}/1{path}?wait=1", json={}))
    patch = await client.send(
        "PUT", f"{ORDERS}/1", content=b"{}", headers={"Content-Type": "application/merge-patch+json"}
    )
    assert 415 == patch.status_code
    for order_id in (1, 2, 3, 4):
        assert [] == await entries(service, order_id)


UPDATES: list[tuple[int, dict[str, Any], int | str]] = [
    (1, {"petId": 7}, 200),
    (1, {"quantity": -3, "shipDate": DATE}, 200),
    (1, {"petId": None, "quantity": None, "reference": None}, 200),
    (1, {"complete": True}, "order_not_shipped"),
    (1, {"complete": True, "quantity": 5}, "order_not_shipped"),
    (1, {"complete": False}, 200),
    (1, {"complete": None}, "unchanged"),
    (1, {}, "unchanged"),
    (1, {"petId": 1, "quantity": 1}, "unchanged"),
    (2, {"shipDate": DATE}, 200),
    (2, {"quantity": 5, "reference": "other"}, 200),
    (2, {"complete": True}, 200),
    (4, {"complete": False}, 200),
    (4, {"complete": None}, 200),
    (4, {"complete": True}, "unchanged"),
    (3, {"petId": 1}, "unchanged"),
    (3, {"quantity": 2}, "order_already_cancelled"),
    (3, {"complete": True}, "order_already_cancelled"),
    (3, {"reference": "other"}, "order_already_cancelled"),
    (3, {"reference": None, "quantity": 2}, "order_already_cancelled"),
    (3, {"reference": None}, 200),
    (3, {"reference": None, "petId": 1}, 200),
    (9, {"petId": 1}, "order_not_found"),
    (9, {}, "order_not_found"),
]


@pytest.mark.parametrize("media_type", ["application/json", "application/merge-patch+json; charset=utf-8"])
async def test_each_update_has_its_outcome(service: Service, media_type: str) -> None:
    client = await shop(service)
    for row, (place, changes, expected) in enumerate(UPDATES):
        await one_of_each(service, 10 * row, reference=True)
        order_id = 10 * row + place
        before = await client.get(f"{ORDERS}/{order_id}")
        assert [] == await entries(service, order_id)
        headers = {"Content-Type": media_type}
        response = await client.send(
            "PATCH", f"{ORDERS}/{order_id}", content=json.dumps(changes).encode(), headers=headers
        )
        after = await client.get(f"{ORDERS}/{order_id}")
        note = f"{order_id} {changes}"
        if expected == 200:
            merged = {name: value for name, value in (before.json() | changes).items() if value is not None}
            assert (200, shown(response)) == (
                response.status_code,
                {k: v for k, v in merged.items() if k not in TIMES},
            ), note
            assert response.headers["etag"] == after.headers["etag"] != before.headers["etag"], note
            assert response.content == after.content, note
            [(action, old, new)] = await entries(service, order_id)
            assert isinstance(old, dict)
            assert isinstance(new, dict)
            changed = {name for name, value in changes.items() if before.json().get(name) != value}
            assert ("order.update", changed) == (action, old.keys() | new.keys()), note
        elif expected == "unchanged":
            assert (200, before.content) == (response.status_code, response.content), note
        else:
            assert ({"order_not_found": 404}.get(str(expected), 409), expected) == code(response), note
        if expected != 200:
            assert (before.content, []) == (after.content, await entries(service, order_id)), note


async def test_shipping_and_completing_tell_done_before_from_stop(service: Service) -> None:
    client = await shop(service)
    await one_of_each(service)
    shipped = await client.ship(1, shipDate="1999-12-31T23:59:59.5Z")
    assert {"id": 1, "petId": 1, "quantity": 1, "shipDate": "1999-12-31T23:59:59.500000Z", "status": SHIPPED} == shown(
        shipped
    )
    assert (200, (await client.get(f"{ORDERS}/1")).headers["etag"]) == (shipped.status_code, shipped.headers["etag"])
    for order_id, refusal, words in (
        (1, "order_already_shipped", "cannot be shipped again"),
        (2, "order_already_shipped", "cannot be shipped again"),
        (3, "order_already_cancelled", "cannot be shipped; do not send it"),
        (4, "order_already_shipped", "cannot be shipped again"),
    ):
        refused = await client.ship(order_id, shipDate=DATE)
        assert (409, refusal) == code(refused)
        assert words in refused.json()["message"]
    await client.put(5, petId=1)
    assert (409, "order_not_shipped") == code(await client.complete(5))
    assert (409, "order_already_cancelled") == code(await client.complete(3))
    assert (409, "order_already_complete") == code(await client.complete(4))
    completed = await client.complete(1)
    assert (200, True) == (completed.status_code, completed.json()["complete"])
    assert (409, "order_already_complete") == code(await client.complete(1))
    for refused in (await client.ship(9), await client.complete(9), await client.cancel(9), await client.update(9)):
        assert (404, "order_not_found") == code(refused)
    assert ["order.ship", "order.complete"] == [action for action, *_ in await entries(service, 1)]
    for order_id in (2, 3, 4):
        assert [] == await entries(service, order_id)


@embedded
async def test_an_order_ships_now_unless_the_body_has_a_date(service: Service) -> None:
    client = await shop(service)
    empty: list[dict[str, Any]] = [{}, {"json": {}}, {"json": {"shipDate": None}}, {"content": b""}]
    for order_id, options in enumerate(empty, 1):
        await client.put(order_id)
        shipped = await client.send("POST", f"{ORDERS}/{order_id}/ship", **options)
        assert "2026-10-26T07:33:20Z" == shipped.json()["shipDate"]


async def test_a_reference_is_in_use_within_one_owner(service: Service) -> None:
    client, one, two = await shop(service), await partner(service), await partner(service)
    first = await one.placed("a", "R")
    assert 201 == (await client.put(500, reference="R")).status_code  # of no owner
    assert 201 == (await client.put(501, reference="R", account=two.account)).status_code
    for response, order_id in (
        (await client.put(502, reference="R"), 500),
        (await client.put(502, reference="R", account=one.account), first),
        (await client.put(502, reference="R", account=two.account), 501),
    ):
        assert ((409, "reference_in_use"), f"{order_id}") == (code(response), response.headers["location"])
        assert str(order_id) in response.json()["message"]
    assert 404 == (await client.get(f"{ORDERS}/502")).status_code
    assert 201 == (await client.put(502)).status_code
    refused = await client.update(502, reference="R")
    assert ((409, "reference_in_use"), "500") == (code(refused), refused.headers["location"])
    refused = await one.place("b", "R")
    assert ((409, "reference_in_use"), f"orders/{first}") == (code(refused), refused.headers["location"])
    assert (409, "reference_in_use") == code(await client.put(500, reference="R", account=one.account))
    assert 200 == (await client.update(500, reference=None)).status_code
    assert 200 == (await client.update(502, reference="R")).status_code
    await client.cancel(502)
    assert (409, "reference_in_use") == code(await client.update(500, reference="R"))
    assert 200 == (await client.update(502, reference=None)).status_code  # of a cancelled one, so that it is free
    assert 200 == (await client.update(500, reference="R")).status_code


@pytest.mark.settings(PETSTORE_ASSIGNED_IDS_FROM="1000")
async def test_reserved_identifiers_are_only_placed(service: Service) -> None:
    client = await shop(service)
    assert 201 == (await client.put(999)).status_code
    for order_id in (1000, 5000, MAX_ASSIGNED_ID + 1):
        assert (409, "identifier_reserved") == code(await client.put(order_id))
        assert (412, "precondition_failed") == code(await client.put(order_id, {"If-Match": "*"}))
        assert (409, "identifier_reserved") == code(await client.put(order_id, {"If-None-Match": "*"}))
    assert [1000, 1001] == [await client.placed(key) for key in ("a", "b")]
    assert 200 == (await client.put(1000, petId=9, account=client.account)).status_code
    assert 201 == (await client.put(998)).status_code
    assert 1002 == await client.placed("c")
