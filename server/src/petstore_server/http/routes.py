"""What is served under /v1: a table of paths, and of each path's methods."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from petstore_server.domain.keys import Scope
from petstore_server.http.errors import MethodNotAllowed, RouteNotFound
from petstore_server.http.request import Request
from petstore_server.http.responses import Response


class Operation(NamedTuple):
    """An operation of the contract: its operationId, the scope that it needs, and its handler."""

    id: str
    scope: Scope
    handle: Callable[[Request], Awaitable[Response]]


class Route(NamedTuple):
    """A path and its operations by method. `notices` go onto every answer to a request that was admitted."""

    template: str
    operations: Mapping[str, Operation]
    notices: Sequence[tuple[bytes, bytes]] = ()

    @property
    def allow(self) -> str:
        """All methods of the path, as the Allow header lists them."""
        return ", ".join(self.operations)

    def operation(self, method: str) -> Operation:
        """Raises MethodNotAllowed."""
        operation = self.operations.get(method)
        if operation is None:
            raise MethodNotAllowed(self.allow)
        return operation


class Routes:
    """Finds the route of a path. There are no redirects: `/v1/store/orders/` is another path, and not served."""

    def __init__(self, routes: list[Route]) -> None:
        self._fixed = {tuple(_parts(route)): route for route in routes if "{" not in route.template}
        self._by_prefix = {tuple(_parts(route)[:-1]): route for route in routes if "{" in route.template}

    def find(self, segments: list[str]) -> Route | None:
        """The route of these path segments; a parameter is always the last, and any text but none is taken for it."""
        fixed = self._fixed.get(tuple(segments))
        return fixed or (self._by_prefix.get(tuple(segments[:-1])) if segments[-1] else None)

    def all(self) -> list[Route]:
        """Every route there is."""
        return [*self._fixed.values(), *self._by_prefix.values()]


def _parts(route: Route) -> list[str]:
    return route.template.split("/")[1:]


def found(route: Route | None) -> Route:
    """The route. Raises RouteNotFound where there is none."""
    if route is None:
        raise RouteNotFound
    return route
