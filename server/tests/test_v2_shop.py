"""The shop's own systems over HTTP: what each operation leads to, what it leaves in the log, and If-Match (D22)."""

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.keys import Scope
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
    b"[]",
    b'{"petId":1,"petId":2}',
    b'{"petId":"1"}',
    b'{"complete":"true"}',
    b'{"reference":"\\ud800"}',
    b'{"id":8}',
)
MALFORMED_PUTS = (
    *MALFORMED_ORDERS,
    b'{"status":"gone"}',
    b'{"account":1}',
    b'{"account":"missing"}',
    b'{"account":"\\u0000"}',
    b'{"account":"' + b"a" * 1_000 + b'"}',
)
MALFORMED_UPDATES = (*MALFORMED_ORDERS, b'{"status":"shipped"}', b'{"account":"zoo"}')
MALFORMED_SHIPMENTS = (b"[]", b"nul", b'{"shipDate":"today"}', b'{"petId":1}')

pytestmark = pytest.mark.usefixtures("each_deployment")


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
    client = await partner(service, ALL)
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


async def test_an_account_with_own_orders_puts_its_own_only(service: Service) -> None:
    own, other, client = await partner(service), await partner(service), await partner(service, ALL)
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
    client = await partner(service, ALL)
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
    client = await partner(service, ALL)
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
        refused = await client.send(method, path, content=b"{}", headers={"Content-Type": "text/plain"})
        assert (415, "unsupported_media_type") == code(refused)
    for method, path in (("PUT", ""), ("PATCH", ""), ("POST", "/ship"), ("POST", "/complete"), ("DELETE", "")):
        assert (404, "invalid_order_id") == code(await client.send(method, f"{ORDERS}/01{path}", json={}))
        assert (400, "invalid_parameter") == code(await client.send(method, f"{ORDERS}/1{path}?wait=1", json={}))
    merge_patch = {"Content-Type": "application/merge-patch+json"}
    assert 415 == (await client.send("PUT", f"{ORDERS}/1", content=b"{}", headers=merge_patch)).status_code
    for order_id in (1, 2, 3, 4):
        assert [] == await entries(service, order_id)


@embedded
async def test_an_order_ships_now_unless_the_body_has_a_date(service: Service) -> None:
    client = await partner(service, ALL)
    null = {"content": b" null\n", "headers": {"Content-Type": "application/json"}}
    empty: list[dict[str, Any]] = [{}, {"json": {}}, {"json": {"shipDate": None}}, {"content": b""}, null]
    for order_id, options in enumerate(empty, 1):
        await client.put(order_id)
        shipped = await client.send("POST", f"{ORDERS}/{order_id}/ship", **options)
        assert "2026-10-26T07:33:20Z" == shipped.json()["shipDate"]


# If-Match: an order is changed only if it is as the caller saw it, and a repeated request is never refused

FAILED = (412, "precondition_failed")
STALE = {"If-Match": '"stale"'}
OPERATIONS = ("put", "update", "ship", "complete", "cancel")


async def change(client: Partner, operation: str, order_id: int, headers: Mapping[str, str]) -> httpx2.Response:
    """One of the five, as a real change of an order that each allows."""
    match operation:
        case "put":
            return await client.put(order_id, headers, petId=2)
        case "update":
            return await client.update(order_id, headers, petId=2)
        case "ship":
            return await client.ship(order_id, headers, shipDate="2026-11-01T10:00:00Z")
        case "complete":
            return await client.complete(order_id, headers)
    return await client.cancel(order_id, headers)


async def batched(client: Partner, operation: str, order_id: int, if_match: str) -> tuple[int, str]:
    """The status and the code of the same in a batch."""
    more: dict[str, Any] = {"put": {"order": {"petId": 2}}, "update": {"changes": {"petId": 2}}}.get(operation, {})
    [result] = await client.results({"operation": operation, "orderId": order_id, "ifMatch": if_match, **more})
    return result["status"], result.get("code", "")


def new_order(operation: str, number: int) -> Order:
    """An order that the operation can change."""
    return Order(number, 1, status=Status.SHIPPED if operation == "complete" else Status.PENDING)


async def etag(client: Partner, order_id: int) -> str:
    return str((await client.get(f"{ORDERS}/{order_id}")).headers["etag"])


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_change_is_made_only_to_what_the_caller_saw(service: Service, operation: str) -> None:
    client = await partner(service, ALL)
    await service.orders(*(new_order(operation, number) for number in (1, 2, 3)))
    tag = await etag(client, 1)
    for order_id in (1, 2, 99):
        other = await etag(client, 3)
        assert FAILED == code(await change(client, operation, order_id, {"If-Match": other}))
        assert FAILED == await batched(client, operation, order_id, other)
    assert tag == await etag(client, 1)
    assert (await change(client, operation, 1, {"If-Match": tag})).is_success
    assert tag != await etag(client, 1)
    status, _ = await batched(client, operation, 2, await etag(client, 2))
    assert status < 300


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_request_that_is_repeated_after_a_lost_response_is_never_a_412(
    service: Service, operation: str
) -> None:
    client = await partner(service, ALL)
    await service.orders(new_order(operation, 1))
    if_match = {"If-Match": await etag(client, 1)}
    first = await change(client, operation, 1, if_match)
    again = await change(client, operation, 1, if_match)
    codes = {"ship": "order_already_shipped", "complete": "order_already_complete", "cancel": "order_already_cancelled"}
    if operation in codes:
        assert (409, codes[operation]) == code(again) == await batched(client, operation, 1, if_match["If-Match"])
    else:
        assert (200, first.content, first.headers["etag"]) == (again.status_code, again.content, again.headers["etag"])
        assert (200, "") == await batched(client, operation, 1, if_match["If-Match"])


@embedded
async def test_an_etag_is_compared_by_its_opaque_part(service: Service) -> None:
    client = await partner(service, ALL)
    await client.put(1)
    for number, form in enumerate(
        ('"{}"', 'W/"{}"', '"{}-gzip"', 'W/"{}-gzip"', '"a", "{}"', '"{}" ,W/"b","c"', '"{}",', ',"a", ,"{}" ,', "*"), 1
    ):
        tag = (await etag(client, 1)).strip('"')
        assert 200 == (await client.update(1, {"If-Match": form.format(tag)}, quantity=number)).status_code, form
        if form != "*":
            assert FAILED == code(await client.update(1, {"If-Match": form.format(tag)}, petId=number)), form
    tag = (await etag(client, 1)).strip('"')
    for malformed in ("", tag, f"'{tag}'", f'"{tag}', "**", f'*, "{tag}"', f'w/"{tag}"', f'"{tag}" "a"', ",", " , ,"):
        refused = await client.update(1, {"If-Match": malformed}, petId=5)
        assert (400, "invalid_parameter") == code(refused), malformed
        assert "an ETag of getOrder in quotes, or *" in refused.json()["message"]
        [result] = await client.results({"operation": "ship", "orderId": 1, "ifMatch": malformed})
        assert (400, "invalid_body") == (result["status"], result["code"])
    for other in ('""', f'"{tag}-br"', f'"-gzip{tag}"', f'"{tag.upper()}"'):
        assert FAILED == code(await client.update(1, {"If-Match": other}, petId=5)), other
    headers = httpx2.Headers([("If-Match", '"a"'), ("If-Match", f'"{tag}"'), *client.headers.items()])
    response = await service.client.request("PATCH", f"{ORDERS}/1", json={"petId": 9}, headers=headers)
    assert 200 == response.status_code  # the lines of one header are one list


async def test_the_etag_is_that_of_what_the_caller_sees(service: Service) -> None:
    buyer, client = await partner(service), await partner(service, ALL)
    reader = await partner(service, ALL, frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL}))
    for key, caller in {"a": client, "b": reader, "c": buyer}.items():
        number = await buyer.placed(key)
        tags = {each.account: await etag(each, number) for each in (buyer, client, reader)}
        assert tags[buyer.account] == tags[reader.account] != tags[client.account]
        for tag in {*tags.values()} - {tags[caller.account]}:
            assert FAILED == code(await caller.cancel(number, {"If-Match": tag}))
        assert 204 == (await caller.cancel(number, {"If-Match": tags[caller.account]})).status_code


@embedded
async def test_version_1_ignores_the_precondition(service: Service) -> None:
    client = await partner(service, ALL)
    await client.put(1)
    assert 204 == (await client.send("DELETE", "/v1/store/orders/1", headers=STALE)).status_code
