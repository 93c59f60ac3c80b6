"""Breaking changes between two versions of an OpenAPI document, as versions.md of the guide defines them.

A change breaks a client if a request that succeeded no longer does, or if a response is no longer what the client was
promised. Requests must therefore not become narrower, and responses not wider. Operations that are experimental in the
old document may change freely. A document with an operation that is not stable may get new values in responses, such as
error codes.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any

Node = dict[str, Any]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_STABILITY = ("experimental", "beta", "stable")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_COMPARED = {
    "allOf",
    "type",
    "enum",
    "x-extensible-enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    *_LOWER,
    *_UPPER,
}
_ANNOTATIONS = {"description", "example", "examples", "title", "default", "deprecated"}


class Side(Enum):
    REQUEST = "request"
    RESPONSE = "response"


def breaking_changes(old: Node, new: Node) -> list[str]:
    """What a client of the old document could trip over in the new one, one sentence for each change."""
    return list(_Comparison(old, new).run())


class _Comparison:
    def __init__(self, old: Node, new: Node) -> None:
        self._old = old
        self._new = new
        operations = [item[method] for item in old["paths"].values() for method in item.keys() & METHODS]
        self._is_stable = all(_stability(operation) == _stability({}) for operation in operations)

    def run(self) -> Iterator[str]:
        for path, item in self._old["paths"].items():
            changed = self._new["paths"].get(path)
            if changed is None:
                yield f"path {path} was removed"
                continue
            for method in item.keys() & METHODS:
                yield from self._operation(f"{method.upper()} {path}", item[method], changed.get(method))
        others = "x-other-requests"
        if others in self._old:
            yield from self._responses("other requests", self._old[others], self._new.get(others, {"responses": {}}))
        yield from self._schemes()

    def _schemes(self) -> Iterator[str]:
        for name, scheme in self._old["components"].get("securitySchemes", {}).items():
            changed = self._new["components"].get("securitySchemes", {}).get(name, {})
            if (scheme["type"], scheme.get("scheme")) != (changed.get("type"), changed.get("scheme")):
                yield f"security scheme {name} was changed"

    def _operation(self, where: str, old: Node, new: Node | None) -> Iterator[str]:
        if old.get("x-stability") == "experimental":
            return
        if new is None:
            yield f"{where} was removed"
            return
        if old["operationId"] != new["operationId"]:
            yield f"{where}: operationId {old['operationId']} became {new['operationId']}"
        if _stability(new) < _stability(old):
            yield f"{where}: x-stability {old['x-stability']} became {new.get('x-stability')}"
        if "x-sunset" in old and new.get("x-sunset", "9999") < old["x-sunset"]:
            yield f"{where}: x-sunset moved to an earlier time"
        yield from _security(where, old, new)
        yield from self._parameters(where, old, new)
        yield from self._body(where, old, new)
        yield from self._responses(where, old, new)

    def _parameters(self, where: str, old: Node, new: Node) -> Iterator[str]:
        before, after = self._named(self._old, old), self._named(self._new, new)
        for place, name in before.keys() - after.keys():
            yield f"{where}: parameter {name} in {place} was removed"
        for (place, name), parameter in after.items():
            known = before.get((place, name))
            if parameter.get("required") and not (known and known.get("required")):
                yield f"{where}: parameter {name} in {place} became required"
            if known:
                schemas = known["schema"], parameter["schema"]
                yield from self._schema(f"{where}: parameter {name}", *schemas, Side.REQUEST)

    def _named(self, document: Node, operation: Node) -> dict[tuple[str, str], Node]:
        parameters = [_resolved(document, parameter) for parameter in operation.get("parameters", [])]
        return {(parameter["in"], parameter["name"]): parameter for parameter in parameters}

    def _body(self, where: str, old: Node, new: Node) -> Iterator[str]:
        before, after = (
            _resolved(self._old, old.get("requestBody", {})),
            _resolved(self._new, new.get("requestBody", {})),
        )
        if after.get("required") and not before.get("required"):
            yield f"{where}: a request body became required"
        for kind, content in before.get("content", {}).items():
            if kind not in after.get("content", {}):
                yield f"{where}: a request body of {kind} is no longer accepted"
                continue
            schemas = content["schema"], after["content"][kind]["schema"]
            yield from self._schema(f"{where}: request body", *schemas, Side.REQUEST)

    def _responses(self, where: str, old: Node, new: Node) -> Iterator[str]:
        for status, response in old["responses"].items():
            if status not in new["responses"]:
                yield f"{where}: status {status} was removed"
                continue
            before, after = _resolved(self._old, response), _resolved(self._new, new["responses"][status])
            yield from self._response(f"{where} {status}", before, after)

    def _response(self, where: str, old: Node, new: Node) -> Iterator[str]:
        for name, header in old.get("headers", {}).items():
            if name not in new.get("headers", {}):
                yield f"{where}: header {name} was removed"
                continue
            before, after = _resolved(self._old, header), _resolved(self._new, new["headers"][name])
            if before.get("required") and not after.get("required"):
                yield f"{where}: header {name} became optional"
            yield from self._schema(f"{where}: header {name}", before["schema"], after["schema"], Side.RESPONSE)
        for kind, content in old.get("content", {}).items():
            if kind not in new.get("content", {}):
                yield f"{where}: content type {kind} was removed"
                continue
            schemas = content["schema"], new["content"][kind]["schema"]
            yield from self._schema(f"{where}: body", *schemas, Side.RESPONSE)

    def _schema(self, where: str, old: Node, new: Node, side: Side) -> Iterator[str]:
        before, after = _flat(self._old, old), _flat(self._new, new)
        if _types(before) != _types(after):
            yield f"{where}: type {_types(before)} became {_types(after)}"
            return
        yield from _bounds(where, before, after, side)
        yield from _keywords(where, before, after, closed=self._is_stable and side is Side.RESPONSE)
        yield from _required(where, before, after, side)
        yield from self._properties(where, before, after, side)
        if "items" in before and "items" in after:
            yield from self._schema(f"{where}[]", before["items"], after["items"], side)

    def _properties(self, where: str, old: Node, new: Node, side: Side) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in before.keys() - after.keys():
            yield f"{where}: field {name} was removed"
        for name in before.keys() & after.keys():
            yield from self._schema(f"{where}.{name}", before[name], after[name], side)
        closed_before, closed_after = old.get("additionalProperties") is False, new.get("additionalProperties") is False
        if side is Side.RESPONSE and closed_before:
            for name in after.keys() - before.keys():
                yield f"{where}: field {name} was added to a record that was complete"
            if not closed_after:
                yield f"{where}: other fields became possible"
        if side is Side.REQUEST and closed_after and not closed_before:
            yield f"{where}: other fields are no longer accepted"


def _security(where: str, old: Node, new: Node) -> Iterator[str]:
    for scope in {*new.get("x-required-scopes", ())} - {*old.get("x-required-scopes", ())}:
        yield f"{where}: scope {scope} became necessary"


def _bounds(where: str, old: Node, new: Node, side: Side) -> Iterator[str]:
    """Bounds may only widen for requests, and only narrow for responses. A missing bound is the widest."""
    for names, direction in ((_LOWER, 1), (_UPPER, -1)):
        for name in names:
            before, after = old.get(name), new.get(name)
            if before == after:
                continue
            narrower = before is None or (after is not None and direction * (after - before) > 0)
            if narrower == (side is Side.REQUEST):
                yield f"{where}: {name} {before} became {after}"


def _keywords(where: str, old: Node, new: Node, *, closed: bool) -> Iterator[str]:
    """No enum loses a value, and a closed one gets none.

    Any other constraint stays, as it is hard to tell which of two patterns is wider.
    """
    open_set = "x-extensible-enum"
    closed = closed and open_set not in old
    before, after = old.get("enum", old.get(open_set)), new.get("enum", new.get(open_set))
    if (before is None) != (after is None):
        yield f"{where}: enum {before} became {after}"
    for value in before or []:
        if after is not None and value not in after:
            yield f"{where}: value {value} was removed"
    for value in after or []:
        if closed and before is not None and value not in before:
            yield f"{where}: value {value} was added"
    for name in (old.keys() | new.keys()) - _COMPARED - _ANNOTATIONS:
        if old.get(name) != new.get(name):
            yield f"{where}: {name} {old.get(name)} became {new.get(name)}"


def _required(where: str, old: Node, new: Node, side: Side) -> Iterator[str]:
    before, after = set(old.get("required", [])), set(new.get("required", []))
    if side is Side.REQUEST:
        for name in after - before:
            yield f"{where}: field {name} became required"
    else:
        for name in before - after:
            yield f"{where}: field {name} became optional"


def _stability(operation: Node) -> int:
    return _STABILITY.index(operation.get("x-stability", "stable"))


def _types(schema: Node) -> list[str]:
    found = schema.get("type", [])
    return sorted([found] if isinstance(found, str) else found)


def _flat(document: Node, schema: Node) -> Node:
    """The schema with its references and `allOf` in one piece; what is nearer to the use of it counts."""
    schema = _resolved(document, schema)
    flat: Node = {}
    for part in [*(_flat(document, part) for part in schema.get("allOf", [])), schema]:
        properties = {**flat.get("properties", {})}
        for name, value in part.get("properties", {}).items():
            properties[name] = {**properties.get(name, {}), **value}
        flat = {**flat, **part}
        if properties:
            flat["properties"] = properties
    flat.pop("allOf", None)
    return flat


def _resolved(document: Node, node: Node) -> Node:
    while "$ref" in node:
        found: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        node = found
    return node
