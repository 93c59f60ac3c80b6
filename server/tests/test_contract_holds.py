"""The code held to the contract: its routes, codes and scopes, and whatever schemathesis thinks of asking (D18)."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

from petstore_server.domain.errors import DomainError
from petstore_server.http.contract import load_contract
from petstore_server.http.errors import STATUS
from petstore_server.http.routes import Route
from petstore_server.settings import read_settings
from support.process import UNLIMITED, Server, new_key, petstore, serving
from support.service import running

CONTRACT = load_contract(read_settings({}))
NUMBERS = itertools.count(1)
CASES = 200
"""Generated requests for each operation and phase."""


def all_errors(error: type[DomainError] = DomainError) -> Iterator[type[DomainError]]:
    yield error
    for kind in error.__subclasses__():
        yield from all_errors(kind)


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Route]:
    async def read() -> list[Route]:
        async with running(tmp_path_factory.mktemp("routes")) as service:
            return list(service.application.routes.all)

    return asyncio.run(read())


def test_the_routes_are_the_contracts_paths_and_methods(routes: list[Route]) -> None:
    documented = {
        ("/v1" + path, method.upper(), operation["operationId"])
        for path, item in CONTRACT["paths"].items()
        for method, operation in item.items()
        if isinstance(operation, dict) and "operationId" in operation
    }
    served = {
        (route.template, method, operation.id)
        for route in routes
        for method, operation in route.operations.items()
        if method != "HEAD"  # is described with GET
    }
    assert documented == served


def test_the_codes_are_the_contracts_enum() -> None:
    documented = set(CONTRACT["components"]["schemas"]["Error"]["properties"]["code"]["enum"])
    assert documented == {error.code for error in STATUS}


def test_an_error_with_a_documented_code_has_its_status_in_the_table() -> None:
    documented = {error.code for error in STATUS}
    lost = {error for error in all_errors() if error.code in documented and error not in STATUS}
    abstract = {"DomainError", "NotFound", "OrderConflict"}  # these are raised by nobody
    assert abstract == {error.__name__ for error in lost}


def test_the_scopes_are_the_contracts(routes: list[Route]) -> None:
    documented = {
        operation["operationId"]: operation["security"][0]["bearerAuth"]
        for item in CONTRACT["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict) and "operationId" in operation
    }
    served = {operation.id: [operation.scope] for route in routes for operation in route.operations.values()}
    assert documented == served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    store = tmp_path_factory.mktemp("fuzzed") / "store.db"
    lines = "".join(f'{{"id":{number},"quantity":{number}}}\n' for number in range(-50, 200))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    key, _ = new_key(store, plan=UNLIMITED)
    # Each case comes from an address of its own: those without a key would else use up the one they share.
    with serving(store, PETSTORE_TRUSTED_PROXIES="127.0.0.1") as server:
        yield server, key
        assert "request failed" not in server.log.read_text()


schema: Any = schemathesis.openapi.from_dict(CONTRACT)


@schema.parametrize()  # type: ignore[untyped-decorator]  # the library does not type its loaders
@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_schemathesis_finds_no_departure(case: Any, served: tuple[Server, str]) -> None:
    server, key = served
    number = next(NUMBERS)
    headers = {
        "Authorization": f"Bearer {key}",
        "X-Forwarded-For": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
    }
    case.call_and_validate(base_url=f"{server.api}/v1", headers=headers, checks=list(CHECKS.get_all()))
