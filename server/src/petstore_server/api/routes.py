"""Routes: which operation serves a path and a method, and the call that it gets. Each version declares its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

from petstore_server.api.trace_context import TraceContext, parse_traceparent
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import Principal, Scope
from petstore_server.domain.usage import NO_OPERATION
from petstore_server.domain.windows import Decision
from petstore_server.server.messages import Request, Response

ANY_KEY: Final = "any key"
"""The scope of an operation that every valid key may use, whatever its scopes."""

OWN_CONTRACT = ("openapi.json", "openapi.yaml")
"""The names of a version's contract below its own path. It is a document: outside of the API, without a key."""

PARAMETER = "{}"  # not a segment of a path that is served
_MAX_SEGMENT = 96  # bytes of one that is decoded: names and identifiers are shorter, even with all characters encoded


class Call:
    """A request, and what the gate finds out about it.

    `request_id` is 1 to 128 visible ASCII characters, and `parameter` the one that the route's template names, or
    empty. `operation` is the identifier of the operation that a request with a valid key asks for, or NO_OPERATION;
    `principal` and `decision` are None until the gate has them, `code` is that of the error that the response reports.
    `held` are the seconds for which the request was held. `cancelled`: it cancelled one order, not in a batch.
    """

    # In the class, because most calls have some of these values, and one is made for each request.
    operation: str = NO_OPERATION
    principal: Principal | None = None
    decision: Decision | None = None
    code: str | None = None
    held: float = 0.0
    cancelled: bool = False
    caller: Principal
    """The principal, for handlers: they are called once it is known."""

    def __init__(self, request: Request, request_id: bytes, parameter: str = "") -> None:
        self.request = request
        self.request_id = request_id
        self.parameter = parameter

    @property
    def trace(self) -> TraceContext | None:
        """The trace of which the request is a part. Only the log and changes ask: a list does not pay for it."""
        return parse_traceparent(self.request.headers.get(b"traceparent"))

    def context(self) -> dict[str, str | None]:
        """What a line of the log says of the request."""
        principal, trace = self.principal, self.trace
        return {
            "request_id": self.request_id.decode("ascii"),
            **({} if trace is None else trace._asdict()),
            "operation": self.operation,
            "account": principal.account if principal else None,
            "key": principal.key_id if principal else None,
        }

    def actor(self, at: float) -> Actor:
        """Who makes the change that this request asks for, `at` Unix seconds, for the audit log."""
        trace = self.trace
        trace_id = None if trace is None else trace.trace_id
        return Actor(f"key:{self.caller.key_id}", at, self.request_id.decode("ascii"), trace_id)


class Held(NamedTuple):
    """A response that is waited for on purpose: meanwhile the request does not count as being answered."""

    response: Awaitable[Response]
    shows_orders: bool = False


@dataclass(slots=True)
class Operation:
    """An operation of a contract: its operationId, the scope it requires, and its handler.

    The `id` of an operation of a later version begins with the version, so that metrics distinguish them.
    """

    id: str
    scope: Scope | Literal["any key"]
    handle: Callable[[Call], Awaitable[Response | Held]]


@dataclass(slots=True)
class Route:
    """A path and its operations by method.

    One segment of `template` may be a parameter, `{name}`, which is not empty. `notices` are header lines for every
    response to an admitted request for the path.
    """

    template: str
    operations: Mapping[str, Operation]
    notices: bytes = b""

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path, with PARAMETER where the template has one."""
        return tuple(PARAMETER if text.startswith("{") else text for text in self.template.split("/")[1:])


@dataclass(slots=True)
class Match:
    """What a path leads to: the version of the API, the route, if there is one, and its parameter, if it has one.

    Outside of the API the version is empty, and `segments` are those of the path, percent-decoded.
    """

    version: str
    route: Route | None = None
    parameter: str = ""
    segments: Sequence[str] = ()


class Routes:
    """The routes of all versions. Paths are exact: `/v1/store/orders/` is another path, and there are no redirects.

    A path that a template spells out leads there, not to a template with a parameter there (OpenAPI 3.1, 4.8.8).
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        """Index the routes. Of two that match the same path, one is the more specific wherever they differ."""
        self.all = routes
        self._table = {route.segments: route for route in routes}
        self._parameters = sorted({segments.index(PARAMETER) for segments in self._table if PARAMETER in segments})
        self._most = max(map(len, self._table))
        self._versions = {segments[0] for segments in self._table}
        # Most requests spell a path exactly so, but for a last parameter; these need not be taken apart.
        self._known = {
            route.template.encode(): Match(segments[0], route)
            for segments, route in self._table.items()
            if PARAMETER not in segments
        }
        self._known_but_for_the_last = {
            route.template.rpartition("{")[0].encode(): Match(segments[0], route)
            for segments, route in self._table.items()
            if segments[-1] == PARAMETER
        }

    def find(self, path: bytes) -> Match:
        """The match of a path, as it was sent."""
        known = self._known.get(path)
        if known is not None:
            return known
        start, slash, last = path.rpartition(b"/")
        known = self._known_but_for_the_last.get(start + slash)
        if known is not None and last and b"%" not in last:
            return Match(known.version, known.route, last.decode("latin-1"))
        return self._take_apart(path)

    def _take_apart(self, path: bytes) -> Match:
        # Split before it is decoded, so that an encoded slash separates nothing. Empty and dot segments stay.
        # No key is needed to get here, so a path must cost little: beyond the longest one served nothing is decoded.
        segments = path.decode("latin-1").split("/", self._most + 1)[1:]
        if b"%" in path:
            segments = [unquote(text) if len(text) <= _MAX_SEGMENT else text for text in segments]
        if not segments or segments[0] not in self._versions or (len(segments) == 2 and segments[1] in OWN_CONTRACT):
            return Match("", segments=segments)
        route = self._table.get(tuple(segments))
        if route is not None and PARAMETER not in segments:
            return Match(segments[0], route)
        for index in self._parameters:
            if index < len(segments) and segments[index]:
                route = self._table.get((*segments[:index], PARAMETER, *segments[index + 1 :]))
                if route is not None:
                    return Match(segments[0], route, segments[index])
        return Match(segments[0])
