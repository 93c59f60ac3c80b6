"""The contract of version 2 is sound, and the tables of parameters and fields equal it (D18, D20)."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from petstore_server.api import errors
from petstore_server.api.v2_input import (
    GET_USAGE,
    IDEMPOTENCY_KEY,
    LIST_CHANGES,
    LIST_ORDERS,
    NO_PARAMETERS,
    ORDER_FIELDS,
    REQUIRED_FIELDS,
    Choice,
    Integer,
    Kind,
    Parameter,
    Parameters,
    Reference,
    Text,
    Timestamp,
)
from petstore_server.domain.orders import MAX_REFERENCE
from testing.contract import error_examples
from testing.contract_rules import TIMESTAMP_PATTERN
from testing.documents import SOURCE, read_yaml

CONTRACT: dict[str, Any] = read_yaml(SOURCE / "api" / "openapi-v2.yaml")

BETWEEN_BLANKS = r"^\S(.*\S)?$"

TABLES = {
    "listOrders": LIST_ORDERS,
    "placeOrder": NO_PARAMETERS,
    "listChanges": LIST_CHANGES,
    "getOrder": NO_PARAMETERS,
    "cancelOrder": NO_PARAMETERS,
    "getUsage": GET_USAGE,
}


def operations() -> Iterator[dict[str, Any]]:
    for item in CONTRACT["paths"].values():
        yield from item.values()


def parameters(operation: dict[str, Any], place: str) -> dict[str, dict[str, Any]]:
    """The documented parameters in this place, by name."""
    components = CONTRACT["components"]["parameters"]
    found = [components[part["$ref"].rpartition("/")[2]] for part in operation["parameters"]]
    return {part["name"]: part for part in found if part["in"] == place}


def documented(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in ("description", "examples")}


def kind_schema(kind: Kind) -> dict[str, Any]:
    match kind:
        case Choice(values):
            is_boolean = {True, False} == set(values.values())
            return {"type": "boolean"} if is_boolean else {"type": "string", "enum": list(values)}
        case Integer(minimum, maximum):
            return {"type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum}
        case Timestamp():
            return {"type": "string", "format": "date-time", "pattern": TIMESTAMP_PATTERN}
        case Reference():
            return {"type": "string", "minLength": 1, "maxLength": MAX_REFERENCE, "pattern": BETWEEN_BLANKS}
        case Text(".+"):
            return {"type": "string", "minLength": 1, "maxLength": 256}
        case Text(pattern):
            return {"type": "string", "pattern": f"^{pattern}$"}
    raise AssertionError(kind)


def expected_schema(parameter: Parameter) -> dict[str, Any]:
    schema = kind_schema(parameter.kind)
    if parameter.repeatable:
        return {"type": "array", "items": schema, "minItems": 1}
    if isinstance(parameter.kind, Choice):
        default = next((text for text, value in parameter.kind.values.items() if value == parameter.default), None)
    else:
        default = parameter.default
    return schema if default is None else {**schema, "default": default}


def test_the_contract_is_valid_openapi() -> None:
    # Loading it at the top would take half a second of each test process.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(CONTRACT).validate()


def test_every_operation_is_named_described_and_marked() -> None:
    stability = {operation["operationId"]: operation["x-stability"] for operation in operations()}
    assert {name: "experimental" if name == "placeOrder" else "beta" for name in TABLES} == stability
    for operation in operations():
        assert operation["summary"]
        assert operation["description"]
        assert operation["tags"] == (["usage"] if operation["operationId"] == "getUsage" else ["orders"])


@pytest.mark.parametrize("operation", list(operations()), ids=lambda operation: operation["operationId"])
def test_the_documented_parameters_are_those_of_the_table(operation: dict[str, Any]) -> None:
    table: Parameters = TABLES[operation["operationId"]]
    described = parameters(operation, "query")
    assert list(table.all) == list(described)
    for name, parameter in table.all.items():
        assert expected_schema(parameter) == described[name]["schema"], name
        assert not described[name]["required"]
        assert parameter.repeatable == (described[name].get("style") == "form"), name


def test_the_documented_key_and_body_of_a_new_order_are_those_of_the_tables() -> None:
    operation = CONTRACT["paths"]["/store/orders"]["post"]
    key = parameters(operation, "header")[IDEMPOTENCY_KEY.name]
    assert (True, kind_schema(IDEMPOTENCY_KEY.kind)) == (key["required"], key["schema"])
    body = CONTRACT["components"]["schemas"]["NewOrder"]
    fields = {name: kind_schema(kind) for name, kind in ORDER_FIELDS.items()}
    for name in fields.keys() - REQUIRED_FIELDS:
        fields[name]["type"] = ["string", "null"]
    assert fields == {name: documented(schema) for name, schema in body["properties"].items()}
    assert list(REQUIRED_FIELDS) == body["required"]
    assert body["additionalProperties"] is False


def test_every_example_is_valid() -> None:
    found = list(examples(CONTRACT))
    assert len(found) > 90
    for schema, value in found:
        rooted = {**schema, "components": CONTRACT["components"]}
        jsonschema_rs.Draft202012Validator(rooted, validate_formats=True).validate(value)


def examples(node: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each example in the contract with the schema that it exemplifies."""
    if isinstance(node, list):
        for item in node:
            yield from examples(item)
    if not isinstance(node, dict):
        return
    if node is not CONTRACT["components"]:
        schema = node.get("schema", node)
        if "example" in node:
            yield schema, node["example"]
        listed = node.get("examples", [])
        for example in listed.values() if isinstance(listed, dict) else listed:
            yield schema, resolved(example)["value"] if "schema" in node else example
    for item in node.values():
        yield from examples(item)


def resolved(example: dict[str, Any]) -> dict[str, Any]:
    name = example.get("$ref", "").rpartition("/")[2]
    return CONTRACT["components"]["examples"][name] if name else example


def test_the_examples_of_errors_say_what_the_service_says() -> None:
    shown = error_examples(CONTRACT)
    for kind in (errors.ChangesReset, errors.InvalidCursor, errors.IdempotencyKeyMissing, errors.UnsupportedMediaType):
        assert kind().message == shown[kind.code]["value"]["message"]


def test_every_code_has_an_example() -> None:
    codes = CONTRACT["components"]["schemas"]["Error"]["properties"]["code"]["x-extensible-enum"]
    assert set(codes) == set(error_examples(CONTRACT))
