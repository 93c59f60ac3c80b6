"""Placing orders over HTTP: idempotency keys, duplicates, refusals, identifiers, and servers that are killed (D20)."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urljoin

import httpx2
import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import MAX_ASSIGNED_ID, Order
from petstore_server.domain.placements import KEY_LIFETIME
from testing.deployment import Deployment
from testing.partners import LIST, ORDERS, Partner, partner
from testing.process import EVERY_SCOPE, UNLIMITED, Server, new_key, serving
from testing.service import Service, bearer, code, embedded

ALL = VisibleOrders.ALL
BUYER = DEFAULT_SCOPES | {Scope.ORDERS_WRITE}
ASKED = {"petId": 3, "quantity": 2}

pytestmark = pytest.mark.usefixtures("each_deployment")


async def place(client: Partner, key: str, **fields: object) -> httpx2.Response:
    """The response to an order of two of pet 3, unless fields say otherwise."""
    return await client.send("POST", ORDERS, json={**ASKED, **fields}, headers={"Idempotency-Key": key})


async def listed(client: Partner, path: str = LIST) -> Any:
    return (await client.get(path)).json()


async def test_a_placed_order_is_pending_has_the_next_identifier_and_shows_in_both_versions(service: Service) -> None:
    await service.orders(Order(7), Order(-3))
    client = await partner(service, ALL, BUYER)
    placed = await place(client, "a", shipDate="2027-01-01T01:00:00+01:00")
    order = placed.json()
    assert (201, "orders/8") == (placed.status_code, placed.headers["location"])
    assert "idempotency-replayed" not in placed.headers
    expected = {"id": 8, "petId": 3, "quantity": 2, "shipDate": "2027-01-01T00:00:00Z", "status": "pending"}
    assert expected | dict.fromkeys(("createdAt", "updatedAt"), order["createdAt"]) == order
    assert order == await listed(client, f"{ORDERS}/8")
    assert [{"id": -3}, {"id": 7}, {k: v for k, v in expected.items() if k != "status"}] == await listed(client)
    assert [9, 10] == [(await place(client, key)).json()["id"] for key in ("b", "c")]


async def test_the_same_key_and_body_get_the_first_response_again(service: Service) -> None:
    client = await partner(service, ALL, BUYER)
    first = await place(client, "a")
    await client.send("DELETE", urljoin(ORDERS, first.headers["location"]))
    other_key = replace(client, headers=bearer(await service.key(client.account, scopes=BUYER)))
    reordered = {"json": {"quantity": 2, "petId": 3}, "headers": {"Idempotency-Key": "a"}}
    for again in (await place(client, "a"), await other_key.send("POST", ORDERS, **reordered)):
        assert (201, "true") == (again.status_code, again.headers["idempotency-replayed"])
        assert (first.content, first.headers["location"]) == (again.content, again.headers["location"])
    assert 1 == len(await listed(client))


@embedded
async def test_the_same_key_with_another_body_is_refused_and_other_accounts_have_keys_of_their_own(
    service: Service,
) -> None:
    client, other = await partner(service, ALL, BUYER), await partner(service, ALL, BUYER)
    first = await place(client, "a")
    others: list[dict[str, object]] = [{"petId": 2}, {"quantity": 3}, {"shipDate": "2027-01-01T00:00:00Z"}]
    for fields in others:
        assert (422, "idempotency_key_reused") == code(await place(client, "a", **fields))
    theirs = await place(other, "a", quantity=3)
    assert (201, first.json()["id"] + 1) == (theirs.status_code, theirs.json()["id"])
    assert 2 == len(await listed(client))


@embedded
async def test_a_key_in_quotes_is_the_key_without_them(service: Service) -> None:
    client = await partner(service, ALL, BUYER)
    first, quoted = await place(client, "a"), await place(client, '"a"')
    assert (first.content, "true") == (quoted.content, quoted.headers["idempotency-replayed"])
    others = [await place(client, key) for key in ('"', '""', '"a')]
    assert 4 == len({first.json()["id"], *(other.json()["id"] for other in others)})
    assert 201 == (await place(client, f'"{"a" * 255}"')).status_code


@embedded
async def test_a_key_is_free_again_after_a_refusal_and_after_a_day(service: Service) -> None:
    client = await partner(service, ALL, BUYER)
    assert (400, "invalid_body") == code(await place(client, "a", quantity=0))
    first = await place(client, "a")
    assert 201 == first.status_code
    service.clock.now += KEY_LIFETIME - 1
    assert "true" == (await place(client, "a")).headers["idempotency-replayed"]
    service.clock.now += 2
    later = await place(client, "a", petId=1, quantity=1)
    assert (201, first.json()["id"] + 1) == (later.status_code, later.json()["id"])
    assert "idempotency-replayed" not in later.headers


async def test_of_concurrent_requests_with_one_key_one_places_the_order(service: Service) -> None:
    client = await partner(service, ALL, BUYER)
    for number in range(3):
        responses = await asyncio.gather(*[place(client, f"key-{number}") for _ in range(12)])
        placed = [response for response in responses if response.status_code == 201]
        waiting = [response for response in responses if response.status_code != 201]
        assert 1 == sum("idempotency-replayed" not in response.headers for response in placed)
        assert 1 == len({response.content for response in placed})
        assert {(409, "idempotency_key_in_use")} >= {code(response) for response in waiting}
        assert all(response.headers["retry-after"] == "1" for response in waiting)
        assert number + 1 == len(await listed(client))


@embedded
async def test_where_no_identifier_is_left_the_response_says_so_and_not_to_retry(service: Service) -> None:
    await service.orders(Order(MAX_ASSIGNED_ID))
    client = await partner(service, ALL, BUYER)
    refused = await place(client, "a")
    assert (500, "internal_error") == code(refused)
    assert "an imported order has one of the largest" in refused.json()["message"]
    assert "retry-after" not in refused.headers
    assert [{"id": MAX_ASSIGNED_ID}] == await listed(client)


JSON = {"Content-Type": "application/json"}
MALFORMED: list[tuple[bytes, dict[str, str], tuple[int, str]]] = [
    (b'{"petId":3,"quantity":1}', JSON, (400, "idempotency_key_missing")),
    (b'{"petId":3,"quantity":1}', {"Idempotency-Key": "a"}, (415, "unsupported_media_type")),
    (b"petId=3", {"Content-Type": "text/plain", "Idempotency-Key": "a"}, (415, "unsupported_media_type")),
    (b"{}", {**JSON, "Idempotency-Key": "a b"}, (400, "invalid_parameter")),
    (b"{}", {**JSON, "Idempotency-Key": "a"}, (400, "invalid_body")),
    (b" " * 65_537, {**JSON, "Idempotency-Key": "a"}, (413, "payload_too_large")),
]


async def test_a_reference_is_stored_shown_in_version_2_only_and_finds_its_order(service: Service) -> None:
    await service.orders(Order(7, reference="B 1"), Order(9))
    client = await partner(service, ALL, BUYER)
    reference = 'Größe "5"'
    placed = await place(client, "a", reference=reference, shipDate=None)
    assert (201, reference) == (placed.status_code, placed.json()["reference"])
    assert "shipDate" not in placed.json()
    assert placed.content == (await place(client, "a", reference=reference)).content
    for other in (None, "other"):
        assert (422, "idempotency_key_reused") == code(await place(client, "a", reference=other))
    await client.send("DELETE", f"{ORDERS}/10")
    order = await listed(client, f"{ORDERS}/10")
    assert ("cancelled", reference) == (order["status"], order["reference"])
    assert "reference" not in str(await listed(client))
    page = f"{ORDERS}?reference={quote(reference)}"
    assert [10] == [found["id"] for found in (await listed(client, page))["data"]]
    assert [7, 10] == [found["id"] for found in (await listed(client, f"{page}&reference=B%201"))["data"]]
    assert [] == (await listed(client, f"{ORDERS}?reference=b%201"))["data"]


async def test_a_reference_places_one_order_of_an_account_whatever_the_key_and_without_an_end_date(
    service: Service,
) -> None:
    await service.orders(Order(7, reference="PO-1"))  # of the shop
    client, other = await partner(service, ALL, BUYER), await partner(service, ALL, BUYER)
    tried = await asyncio.gather(*[place(client, f"key-{number}", reference="PO-1") for number in range(12)])
    [placed] = [response for response in tried if response.status_code == 201]
    service.clock.now += KEY_LIFETIME + 1
    refused = [response for response in tried if response is not placed]
    for response in (*refused, await place(client, "key-0", reference="PO-1", quantity=3)):
        assert (409, "reference_in_use") == code(response)
        assert placed.headers["location"] == response.headers["location"]
    first = urljoin(ORDERS, refused[0].headers["location"])
    assert placed.json() == await listed(client, first)
    await client.send("DELETE", first)
    assert (409, "reference_in_use") == code(await place(client, "later", reference="PO-1"))
    assert 201 == (await place(other, "a", reference="PO-1")).status_code
    assert 3 == len(await listed(client))


@embedded
async def test_a_malformed_request_is_refused_and_places_nothing(service: Service) -> None:
    client = await partner(service, ALL, BUYER)
    for content, headers, expected in MALFORMED:
        assert expected == code(await client.send("POST", ORDERS, content=content, headers=headers)), (content, headers)
        assert [] == await listed(client)
    assert 201 == (await place(client, "a")).status_code


# While the server is killed


THREADS = 8
PLACED = 40


@contextmanager
def threads(server: Server, key: str) -> Iterator[tuple[ThreadPoolExecutor, httpx2.Client]]:
    with server.client(key) as client, ThreadPoolExecutor(THREADS) as pool:
        yield pool, client


def try_to_place(client: httpx2.Client, number: int) -> tuple[int, httpx2.Response | None]:
    """The response to the order with this number; None if the connection was lost."""
    body = {"petId": number, "quantity": 1}
    try:
        return number, client.post(ORDERS, json=body, headers={"Idempotency-Key": f"order-{number}"})
    except httpx2.TransportError:
        return number, None


def test_an_order_is_placed_once_however_often_the_server_is_killed(each_deployment: Deployment) -> None:
    store = each_deployment
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    acknowledged: dict[int, bytes] = {}
    for _ in range(2):
        with serving(store) as server, threads(server, key) as (pool, client):
            responses = [pool.submit(try_to_place, client, number) for number in range(PLACED)]
            for done, (number, response) in enumerate(future.result() for future in as_completed(responses)):
                if response is not None and response.status_code == 201:
                    assert acknowledged.setdefault(number, response.content) == response.content
                if done == PLACED // 4:
                    server.kill()
    assert acknowledged
    with serving(store) as server, threads(server, key) as (pool, client):
        for number, response in pool.map(lambda number: try_to_place(client, number), range(PLACED)):
            assert response is not None
            assert 201 == response.status_code
            assert acknowledged.setdefault(number, response.content) == response.content
        page = client.get(f"{ORDERS}?limit=1000").json()
    assert "nextCursor" not in page
    assert Counter(range(PLACED)) == Counter(order["petId"] for order in page["data"])
    assert PLACED == len({order["id"] for order in page["data"]})
