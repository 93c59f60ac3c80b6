"""The arguments of calls: documented, checked and encoded here only. No I/O.

Only what the service could misunderstand is refused here, such as a datetime without an offset. Which values are
allowed is up to the service, which says so (400 `invalid_parameter`, `invalid_body`).
"""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from operator import index
from typing import Any, SupportsIndex
from urllib.parse import quote, urlencode

from petstore_client.errors import ConfigurationError
from petstore_client.v2 import Granularity, Sort, Status

_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)


def integer(name: str, value: object) -> int:
    """An integer, or what stands for one, such as a `numpy.int64`. A string is refused: it could change the path."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, not a {type(value).__name__}.")
    return index(value)


def timestamp(name: str, value: object) -> str:
    """An aware datetime as RFC 3339 in UTC."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not a {type(value).__name__}.")
    if value.utcoffset() is None:
        raise ConfigurationError(f"{name} has no UTC offset, so it is ambiguous; pass an aware datetime.")
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise ConfigurationError(f"{name} is out of range in UTC: {value.isoformat()}.") from None


def text(name: str, value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not a {type(value).__name__}.")
    return value


def idempotency_key(value: object) -> str:
    """A key that a header can carry."""
    if not _KEY.fullmatch(text("idempotency_key", value)):
        raise ConfigurationError("idempotency_key must be 1 to 255 visible ASCII characters, without spaces.")
    return str(value)


def _texts(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Collection):
        raise TypeError(f"{name} must be a str or a sequence of them, not a {type(value).__name__}.")
    if not value:
        raise ConfigurationError(f"{name} is empty, which matches nothing; pass None for all.")
    return [text(name, each) for each in value]


def _boolean(name: str, value: object) -> str:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not a {type(value).__name__}.")
    return str(value).lower()


_PARAMETERS: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "status": ("status", _texts),
    "pet_id": ("petId", integer),
    "complete": ("complete", _boolean),
    "ship_date_from": ("shipDateFrom", timestamp),
    "ship_date_to": ("shipDateTo", timestamp),
    "updated_from": ("updatedFrom", timestamp),
    "sort": ("sort", text),
    "limit": ("limit", integer),
    "cursor": ("cursor", text),
    "granularity": ("granularity", text),
    "start": ("from", timestamp),
    "end": ("to", timestamp),
}
"""The name in the API, and the check, of each argument."""


class _Query:
    """The arguments of an operation whose parameters are in its query."""

    def __post_init__(self) -> None:
        self.encode()  # raises the errors of an iteration where its arguments are given, not when it begins

    def encode(self) -> str:
        """The query. None is left out. Raises TypeError, and ConfigurationError (a ValueError)."""
        given = {
            parameter: check(name, value)
            for name, (parameter, check) in _PARAMETERS.items()
            if (value := getattr(self, name, None)) is not None
        }
        return urlencode(given, doseq=True, quote_via=quote)


@dataclass(frozen=True)
class Filters(_Query):
    """Arguments; None means all orders. Raises TypeError, and ConfigurationError (a ValueError).

    status: the status of the orders, or several, such as ("pending", "shipped").
    pet_id: the identifier of the pet.
    complete: whether the orders are complete; False matches those without the field too.
    ship_date_from, ship_date_to: aware datetimes, inclusive and exclusive; either excludes orders without a ship date.
    updated_from: an aware datetime; orders that have changed since, inclusive.
    sort: "id", "shipDate" or "updatedAt", or "-id" and so on for descending; orders without a ship date come last.
    """

    _: KW_ONLY
    status: Status | Collection[Status] | None = None
    pet_id: int | None = None
    complete: bool | None = None
    ship_date_from: datetime | None = None
    ship_date_to: datetime | None = None
    updated_from: datetime | None = None
    sort: Sort = "id"


@dataclass(frozen=True)
class PageQuery(Filters):
    """limit: the most orders on the page, from 1 to 1000.
    cursor: the `next_cursor` of the page before, for the same filters and sort; None for the first page.
    """

    _: KW_ONLY
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True)
class PagesQuery(Filters):
    """limit: the most orders in one request, from 1 to 1000; the iteration has no limit."""

    _: KW_ONLY
    limit: int = 1000

    def page(self, cursor: str | None) -> PageQuery:
        """The query of one page."""
        return PageQuery(**vars(self), cursor=cursor)


@dataclass(frozen=True)
class UsageQuery(_Query):
    """granularity: "hour" or "day", the length of the entries of the history.
    start, end: aware datetimes between which the history lies; by default the last 24 hours.
    """

    _: KW_ONLY
    granularity: Granularity = "hour"
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class NewOrder:
    """pet_id, quantity: the pet, and the number of units, at least 1.
    ship_date: when the order should ship, an aware datetime.
    idempotency_key: 1 to 255 visible ASCII characters; None makes a new key for this call. Pass the key of an earlier
        call to repeat that call.
    """

    _: KW_ONLY
    pet_id: int
    quantity: int
    ship_date: datetime | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        self.encode()
        if self.idempotency_key is not None:
            idempotency_key(self.idempotency_key)

    def encode(self) -> bytes:
        """The body. Raises TypeError, and ConfigurationError (a ValueError)."""
        body: dict[str, object] = {
            "petId": integer("pet_id", self.pet_id),
            "quantity": integer("quantity", self.quantity),
        }
        if self.ship_date is not None:
            body["shipDate"] = timestamp("ship_date", self.ship_date)
        return json.dumps(body).encode()
