"""The names of response headers are those of the documents, with their capitals: shell examples depend on them."""

import re
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


@embedded
async def test_http_1_0_keeps_its_connection_by_a_header_of_the_same_form(service: Service) -> None:
    request = wire.head("GET", "/healthz", "Connection: keep-alive", version="1.0")
    head = await head_of(service, request + wire.head("GET", "/healthz", "Connection: close"))
    assert "\r\nConnection: keep-alive" in head
