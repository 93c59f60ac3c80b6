"""Lists: the heads of their columns, and links to their other pages and places, and to accounts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from petstore_server.domain.audit import AuditPosition
from petstore_server.domain.orders import INT64_MAX, INT64_MIN
from petstore_server.domain.search import Position

P = TypeVar("P", AuditPosition, Position)


class Column(NamedTuple):
    """A column: its text, the field that it sorts by if it does, and how its values are shown."""

    text: str
    field: str = ""
    largest_first: bool = False
    is_number: bool = False


class Header(NamedTuple):
    """The head of a column: the link that sorts by it, and how the list is sorted by it now (aria-sort)."""

    column: Column
    link: str | None = None
    sorted: str | None = None


def headers(columns: Sequence[Column], sort: str, given: Mapping[str, str]) -> list[Header]:
    """The heads of the columns: each sorts by its field, and the other way where the list is sorted by it already.

    `sort` is the field that the list is sorted by, after `-` if descending; `given` are the list's filters.
    """
    return [_header(column, sort, given) if column.field else Header(column) for column in columns]


def _header(column: Column, sort: str, given: Mapping[str, str]) -> Header:
    ways = [column.field, f"-{column.field}"]
    first, other = reversed(ways) if column.largest_first else ways
    direction = dict(zip(ways, ("ascending", "descending"), strict=True)).get(sort)
    return Header(column, query_link({**given, "sort": other if sort == first else first}), direction)


def page_number(text: str) -> int:
    """The number of a page from a link, 1 if it is not one."""
    return max(1, int(text[:6])) if text.isascii() and text.isdigit() else 1


def position_text(position: AuditPosition | Position) -> str:
    """A position in a list, for a link."""
    return msgspec.json.encode(position).decode()


def parse_position(text: str, kind: type[P]) -> P | None:
    """A position from a link of the console; an invalid one starts from the beginning."""
    try:
        position = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None
    numbers = [part for part in position if isinstance(part, int)]
    return position if all(INT64_MIN <= number <= INT64_MAX for number in numbers) else None


def query_link(given: Mapping[str, str], **more: str | int) -> str:
    """A link to the same list with these filters; those without a value are left out."""
    return "?" + urlencode({name: value for name, value in {**given, **more}.items() if value != ""})


def account_path(name: str) -> str:
    """The path of an account below the console's."""
    return f"/accounts/{quote(name, safe='')}"
