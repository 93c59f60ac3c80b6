"""X-Request-Id: which ids of clients are used and recorded; the names of all headers, with their capitals."""

import re
from itertools import pairwise
from typing import Any

import pytest

from petstore_server.api.contracts import CONTRACTS, load_contract
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order
from petstore_server.settings import read_settings
from testing import wire
from testing.service import Service, embedded

pytestmark = pytest.mark.usefixtures("each_deployment")

V1, V2 = "/v1/store/orders", "/v2/store/orders"


async def recorded(service: Service, action: str) -> list[tuple[str, str | None]]:
    """The subject and the request id of each change with this action."""
    entries = [entry async for entry in service.backend.store.audit.entries()]
    return [(entry.subject, entry.request_id) for entry in entries if entry.action == action]


@embedded
async def test_the_ids_do_not_show_how_many_requests_others_make(service: Service) -> None:
    responses = [await service.client.get(V1) for _ in range(1000)]
    ids = [response.headers["x-request-id"].removeprefix("rrrrrr-") for response in responses]
    time = f"{int(service.clock.now * 1_000_000):x}"
    assert ({time}, 1000) == ({text[:-12] for text in ids}, len({*ids}))
    numbers = [int(text[-12:], 16) for text in ids]
    ascending = sum(one < next_one for one, next_one in pairwise(numbers))
    assert 350 < ascending < 650  # the standard deviation of random ones is 9


@embedded
async def test_the_ids_ascend_with_the_time(service: Service) -> None:
    """The audit log has an index of them: random ones would touch a page of it for each change."""
    ids = []
    for _ in range(20):
        ids.append((await service.client.get(V1)).headers["x-request-id"])
        service.clock.now += 0.001
    assert sorted(ids) == ids


UNUSABLE = [
    "a" * 129,
    "two words",
    "tab\there",
    "caf\xe9",
    "pso_live_" + "a" * 33,
    "x-pso_test_abc",
    "pso%255FLive-a-b",
]


@embedded
async def test_the_longest_request_id_is_used_and_an_unusable_one_is_replaced_everywhere(service: Service) -> None:
    given = ["~" * 128, *UNUSABLE, ""]
    await service.orders(*map(Order, range(len(given))))
    key = await service.key()
    expected = []
    for number, request_id in enumerate(given):
        headers = [(b"Authorization", f"Bearer {key}".encode()), (b"X-Request-Id", request_id.encode("latin-1"))]
        response = await service.client.delete(f"{V1}/{number}", headers=headers)
        used = response.headers["x-request-id"]
        assert (204, number == 0, True) == (response.status_code, used == request_id, used.isascii())
        expected.append((f"order:{number}", used))
    assert expected == await recorded(service, "order.cancel")


HTTPS_OWN = {"Date", "Connection", "Content-Type", "Content-Length", "Content-Security-Policy", "Referrer-Policy"} | {
    "X-Content-Type-Options"
}
JSON_ORDER = b'{"petId":1,"quantity":1}'


def documented() -> set[str]:
    """Every name of a response header in the contracts."""

    def names(part: Any) -> set[str]:
        if isinstance(part, list):
            return set().union(*map(names, part))
        if not isinstance(part, dict):
            return set()
        headers = part.get("headers")
        own = set(headers) if isinstance(headers, dict) else set()
        return own.union(*map(names, part.values()))

    contracts = [load_contract(read_settings({}), version) for version in CONTRACTS]
    for contract in contracts:
        del contract["components"]["headers"]  # which have other names, under which responses refer to them
    return names(contracts)


async def head_of(service: Service, request: bytes) -> str:
    """The head of the response to a request, as it was sent."""
    received = await wire.send(service.transport.port, request)
    return received.partition(b"\r\n\r\n")[0].decode()


@embedded
async def test_every_header_has_the_name_that_the_documents_write(service: Service) -> None:
    await service.orders(*[Order(number) for number in range(1, 200)])
    key = await service.key(await service.account(Plan.BUSINESS), scopes=frozenset(Scope))
    few = await service.key(await service.account(Plan.ENTERPRISE, Limits(1, 1)))
    gzip, closing = "Accept-Encoding: gzip", "Connection: close"
    placing = ("Idempotency-Key: one", "Content-Type: application/json", f"Content-Length: {len(JSON_ORDER)}", closing)
    requests = [
        wire.head("GET", "/v1/store/orders", gzip, closing, key=key),
        wire.head("GET", "/v1/store/orders", "If-None-Match: *", closing, key=key),
        wire.head("GET", "/v1/pets/1", closing, key=key),
        wire.head("DELETE", "/v1/store/orders/1", closing, key=key),
        wire.head("PUT", "/v1/store/orders", closing, key=key),
        wire.head("GET", "/v1/store/orders", closing),
        wire.head("GET", "/v1/store/orders", closing, key=f"{key}x"),
        *[wire.head("GET", "/v1/store/orders", closing, key=few)] * 2,
        wire.head("GET", "/v2/store/orders?limit=2", gzip, closing, key=key),
        *[wire.head("POST", "/v2/store/orders", *placing, key=key) + JSON_ORDER] * 2,
        wire.head("GET", "/v2/usage", closing, key=key),
        wire.head("GET", "/docs", gzip, closing),
        wire.head("GET", "/docs/", closing),
        wire.head("GET", "/healthz", closing),
        b"GARBAGE\r\n\r\n",
    ]
    heads = [await head_of(service, request) for request in requests]
    names = {name for head in heads for name in re.findall(r"^([^\s:]+): ", head, re.MULTILINE)}
    assert set() == names - documented() - HTTPS_OWN
    # What the documents write and no response above has: Sunset and its like are of the deprecated operation.
    assert set() == documented() - names
