"""Orders: the record, its identifiers, and the transitions between states (spec S2, S3; D4 to D7)."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from petstore_server.domain import errors
from petstore_server.domain.texts import is_printable, is_visible, looks_like_key
from petstore_server.domain.timestamps import canonical_timestamp, format_timestamp, timestamp_text
from petstore_server.domain.transitions import Transition

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
MAX_ASSIGNED_ID = 2**53 - 1
"""The largest identifier that a new order may get: JavaScript rounds larger integers.

Orders under larger ones are imported or put, and these identifiers do not count as assigned.
"""

UNASSIGNED = INT64_MIN - 1
"""The identifier of an order in a file that has only a reference, until the store finds it or assigns one."""

ORDER_FIELDS = ("id", "petId", "quantity", "shipDate", "complete", "status", "reference", "account")
"""The fields of an order as files and the audit log have them: the columns of an export."""

MAX_REFERENCE = 64  # characters
REFERENCE_FORM = (
    f"1 to {MAX_REFERENCE} printable characters, none invisible, without a space at either end, and not an API key"
)

_FIELD_NAMES = frozenset(ORDER_FIELDS)
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_quoted = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder for each such call


class Status(StrEnum):
    PENDING = "pending"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"


class Order(NamedTuple):
    """An order: the five fields of the interface's record, and what the record lacks (spec S2.1).

    `ship_date` is RFC 3339 in UTC with `Z`, `reference` the partner's own number of the order, `account` the name of
    the account that owns it; an order without one is the shop's (D21). A named tuple, because imports build and compare
    millions of orders.
    """

    id: int
    pet_id: int | None = None
    quantity: int | None = None
    ship_date: str | None = None
    complete: bool | None = None
    status: Status = Status.PENDING
    reference: str | None = None
    account: str | None = None

    def record(self) -> str:
        """Return the Order of the interface as JSON, without fields that have no value (D7). Nothing needs escaping."""
        order_id, pet_id, quantity, ship_date, complete = self[:5]
        text = f'{{"id":{order_id}'
        if pet_id is not None:
            text += f',"petId":{pet_id}'
        if quantity is not None:
            text += f',"quantity":{quantity}'
        if ship_date is not None:
            text += f',"shipDate":"{ship_date}"'
        if complete is not None:
            text += ',"complete":true' if complete else ',"complete":false'
        return text + "}"

    def fields(self) -> dict[str, Any]:
        """Return all fields as {name: value}, without those that have no value."""
        values = (*self[:5], str(self.status), self.reference, self.account)
        return {name: value for name, value in zip(ORDER_FIELDS, values, strict=True) if value is not None}


class TrackedOrder(NamedTuple):
    """An order of version 2: the text of `Order.record`, and what that lacks. Timestamps are Unix microseconds.

    `account` is the name of the owner's account for a caller that sees it, and None for others.
    """

    record: str
    status: Status
    updated_at: int
    created_at: int
    reference: str | None = None
    account: str | None = None

    def text(self) -> str:
        """The Order of version 2 as JSON text: the fields of version 1, and those that only version 2 has."""
        return order_text(*self)


def order_text(
    record: str, status: str, updated_at: int, created_at: int, reference: str | None, account: str | None = None
) -> str:
    """The text of a TrackedOrder with these fields."""
    end = _text_end(status, updated_at, created_at)
    if reference is None and account is None:
        return record[:-1] + end
    return record[:-1] + text_member("reference", reference) + text_member("account", account) + end


def text_member(name: str, value: str | None) -> str:
    """What a text adds to the JSON text of an order, after another member: nothing without a value."""
    return "" if value is None else f',"{name}":{_quoted(value)}'


@lru_cache(maxsize=4096)
def _text_end(status: str, updated_at: int, created_at: int) -> str:
    """What the text of an order adds to its record; orders of one import share it."""
    created, updated = timestamp_text(created_at), timestamp_text(updated_at)
    return f',"status":"{status}","createdAt":"{created}","updatedAt":"{updated}"}}'


def _cancel(order: Order) -> Order:
    if order.status is Status.SHIPPED:
        raise errors.OrderAlreadyShipped(order.id, "can no longer be cancelled; do not retry")
    if order.status is Status.CANCELLED:
        raise errors.OrderAlreadyCancelled(order.id, "; nothing is left to do")
    return Order(*order[:5], Status.CANCELLED, *order[6:])  # `_replace` takes twice as long


def _complete(order: Order) -> Order:
    if order.status is Status.CANCELLED:
        raise errors.OrderAlreadyCancelled(order.id, " and cannot be completed")
    if order.status is not Status.SHIPPED:
        raise errors.OrderNotShipped(order.id, order.status)
    if order.complete:
        raise errors.OrderAlreadyComplete(order.id)
    return order._replace(complete=True)


CANCEL = Transition("order.cancel", _cancel)  # pending → cancelled; changes nothing else in the record (D5)
COMPLETE = Transition("order.complete", _complete)  # sets `complete` on a shipped order (D6)
PLACE = "order.place"


def ship(at: datetime) -> Transition[Order]:
    """Ship a pending order, with `shipDate` set to `at`, an aware datetime (D6)."""
    return ship_on(format_timestamp(at))


def ship_on(ship_date: str) -> Transition[Order]:
    """Ship a pending order. `ship_date` is RFC 3339 in UTC with `Z`."""

    def apply(order: Order) -> Order:
        if order.status is Status.SHIPPED:
            raise errors.OrderAlreadyShipped(order.id, "cannot be shipped again; nothing is left to do")
        if order.status is Status.CANCELLED:
            raise errors.OrderAlreadyCancelled(order.id, " and cannot be shipped; do not send it")
        return order._replace(status=Status.SHIPPED, ship_date=ship_date)

    return Transition("order.ship", apply)


def correct(values: Mapping[str, Any]) -> Transition[Order]:
    """Set fields of a pending or shipped order, by their names in Order; None removes a value (D22).

    Of a cancelled order only the reference can be removed, so that a text can be erased.
    """

    def apply(order: Order) -> Order:
        corrected = order._replace(**values)
        if corrected == order:
            return order
        if order.status is Status.CANCELLED and corrected != order._replace(reference=None):
            raise errors.OrderAlreadyCancelled(order.id, " and can no longer be corrected")
        if corrected.complete and not order.complete and order.status is not Status.SHIPPED:
            raise errors.OrderNotShipped(order.id, order.status)
        return corrected

    return Transition("order.update", apply)


def is_int64(text: str) -> bool:
    """Whether the text is an int64 in its canonical form, `0|-?[1-9][0-9]*` (D4)."""
    return _PLAIN_INTEGER.fullmatch(text) is not None and INT64_MIN <= int(text) <= INT64_MAX


def parse_order_id(text: str) -> int:
    """Parse an order identifier. Raises InvalidOrderId unless it is an int64 in canonical form."""
    if not is_int64(text):
        raise errors.InvalidOrderId
    return int(text)


def order_from_fields(fields: dict[str, Any], *, stored: bool = False) -> Order:
    """Build an order from an import record, or one that is `stored`: its fields as JSON types. Raises InvalidField."""
    if not _FIELD_NAMES.issuperset(fields):
        name = next(name for name in fields if name not in _FIELD_NAMES)
        raise errors.InvalidField(name, f"is not a field of an order; the fields are {', '.join(ORDER_FIELDS)}")
    order_id = integer_field(fields, "id")
    if order_id is None:
        raise errors.InvalidField("id", "is missing; every order needs one")
    return Order(
        order_id,
        integer_field(fields, "petId"),
        integer_field(fields, "quantity"),
        text_field(fields, "shipDate", canonical_timestamp),
        _complete_field(fields.get("complete")),
        _status_field(fields.get("status")),
        text_field(fields, "reference", partial(check_reference, stored=stored)),
        text_field(fields, "account", check_account),
    )


def integer_field(fields: dict[str, Any], name: str) -> int | None:
    """The field's int64; None if it is absent or null. Raises InvalidField."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int:
        plain = " in plain digits" if isinstance(value, str) else ""
        raise errors.InvalidField(name, f"is not a whole number{plain}", value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise errors.InvalidField(name, "does not fit a signed 64-bit integer", value)
    return value


def text_field(fields: dict[str, Any], name: str, check: Callable[[str], str] = str) -> str | None:
    """The field's text as `check` returns it; None if it is absent or null. Raises InvalidField, as for ValueError."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not str:
        raise errors.InvalidField(name, "is not text", value)
    try:
        return check(value)
    except ValueError as error:
        raise errors.InvalidField(name, str(error), value) from None


def _complete_field(value: object) -> bool | None:
    if value is None or type(value) is bool:
        return value
    raise errors.InvalidField("complete", "is neither true nor false", value)


STATUSES = {str(status): status for status in Status}


def _status_field(value: object) -> Status:
    if value is None:
        return Status.PENDING
    status = STATUSES.get(value) if type(value) is str else None
    if status is None:
        raise errors.InvalidField("status", f"is none of {', '.join(STATUSES)}", value)
    return status


def check_account(text: str) -> str:
    """Return the text if it may be the name of an account. Raises ValueError with the reason."""
    if not text or not is_printable(text) or looks_like_key(text):
        raise ValueError("is not the name of an account")
    return text


def check_reference(text: str, *, stored: bool = False) -> str:
    """Return the text if it is a reference, or may be `stored`: 1.0 took invisible characters. Raises ValueError."""
    is_shown = is_printable if stored else is_visible
    if not 0 < len(text) <= MAX_REFERENCE or not is_shown(text) or text.strip() != text or looks_like_key(text):
        raise ValueError(f"is not {REFERENCE_FORM}")
    return text
