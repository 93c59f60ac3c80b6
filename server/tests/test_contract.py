"""The contracts are sound, whole and readable; parameters and fields equal the tables (D18, D20)."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.api import errors
from petstore_server.api.contracts import contract_json, contract_yaml, load_contract
from petstore_server.api.v2 import bodies
from petstore_server.api.v2 import input as tables
from petstore_server.domain import errors as domain_errors
from petstore_server.domain.orders import MAX_REFERENCE
from petstore_server.domain.webhooks import MAX_WEBHOOKS_OF_ACCOUNT
from petstore_server.server.messages import HeadersTooLarge, PayloadTooLarge, UriTooLong
from petstore_server.settings import read_settings
from testing.checked_clients import contract
from testing.contract import error_examples, objects, resolved
from testing.documents import SOURCE, parse_yaml

DOCUMENTS: dict[str, Any] = {name: version.document for name, version in contract().versions.items()}
BETWEEN_BLANKS = r"^\S(.*\S)?$"

TABLES = {"listOrders": tables.LIST_ORDERS, "listChanges": tables.LIST_CHANGES, "getUsage": tables.GET_USAGE}
"""The parameters of operations; the others of version 2 have none."""

CONDITIONS = {
    **dict.fromkeys(("cancelOrder", "updateOrder", "shipOrder", "completeOrder"), (tables.IF_MATCH,)),
    "putOrder": (tables.IF_MATCH, tables.IF_NONE_MATCH),
}
BODIES: dict[str, Mapping[str, bodies.FieldKind]] = {
    "OrderPlacement": bodies.NEW_ORDER,
    "OrderReplacement": bodies.PUT_ORDER,
    "OrderCorrection": bodies.CORRECTIONS,
    "Shipment": bodies.SHIPMENT,
    "WebhookCreation": bodies.WEBHOOK,
    "WebhookChange": bodies.WEBHOOK,
    "SecretRotation": bodies.ROTATION,
}
NEVER_NULL = {
    "OrderPlacement": bodies.REQUIRED_FIELDS,
    "WebhookCreation": ("url",),
    "WebhookChange": [name for name in bodies.WEBHOOK if name != "statuses"],
}
"""Fields of bodies that must have a value where they are given."""

WITHOUT_EXAMPLE = {"cursor", "from", "Idempotency-Key"}
"""Parameters whose value comes from a response, is a time not long ago, or is new in each request."""


def operations(document: Any) -> Iterator[dict[str, Any]]:
    for item in document["paths"].values():
        yield from item.values()


each_version = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


@each_version
def test_the_contract_is_valid_openapi(document: Any) -> None:
    validator = find_spec("openapi_spec_validator")  # which has the schema; importing it would take half a second
    assert validator is not None
    assert validator.submodule_search_locations is not None
    file = Path(validator.submodule_search_locations[0]) / "resources/schemas/v3.1/schema.json"
    jsonschema_rs.Draft202012Validator(json.loads(file.read_text())).validate(document)
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


@each_version
def test_every_example_in_the_contract_is_valid(document: Any) -> None:
    examples = list(_examples(document))
    assert len(examples) > 60
    for schema, value in examples:
        rooted = {**schema, "components": document["components"]}
        jsonschema_rs.Draft202012Validator(rooted, validate_formats=True).validate(value)


def _examples(document: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each example in the document with the schema that it exemplifies."""
    for node in objects(document):
        if node is not document["components"]:
            schema, several = node.get("schema", node), node.get("examples", [])
            if "example" in node:
                yield schema, node["example"]
            for example in several.values() if isinstance(several, dict) else several:
                yield schema, resolved(example, document)["value"] if "schema" in node else example


@each_version
def test_every_parameter_for_which_a_written_value_works_has_an_example(document: Any) -> None:
    parameters = document["components"]["parameters"].values()
    assert {each["name"] for each in parameters if "example" not in each} <= WITHOUT_EXAMPLE


def test_every_header_response_and_field_has_an_example() -> None:
    components = contract().document["components"]
    codes = set(components["schemas"]["Error"]["properties"]["code"]["enum"])
    for part in components["headers"].values():
        assert "example" in part
    for name, response in components["responses"].items():
        assert set(response["content"]["application/json"]["examples"]) <= codes, name
    for name in ("Order", "Pet", "Error"):
        for field in components["schemas"][name]["properties"].values():
            assert resolved(field, contract().document)["examples"]


def test_the_examples_of_errors_say_what_the_service_says() -> None:
    first, second = (error_examples(document) for document in DOCUMENTS.values())
    too_large = (PayloadTooLarge, UriTooLong, HeadersTooLarge)
    for kind in (errors.RouteNotFound, errors.RateLimitExceeded, errors.InternalError, *too_large):
        assert first[kind.code]["value"]["message"] == kind().message
    later = (domain_errors.ChangesReset, domain_errors.InvalidCursor)
    for other in (*later, errors.IdempotencyKeyMissing, errors.UnsupportedMediaType):
        assert second[other.code]["value"]["message"] == other().message
    for failure in (
        domain_errors.ReferenceInUse(1003),
        domain_errors.OrderNotShipped(7, "pending"),
        domain_errors.OrderAlreadyComplete(7),
        domain_errors.AccountMismatch(7),
        domain_errors.IdentifierReserved(1_000_000_007, 1_000_000_000),
        domain_errors.WebhookNotFound("wh_3kTMd9QxBv1a"),
        domain_errors.TooManyWebhooks(MAX_WEBHOOKS_OF_ACCOUNT),
        domain_errors.WebhookEnded("wh_3kTMd9QxBv1a"),
    ):
        assert second[failure.code]["value"]["message"] == failure.message


def test_every_code_has_an_example() -> None:
    for version, names in (("v1", "enum"), ("v2", "x-extensible-enum")):
        code = DOCUMENTS[version]["components"]["schemas"]["Error"]["properties"]["code"]
        assert set(code[names]) == set(error_examples(DOCUMENTS[version]))


@each_version
def test_every_operation_is_described_and_marked(document: Any) -> None:
    tags = {"getPet": "pets", "getUsage": "usage"}
    for operation in operations(document):
        name = operation["operationId"]
        of_version_2 = "experimental" if "Webhook" in name else "beta"
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"] == [tags.get(name, "webhooks" if "Webhook" in name else "orders")], name
        assert operation["x-stability"] == (of_version_2 if document is DOCUMENTS["v2"] else "stable"), name
        assert operation.get("deprecated", False) == ("x-sunset" in operation), name


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
    production = {"url": "https://api.example/v1", "description": "Production"}
    staging = {"url": "https://staging.example/v1", "description": "Staging"}
    assert [production, staging] == served["servers"]
    assert [staging, production] == load_contract(replace(settings, environment="staging"))["servers"]
    assert "2028-02-03T03:05:06Z" == served["paths"]["/pets/{petId}"]["get"]["x-sunset"]
    headers = served["components"]["headers"]
    assert "Thu, 03 Feb 2028 03:05:06 GMT" == headers["Sunset"]["example"]
    assert headers["Deprecation"]["example"] == f"@{int(datetime(2027, 1, 1, tzinfo=UTC).timestamp())}"
    assert parse_yaml(contract_yaml(settings)) == json.loads(contract_json(settings)) == served


def test_without_settings_the_served_contract_is_the_shipped_one() -> None:
    settings = read_settings({})
    shipped = (SOURCE / "api" / "openapi.yaml").read_bytes()
    assert contract_yaml(settings) == shipped[shipped.index(b"openapi: ") :]  # without what is for maintainers
    assert [{"url": "/v1", "description": "This server"}] == load_contract(settings)["servers"]
    assert "externalDocs" not in load_contract(settings)  # its address would be relative, which generators refuse


def parameters(operation: dict[str, Any], place: str) -> dict[str, dict[str, Any]]:
    """The documented parameters in this place, by name."""
    components = DOCUMENTS["v2"]["components"]["parameters"]
    found = [components[part["$ref"].rpartition("/")[2]] for part in operation["parameters"]]
    return {part["name"]: part for part in found if part["in"] == place}


def documented(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in ("description", "examples", "x-enum-varnames")}


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter without references and words."""
    if "items" in schema:
        return {**schema, "items": plain(schema["items"])}
    return documented(resolved(schema, DOCUMENTS["v2"]))


FIXED: dict[type, dict[str, Any]] = {
    tables.AccountName: {"type": "string", "minLength": 1},
    tables.Boolean: {"type": "boolean"},
    tables.Reference: {"type": "string", "minLength": 1, "maxLength": MAX_REFERENCE, "pattern": BETWEEN_BLANKS},
    tables.Timestamp: {"type": "string", "format": "date-time"},
}


def kind_schema(kind: bodies.FieldKind) -> dict[str, Any]:
    match kind:
        case tables.Choice(values):
            return {"type": "string", "enum": list(values)}
        case tables.Choices():
            return {"type": "array", "items": {"$ref": "#/components/schemas/StatusFilter"}}
        case tables.Integer(minimum, maximum):
            return {"type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum}
        case tables.Text(".+"):
            return {"type": "string", "minLength": 1, "maxLength": 256}
        case tables.Text(".{1,2048}"):
            return {"type": "string", "minLength": 1, "maxLength": 2048}
        case tables.Text(pattern):
            return {"type": "string", "pattern": f"^{pattern}$"}
    return dict(FIXED[type(kind)])


def expected_schema(parameter: tables.Parameter) -> dict[str, Any]:
    schema = kind_schema(parameter.kind)
    if parameter.repeatable:
        return {"type": "array", "items": schema, "minItems": 1}
    if isinstance(parameter.kind, tables.Choice):
        default = next((text for text, value in parameter.kind.values.items() if value == parameter.default), None)
    else:
        default = parameter.default
    return schema if default is None else {**schema, "default": default}


@pytest.mark.parametrize("operation", list(operations(DOCUMENTS["v2"])), ids=lambda operation: operation["operationId"])
def test_the_documented_parameters_are_those_of_the_table(operation: dict[str, Any]) -> None:
    table: tables.Parameters = TABLES.get(operation["operationId"], tables.NO_PARAMETERS)
    described = parameters(operation, "query")
    assert list(table.all) == list(described)
    for name, parameter in table.all.items():
        assert expected_schema(parameter) == plain(described[name]["schema"]), name
        assert not described[name]["required"]
        assert parameter.repeatable == (described[name].get("style") == "form"), name


def test_the_documented_key_of_a_new_order_is_that_of_the_table() -> None:
    key = parameters(DOCUMENTS["v2"]["paths"]["/store/orders"]["post"], "header")[tables.IDEMPOTENCY_KEY.name]
    assert (True, kind_schema(tables.IDEMPOTENCY_KEY.kind)) == (key["required"], key["schema"])


def test_the_documented_conditions_are_those_that_operations_read() -> None:
    for operation in operations(DOCUMENTS["v2"]):
        name, described = operation["operationId"], parameters(operation, "header")
        if name in CONDITIONS:
            assert [table.name for table in CONDITIONS[name]] == list(described), name
            assert all(not part["required"] for part in described.values()), name
        else:
            assert tables.IF_MATCH.name not in described, f"CONDITIONS lacks {name}"


@pytest.mark.parametrize("condition", [tables.IF_MATCH, tables.IF_NONE_MATCH], ids=lambda condition: condition.name)
@given(data=st.data())
def test_a_documented_condition_is_read(condition: tables.Parameter, data: st.DataObject) -> None:
    described = parameters(DOCUMENTS["v2"]["paths"]["/store/orders/{orderId}"]["put"], "header")
    member = {tables.IF_MATCH.name: "ifMatch", tables.IF_NONE_MATCH.name: "ifNoneMatch"}[condition.name]
    schema = described[condition.name]["schema"]
    assert schema["pattern"] == body_schema("BatchOperation")["properties"][member]["pattern"]
    text = data.draw(st.from_regex(schema["pattern"], fullmatch=True))
    assert text == condition.read([text])


def body_schema(name: str) -> dict[str, Any]:
    """A schema of a request's body, which has no other field."""
    schema: dict[str, Any] = DOCUMENTS["v2"]["components"]["schemas"][name]
    assert schema["additionalProperties"] is False
    return schema


def test_only_bodies_of_requests_and_errors_are_closed() -> None:
    """Results of version 2 may get new fields."""
    schemas = DOCUMENTS["v2"]["components"]["schemas"]
    closed = {name for name, schema in schemas.items() if schema.get("additionalProperties") is False}
    assert closed == {*BODIES, "OrderBatch", "BatchOperation", "Error"}


def field_schema(name: str, kind: bodies.FieldKind, never_null: Collection[str]) -> dict[str, Any]:
    """What the contract has for a field of a body: `null` is the same as absent where it is allowed."""
    schema = kind_schema(kind)
    if isinstance(kind, tables.Choice):  # not an enumeration: generators cannot read null as a value of one
        schema = {"type": "string", "pattern": f"^({'|'.join(kind.values)})$"}
    return schema if name in never_null else {**schema, "type": [schema["type"], "null"]}


@pytest.mark.parametrize("name", BODIES)
def test_the_documented_fields_of_a_body_are_those_of_the_table(name: str) -> None:
    body = body_schema(name)
    required = NEVER_NULL.get(name, ()) if name != "WebhookChange" else ()
    expected = {field: field_schema(field, kind, NEVER_NULL.get(name, ())) for field, kind in BODIES[name].items()}
    described = {field: documented(schema) for field, schema in body["properties"].items()}
    assert expected == described
    assert list(required) == body.get("required", [])


def test_the_documented_operations_of_a_batch_are_those_of_the_table() -> None:
    operations_of_batch = body_schema("OrderBatch")["properties"]["operations"]
    assert bodies.MAX_OPERATIONS == operations_of_batch["maxItems"]
    operation = body_schema("BatchOperation")
    assert ["operation", "orderId"] == operation["required"]
    assert set(bodies.MEMBERS) == set(operation["properties"]["operation"]["enum"])
    conditions = {"ifMatch", "ifNoneMatch"}
    assert {"operation", "orderId", *conditions, *filter(None, bodies.MEMBERS.values())} == set(operation["properties"])
