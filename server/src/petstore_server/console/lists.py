"""Lists: links to their other pages and places, and to accounts."""

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from petstore_server.domain.audit import AuditPosition
from petstore_server.domain.lists import Position
from petstore_server.domain.orders import INT64_MAX, INT64_MIN

P = TypeVar("P", AuditPosition, Position)


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
