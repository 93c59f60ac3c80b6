"""Routes: which operation serves a path and a method. Each version of the API declares its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from petstore_server.api.call import Call
from petstore_server.api.errors import MethodNotAllowed, RouteNotFound
from petstore_server.domain.keys import Principal, Scope
from petstore_server.domain.windows import Decision
from petstore_server.server.response import Response

Handler = Callable[[Call, Principal, Decision], Awaitable[Response]]
"""Carries out a call for the principal whose key it has; the decision admitted it."""


class Operation(NamedTuple):
    """An operation of a contract: its operationId, the scope it requires (None: any key), and its handler.

    The `id` of an operation of a later version begins with the version, so that metrics distinguish them.
    """

    id: str
    scope: Scope | None
    handle: Handler


class Route(NamedTuple):
    """A path and its operations by method.

    In `template` the last segment may be a parameter, `{name}`. `notices` are header lines for every response to an
    admitted request for the path.
    """

    template: str
    operations: Mapping[str, Operation]
    notices: bytes = b""


class Match(NamedTuple):
    """What a path leads to: its segments, and the version of the API and the route, if there are any."""

    segments: list[str]
    version: str | None
    route: Route | None

    def operation(self, method: str) -> Operation:
        """The operation of the method. Raises RouteNotFound, MethodNotAllowed."""
        if self.route is None:
            raise RouteNotFound(self.version)
        operation = self.route.operations.get(method)
        if operation is None:
            raise MethodNotAllowed(", ".join(self.route.operations))
        return operation


class Routes:
    """The routes of all versions. Paths are exact: `/v1/store/orders/` is another path, and there are no redirects."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = routes
        self._versions = {_segments(route)[0] for route in routes}
        self._fixed = {tuple(_segments(route)): route for route in routes if not _has_parameter(route)}
        self._by_prefix = {tuple(_segments(route)[:-1]): route for route in routes if _has_parameter(route)}
        # Most requests spell a path without a parameter exactly so; these need not be taken apart.
        self._as_declared = {
            route.template.encode(): Match(_segments(route), _segments(route)[0], route)
            for route in self._fixed.values()
        }
        # So do most with one: what a path leads to by all of it but its last segment.
        self._parents = {
            route.template.rpartition("/")[0].encode(): Match(_segments(route)[:-1], _segments(route)[0], route)
            for route in self._by_prefix.values()
        }

    def find(self, path: bytes) -> Match:
        """What a path, as it was sent, leads to."""
        declared = self._as_declared.get(path)
        if declared is not None:
            return declared
        prefix, _, last = path.rpartition(b"/")
        parent = self._parents.get(prefix)
        if parent is not None and last and b"%" not in last:
            return Match([*parent.segments, last.decode("latin-1")], parent.version, parent.route)
        segments = path_segments(path)
        if not segments or segments[0] not in self._versions:
            return Match(segments, None, None)
        return Match(segments, segments[0], self._route(segments))

    def _route(self, segments: list[str]) -> Route | None:
        fixed = self._fixed.get(tuple(segments))
        if fixed is not None or not segments[-1]:
            return fixed
        return self._by_prefix.get(tuple(segments[:-1]))


def _segments(route: Route) -> list[str]:
    return route.template.split("/")[1:]


def _has_parameter(route: Route) -> bool:
    return "{" in route.template


def path_segments(path: bytes) -> list[str]:
    """The percent-decoded segments of a path: `/v1/store` becomes `["v1", "store"]`.

    The path is split before it is decoded, so that an encoded slash separates nothing. Empty and dot segments stay.
    """
    segments = path.decode("latin-1").split("/")[1:]
    if b"%" in path:
        return [unquote(segment) for segment in segments]
    return segments
