"""The examples of the contracts work: a tool that sends what it finds there is not refused for its form."""

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from petstore_server.api.contracts import load_contract
from petstore_server.domain.accounts import Plan
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order
from petstore_server.settings import read_settings
from testing.contract import resolved
from testing.service import UNLIMITED, Service, bearer, embedded

pytestmark = [
    pytest.mark.usefixtures("each_deployment"),
    embedded,
    pytest.mark.settings(PETSTORE_WEBHOOK_SECRET="s" * 32),
]

CONTRACTS = {version: load_contract(read_settings({}), version) for version in ("v1", "v2")}
NUMBERS = itertools.count(1)
WITHOUT = {"cursor", "from", "Idempotency-Key"}
"""Parameters for which no value works that is written down: one from a response, a time not long ago, a new text."""

Node = dict[str, Any]


def requests_of(operation: Node, contract: Node) -> Iterator[tuple[list[Node], Any]]:
    """The parameters and the body of a request for each example: with the required parameters, and with one more."""
    parameters = [resolved(each, contract) for each in operation.get("parameters", [])]
    required = [each for each in parameters if each.get("required")]
    contents = resolved(operation.get("requestBody", {}), contract).get("content", {})
    bodies = [resolved(each, contract)["value"] for kind in contents.values() for each in kind["examples"].values()]
    optional = [each for each in parameters if "example" in each and not each.get("required")]
    for body in bodies or [None]:
        yield required, body
        for each in optional:
            yield [*required, each], body


def target(template: str, parameters: list[Node]) -> tuple[str, dict[str, str]]:
    """The path with the query, and the headers. A key without an example gets a new text."""
    path, query, headers = template, list[tuple[str, str]](), dict[str, str]()
    for each in parameters:
        given = each.get("example", f"example-{next(NUMBERS)}")
        values = [str(value) if isinstance(value, str) else json.dumps(value) for value in _several(given)]
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(values[0]))
        elif each["in"] == "query":
            query += [(each["name"], value) for value in values]
        else:
            headers[each["name"]] = values[0]
    return f"{path}?{urlencode(query)}" if query else path, headers


def _several(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


@pytest.mark.parametrize("version", CONTRACTS)
async def test_a_request_made_of_examples_is_not_refused(service: Service, version: str) -> None:
    contract = CONTRACTS[version]
    await service.orders(Order(7, 7, 1), Order(8))
    await service.backend.store.accounts.create("acme", Plan.ENTERPRISE, UNLIMITED, service.actor)  # as in examples
    key = await service.key("acme", scopes=frozenset(Scope))
    sent = 0
    for path, item in contract["paths"].items():
        for method, operation in item.items():
            for parameters, body in requests_of(operation, contract):
                address, more = target(f"/{version}{path}", parameters)
                response = await service.client.request(method.upper(), address, headers=bearer(key, **more), json=body)
                assert response.status_code not in (400, 413, 414, 415, 422, 500), (address, response.text)
                sent += 1
    assert sent > len(contract["paths"])


@pytest.mark.parametrize("version", CONTRACTS)
async def test_every_parameter_for_which_a_value_works_has_an_example(version: str) -> None:
    parameters = CONTRACTS[version]["components"]["parameters"].values()
    names = {each["name"] for each in parameters}
    assert names & WITHOUT == {each["name"] for each in parameters if "example" not in each}
