"""The bodies of version 2: the fields of each JSON object, in tables (D20, D22).

The tables are the one description: the checks and their messages follow from them, and tests compare them with the
contract. Bodies are strict: whatever a table does not allow is an error. A field that is null has no value.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from petstore_server.api.errors import InvalidBody, UnsupportedMediaType
from petstore_server.api.v2.input import (
    IF_MATCH,
    IF_NONE_MATCH,
    AccountName,
    Boolean,
    Choice,
    Choices,
    Integer,
    Kind,
    Reference,
    Text,
    Timestamp,
    shown,
)
from petstore_server.domain.orders import STATUSES, Order, Status, is_int64
from petstore_server.domain.timestamps import timestamp_text
from petstore_server.domain.webhooks import MAX_GRACE, WebhookState
from petstore_server.operations.webhooks import BEGINNING, NOW

MAX_OPERATIONS = 500  # of a batch
MAX_BATCH_BYTES = 256 * 1024  # of its body

FieldKind = Kind | Choices

NEW_ORDER: dict[str, Kind] = {
    "petId": Integer(),
    "quantity": Integer(minimum=1),
    "shipDate": Timestamp(),
    "reference": Reference(),
}
REQUIRED_FIELDS = ("petId", "quantity")  # of a new order
SHIPMENT: dict[str, Kind] = {"shipDate": Timestamp()}
CORRECTIONS: dict[str, Kind] = {
    "petId": Integer(),
    "quantity": Integer(),
    "shipDate": Timestamp(),
    "complete": Boolean(),
    "reference": Reference(),
}
PUT_ORDER: dict[str, Kind] = {**CORRECTIONS, "status": Choice(STATUSES), "account": AccountName()}

WEBHOOK: dict[str, FieldKind] = {
    "url": Text(".{1,2048}", "an https:// URL of at most 2048 characters"),
    "statuses": Choices(STATUSES),
    "state": Choice({str(state): state for state in (WebhookState.ACTIVE, WebhookState.PAUSED)}),
    "after": Text(".+", f"{NOW}, {BEGINNING}, or the 'next' of a response or message"),
}
ROTATION: dict[str, Kind] = {"grace": Integer(0, MAX_GRACE)}

MEMBERS = {"ship": "shipDate", "complete": "", "cancel": "", "put": "order", "update": "changes"}
"""The member that each operation of a batch has, next to those that all have."""
_CONDITIONS = (("ifMatch", IF_MATCH.kind), ("ifNoneMatch", IF_NONE_MATCH.kind))
_NAMES = {"petId": "pet_id", "shipDate": "ship_date"}  # of the fields of Order that have other names there
_OTHER_CHARSET = re.compile(rb'[ \t]*charset=(?!"?utf-8"?[ \t]*\Z)', re.IGNORECASE)  # another one than UTF-8
_JSON = b"application/json"
_MERGE_PATCH = b"application/merge-patch+json"
_WEBHOOK_EXAMPLE = '{"url": "https://shop.example/orders"}'
_NEW_EXAMPLE = '{"petId": 3, "quantity": 1}'


class BatchItem(NamedTuple):
    """An operation of a batch, checked: what it does, to which order, with the value that it has."""

    operation: str
    order_id: int
    value: Any = None
    if_match: str | None = None
    if_none_match: str | None = None


def check_media_type(headers: Mapping[bytes, bytes], *, patch: bool = False) -> None:
    """Raise UnsupportedMediaType unless the headers describe plain JSON in UTF-8; or a merge `patch` (RFC 7396).

    Parameters of the media type other than its charset have no meaning (RFC 8259 section 11).
    """
    content_type = headers.get(b"content-type", b"")
    media_type, *parameters = content_type.split(b";")
    allowed = (_JSON, _MERGE_PATCH) if patch else (_JSON,)
    plain = headers.get(b"content-encoding", b"identity").lower() == b"identity"
    repeated = b"," in content_type
    if media_type.strip().lower() not in allowed or any(map(_OTHER_CHARSET.match, parameters)) or repeated or not plain:
        raise UnsupportedMediaType


def read_new_order(body: bytes) -> tuple[int, int, str | None, str | None]:
    """Read the pet id, the quantity, the ship date (in canonical form) and the reference of placeOrder's body.

    Raises InvalidBody, whose message names the field.
    """
    values = _values(_object(body, _NEW_EXAMPLE), NEW_ORDER, REQUIRED_FIELDS)
    return values["pet_id"], values["quantity"], values.get("ship_date"), values.get("reference")


def read_put_order(body: bytes, order_id: int) -> Order:
    """Read the order of putOrder's body. Raises InvalidBody, whose message names the field."""
    return _order(_object(body, '{"petId": 3, "quantity": 1, "reference": "R-17"}'), order_id)


def read_corrections(body: bytes) -> dict[str, Any]:
    """Read the fields of updateOrder's body, by their names in Order; None removes one. Raises InvalidBody."""
    return _values(_object(body, '{"quantity": 2}'), CORRECTIONS)


def read_ship_date(body: bytes) -> str | None:
    """Read the ship date of shipOrder's body, in canonical form; None without one. Raises InvalidBody."""
    return _ship_date(_optional(body, '{"shipDate": "2026-11-01T10:00:00Z"}'))


def read_webhook(body: bytes, *, new: bool) -> dict[str, Any]:
    """Read the fields given of createWebhook's or updateWebhook's body. Raises InvalidBody.

    `statuses` without a value are all. Of a `new` webhook, another field that is null is absent; in a change no other
    field may be null, because none can be removed.
    """
    members = _object(body, _WEBHOOK_EXAMPLE)
    values = _values(members, WEBHOOK, {"url"} if new else members.keys() - {"statuses"})
    return _given(values | ({"statuses": values["statuses"] or ()} if "statuses" in values else {}))


def read_grace(body: bytes) -> int:
    """Read the seconds in rotateWebhook's body, MAX_GRACE without any. Raises InvalidBody."""
    grace: int | None = _values(_optional(body, '{"grace": 3600}'), ROTATION).get("grace")
    return MAX_GRACE if grace is None else grace


def read_batch(body: bytes) -> list[BatchItem | InvalidBody]:
    """Read the operations of a batch, from 1 to MAX_OPERATIONS; a malformed one is its error. Raises InvalidBody."""
    members = _object(body, _BATCH_EXAMPLE)
    operations = members.get("operations")
    if members.keys() != {"operations"} or type(operations) is not list:
        raise InvalidBody(f"The body must have one field, 'operations', a list; send one such as {_BATCH_EXAMPLE}.")
    if not 1 <= len(operations) <= MAX_OPERATIONS:
        raise InvalidBody(f"The body has {len(operations)} operations; send 1 to {MAX_OPERATIONS} in a batch.")
    return [_item_or_error(operation) for operation in operations]


_BATCH_EXAMPLE = '{"operations": [{"operation": "ship", "orderId": 7}]}'


def _item_or_error(operation: object) -> BatchItem | InvalidBody:
    try:
        return _item(operation)
    except InvalidBody as error:
        return error


def _item(operation: object) -> BatchItem:
    if type(operation) is not dict:
        raise InvalidBody("An operation of a batch must be a JSON object.")
    kind = operation.get("operation")
    if type(kind) is not str or kind not in MEMBERS:
        raise InvalidBody(f"The field 'operation' must be one of {', '.join(MEMBERS)}.")
    names = ["operation", "orderId", "ifMatch", *([MEMBERS[kind]] if MEMBERS[kind] else [])]
    _check_names(operation, [*names, "ifNoneMatch"] if kind == "put" else names)
    order_id = _value("orderId", Integer(), operation, required=True)
    conditions = (_value(*condition, operation, required=False) for condition in _CONDITIONS)
    return BatchItem(kind, order_id, _item_value(kind, order_id, operation), *conditions)


def _item_value(kind: str, order_id: int, operation: Mapping[str, object]) -> Any:
    name = MEMBERS[kind]
    if kind == "ship":
        return _ship_date({name: operation.get(name)})
    if not name:
        return None
    members = operation.get(name)
    if type(members) is not dict:
        raise InvalidBody(f"The field '{name}' must be a JSON object.")
    return _order(members, order_id) if kind == "put" else _values(members, CORRECTIONS)


def _order(members: Mapping[str, object], order_id: int) -> Order:
    return Order(order_id, **{"status": Status.PENDING, **_given(_values(members, PUT_ORDER))})


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _ship_date(members: Mapping[str, object]) -> str | None:
    text: str | None = _values(members, SHIPMENT).get("ship_date")
    return text


def _values(
    members: Mapping[str, object], fields: Mapping[str, FieldKind], required: Collection[str] = ()
) -> dict[str, Any]:
    """The values of the fields given, by their names in Order. Raises InvalidBody."""
    _check_names(members, fields)
    values = {}
    for name, kind in fields.items():
        if name in members or name in required:
            value = _value(name, kind, members, required=name in required)
            values[_NAMES.get(name, name)] = _text(value) if isinstance(kind, Timestamp) else value
    return values


def _text(value: int | None) -> str | None:
    return None if value is None else timestamp_text(value)


def _check_names(members: Mapping[str, object], known: Collection[str]) -> None:
    unknown = next((name for name in members if name not in known), None)
    if unknown is not None:
        names = ", ".join(known)
        raise InvalidBody(f"The body contains {shown(unknown)}, which is not a field; the fields are {names}.")


def _value(name: str, kind: FieldKind, members: Mapping[str, object], *, required: bool) -> Any:
    if required:
        if name not in members:
            raise InvalidBody(f"The body lacks the field '{name}'; it must be {kind.allowed}.")
    elif members.get(name) is None:  # many programs write null for a field without a value
        return None
    value = members[name]
    try:
        if isinstance(kind, (Integer, Boolean, Choices)):
            return kind.check(value)
        if isinstance(value, str):
            return kind.from_text(value)
    except (KeyError, ValueError):
        pass
    raise InvalidBody(f"The field '{name}' must be {kind.allowed}.")


def _optional(body: bytes, example: str) -> dict[str, object]:
    """The members of a JSON object that may be absent. Raises InvalidBody.

    `null` stands for an absent body: generated clients in Go and Java write it where a body is optional.
    """
    return {} if body.strip() in (b"", b"null") else _object(body, example)


def _object(body: bytes, example: str) -> dict[str, object]:
    """The members of a JSON object. Raises InvalidBody."""
    try:
        members = _DECODER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        raise InvalidBody(f"The body is not JSON in UTF-8; send an object such as {example}.") from None
    if type(members) is not dict:
        raise InvalidBody(f"The body is not a JSON object; send one such as {example}.")
    return members


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        (repeated, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidBody(f"The body contains {shown(repeated)} more than once; give each field once.")
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=lambda text: int(text) if is_int64(text) else float(text),  # which no field allows, such as -0 (D4)
    parse_constant=int,  # which raises ValueError: NaN and Infinity are not JSON
)
