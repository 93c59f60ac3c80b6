"""The contracts stay compatible with what was published, and the check for that finds each kind of breaking change.

`baselines/` holds each contract as it was published last (see CONTRIBUTING.md).
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from testing.compatibility import breaking_changes
from testing.documents import read_yaml

SHIPPED = Path(__file__).parents[1] / "src" / "petstore_server" / "api"
BASELINES = Path(__file__).parent / "baselines"
FILES = {"openapi.yaml": "openapi-v1.yaml", "openapi-v2.yaml": "openapi-v2.yaml"}


V1 = read_yaml(BASELINES / "openapi-v1.yaml")
V2 = read_yaml(BASELINES / "openapi-v2.yaml")


@pytest.mark.parametrize("name", FILES)
def test_the_shipped_contract_breaks_nothing_that_was_published(name: str) -> None:
    assert [] == breaking_changes(read_yaml(BASELINES / FILES[name]), read_yaml(SHIPPED / name))


def listing(contract: dict[str, Any]) -> Any:
    return contract["paths"]["/store/orders"]["get"]


def placing_body(contract: dict[str, Any]) -> Any:
    return contract["paths"]["/store/orders"]["post"]["requestBody"]


def scheme(contract: dict[str, Any]) -> Any:
    return contract["components"]["securitySchemes"]["bearerAuth"]


def schema(contract: dict[str, Any], name: str) -> Any:
    return contract["components"]["schemas"][name]


def parameter(contract: dict[str, Any], name: str) -> Any:
    return contract["components"]["parameters"][name]


def codes(contract: dict[str, Any], name: str) -> Any:
    """The codes of an error, a list to change."""
    described = schema(contract, name)["properties"]["code"]
    if "$ref" in described:
        described = schema(contract, described["$ref"].rpartition("/")[2])
    return described.get("enum", described.get("x-extensible-enum"))


def _set(node: Any, name: str, value: Any) -> None:
    node[name] = value


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["paths"].pop("/usage"), "path /usage was removed"),
        (lambda c: c["paths"]["/store/orders"].pop("get"), "GET /store/orders was removed"),
        (lambda c: _set(listing(c), "operationId", "list"), "operationId listOrders became list"),
        (lambda c: _set(listing(c), "x-stability", "experimental"), "x-stability beta became experimental"),
        (lambda c: _set(listing(c), "x-required-scopes", ["orders:read", "x"]), "scope x became required"),
        (lambda c: listing(c)["parameters"].pop(0), "parameter status in query was removed"),
        (lambda c: _set(parameter(c, "PetId"), "required", True), "parameter petId in query became required"),
        (lambda c: _set(parameter(c, "PetId")["schema"], "type", "string"), "type ['integer'] became ['string']"),
        (lambda c: _set(parameter(c, "Limit")["schema"], "maximum", 100), "maximum 1000 became 100"),
        (lambda c: _set(parameter(c, "Cursor")["schema"], "pattern", "^x$"), "pattern None became ^x$"),
        (lambda c: schema(c, "StatusFilter")["enum"].remove("shipped"), "value shipped was removed"),
        (lambda c: listing(c)["responses"].pop("304"), "status 304 was removed"),
        (lambda c: listing(c)["responses"]["200"]["headers"].pop("Link"), "200: header Link was removed"),
        (lambda c: _set(c["components"]["headers"]["ETag"], "required", False), "header ETag became optional"),
        (lambda c: listing(c)["responses"]["200"].pop("content"), "body of application/json was removed"),
        (lambda c: schema(c, "Order")["properties"].pop("quantity"), "field quantity was removed"),
        (lambda c: schema(c, "Order")["required"].remove("status"), "field status became optional"),
        (lambda c: _set(schema(c, "Order")["properties"]["complete"], "type", ["boolean", "null"]), "type ['boolean']"),
        (lambda c: codes(c, "OrderConflictError").pop(), "value order_already_cancelled was removed"),
        (lambda c: _set(schema(c, "Error")["properties"], "detail", {"type": "string"}), "field detail was added"),
        (lambda c: schema(c, "Error").pop("additionalProperties"), "other fields or values became possible"),
        (lambda c: c["x-other-requests"]["responses"].pop("405"), "other requests: status 405 was removed"),
        (lambda c: _set(scheme(c), "scheme", "basic"), "bearerAuth: type and scheme ('http', 'bearer')"),
        (lambda c: schema(c, "OrderPlacement")["required"].append("shipDate"), "field shipDate became required"),
        (lambda c: schema(c, "OrderPlacement")["properties"].pop("shipDate"), "field shipDate was removed"),
        (lambda c: _set(schema(c, "OrderPlacement")["properties"]["quantity"], "minimum", 2), "minimum 1 became 2"),
        (lambda c: placing_body(c).pop("content"), "request body of application/json was removed"),
    ],
)
def test_a_breaking_change_is_found(change: Callable[[Any], object], expected: str) -> None:
    changed = deepcopy(V2)
    change(changed)
    assert any(expected in found for found in breaking_changes(V2, changed)), breaking_changes(V2, changed)


@pytest.mark.parametrize("name", ["Error", "OrderConflictError"])
def test_a_new_error_code_breaks_version_1_and_not_version_2(name: str) -> None:
    def with_new_code(contract: dict[str, Any]) -> dict[str, Any]:
        changed = deepcopy(contract)
        codes(changed, name).append("teapot")
        return changed

    assert any("code: value teapot was added" in found for found in breaking_changes(V1, with_new_code(V1)))
    assert [] == breaking_changes(V2, with_new_code(V2))
