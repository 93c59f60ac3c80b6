"""Routes: which operation serves a path and a method, and the call that it gets. Each version declares its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import unquote

from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import Principal, Scope
from petstore_server.domain.usage import NO_OPERATION
from petstore_server.domain.windows import Decision
from petstore_server.server.messages import Request, Response

_MAX_SEGMENT = 96  # bytes of one that is decoded: names and identifiers are shorter, even with all characters encoded


class Call:
    """A request, and what the gate finds out about it.

    `request_id` is 1 to 128 visible ASCII characters, `segments` are those of the path, percent-decoded. `operation` is
    the identifier of the operation that a request with a valid key asks for, or NO_OPERATION; `principal` and
    `decision` are None until the gate has them, `code` is that of the error that the response reports. `held` are
    the seconds for which the request was held.
    """

    # In the class, because most calls have some of these values, and one is made for each request.
    operation: str = NO_OPERATION
    principal: Principal | None = None
    decision: Decision | None = None
    code: str | None = None
    held: float = 0.0

    def __init__(self, request: Request, request_id: bytes, segments: list[str]) -> None:
        self.request = request
        self.request_id = request_id
        self.segments = segments

    @property
    def caller(self) -> Principal:
        """The principal, which the gate has set before it calls a handler."""
        return cast(Principal, self.principal)

    def context(self) -> dict[str, str | None]:
        """What a line of the log says of the request."""
        principal = self.principal
        return {
            "request_id": self.request_id.decode("ascii"),
            "operation": self.operation,
            "account": principal.account if principal else None,
            "key": principal.key_id if principal else None,
        }

    def actor(self, at: float) -> Actor:
        """Who makes the change that this request asks for, `at` Unix seconds, for the audit log."""
        return Actor(f"key:{self.caller.key_id}", at, self.request_id.decode("ascii"))


class Held(NamedTuple):
    """A response that is waited for on purpose: meanwhile the request does not count as being answered."""

    response: Awaitable[Response]


@dataclass(slots=True)
class Operation:
    """An operation of a contract: its operationId, the scope it requires (None: any key), and its handler.

    The `id` of an operation of a later version begins with the version, so that metrics distinguish them.
    """

    id: str
    scope: Scope | None
    handle: Callable[[Call], Awaitable[Response | Held]]


@dataclass(slots=True)
class Route:
    """A path and its operations by method.

    In `template` the last segment may be a parameter, `{name}`. `notices` are header lines for every response to an
    admitted request for the path.
    """

    template: str
    operations: Mapping[str, Operation]
    notices: bytes = b""


@dataclass(slots=True)
class Match:
    """What a path leads to: its segments, the version of the API (empty outside of it), and the route, if any."""

    segments: list[str]
    version: str
    route: Route | None


class Routes:
    """The routes of all versions. Paths are exact: `/v1/store/orders/` is another path, and there are no redirects."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = routes
        self._table = {tuple(route.template.partition("{")[0].split("/")[1:]): route for route in routes}
        self._most = max(map(len, self._table))
        self._versions = {segments[0] for segments in self._table}
        # Most requests spell a path exactly so, but for a parameter; these need not be taken apart.
        self._known = {
            "/".join(("", *segments)).encode(): Match([*segments], segments[0], route)
            for segments, route in self._table.items()
        }

    def find(self, path: bytes) -> Match:
        """What a path, as it was sent, leads to."""
        known = self._known.get(path)
        if known is None:
            start, slash, parameter = path.rpartition(b"/")
            known = self._known.get(start + slash)
            if known is not None and b"%" not in parameter:
                return Match([*known.segments[:-1], parameter.decode("latin-1")], known.version, known.route)
        return known if known is not None and known.segments[-1] else self._take_apart(path)

    def _take_apart(self, path: bytes) -> Match:
        # Split before it is decoded, so that an encoded slash separates nothing. Empty and dot segments stay.
        # No key is needed to get here, so a path must cost little: beyond the longest one served nothing is decoded.
        segments = path.decode("latin-1").split("/", self._most + 1)[1:]
        if b"%" in path:
            segments = [unquote(text) if len(text) <= _MAX_SEGMENT else text for text in segments]
        if not segments or segments[0] not in self._versions:
            return Match(segments, "", None)
        route = None
        if segments[-1]:  # a parameter is not empty
            route = self._table.get(tuple(segments)) or self._table.get((*segments[:-1], ""))
        return Match(segments, segments[0], route)
