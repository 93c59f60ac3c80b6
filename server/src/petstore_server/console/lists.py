"""Lists: the heads of their columns, and links to their other pages."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode


class Header(NamedTuple):
    """The head of a column: its text, the link that sorts by it, and how the list is sorted by it now (aria-sort)."""

    text: str
    link: str | None = None
    sorted: str | None = None
    is_number: bool = False


def header(
    text: str,
    field: str,
    sort: str,
    given: Mapping[str, str],
    *,
    largest_first: bool = False,
    is_number: bool = False,
) -> Header:
    """The head of a column that sorts by `field`, and the other way where the list is sorted by it already.

    `sort` is the field that the list is sorted by, after `-` if descending; `given` are the list's filters.
    """
    direction = {field: "ascending", f"-{field}": "descending"}.get(sort)
    first, other = (f"-{field}", field) if largest_first else (field, f"-{field}")
    link = query_link({**given, "sort": other if sort == first else first})
    return Header(text, link, direction, is_number)


def page_number(text: str) -> int:
    """The number of a page from a link, 1 if it is not one."""
    return max(1, int(text[:6])) if text.isascii() and text.isdigit() else 1


def query_link(given: Mapping[str, str], **more: str | int) -> str:
    """A link to the same list with these filters; those without a value are left out."""
    return "?" + urlencode({name: value for name, value in {**given, **more}.items() if value != ""})
