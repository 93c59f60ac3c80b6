"""Placing orders over HTTP: idempotency keys, concurrent duplicates, refusals, identifiers (D20)."""

import asyncio
from typing import Any
from urllib.parse import quote, urljoin

import httpx2
import pytest

from petstore_server.domain.accounts import Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import MAX_ASSIGNED_ID, Order
from petstore_server.domain.placements import KEY_LIFETIME
from testing.service import UNLIMITED, Service, bearer, code, embedded

ORDERS = "/v2/store/orders"
WRITER = DEFAULT_SCOPES | {Scope.ORDERS_WRITE}
ASKED = {"petId": 3, "quantity": 2}

pytestmark = pytest.mark.usefixtures("each_deployment")


class Buyer:
    """A client that places orders, with a key of its own."""

    def __init__(self, service: Service, key: str) -> None:
        self._service = service
        self.headers = bearer(key)

    async def place(self, idempotency_key: str, body: object = None, **headers: str) -> httpx2.Response:
        sent = {**self.headers, "Idempotency-Key": idempotency_key, **headers}
        return await self._service.client.post(ORDERS, json=body or ASKED, headers=sent)

    async def post(self, content: bytes, **headers: str) -> httpx2.Response:
        return await self._service.client.post(ORDERS, content=content, headers={**self.headers, **headers})

    async def listed(self, target: str = "/v1/store/orders") -> Any:
        return (await self._service.client.get(target, headers=self.headers)).json()


async def buyer(service: Service, account: str | None = None) -> Buyer:
    account = account or await service.account(Plan.ENTERPRISE, UNLIMITED)
    return Buyer(service, await service.key(account, scopes=WRITER))


async def test_a_placed_order_is_pending_has_the_next_identifier_and_shows_in_both_versions(service: Service) -> None:
    await service.orders(Order(7), Order(-3))
    client = await buyer(service)
    placed = await client.place("a", {**ASKED, "shipDate": "2027-01-01T01:00:00+01:00"})
    order = placed.json()
    assert (201, "orders/8") == (placed.status_code, placed.headers["location"])
    assert "idempotency-replayed" not in placed.headers
    expected = {"id": 8, "petId": 3, "quantity": 2, "shipDate": "2027-01-01T00:00:00Z", "status": "pending"}
    assert expected | dict.fromkeys(("createdAt", "updatedAt"), order["createdAt"]) == order
    assert order == await client.listed(f"{ORDERS}/8")
    assert [{"id": -3}, {"id": 7}, {k: v for k, v in expected.items() if k != "status"}] == await client.listed()
    assert [9, 10] == [(await client.place(key)).json()["id"] for key in ("b", "c")]


async def test_the_same_key_and_body_get_the_first_response_again(service: Service) -> None:
    account = await service.account(Plan.ENTERPRISE, UNLIMITED)
    client = await buyer(service, account)
    first = await client.place("a")
    await service.client.delete(urljoin(ORDERS, first.headers["location"]), headers=client.headers)
    other_key = await buyer(service, account)
    for again in (await client.place("a"), await other_key.place("a", {"quantity": 2, "petId": 3})):
        assert (201, "true") == (again.status_code, again.headers["idempotency-replayed"])
        assert (first.content, first.headers["location"]) == (again.content, again.headers["location"])
    assert 1 == len(await client.listed())


@embedded
async def test_the_same_key_with_another_body_is_refused_and_other_accounts_have_keys_of_their_own(
    service: Service,
) -> None:
    client, other = await buyer(service), await buyer(service)
    first = await client.place("a")
    for body in ({**ASKED, "petId": 2}, {**ASKED, "quantity": 3}, {**ASKED, "shipDate": "2027-01-01T00:00:00Z"}):
        assert (422, "idempotency_key_reused") == code(await client.place("a", body))
    theirs = await other.place("a", {"petId": 3, "quantity": 3})
    assert (201, first.json()["id"] + 1) == (theirs.status_code, theirs.json()["id"])
    assert 2 == len(await client.listed())


@embedded
async def test_a_key_in_quotes_is_the_key_without_them(service: Service) -> None:
    client = await buyer(service)
    first, quoted = await client.place("a"), await client.place('"a"')
    assert (first.content, "true") == (quoted.content, quoted.headers["idempotency-replayed"])
    others = [await client.place(key) for key in ('"', '""', '"a')]
    assert 4 == len({first.json()["id"], *(other.json()["id"] for other in others)})
    assert 201 == (await client.place(f'"{"a" * 255}"')).status_code


@embedded
async def test_a_key_is_free_again_after_a_refusal_and_after_a_day(service: Service) -> None:
    client = await buyer(service)
    assert (400, "invalid_body") == code(await client.place("a", {"petId": 3}))
    first = await client.place("a")
    assert 201 == first.status_code
    service.clock.now += KEY_LIFETIME - 1
    assert "true" == (await client.place("a")).headers["idempotency-replayed"]
    service.clock.now += 2
    later = await client.place("a", {"petId": 1, "quantity": 1})
    assert (201, first.json()["id"] + 1) == (later.status_code, later.json()["id"])
    assert "idempotency-replayed" not in later.headers


async def test_of_concurrent_requests_with_one_key_one_places_the_order(service: Service) -> None:
    client = await buyer(service)
    for number in range(3):
        responses = await asyncio.gather(*[client.place(f"key-{number}") for _ in range(12)])
        placed = [response for response in responses if response.status_code == 201]
        waiting = [response for response in responses if response.status_code != 201]
        assert 1 == sum("idempotency-replayed" not in response.headers for response in placed)
        assert 1 == len({response.content for response in placed})
        assert {(409, "idempotency_key_in_use")} >= {code(response) for response in waiting}
        assert all(response.headers["retry-after"] == "1" for response in waiting)
        assert number + 1 == len(await client.listed())


@embedded
async def test_where_no_identifier_is_left_the_response_says_so_and_not_to_retry(service: Service) -> None:
    await service.orders(Order(MAX_ASSIGNED_ID))
    client = await buyer(service)
    refused = await client.place("a")
    assert (500, "internal_error") == code(refused)
    assert "an imported order has one of the largest" in refused.json()["message"]
    assert "retry-after" not in refused.headers
    assert [{"id": MAX_ASSIGNED_ID}] == await client.listed()


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
    client = await buyer(service)
    reference = 'Größe "5"'
    asked = {**ASKED, "reference": reference, "shipDate": None}
    placed = await client.place("a", asked)
    assert (201, reference) == (placed.status_code, placed.json()["reference"])
    assert "shipDate" not in placed.json()
    assert placed.content == (await client.place("a", {**ASKED, "reference": reference})).content
    for body in (ASKED, {**ASKED, "reference": "other"}):
        assert (422, "idempotency_key_reused") == code(await client.place("a", body))
    await service.client.delete(f"{ORDERS}/10", headers=client.headers)
    order = await client.listed(f"{ORDERS}/10")
    assert ("cancelled", reference) == (order["status"], order["reference"])
    assert "reference" not in str(await client.listed())
    page = f"{ORDERS}?reference={quote(reference)}"
    assert [10] == [found["id"] for found in (await client.listed(page))["data"]]
    assert [7, 10] == [found["id"] for found in (await client.listed(f"{page}&reference=B%201"))["data"]]
    assert [] == (await client.listed(f"{ORDERS}?reference=b%201"))["data"]


async def test_a_reference_places_one_order_of_an_account_whatever_the_key_and_without_an_end_date(
    service: Service,
) -> None:
    await service.orders(Order(7, reference="PO-1"))  # of the shop
    client, other = await buyer(service), await buyer(service)
    asked = {**ASKED, "reference": "PO-1"}
    tried = await asyncio.gather(*[client.place(f"key-{number}", asked) for number in range(12)])
    [placed] = [response for response in tried if response.status_code == 201]
    service.clock.now += KEY_LIFETIME + 1
    refused = [response for response in tried if response is not placed]
    for response in (*refused, await client.place("key-0", {**asked, "quantity": 3})):
        assert (409, "reference_in_use") == code(response)
        assert placed.headers["location"] == response.headers["location"]
    first = urljoin(ORDERS, refused[0].headers["location"])
    assert placed.json() == await client.listed(first)
    await service.client.delete(first, headers=client.headers)
    assert (409, "reference_in_use") == code(await client.place("later", asked))
    assert 201 == (await other.place("a", asked)).status_code
    assert 3 == len(await client.listed())


@embedded
async def test_a_malformed_request_is_refused_and_places_nothing(service: Service) -> None:
    client = await buyer(service)
    for content, headers, expected in MALFORMED:
        assert expected == code(await client.post(content, **headers)), (content, headers)
        assert [] == await client.listed()
    assert 201 == (await client.place("a")).status_code
