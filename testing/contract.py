"""Holds exchanges to the contract: every answer a test sees is checked against the shipped `openapi.yaml` (D18).

`Contract().check(...)` checks one exchange; `checked_client` and `checked_async_client` (checked_clients.py) do that
for all that a test sends. What no schema can say, the rules between the parts of an answer, is in contract_rules.py.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

import jsonschema_rs

from petstore_server.api.contracts import CONTRACTS, load_contract
from petstore_server.api.routes import OWN_CONTRACT
from petstore_server.settings import read_settings
from testing.contract_rules import WRITTEN_TIMESTAMP, Headers, check_code, check_limits, check_page, fail, same

_HTTPS_OWN = {"connection", "content-length", "content-type", "date", "keep-alive", "server", "transfer-encoding"}
_LIMITS = frozenset(
    {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit"}
)
_NOTICES = ("Deprecation", "Sunset", "Link")
_OWN_CONTRACT = [[name] for name in OWN_CONTRACT]
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
Validator = jsonschema_rs.Draft202012Validator


class Response(NamedTuple):
    """What one documented answer must look like: its headers in lower case, those that are integers, and its body."""

    headers: Validator
    integers: set[str]
    content_type: str | None
    body: Validator | None


class Path(NamedTuple):
    """A path of the contract: its segments (None for a parameter), and its answers by method and status."""

    segments: tuple[str | None, ...]
    responses: Mapping[str, Mapping[int, Response]]
    to_other_methods: Mapping[int, Response]

    def matches(self, segments: list[str]) -> bool:
        return len(segments) == len(self.segments) and all(
            text if expected is None else text == expected
            for expected, text in zip(self.segments, segments, strict=True)
        )


class Contract:
    """The shipped contracts of all versions, compiled once."""

    def __init__(self) -> None:
        self.versions = {version: VersionContract(version) for version in CONTRACTS}
        self.document = self.versions["v1"].document

    def check(self, method: str, target: str, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Raise AssertionError unless the exchange is as the contract says.

        `target` is the request's path and query as sent, `headers` keeps repeated ones apart, `body` is without its
        content coding.
        """
        try:
            names = [name.lower() for name, _ in headers]
            found = dict(zip(names, (value for _, value in headers), strict=True))
            for name in found:
                if names.count(name) > 1:
                    fail(f"{name} stands {names.count(name)} times")
            segments = [unquote(segment) for segment in target.partition("?")[0].split("/")[1:]]
            _check_framing(method, status, found, body)
            if segments[0] in self.versions and segments[1:] not in _OWN_CONTRACT:
                self.versions[segments[0]].check(method, target, segments, status, found, body)
            else:
                self.versions["v1"].check_outside(method, status, found, body)
        except AssertionError as error:
            raise AssertionError(f"{method} {target} answered {status}: {error}") from None


class VersionContract:
    """The shipped contract of one version."""

    def __init__(self, version: str) -> None:
        self.document: dict[str, Any] = load_contract(read_settings({}), version)
        self._version = version
        self._compiled: dict[tuple[int, frozenset[str], bool], Response] = {}
        self._components = {**self.document["components"], "schemas": _closed(self.document["components"]["schemas"])}
        others = self.document["x-other-requests"]["responses"]
        self._others = self._answers(others)
        outside = {status: response for status, response in others.items() if status != "401"}
        self._outside = self._answers(outside, without=_LIMITS)
        paths = [self._path(template, item) for template, item in self.document["paths"].items()]
        # As /orders/batch, which a path with a parameter matches too.
        self._paths = sorted(paths, key=lambda path: path.segments.count(None))

    def check(self, method: str, target: str, segments: list[str], status: int, headers: Headers, body: bytes) -> None:
        """Raise AssertionError unless the exchange, under this version, is as the contract says."""
        path = next((path for path in self._paths if path.matches(segments)), None)
        if path is None:
            documented: Mapping[int, Response] = {known: self._others[known] for known in self._others.keys() - {405}}
        else:
            documented = path.responses.get(method, path.to_other_methods)
        value = _check_documented(documented, method, status, headers, body)
        code = value["code"] if status >= 400 and value else None
        check_limits(status, code, headers)
        check_code(code, segments, headers)
        if segments[1:2] == ["store"] and isinstance(value, dict) and "data" in value:
            check_page(target, value, headers)
        if path and status == 405:
            same(set(headers["allow"].split(", ")), set(path.responses), "the methods in Allow")

    def check_message(self, headers: Headers, body: bytes) -> None:
        """Raise AssertionError unless this is a message that createWebhook has among its callbacks."""
        value = _strict_json(body)
        callbacks = self.document["paths"]["/webhooks"]["post"]["callbacks"].values()
        for request in (item["post"] for callback in callbacks for item in callback.values()):
            content = request["requestBody"]["content"]["application/json"]
            if any(example["value"]["type"] == value["type"] for example in content["examples"].values()):
                _validate(self._validator(_as_written(content["schema"])), value, "the body")
                for parameter in map(self._resolve, request["parameters"]):
                    text = headers[parameter["name"]]
                    number = parameter["schema"]["type"] == "integer"
                    _validate(self._validator(parameter["schema"]), int(text) if number else text, parameter["name"])
                return
        fail(f"there is no message of the type {value['type']}")

    def check_outside(self, method: str, status: int, headers: Headers, body: bytes) -> None:
        """The contract itself and its page, or an error: no key, so no limits (D2)."""
        for name in headers.keys() & {name.lower() for name in _LIMITS}:
            fail(f"{name} stands on an answer outside /v1")
        same("x-request-id" in headers, True, "whether there is an X-Request-Id")
        if status < 400:
            same(status in (200, 304, 308), True, "whether the status is one of a document's")
            same(status == 308, "location" in headers, "whether there is a Location")
        else:
            _check_documented(self._outside, method, status, headers, body)

    def _path(self, template: str, item: Mapping[str, Any]) -> Path:
        segments = [None if part.startswith("{") else part for part in template.split("/")[1:]]
        responses = {name.upper(): self._answers(operation["responses"]) for name, operation in item.items()}
        if "GET" in responses and template != "/store/changes":
            responses["HEAD"] = responses["GET"]
        others = {status: self._others[status] for status in self._others.keys() - {404}}
        if any(operation.get("deprecated") for operation in item.values()):
            documented = self.document["x-other-requests"]["responses"]
            noted = {status: documented[str(status)] for status in others.keys() - {401, 429}}
            others |= self._answers(noted, noted=True)
        return Path((self._version, *segments), responses, others)

    def _answers(
        self, responses: Mapping[Any, Any], *, without: frozenset[str] = frozenset(), noted: bool = False
    ) -> dict[int, Response]:
        """Responses by status, without some headers, or with the notices of a deprecated operation."""
        return {int(status): self._response(self._resolve(each), without, noted) for status, each in responses.items()}

    def _response(self, response: Mapping[str, Any], without: frozenset[str], noted: bool) -> Response:
        """A response, compiled once for all operations that refer to it."""
        key = (id(response), without, noted)
        if key not in self._compiled:
            described = {name: response["headers"][name] for name in response["headers"].keys() - without}
            if noted:
                shared = self.document["components"]["headers"]
                described |= {name: shared[name] for name in _NOTICES if name in shared}
            headers = {name.lower(): self._resolve(header) for name, header in described.items()}
            kind, content = next(iter(response.get("content", {}).items()), (None, None))
            self._compiled[key] = Response(
                self._validator(
                    {
                        "properties": {name: header["schema"] for name, header in headers.items()},
                        "required": [name for name, header in headers.items() if header.get("required")],
                        "additionalProperties": False,
                    }
                ),
                {name for name, header in headers.items() if header["schema"]["type"] == "integer"},
                kind,
                self._validator(_as_written(content["schema"])) if content else None,
            )
        return self._compiled[key]

    def _validator(self, schema: Mapping[str, Any]) -> Validator:
        # Reading the components takes longer than all else.
        referred = {"components": self._components} if "$ref" in str(schema) else {}
        return Validator({**schema, **referred}, validate_formats=True)

    def _resolve(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        return find_reference(self.document, node["$ref"]) if "$ref" in node else node


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """All objects in a document, each before those in it."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from objects(item)


def resolved(node: Any, document: Mapping[str, Any]) -> Any:
    """What a node stands for: what it refers to, if it has a reference, with what is next to the reference."""
    while "$ref" in node:
        siblings = {name: value for name, value in node.items() if name != "$ref"}
        node = {**find_reference(document, node["$ref"]), **siblings}
    return node


def find_reference(document: Mapping[str, Any], reference: str) -> Any:
    """The node that a reference within the document names."""
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def error_examples(document: Mapping[str, Any]) -> dict[str, Any]:
    """The examples of errors, by their codes: those that operations share, and those of requests to none."""
    examples = dict(document["components"]["examples"])
    for response in document["x-other-requests"]["responses"].values():
        for content in response.get("content", {}).values():
            examples |= {code: example for code, example in content["examples"].items() if "$ref" not in example}
    return examples


def _closed(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas with the documented fields and values only: clients allow more, but the service has none."""
    return {
        name: {**schema, "additionalProperties": False} if schema.get("type") == "object" else schema
        for name, schema in _as_written(schemas).items()
    }


def _as_written(node: Any) -> Any:
    """Sets of values without others, and timestamps in the one form in which the service writes them (D7)."""
    if isinstance(node, list):
        return [_as_written(item) for item in node]
    if not isinstance(node, dict):
        return node
    written = {"enum" if name == "x-extensible-enum" else name: _as_written(item) for name, item in node.items()}
    return {**written, "pattern": WRITTEN_TIMESTAMP} if node.get("format") == "date-time" else written


def _check_framing(method: str, status: int, headers: Headers, body: bytes) -> None:
    """What holds for every answer, documented or not."""
    for name in headers:
        if name.startswith("access-control-"):
            fail(f"{name} is present; keys do not belong in pages of other origins")
    if "retry-after" in headers and status not in (200, 409, 429, 503):
        fail("Retry-After is present; it belongs on 429 and 503, and on what documents it")
    if status in (204, 304) or method == "HEAD":
        _check_bodiless(status, headers, body)
    elif "content-length" in headers and "content-encoding" not in headers:
        same(int(headers["content-length"]), len(body), "Content-Length")


def _check_bodiless(status: int, headers: Headers, body: bytes) -> None:
    if body:
        fail(f"there is a body of {len(body)} bytes, and must be none")
    if status in (204, 304) and "content-type" in headers:
        fail("Content-Type is present without a body")
    if status == 204 and "content-length" in headers:
        fail("Content-Length is present on a 204 (RFC 9110 §8.6)")


def _check_documented(
    documented: Mapping[int, Response], method: str, status: int, headers: Headers, body: bytes
) -> Any:
    """The body's value; None where there must be no body."""
    if status not in documented:
        fail(f"this status is not documented here; documented are {sorted(documented)}")
    response = documented[status]
    own = {name: headers[name] for name in headers.keys() - _HTTPS_OWN}
    numbers = {name: int(own[name]) for name in own.keys() & response.integers if _INTEGER.fullmatch(own[name])}
    _validate(response.headers, own | numbers, "headers")
    if response.body is None:
        return None
    same(headers.get("content-type"), response.content_type, "Content-Type")
    if method == "HEAD":
        return None
    value = _strict_json(body)
    _validate(response.body, value, "the body")
    if isinstance(value, list):
        ids = [order["id"] for order in value if "id" in order]
        for before, after in pairwise(ids):
            if before >= after:
                fail(f"order {after} follows order {before}; the list must ascend by id")
    return value


def _strict_json(body: bytes) -> Any:
    """JSON without what a lenient reader lets through: repeated names, NaN, fractions (no field here has one)."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(found)
        if len(value) != len(found):
            fail(f"the body repeats a name: {[name for name, _ in found]}")
        return value

    def refuse(text: str) -> NoReturn:
        fail(f"the body holds {text}, which is not an integer")

    try:
        text = body.decode("utf-8")
        return json.loads(text, object_pairs_hook=pairs, parse_float=refuse, parse_constant=refuse)
    except ValueError as error:
        fail(f"the body is not JSON in UTF-8 ({error})")


def _validate(validator: Validator, value: Any, what: str) -> None:
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"[{part!r}]" for part in error.instance_path)
        fail(f"{what}{where} is not as documented: {error.message}")
