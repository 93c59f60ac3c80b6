"""A request as the gate sees it: taken apart once, before anything is decided."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from petstore_server.domain.keys import Principal
from petstore_server.domain.windows import Decision
from petstore_server.http.errors import BadRequest, HeadersTooLarge, PayloadTooLarge, UriTooLong

MAX_TARGET = 8 * 1024
MAX_HEADERS = 32 * 1024
MAX_BODY = 64 * 1024
"""Bytes; what is larger is 414, 431 and 413 (D3)."""

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Disconnected(Exception):
    """The client went away before its request was complete; there is nobody to answer."""


class Request:
    """One request, and what the gate finds out about it on the way.

    `segments` are the percent-decoded parts of the path (`/v1/store` → `["v1", "store"]`), split before they are
    decoded, so that an encoded slash separates nothing. `headers` has lower-case names; repeated ones are joined by
    commas (RFC 9110 §5.3).
    """

    __slots__ = (
        "_hosts",
        "_receive",
        "_scope",
        "decision",
        "headers",
        "method",
        "operation",
        "principal",
        "request_id",
        "segments",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self.method: str = scope["method"]
        self.segments = path_segments(scope["raw_path"])
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._hosts = 1 if b"host" in self.headers else 0
        if len(self.headers) != len(scope["headers"]):
            self._join(scope["headers"])
        self.request_id = ""
        self.operation = "none"
        self.principal: Principal | None = None
        self.decision: Decision | None = None

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection."""
        client = self._scope.get("client")
        return client[0] if client else None

    async def check_form(self) -> None:
        """Refuse what is malformed or oversized, and read the body to its end: no operation needs it (D5).

        Raises BadRequest, UriTooLong, HeadersTooLarge, PayloadTooLarge, Disconnected.
        """
        scope = self._scope
        if self._hosts != 1 and (self._hosts or scope["http_version"] != "1.0"):
            raise BadRequest
        query = scope["query_string"]
        if len(scope["raw_path"]) + len(query) + bool(query) > MAX_TARGET:  # bool: the question mark
            raise UriTooLong
        lines = scope["headers"]
        if sum([len(name) + len(value) for name, value in lines]) + 4 * len(lines) > MAX_HEADERS:
            raise HeadersTooLarge
        if b"content-length" in self.headers or b"transfer-encoding" in self.headers:
            await self._read_body()

    async def _read_body(self) -> None:
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > MAX_BODY:
            raise PayloadTooLarge
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                raise PayloadTooLarge
            more = message.get("more_body", False)

    def _join(self, lines: Sequence[tuple[bytes, bytes]]) -> None:
        values: dict[bytes, list[bytes]] = {}
        for name, value in lines:
            values.setdefault(name, []).append(value)
        self.headers = {name: b", ".join(several) for name, several in values.items()}
        self._hosts = len(values.get(b"host", ()))


def path_segments(raw_path: bytes) -> list[str]:
    """Split a path as it stood in the request, then decode its segments; no segment is dropped or folded."""
    segments = raw_path.decode("latin-1").split("/")[1:]
    if b"%" in raw_path:
        return [unquote(segment) for segment in segments]
    return segments
