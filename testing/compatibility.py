"""Breaking changes between two versions of an OpenAPI document, as versions.md of the guide defines them.

A change breaks a client if a request that succeeded no longer does, or if a response is no longer what the client was
promised. Requests must therefore not become narrower, and responses not wider. Operations that are experimental in the
old document may change freely. A document with an operation that is not stable may get new values in responses, such as
error codes.

Each document becomes a table of what it promises, place by place; the kind of a promise says which changes break it.
"""

from collections.abc import Iterator
from enum import StrEnum
from math import inf
from typing import Any

from testing.contract import find_reference

Node = dict[str, Any]
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_STABILITY = ("experimental", "beta", "stable")
_BOUNDS = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), -inf),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), inf),
}
"""What a missing bound stands for."""
_EXTENSIBLE = "x-extensible-enum"
_COMPARED = {"type", "enum", _EXTENSIBLE, "properties", "required", "additionalProperties", "items", *_BOUNDS}
_ANNOTATIONS = {"description", "example", "examples", "title", "default", "deprecated", "x-enum-varnames"}


class Kind(StrEnum):
    """How a promise may change. A text is hashed faster than the member of another enumeration."""

    PART = "is not removed, and is not added to what is closed"
    CLOSED = "is not removed"
    ENSURED = "is still there in each response"
    DEMANDED = "is not added"
    KEPT = "has the same value"
    RISING = "has at least the same value"
    FALLING = "has at most the same value"


Promises = dict[tuple[str, Kind, str], Any]
"""By place, kind and name; the value of one that rises or falls is a pair, of what is compared and what is shown."""
Found = Iterator[tuple[tuple[str, Kind, str], Any]]
_OTHERS = "other fields or values"


def breaking_changes(old: Node, new: Node) -> list[str]:
    """What a client of the old document could trip over in the new one, one sentence for each change."""
    operations = [item[method] for item in old["paths"].values() for method in item.keys() & METHODS]
    closed = all(operation.get("x-stability", "stable") == "stable" for operation in operations)
    experimental = {id(operation) for operation in operations if operation.get("x-stability") == "experimental"}
    before, after = dict(_Promises(old, closed).all(experimental)), dict(_Promises(new, closed).all(set()))
    places = {place for place, _, _ in before}
    found = []
    for promise in [each for each in before | after if before.get(each) != after.get(each)]:
        place, kind, name = promise
        is_closed = (place, Kind.CLOSED, _OTHERS) in before
        if place in places and (change := _broken(kind, before.get(promise), after.get(promise), is_closed)):
            found.append(f"{place}: {name} {change}")
    return found


_REMOVED = {Kind.PART: "was removed", Kind.CLOSED: "became possible", Kind.ENSURED: "became optional"}


def _broken(kind: Kind, old: Any, new: Any, closed: bool) -> str:
    """What has become of a promise that is broken; None stands for one that a document does not make."""
    if new is None and kind in _REMOVED:
        return _REMOVED[kind]
    match kind, old, new:
        case Kind.PART, None, _ if closed:
            return "was added to what was complete"
        case Kind.DEMANDED, None, _:
            return "became required"
        case Kind.KEPT, _, _ if old != new:
            return f"{old} became {new}"
        case (Kind.RISING, (least, shown), (value, now)) if value < least:
            return f"{shown} became {now}"
        case (Kind.FALLING, (most, shown), (value, now)) if value > most:
            return f"{shown} became {now}"
    return ""


class _Promises:
    """What a document promises; whether its sets of values in responses are `closed` is decided by the old one."""

    def __init__(self, document: Node, closed: bool) -> None:
        self._document = document
        self._closed = closed

    def all(self, left_out: set[int]) -> Found:
        """All promises, without those of the operations with these ids (`id`)."""
        whole = "the contract"
        for path, item in self._document["paths"].items():
            yield (whole, Kind.PART, f"path {path}"), True
            for method in item.keys() & METHODS:
                if id(item[method]) not in left_out:
                    where = f"{method.upper()} {path}"
                    yield (whole, Kind.PART, where), True
                    yield from self._operation(where, item[method])
        others = self._document.get("x-other-requests", {"responses": {}})
        yield from self._responses("other requests", others)
        for name, scheme in self._document["components"].get("securitySchemes", {}).items():
            yield (f"security scheme {name}", Kind.KEPT, "type and scheme"), (scheme["type"], scheme.get("scheme"))

    def _operation(self, where: str, operation: Node) -> Found:
        yield (where, Kind.KEPT, "operationId"), operation["operationId"]
        stability = operation.get("x-stability", "stable")
        yield (where, Kind.RISING, "x-stability"), (_STABILITY.index(stability), stability)
        if "x-sunset" in operation:
            yield (where, Kind.RISING, "x-sunset"), (operation["x-sunset"], operation["x-sunset"])
        for scope in operation.get("x-required-scopes", ()):
            yield (where, Kind.DEMANDED, f"scope {scope}"), True
        for parameter in map(self._resolved, operation.get("parameters", [])):
            name = f"parameter {parameter['name']} in {parameter['in']}"
            yield (where, Kind.PART, name), True
            if parameter.get("required"):
                yield (where, Kind.DEMANDED, name), True
            yield from self._schema(f"{where}: {name}", parameter["schema"], in_request=True)
        body = self._resolved(operation.get("requestBody", {}))
        if body.get("required"):
            yield (where, Kind.DEMANDED, "request body"), True
        yield from self._content(where, "request body", body, in_request=True)
        yield from self._responses(where, operation)

    def _responses(self, where: str, operation: Node) -> Found:
        for status, response in operation["responses"].items():
            yield (where, Kind.PART, f"status {status}"), True
            described = self._resolved(response)
            for name, header in described.get("headers", {}).items():
                yield (f"{where} {status}", Kind.PART, f"header {name}"), True
                if self._resolved(header).get("required"):
                    yield (f"{where} {status}", Kind.ENSURED, f"header {name}"), True
                yield from self._schema(f"{where} {status}: header {name}", self._resolved(header)["schema"])
            yield from self._content(f"{where} {status}", "body", described)

    def _content(self, where: str, what: str, node: Node, *, in_request: bool = False) -> Found:
        for kind, content in node.get("content", {}).items():
            yield (where, Kind.PART, f"{what} of {kind}"), True
            yield from self._schema(f"{where}: {what} of {kind}", content["schema"], in_request=in_request)

    def _schema(self, where: str, node: Node, *, in_request: bool = False) -> Found:
        schema = self._flat(node)
        types = schema.get("type", [])
        yield (where, Kind.KEPT, "type"), sorted([types] if isinstance(types, str) else types)
        for name, missing in _BOUNDS.items():
            kind = Kind.RISING if (missing > 0) == in_request else Kind.FALLING
            yield (where, kind, name), (schema.get(name, missing), schema.get(name))
        for name in schema.keys() - _COMPARED - _ANNOTATIONS:  # it is hard to tell which of two patterns is wider
            if name == "pattern" and schema.get("format") == "date-time":
                continue  # the form of a timestamp, which the format promises and the description says in words
            yield (where, Kind.KEPT, name), schema[name]
        yield (where, Kind.KEPT, "having values"), bool(schema.keys() & {"enum", _EXTENSIBLE})
        for value in schema.get("enum") or schema.get(_EXTENSIBLE) or []:
            yield (where, Kind.PART, f"value {value}"), True
        yield from self._fields(where, schema, in_request=in_request)
        if "items" in schema:
            yield from self._schema(f"{where}[]", schema["items"], in_request=in_request)

    def _fields(self, where: str, schema: Node, *, in_request: bool) -> Found:
        for name in schema.get("required", []):
            yield (where, Kind.DEMANDED if in_request else Kind.ENSURED, f"field {name}"), True
        if schema.get("additionalProperties") is False:
            yield (where, *((Kind.DEMANDED, "absence of other fields") if in_request else (Kind.CLOSED, _OTHERS))), True
        elif "enum" in schema and self._closed and not in_request:
            yield (where, Kind.CLOSED, _OTHERS), True
        for name, value in schema.get("properties", {}).items():
            yield (where, Kind.PART, f"field {name}"), True
            yield from self._schema(f"{where}.{name}", value, in_request=in_request)

    def _flat(self, node: Node) -> Node:
        """The schema with its references and `allOf` in one piece; what is nearer to the use of it counts."""
        schema = self._resolved(node)
        flat: Node = {}
        for part in [*map(self._flat, schema.get("allOf", [])), schema]:
            properties = {**flat.get("properties", {})}
            for name, value in part.get("properties", {}).items():
                properties[name] = {**self._resolved(properties.get(name, {})), **self._resolved(value)}
            flat = {**flat, **part}
            if properties:
                flat["properties"] = properties
        flat.pop("allOf", None)
        return flat

    def _resolved(self, node: Node) -> Node:
        while "$ref" in node:
            node = find_reference(self._document, node["$ref"])
        return node
