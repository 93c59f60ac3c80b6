"""Holds exchanges to the contract: every answer a test sees is checked against the shipped `openapi.yaml` (D18).

`Contract().check(...)` checks one exchange; `checked_client` and `checked_async_client` (checked_clients.py) do that
for all that a test sends. What no schema can say, the rules between the parts of an answer, is in contract_rules.py.
"""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

import jsonschema_rs

from petstore_server.api.contracts import CONTRACTS, load_contract
from petstore_server.settings import read_settings
from testing.contract_rules import Lines, check_code, check_limits, check_page, fail, same

_HTTPS_OWN = {"connection", "content-length", "content-type", "date", "keep-alive", "server", "transfer-encoding"}
_LIMIT_HEADERS = {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"}
_NOTICES = ("Deprecation", "Sunset", "Link")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


class Header(NamedTuple):
    required: bool
    numeric: bool
    validator: jsonschema_rs.Draft202012Validator


class Response(NamedTuple):
    """What one documented answer must look like."""

    headers: Mapping[str, Header]
    content_type: str | None
    validator: jsonschema_rs.Draft202012Validator | None

    def with_headers(self, more: Mapping[str, Header]) -> "Response":
        return self._replace(headers={**self.headers, **more})

    def without_limits(self) -> "Response":
        return self._replace(headers={name: self.headers[name] for name in self.headers.keys() - _LIMIT_HEADERS})


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
            lines: Lines = {}
            for name, value in headers:
                lines.setdefault(name.lower(), []).append(value)
            segments = [unquote(segment) for segment in target.partition("?")[0].split("/")[1:]]
            _check_framing(method, status, lines, body)
            if segments[0] in self.versions:
                self.versions[segments[0]].check(method, target, segments, status, lines, body)
            else:
                self.versions["v1"].check_outside(method, status, lines, body)
        except AssertionError as error:
            raise AssertionError(f"{method} {target} answered {status}: {error}") from None


class VersionContract:
    """The shipped contract of one version."""

    def __init__(self, version: str) -> None:
        self.document: dict[str, Any] = load_contract(read_settings({}), version)
        self._version = version
        self._responses: dict[int, Response] = {}
        self._compiled: dict[int, Header] = {}
        self._schemas = _closed(self.document["components"]["schemas"])
        self._others = self._answers(self.document["x-other-requests"]["responses"])
        names = [name for name in _NOTICES if name in self.document["components"]["headers"]]
        notices = self._headers({name: {"$ref": f"#/components/headers/{name}"} for name in names})
        self._paths = [self._path(template, item, notices) for template, item in self.document["paths"].items()]
        self._error = self._validator({"$ref": "#/components/schemas/Error"})

    def check(self, method: str, target: str, segments: list[str], status: int, lines: Lines, body: bytes) -> None:
        """Raise AssertionError unless the exchange, under this version, is as the contract says."""
        path = next((path for path in self._paths if path.matches(segments)), None)
        response = _pick(self._documented(path, method), status)
        _check_headers(response, lines)
        value = _check_body(response, method, lines, body)
        code = value["code"] if status >= 400 and value else None
        check_limits(status, code, lines)
        check_code(code, segments, lines)
        if isinstance(value, dict) and "data" in value:
            check_page(target, value, lines)
        if path and status == 405:
            same(set(lines["allow"][0].split(", ")), set(path.responses), "the methods in Allow")

    def _documented(self, path: Path | None, method: str) -> Mapping[int, Response]:
        if path is None:
            return {status: response for status, response in self._others.items() if status != 405}
        return path.responses.get(method, path.to_other_methods)

    def check_outside(self, method: str, status: int, lines: Lines, body: bytes) -> None:
        """The contract itself and its page, or an error: no key, so no limits (D2)."""
        for name in lines.keys() & _LIMIT_HEADERS:
            fail(f"{name} stands on an answer outside /v1")
        same(len(lines.get("x-request-id", [])), 1, "how often X-Request-Id stands")
        if status < 400:
            same(status in (200, 304, 308), True, "whether the status is one of a document's")
            same(status == 308, "location" in lines, "whether there is a Location")
            return
        response = _pick({s: a for s, a in self._others.items() if s != 401}, status).without_limits()
        _check_headers(response, lines)
        _check_body(response, method, lines, body)

    def _path(self, template: str, item: Mapping[str, Any], notices: Mapping[str, Header]) -> Path:
        segments = [None if part.startswith("{") else part for part in template.split("/")[1:]]
        responses = {name.upper(): self._answers(operation["responses"]) for name, operation in item.items()}
        if "GET" in responses and template != "/store/changes":
            responses["HEAD"] = responses["GET"]
        others = {status: response for status, response in self._others.items() if status != 404}
        if any(operation.get("deprecated") for operation in item.values()):
            for status in others.keys() - {401, 429}:
                others[status] = others[status].with_headers(notices)
        return Path((self._version, *segments), responses, others)

    def _answers(self, responses: Mapping[str, Any]) -> dict[int, Response]:
        return {int(status): self._respond(self._resolve(response)) for status, response in responses.items()}

    def _respond(self, response: Mapping[str, Any]) -> Response:
        """A response, compiled once for all operations that refer to it."""
        known = self._responses.get(id(response))
        if known is None:
            known = Response(self._headers(response["headers"]), None, None)
            for content_type, content in response.get("content", {}).items():
                known = known._replace(content_type=content_type, validator=self._validator(content["schema"]))
            self._responses[id(response)] = known
        return known

    def _headers(self, headers: Mapping[str, Any]) -> dict[str, Header]:
        return {name.lower(): self._header(header) for name, header in headers.items()}

    def _header(self, header: Mapping[str, Any]) -> Header:
        """A header, compiled once for all responses that refer to it."""
        definition = self._resolve(header)
        known = self._compiled.get(id(definition))
        if known is None:
            schema = definition["schema"]
            validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            known = Header(definition.get("required", False), schema["type"] == "integer", validator)
            self._compiled[id(definition)] = known
        return known

    def _validator(self, schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
        rooted = {**_with_closed_sets(schema), "components": {**self.document["components"], "schemas": self._schemas}}
        return jsonschema_rs.Draft202012Validator(rooted, validate_formats=True)

    def _resolve(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" in node:
            found: Any = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            node = found
        return node


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
        name: {"additionalProperties": False, **schema} if schema.get("type") == "object" else schema
        for name, schema in _with_closed_sets(schemas).items()
    }


def _with_closed_sets(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_closed_sets(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {"enum" if name == "x-extensible-enum" else name: _with_closed_sets(item) for name, item in node.items()}


def _pick(responses: Mapping[int, Response], status: int) -> Response:
    if status not in responses:
        fail(f"this status is not documented here; documented are {sorted(responses)}")
    return responses[status]


def _check_framing(method: str, status: int, lines: Lines, body: bytes) -> None:
    """What holds for every answer, documented or not."""
    for name in lines:
        if name.startswith("access-control-"):
            fail(f"{name} is present; keys do not belong in pages of other origins")
    for name in ("content-type", "content-length", "retry-after"):
        if len(lines.get(name, [])) > 1:
            fail(f"{name} stands {len(lines[name])} times")
    if "retry-after" in lines and status not in (200, 409, 429, 503):
        fail("Retry-After is present; it belongs on 429 and 503, and on what documents it")
    if status in (204, 304) or method == "HEAD":
        _check_bodiless(status, lines, body)
    elif "content-length" in lines and "content-encoding" not in lines:
        same(int(lines["content-length"][0]), len(body), "Content-Length")


def _check_bodiless(status: int, lines: Lines, body: bytes) -> None:
    if body:
        fail(f"there is a body of {len(body)} bytes, and must be none")
    if status in (204, 304) and "content-type" in lines:
        fail("Content-Type is present without a body")
    if status == 204 and "content-length" in lines:
        fail("Content-Length is present on a 204 (RFC 9110 §8.6)")


def _check_headers(response: Response, lines: Lines) -> None:
    for name, header in response.headers.items():
        values = lines.get(name, [])
        if len(values) > 1 or (header.required and not values):
            fail(f"{name} stands {len(values)} times, and must stand once")
        for value in values:
            _check_header(name, header, value)
    for name in lines.keys() - response.headers.keys() - _HTTPS_OWN:
        fail(f"{name} is not documented here")


def _check_header(name: str, header: Header, value: str) -> None:
    if header.numeric and not _INTEGER.fullmatch(value):
        fail(f"{name} is {value!r}, and must be a whole number")
    _validate(header.validator, int(value) if header.numeric else value, name)


def _check_body(response: Response, method: str, lines: Lines, body: bytes) -> Any:
    """The body's value; None where there must be no body."""
    if response.validator is None:
        return None
    same(lines.get("content-type"), [response.content_type], "Content-Type")
    if method == "HEAD":
        return None
    value = _strict_json(body)
    _validate(response.validator, value, "the body")
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


def _validate(validator: jsonschema_rs.Draft202012Validator, value: Any, what: str) -> None:
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"[{part!r}]" for part in error.instance_path)
        fail(f"{what}{where} is not as documented: {error.message}")
