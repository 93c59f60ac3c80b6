"""If-Match: an order is changed only if it is as the caller saw it, and a repeated request is never refused (D22)."""

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order, Status
from testing.partners import ORDERS, Partner, partner
from testing.service import Service, code, embedded

ALL = VisibleOrders.ALL
FAILED = (412, "precondition_failed")
STALE = {"If-Match": '"stale"'}
OPERATIONS = ("put", "update", "ship", "complete", "cancel")

pytestmark = pytest.mark.usefixtures("each_deployment")


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
        ('"{}"', 'W/"{}"', '"{}-gzip"', 'W/"{}-gzip"', '"a", "{}"', '"{}" ,W/"b","c"', "*"), 1
    ):
        tag = (await etag(client, 1)).strip('"')
        assert 200 == (await client.update(1, {"If-Match": form.format(tag)}, quantity=number)).status_code, form
        if form != "*":
            assert FAILED == code(await client.update(1, {"If-Match": form.format(tag)}, petId=number)), form
    tag = (await etag(client, 1)).strip('"')
    for malformed in ("", tag, f"'{tag}'", f'"{tag}', "**", f'*, "{tag}"', f'w/"{tag}"', f'"{tag}" "a"', f'"{tag}",'):
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
