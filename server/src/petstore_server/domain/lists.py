"""Lists that are shown page by page: how many match, and which part this is."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Count(NamedTuple):
    """How many match; `more` if that is the number of those examined, and there are others."""

    number: int
    more: bool


class NumberedPage(NamedTuple, Generic[T]):
    """One page of a list: `number` of `pages`, counted from 1; `total` items match."""

    items: Sequence[T]
    total: int
    number: int = 1
    pages: int = 1


def page_place(total: int, size: int, number: int) -> tuple[int, int]:
    """The number of a page of `size` items, and of all pages. A page beyond the last is the last one."""
    pages = max(1, -(-total // size))
    return min(max(1, number), pages), pages
