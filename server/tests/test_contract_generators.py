"""No contract has a construct that generators of clients trip over; each rule names a generator and what happened.

What cannot be generated or compiled, `make test-clients` finds.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import urlsplit

import pytest

from petstore_server.api.contracts import load_contract
from petstore_server.settings import read_settings

CONTRACTS = {version: load_contract(read_settings({}), version) for version in ("v1", "v2")}
WITH_ADDRESSES = read_settings({"PETSTORE_BASE_URL": "https://api.example/v1", "PETSTORE_CONTACT": "https://x.example"})
TYPED_FORMATS = {"date-time", "date", "time", "duration", "uuid", "uri", "byte", "binary"}
TEXT_CONSTRAINTS = {"pattern", "minLength", "maxLength"}
ADDRESSES = {"url", "termsOfService"}
INT32 = 2**31
KNOWN_32_BITS = ["/components/schemas/Order/properties/quantity"]
"""Of version 1, whose description has no format; its text says that generators need to be told."""

Node = dict[str, Any]
Place = tuple[str, ...]


class Rule:
    """What a contract must not have. `find` returns the places that have it; each of `breaks` adds one to version 2."""

    def __init__(self, reason: str, find: Callable[[Node], list[str]], *breaks: Callable[[Node], object]) -> None:
        self.reason, self.find, self.breaks = reason, find, breaks


def walk(node: Any, place: Place = ()) -> Iterator[tuple[Place, Node]]:
    """All objects that operations use, with their places; not the values of examples, nor extensions."""
    if isinstance(node, dict):
        yield place, node
        for name, value in node.items():
            of_names = place[-1:] == ("properties",) or place in ((), ("components",))
            if (of_names or name not in ("example", "examples")) and not name.startswith("x-"):
                yield from walk(value, (*place, name))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from walk(value, (*place, str(number)))


def schemas(contract: Node) -> Iterator[tuple[Place, Node]]:
    """Each schema with its place: of components, parameters, headers and bodies, and those within."""
    for place, node in walk(contract):
        of_component = place[:2] == ("components", "schemas") and len(place) > 2
        if (of_component or "schema" in place) and place[-1] != "properties":
            yield place, node


def shown(place: Place) -> str:
    return "/" + "/".join(place)


def has_name(place: Place) -> bool:
    return place[:2] == ("components", "schemas") and len(place) == 3


def plain(name: str) -> str:
    """What is left of a name where a language writes it in another way."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def constrained_types(contract: Node) -> list[str]:
    found = [(place, node) for place, node in schemas(contract) if node.get("format") in TYPED_FORMATS]
    return [shown(place) for place, node in found if node.keys() & TEXT_CONSTRAINTS]


def silent_objects(contract: Node) -> list[str]:
    """Objects that do not say whether they may have other fields."""
    found = [(place, node) for place, node in schemas(contract) if "object" in node.get("type", ())]
    return [shown(place) for place, node in found if "additionalProperties" not in node]


def nameless(contract: Node) -> list[str]:
    """Objects that are not schemas of components, and enumerations that are not even a field of one."""
    found = [(place, node) for place, node in schemas(contract) if not has_name(place)]
    objects = [shown(place) for place, node in found if "properties" in node and "allOf" not in node]
    fields = [place for place, node in found if "enum" in node and not (len(place) == 5 and has_name(place[:3]))]
    return objects + [shown(place) for place in fields]


def relative_addresses(contract: Node) -> list[str]:
    found = [(place, name, node[name]) for place, node in walk(contract) for name in node.keys() & ADDRESSES]
    return [
        shown((*place, name))
        for place, name, value in found
        if "servers" not in place and isinstance(value, str) and not urlsplit(value).scheme
    ]


def colliding_values(contract: Node) -> list[str]:
    found: list[str] = []
    named: Counter[str] = Counter()
    for place, node in schemas(contract):
        if "enum" in node:
            given: list[str] = node.get("x-enum-varnames") or node["enum"]
            names = list(map(plain, given))
            if len(set(names)) < len(names) or len(names) != len(node["enum"]):
                found.append(shown(place))
            if has_name(place):
                named.update(names)
    return found + [name for name, times in named.items() if times > 1]


def narrow_integers(contract: Node) -> list[str]:
    found = [(place, node) for place, node in schemas(contract) if "integer" in node.get("type", "")]
    wide = [(place, node) for place, node in found if node.get("maximum", INT32) >= INT32 and "const" not in node]
    return [shown(place) for place, node in wide if node.get("format") != "int64" and shown(place) not in KNOWN_32_BITS]


def unmarked_alternatives(contract: Node) -> list[str]:
    found = [(place, node) for place, node in schemas(contract) if node.keys() & {"oneOf", "anyOf"}]
    several = [shown(place) for place, node in found if "discriminator" not in node]
    types = [(place, node["type"]) for place, node in schemas(contract) if isinstance(node.get("type"), list)]
    return several + [shown(place) for place, kinds in types if len(set(kinds) - {"null"}) != 1]


def schema(contract: Node, name: str) -> Node:
    found: Node = contract["components"]["schemas"][name]
    return found


RULES = {
    "a constraint next to a format that becomes a type": Rule(
        "openapi-generator 7.26: PHP and Ruby compare the date that they have read with the pattern, and raise on each "
        "response with one, also of an order that is placed by then; C# does not compile.",
        constrained_types,
        lambda c: schema(c, "Order")["properties"]["shipDate"].update(pattern="Z$"),
    ),
    "an object that does not say whether it may grow": Rule(
        "openapi-generator 7.26, go: without additionalProperties a model refuses a response with a new field.",
        silent_objects,
        lambda c: schema(c, "Order").pop("additionalProperties"),
    ),
    "an enumeration or an object without a name": Rule(
        "openapi-generator 7.26, openapi-python-client: it is named after the operation, once for each use "
        "(ListOrdersStatusEnum, ListOrdersStatusItem; a body is PutOrderRequest, PutOrder200Response).",
        nameless,
        lambda c: c["components"]["parameters"]["Sort"].update(schema={"type": "string", "enum": ["id"]}),
    ),
    "a relative address where a URI is required": Rule(
        "Generators copy externalDocs and contact into code and packages, where /docs/guide leads nowhere; "
        "JSON Schema's format uri, as linters check it, refuses it.",
        relative_addresses,
        lambda c: c.update(externalDocs={"url": "/docs/guide"}),
    ),
    "values whose names collide": Rule(
        "openapi-generator 7.26: id and -id become ID and ID2 in Go, PHP and Ruby. In Go, a value of two enumerations "
        "with names is declared twice, because its constants share the package, and does not compile.",
        colliding_values,
        lambda c: schema(c, "OrderSort").pop("x-enum-varnames"),
        lambda c: schema(c, "Granularity")["enum"].append("pending"),
    ),
    "an integer beyond 32 bits without a format": Rule(
        "openapi-generator 7.26: it is int32 in Go, Integer in Java and int in C#, which cannot hold it.",
        narrow_integers,
        lambda c: schema(c, "Order")["properties"]["id"].pop("format"),
    ),
    "alternatives without a discriminator": Rule(
        "openapi-generator 7.26, go: a value that fits two is refused ('data matches more than one schema in oneOf').",
        unmarked_alternatives,
        lambda c: schema(c, "Order")["properties"].update(note={"oneOf": [{"type": "string"}, {"type": "boolean"}]}),
    ),
}


@pytest.mark.parametrize("version", CONTRACTS)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_contract_has_nothing_that_generators_trip_over(version: str, rule: Rule) -> None:
    for contract in (CONTRACTS[version], load_contract(WITH_ADDRESSES, version)):
        assert [] == rule.find(contract), rule.reason


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_rule_finds_what_it_refuses(rule: Rule) -> None:
    assert rule.breaks
    for break_ in rule.breaks:
        contract = deepcopy(CONTRACTS["v2"])
        break_(contract)
        assert rule.find(contract)
