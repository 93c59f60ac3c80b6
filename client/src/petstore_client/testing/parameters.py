"""How the fake service reads queries and bodies of version 2: as strictly as the real one."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, get_args
from urllib.parse import parse_qsl

from petstore_client._parsing import read_timestamp
from petstore_client.v2 import Granularity, Sort, Status

_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


class Refused(Exception):
    """A response of 400 with this code and message, or of another status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class Parameter(NamedTuple):
    """A parameter or field. `read` raises ValueError unless the value is what `allowed` says."""

    read: Callable[[Any], Any]
    allowed: str
    default: Any = None
    repeatable: bool = False
    required: bool = False


def _number(least: int, most: int = 2**63 - 1) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _digits(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    return lambda text: _number(least, most)(int(text) if _INTEGER.fullmatch(text) else None)


def _timestamp(text: object) -> datetime:
    return read_timestamp(text if isinstance(text, str) else "").astimezone(UTC)


def _choice(kind: Any, default: str | None = None, repeatable: bool = False) -> Parameter:
    choices: tuple[str, ...] = get_args(kind)
    return Parameter(
        lambda text: choices[choices.index(text)], f"one of {', '.join(choices)}", default, repeatable=repeatable
    )


def _cursor(text: str) -> str:
    if not text:
        raise ValueError
    return text


_INT64 = "a whole number of at most 64 bits"
_TIMESTAMP = Parameter(_timestamp, "an RFC 3339 date-time with an offset")

LIST_ORDERS = {
    "status": _choice(Status, repeatable=True),
    "petId": Parameter(_digits(-(2**63)), _INT64),
    "complete": Parameter(lambda text: bool(("false", "true").index(text)), "true or false"),
    "shipDateFrom": _TIMESTAMP,
    "shipDateTo": _TIMESTAMP,
    "updatedFrom": _TIMESTAMP,
    "sort": _choice(Sort, "id"),
    "limit": Parameter(_digits(1, 1000), "a whole number from 1 to 1000", 100),
    "cursor": Parameter(_cursor, "the nextCursor of a page"),
}
GET_USAGE = {"granularity": _choice(Granularity, "hour"), "from": _TIMESTAMP, "to": _TIMESTAMP}
PLACE_ORDER = {
    "petId": Parameter(_number(-(2**63)), _INT64, required=True),
    "quantity": Parameter(_number(1), "a whole number of at least 1", required=True),
    "shipDate": _TIMESTAMP,
}
_RANGES = (("shipDateFrom", "shipDateTo"), ("from", "to"))


def read_query(query: str, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """The values of a query, with defaults. Raises Refused."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):
        given.setdefault(name, []).append(value)
    for name, texts in given.items():
        if name not in parameters:
            raise Refused("invalid_parameter", f"'{name}' is not a parameter of this operation.")
        if len(texts) > 1 and not parameters[name].repeatable:
            raise Refused("invalid_parameter", f"'{name}' is given more than once; give it once.")
    values = {
        name: _read("invalid_parameter", name, parameter, given[name]) if name in given else parameter.default
        for name, parameter in parameters.items()
    }
    for start, end in _RANGES:
        if values.get(start) and values.get(end) and values[start] > values[end]:
            raise Refused("invalid_parameter", f"'{start}' is after '{end}'; swap the two or leave one out.")
    return values


def read_body(body: bytes) -> dict[str, Any]:
    """The fields of an order to place. Raises Refused."""
    try:
        members = json.loads(body, object_pairs_hook=_members, parse_float=str, parse_constant=str)
    except ValueError:
        raise Refused("invalid_body", "The body is not JSON.") from None
    if not isinstance(members, dict):
        raise Refused("invalid_body", "The body is not a JSON object.")
    for name in members:
        if name not in PLACE_ORDER:
            raise Refused("invalid_body", f"The body contains '{name}', which is not a field.")
    for name, field in PLACE_ORDER.items():
        if field.required and name not in members:
            raise Refused("invalid_body", f"The body lacks the field '{name}'; it must be {field.allowed}.")
    return {
        name: _read("invalid_body", name, field, [members[name]]) if name in members else None
        for name, field in PLACE_ORDER.items()
    }


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Refused("invalid_body", "The body contains a field more than once; give each field once.")
    return dict(pairs)


def _read(code: str, name: str, parameter: Parameter, given: list[Any]) -> Any:
    try:
        values = [parameter.read(value) for value in given]
    except (ValueError, OverflowError):
        several = "; repeat the parameter for several" if parameter.repeatable else ""
        raise Refused(code, f"'{name}' must be {parameter.allowed}{several}.") from None
    return values if parameter.repeatable else values[0]
