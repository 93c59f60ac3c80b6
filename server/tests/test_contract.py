"""The contract is sound, whole and readable, and is served with the deployment's addresses and dates."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import yaml

from petstore_server.api import errors
from petstore_server.api.contracts import contract_json, contract_yaml, load_contract
from petstore_server.server.messages import HeadersTooLarge, PayloadTooLarge, UriTooLong
from petstore_server.settings import read_settings
from testing.checked_clients import contract
from testing.contract import error_examples
from testing.documents import SOURCE

CODES = {
    *("bad_request", "uri_too_long", "headers_too_large", "missing_api_key", "invalid_api_key", "insufficient_scope"),
    *("order_not_found", "invalid_order_id", "pet_not_found", "not_found", "method_not_allowed"),
    *("order_already_shipped", "order_already_cancelled", "gone", "payload_too_large", "rate_limit_exceeded"),
    *("api_key_banned", "internal_error", "service_unavailable"),
}


def test_the_contract_is_valid_openapi() -> None:
    # Loading it at the top would take half a second of each test process.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(contract().document).validate()


def test_every_example_in_the_contract_is_valid() -> None:
    document = contract().document
    examples = list(_examples(document, document))
    assert len(examples) > 60
    for schema, value in examples:
        rooted = {**schema, "components": document["components"]}
        jsonschema_rs.Draft202012Validator(rooted, validate_formats=True).validate(value)


def _examples(node: Any, document: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each example in the document with the schema that it exemplifies."""
    if isinstance(node, dict) and node is not document["components"]:
        schema = node.get("schema", node)
        if "example" in node:
            yield schema, node["example"]
        for example in _values(node.get("examples", [])):
            yield schema, _resolved(example, document)["value"] if "schema" in node else example
    for item in _values(node):
        yield from _examples(item, document)


def _values(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _resolved(example: dict[str, Any], document: Any) -> Any:
    name = example.get("$ref", "").rpartition("/")[2]
    return document["components"]["examples"][name] if name else example


def test_every_header_parameter_answer_and_field_has_an_example() -> None:
    components = contract().document["components"]
    for part in (*components["headers"].values(), *components["parameters"].values()):
        assert "example" in part
    for name, response in components["responses"].items():
        assert set(response["content"]["application/json"]["examples"]) <= CODES, name
    for name in ("Order", "Pet", "Error"):
        for field in components["schemas"][name]["properties"].values():
            assert field["examples"]


def test_the_examples_of_errors_say_what_the_service_says() -> None:
    examples = error_examples(contract().document)
    assert set(examples) == CODES
    too_large = (PayloadTooLarge, UriTooLong, HeadersTooLarge)
    for kind in (errors.RouteNotFound, errors.RateLimitExceeded, errors.InternalError, *too_large):
        assert examples[kind.code]["value"]["message"] == kind().message


def test_the_codes_are_the_closed_set() -> None:
    codes = contract().document["components"]["schemas"]["Error"]["properties"]["code"]["enum"]
    assert sorted(codes) == sorted(CODES)


def test_every_operation_is_named_described_and_marked() -> None:
    operations = [op for item in contract().document["paths"].values() for op in item.values()]
    assert [op["operationId"] for op in operations] == ["listOrders", "cancelOrder", "getPet"]
    for operation in operations:
        assert operation["x-stability"] in ("stable", "beta", "experimental")
        assert operation["summary"]
        assert operation["description"]
        assert operation["tags"] == (["pets"] if operation["operationId"] == "getPet" else ["orders"])
        assert operation.get("deprecated", False) == ("x-sunset" in operation)


def test_addresses_and_dates_of_the_deployment_stand_in_the_served_contract() -> None:
    settings = read_settings(
        {
            "PETSTORE_BASE_URL": "https://api.example/v1",
            "PETSTORE_STAGING_BASE_URL": "https://staging.example/v1",
            "PETSTORE_PETS_DEPRECATED_AT": "2027-01-01",
            "PETSTORE_PETS_SUNSET": "2028-02-03T04:05:06+01:00",
        }
    )
    served = load_contract(settings)
    assert served["servers"] == [
        {"url": "https://api.example/v1", "description": "Production"},
        {"url": "https://staging.example/v1", "description": "Staging"},
    ]
    assert served["paths"]["/pets/{petId}"]["get"]["x-sunset"] == "2028-02-03T03:05:06Z"
    headers = served["components"]["headers"]
    assert headers["Sunset"]["example"] == "Thu, 03 Feb 2028 03:05:06 GMT"
    assert headers["Deprecation"]["example"] == f"@{int(datetime(2027, 1, 1, tzinfo=UTC).timestamp())}"
    assert yaml.safe_load(contract_yaml(settings)) == json.loads(contract_json(settings)) == served


def test_without_settings_the_served_contract_is_the_shipped_one() -> None:
    settings = read_settings({})
    shipped = (SOURCE / "api" / "openapi.yaml").read_bytes()
    assert contract_yaml(settings) == shipped[shipped.index(b"openapi: ") :]  # without what is for maintainers
    assert load_contract(settings)["servers"] == [{"url": "/v1", "description": "This server"}]


def test_every_error_has_the_code_and_the_statuses_that_the_guide_gives() -> None:
    guide = (SOURCE / "api" / "guide" / "guide.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}(?:, \d{3})*) \|", guide, re.MULTILINE)
    statuses: dict[str, set[str]] = {}
    for error, status in errors.STATUS.items():
        statuses.setdefault(error.code, set()).add(str(status))
    assert statuses == {code: set(listed.split(", ")) for code, listed in rows}
