"""The arguments of calls: checked and encoded here only. No I/O.

Only what the service could misunderstand is refused here, such as a datetime without an offset. Which values are
allowed is up to the service, which says so (400 `invalid_parameter`, `invalid_body`).
"""

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from operator import index
from typing import Any, SupportsIndex, get_args
from urllib.parse import quote, urlencode

from petstore_client import v2
from petstore_client.errors import ConfigurationError

_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_TAG = r'(?:W/)?"[!#-~]*"'
_WEBHOOK_ID = re.compile(r"[\w-]+", re.ASCII)  # nothing that could change the path
_ENTITY_TAGS = re.compile(rf"\*|{_TAG}(?:[ \t]*,[ \t]*{_TAG})*", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")  # in pairs as well: they cannot be encoded


def integer(name: str, value: object) -> int:
    """An integer, or what stands for one, such as a `numpy.int64`. A string is refused: it could change the path."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise _wrong(name, "an int", value)
    return index(value)


def timestamp(name: str, value: object) -> str:
    """An aware datetime as RFC 3339 in UTC."""
    if not isinstance(value, datetime):
        raise _wrong(name, "a datetime", value)
    if value.utcoffset() is None:
        raise ConfigurationError(f"{name} has no UTC offset, so it is ambiguous; pass an aware datetime.")
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise ConfigurationError(f"{name} is out of range in UTC: {value.isoformat()}.") from None


def query(arguments: Mapping[str, object]) -> str:
    """The query with these arguments; None is left out. Raises TypeError, and ConfigurationError (a ValueError)."""
    if unknown := arguments.keys() - _PARAMETERS.keys():
        raise TypeError(f"This method has no argument {', '.join(sorted(unknown))}.")
    given = {
        parameter: check(name, arguments[name])
        for name, (parameter, check) in _PARAMETERS.items()
        if arguments.get(name) is not None
    }
    return urlencode(given, doseq=True, quote_via=quote)


def new_order(
    pet_id: object, quantity: object, ship_date: object, reference: object, idempotency_key: object
) -> tuple[bytes, str]:
    """The body of a request that places an order, and its key, a new one for None. Raises as `query` does."""
    body = {"petId": integer("pet_id", pet_id), "quantity": integer("quantity", quantity)}
    body |= _given({"ship_date": ship_date, "reference": reference})
    given = str(idempotency_key) if isinstance(idempotency_key, uuid.UUID) else idempotency_key
    key = uuid.uuid4().hex if given is None else _text("idempotency_key", given)
    if not _KEY.fullmatch(key):
        raise ConfigurationError("idempotency_key must be 1 to 255 visible ASCII characters, without spaces.")
    return json.dumps(body).encode(), key


def batch_operation(operation: v2.BatchOperation) -> dict[str, Any]:
    """The operation as `batchOrders` takes it. Raises as `query` does."""
    values = {field.name: getattr(operation, field.name) for field in fields(operation)}
    names = "order_id", "if_match", "create_only"
    order_id, if_match, create_only = (values.pop(name, None) for name in names)
    found = {"operation": type(operation).__name__.lower(), "orderId": integer("order_id", order_id)}
    match operation:
        case v2.Put():
            found["order"] = _given(values)
        case v2.Update():
            found["changes"] = _api_fields(values)
        case v2.Ship():
            found |= _given(values)
    if if_match is not None:
        found["ifMatch"] = entity_tags(if_match)
    if create_only is not None and boolean("create_only", create_only):
        found["ifNoneMatch"] = "*"
    return found


def entity_tags(if_match: object) -> str:
    """The value of If-Match. Raises as `query` does."""
    text = _text("if_match", if_match)
    if not _ENTITY_TAGS.fullmatch(text):
        hint = "" if text else " It is empty if a proxy removes ETags."
        raise ConfigurationError(
            f"if_match must be the etag of an order, in its quotes, or *; None: no condition.{hint}"
        )
    return text


def batch_operations(operations: Iterable[v2.BatchOperation]) -> list[tuple[v2.BatchOperation, dict[str, Any]]]:
    """The operations of `batch_orders`, each with what it is in the API. Raises as `query` does."""
    found = list(operations)
    for each in found:
        if type(each) not in get_args(v2.BatchOperation):
            raise _wrong("An operation", "a Put, Update, Ship, Complete or Cancel of petstore_client.v2", each)
    return [(each, batch_operation(each)) for each in found]


def webhook_id(value: object) -> str:
    """The identifier of a webhook. Raises as `query` does."""
    text = _text("webhook_id", value)
    if not _WEBHOOK_ID.fullmatch(text):
        raise ConfigurationError("webhook_id must be the id of a webhook, such as wh_3kTMd9QxBv1a.")
    return text


def webhook(values: Mapping[str, object]) -> bytes:
    """The body of a request with these fields of a webhook, without those that are UNSET. Raises as `query` does."""
    return json.dumps(_api_fields(values)).encode()


def _given(values: Mapping[str, object]) -> dict[str, Any]:
    """The fields of an order that have a value, by their names in the API."""
    return _api_fields({name: value for name, value in values.items() if value is not None})


def _api_fields(values: Mapping[str, object]) -> dict[str, Any]:
    """The fields of an order or a webhook that are not UNSET, by their names in the API. None removes a value."""
    given = {name: value for name, value in values.items() if value is not v2.UNSET}
    checks = {name: _FIELDS[name] for name in given}
    return {api: None if given[name] is None else check(name, given[name]) for name, (api, check) in checks.items()}


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "a str", value)
    if _SURROGATE.search(value):
        raise ConfigurationError(
            f"{name} has a surrogate, which is not a character. Decode its bytes as they were encoded."
        )
    return value


def _texts(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [_text(name, value)]
    if not isinstance(value, Collection):
        raise _wrong(name, "a str or a sequence of them", value)
    if not value:
        raise ConfigurationError(f"{name} is empty, which matches nothing; pass None for all.")
    return [_text(name, each) for each in value]


def boolean(name: str, value: object) -> bool:
    """A bool."""
    if not isinstance(value, bool):
        raise _wrong(name, "a bool", value)
    return value


def _boolean(name: str, value: object) -> str:
    return str(boolean(name, value)).lower()


def _wrong(name: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {wanted}, not a {type(value).__name__}.")


_FIELDS: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "pet_id": ("petId", integer),
    "quantity": ("quantity", integer),
    "ship_date": ("shipDate", timestamp),
    "complete": ("complete", boolean),
    "status": ("status", _text),
    "reference": ("reference", _text),
    "account": ("account", _text),
    "url": ("url", _text),
    "statuses": ("statuses", _texts),
    "state": ("state", _text),
    "after": ("after", _text),
    "grace": ("grace", integer),
}
"""The name in the API, and the check, of each field of an order or a webhook."""

_PARAMETERS: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "status": ("status", _texts),
    "pet_id": ("petId", integer),
    "complete": ("complete", _boolean),
    "ship_date_from": ("shipDateFrom", timestamp),
    "ship_date_to": ("shipDateTo", timestamp),
    "updated_from": ("updatedFrom", timestamp),
    "reference": ("reference", _texts),
    "sort": ("sort", _text),
    "limit": ("limit", integer),
    "cursor": ("cursor", _text),
    "after": ("after", _text),
    "granularity": ("granularity", _text),
    "start": ("from", timestamp),
    "end": ("to", timestamp),
}
"""The name in the API, and the check, of each argument."""
