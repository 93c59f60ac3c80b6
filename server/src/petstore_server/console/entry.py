"""Paths of the console."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response

from petstore_server.console.visit import Visit


class Entry(NamedTuple):
    """A path below the console's, the page that responds, and its methods. `public` pages need no session."""

    path: str
    page: Callable[[Visit], Awaitable[Response]]
    methods: tuple[str, ...] = ("GET",)
    public: bool = False
