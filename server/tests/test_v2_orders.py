"""Version 2 over HTTP: pages, single orders and cancelling (D20).

Every exchange is held to the contract by the client itself; the tests state what the contract cannot.
"""

import re
from urllib.parse import quote

import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import CANCEL, MAX_REFERENCE, Order, Status
from petstore_server.server.messages import MAX_TARGET
from testing.nginx_front import SHIPPED
from testing.partners import ORDERS, partner
from testing.service import Service, code, embedded

ALL = VisibleOrders.ALL

pytestmark = pytest.mark.usefixtures("each_deployment")

SAMPLE = (
    Order(1, 10, 1, "2026-11-01T10:00:00Z", False, Status.PENDING),
    Order(2, 20, 2, None, None, Status.PENDING),
    Order(3, 10, 3, "2026-12-01T10:00:00.000001Z", True, Status.SHIPPED),
    Order(4, None, None, None, None, Status.CANCELLED),
    Order(5, 10, 5, "2026-12-01T10:00:00Z", None, Status.CANCELLED),
    Order(-(2**63)),
)


async def test_orders_are_found_by_their_references(service: Service) -> None:
    await service.orders(Order(1, reference="A"), Order(2, reference="B"), Order(3))
    client = await partner(service, ALL)
    assert [1, 2] == await client.ids("reference=A&reference=B")
    assert [] == await client.ids("reference=C")
    await service.orders(Order(4, reference="\u2764\ufe0f"))  # of 1.0.0; no new order gets one that is not visible
    assert [4] == await client.ids("reference=%E2%9D%A4%EF%B8%8F")
    assert [] == await client.ids("reference=%E2%9D%A4")
    encoded = f"{ORDERS}?reference=A&reference=B&reference=%3C%22%3E%5B%25%5D&limit=1"
    sent = {"target": encoded.replace("%3C%22%3E%5B%25%5D", '<">[%]').encode()}  # the client itself would encode it
    assert "next" in (await service.client.get(encoded, headers=client.headers, extensions=sent)).links


@embedded
@pytest.mark.parametrize("character", ["{", "<"])
async def test_the_largest_head_of_a_response_is_one_that_the_shipped_nginx_accepts(
    character: str, service: Service
) -> None:
    reference = character * MAX_REFERENCE
    await service.orders(*(Order(number, reference=reference) for number in (1, 2)))
    client = await partner(service, ALL)
    filters = f"&reference={reference}" * ((MAX_TARGET - 50) // (MAX_REFERENCE + 11))
    encoded = f"{ORDERS}?limit=1{filters.replace(character, quote(character))}"
    sent = {"target": f"{ORDERS}?limit=1{filters}".encode()}  # the client itself would encode it
    headers = {**client.headers, "X-Request-Id": "i" * 128, "Accept-Encoding": "gzip"}
    response = await service.client.get(encoded, headers=headers, extensions=sent)
    assert 200 == response.status_code
    head = sum(len(name) + len(value) + 4 for name, value in response.headers.raw) + len("HTTP/1.1 200 OK\r\n\r\n")
    [size] = re.findall(r"proxy_buffer_size +(\d+)k;", SHIPPED.read_text())
    assert 2.5 * MAX_TARGET < len(response.headers["link"]) < 3 * MAX_TARGET
    assert head - len(response.headers["link"]) + 3 * MAX_TARGET < int(size) * 1024


async def test_an_order_has_its_record_status_and_timestamps(service: Service) -> None:
    await service.orders(*SAMPLE)
    client = await partner(service, ALL)
    (page,) = [page async for page in client.pages()]
    for shown, order in zip(page["data"], sorted(SAMPLE), strict=True):
        times = dict.fromkeys(("createdAt", "updatedAt"), shown["createdAt"])
        assert order.fields() | times == shown
        assert shown == (await client.get(f"{ORDERS}/{order.id}")).json()
    for text, expected in (("99", "order_not_found"), ("007", "invalid_order_id"), ("%201", "invalid_order_id")):
        assert (404, expected) == code(await client.get(f"{ORDERS}/{text}"))


async def test_a_page_is_answered_304_until_it_changes_and_head_has_its_headers(service: Service) -> None:
    await service.orders(*SAMPLE)
    client = await partner(service, ALL)
    for target in (f"{ORDERS}?limit=2", f"{ORDERS}/1"):
        first = await client.get(target)
        etag = first.headers["etag"]
        again = await client.send("GET", target, headers={"If-None-Match": etag})
        assert 304 == again.status_code
        assert (etag, first.headers.get("link")) == (again.headers["etag"], again.headers.get("link"))
        head = await client.send("HEAD", target)
        described = ("etag", "link", "content-length", "content-type", "cache-control", "vary")
        assert [first.headers.get(name) for name in described] == [head.headers.get(name) for name in described]
        assert 304 == (await client.send("HEAD", target, headers={"If-None-Match": f'"x", W/{etag}'})).status_code
    await service.backend.store.orders.change(1, CANCEL, service.actor)
    assert 200 == (await client.send("GET", f"{ORDERS}/1", headers={"If-None-Match": etag})).status_code


@embedded
async def test_a_page_is_compressed_on_request(service: Service) -> None:
    await service.orders(*(Order(number) for number in range(100)))
    client = await partner(service, ALL)
    page = await client.send("GET", ORDERS, headers={"Accept-Encoding": "gzip"})
    assert "gzip" == page.headers["content-encoding"]
    assert [*range(100)] == [order["id"] for order in page.json()["data"]]


async def test_a_change_through_either_version_shows_in_both_at_once(service: Service) -> None:
    await service.orders(Order(1), Order(2))
    client = await partner(service, ALL)
    assert 204 == (await client.send("DELETE", f"{ORDERS}/1")).status_code
    assert 204 == (await client.send("DELETE", "/v1/store/orders/2")).status_code
    assert [] == await client.ids("status=pending")
    assert [1, 2] == await client.ids("status=cancelled&sort=updatedAt")
    for version in ("v1", "v2"):
        refused = await client.send("DELETE", f"/{version}/store/orders/1")
        assert (409, "order_already_cancelled") == code(refused)


@embedded
async def test_the_key_the_path_and_the_scope_are_checked_before_the_parameters(service: Service) -> None:
    await service.orders(*SAMPLE)
    client = await partner(service, ALL, frozenset({Scope.PETS_READ}))
    for target in (f"{ORDERS}?x=1", f"{ORDERS}/1?x=1", "/v2/usage?x=1", "/v2/nothing?x=1"):
        assert (401, "missing_api_key") == code(await service.client.get(target))
    assert (403, "insufficient_scope") == code(await client.get(f"{ORDERS}?x=1"))
    assert (403, "insufficient_scope") == code(await client.get(f"{ORDERS}/abc?x=1"))
    assert (403, "insufficient_scope") == code(await client.send("POST", ORDERS))
    assert 200 == (await client.get("/v2/usage")).status_code
    for target in ("/v2", "/v2/", "/v2/orders", "/v2/store/orders/", "/v2/store/orders/1/", "/v2/pets/1"):
        missing = await client.get(target)
        assert (404, "not_found") == code(missing)
        assert "/openapi-v2.json" in missing.json()["message"]
    reader = await partner(service, ALL)
    assert (404, "invalid_order_id") == code(await reader.get(f"{ORDERS}/abc?x=1"))
    for target in (f"{ORDERS}/1?status=pending", f"{ORDERS}?limit=0", "/v2/usage?granularity=week"):
        assert (400, "invalid_parameter") == code(await reader.get(target))
    assert (405, "method_not_allowed") == code(await reader.send("PUT", ORDERS))
    assert (405, "method_not_allowed") == code(await reader.send("OPTIONS", "/v2/usage"))
