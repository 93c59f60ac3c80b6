"""The body of placeOrder: strict JSON, and its fields in a table (D20)."""

import json
import re
from collections import Counter
from typing import Any, NamedTuple, NoReturn

from petstore_server.api.errors import InvalidBody, UnsupportedMediaType
from petstore_server.api.v2.values import FieldKind, Integer, Timestamp, shown_name
from petstore_server.domain.orders import is_int64
from petstore_server.domain.timestamps import timestamp_text

_JSON = re.compile(rb'application/json(?:[ \t]*;[ \t]*charset="?utf-8"?)?[ \t]*', re.IGNORECASE)


class Field(NamedTuple):
    """One member of a body."""

    name: str
    kind: FieldKind
    required: bool = False


ORDER_FIELDS = {
    field.name: field
    for field in (
        Field("petId", Integer(), required=True),
        Field("quantity", Integer(minimum=1), required=True),
        Field("shipDate", Timestamp()),
    )
}


def check_media_type(content_type: bytes | None, content_encoding: bytes | None) -> None:
    """Raise UnsupportedMediaType unless the headers describe plain JSON in UTF-8."""
    if content_type is None or not _JSON.fullmatch(content_type):
        raise UnsupportedMediaType
    if content_encoding is not None and content_encoding.lower() != b"identity":
        raise UnsupportedMediaType


def read_new_order(body: bytes) -> tuple[int, int, str | None]:
    """Read the pet id, the quantity and the ship date (in canonical form) of placeOrder's body.

    Raises InvalidBody, whose message names the field.
    """
    members = _object(body)
    for name in members:
        if name not in ORDER_FIELDS:
            raise InvalidBody(
                f"The body contains {shown_name(name)}, which is not a field; the fields are {', '.join(ORDER_FIELDS)}."
            )
    values = {name: _value(field, members) for name, field in ORDER_FIELDS.items()}
    ship_date = values["shipDate"]
    return values["petId"], values["quantity"], (None if ship_date is None else timestamp_text(ship_date))


def _value(field: Field, members: dict[str, object]) -> Any:
    if field.name not in members:
        if field.required:
            raise InvalidBody(f"The body lacks the field '{field.name}'; it must be {field.kind.allowed}.")
        return None
    try:
        return field.kind.from_json(members[field.name])
    except ValueError:
        raise InvalidBody(f"The field '{field.name}' must be {field.kind.allowed}.") from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        (repeated, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidBody(f"The body contains {shown_name(repeated)} more than once; give each field once.")
    return members


def _constant(_: str) -> NoReturn:
    raise ValueError  # NaN and Infinity are not JSON


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=lambda text: int(text) if is_int64(text) else float(text),  # which no field allows, such as -0 (D4)
    parse_constant=_constant,
)
_EXAMPLE = '{"petId": 3, "quantity": 1}'


def _object(body: bytes) -> dict[str, object]:
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        raise InvalidBody(f"The body is not JSON in UTF-8; send an object such as {_EXAMPLE}.") from None
    if type(value) is not dict:
        raise InvalidBody(f"The body is not a JSON object; send one such as {_EXAMPLE}.")
    return value
