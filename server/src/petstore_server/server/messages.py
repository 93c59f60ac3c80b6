"""Requests and responses as the server knows them, and the errors that the server itself raises."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_TARGET = 8 * 1024
MAX_HEADERS = 32 * 1024
MAX_BODY = 64 * 1024
"""Bytes of a request; anything larger is 414, 431 or 413 (D3). Some paths have another limit for the body."""

MAX_HEADER_LINES = 100
"""Header lines of a request; more are 431 (D3)."""


class RequestError(Exception):
    """A request or a connection that is refused; `code` is for programs, `message` is a whole sentence for people."""

    code: str
    message: str

    def __init__(self, message: str = "") -> None:
        self.message = message or self.message
        super().__init__(self.message)


class BadRequest(RequestError):
    """An HTTP/1.1 request must have exactly one Host header, and its value must be one (RFC 9112 section 3.2)."""

    code = "bad_request"
    message = "Send exactly one Host header, a host name or an address, with each request."


class UnsupportedTransferCoding(RequestError):
    """The body has a transfer coding besides chunked (RFC 9112 section 6.1).

    The set of codes in v1 is closed, so this condition shares the code of other requests that must be changed.
    """

    code = "bad_request"
    message = "Transfer-Encoding must be 'chunked', without other codings; or send Content-Length instead."


class UriTooLong(RequestError):
    code = "uri_too_long"
    message = f"The request target exceeds {MAX_TARGET // 1024} KiB; shorten it."


class HeadersTooLarge(RequestError):
    code = "headers_too_large"
    message = (
        f"The request headers exceed {MAX_HEADERS // 1024} KiB or {MAX_HEADER_LINES} lines; send fewer or shorter ones."
    )


class PayloadTooLarge(RequestError):
    """The body has more than `most` bytes."""

    code = "payload_too_large"

    def __init__(self, most: int = MAX_BODY) -> None:
        super().__init__(
            f"The request body exceeds {most // 1024} KiB; send a smaller one, or none where none is needed."
        )


class TooManyConnections(RequestError):
    """As many connections as allowed are open, or their incomplete requests take as much memory as allowed."""

    code = "service_unavailable"
    message = "The service is temporarily unavailable; retry after the seconds in Retry-After."


class Disconnected(Exception):
    """The rest of the request will not arrive, so there is no response to send."""


class Request:
    """One request: what its head says, and what arrives or is found out later.

    `path` and `query` are the parts of the request target as sent. `headers` has lower-case names; the values of a
    repeated header are joined by commas (RFC 9110 section 5.3). `peer` is the address of the other end of the
    connection, None for a Unix socket. `max_body` is the limit of the body in bytes. `fault` is what is wrong with a
    request that was parsed. `refusal` is the response that it gets if it is not a request at all: malformed bytes, or a
    connection too many.

    `body` holds the bytes received so far, up to `max_body`. `invite` asks for the body, where the client awaits a 100
    response before it sends that. `complete` turns true when the whole request has arrived, `lost` when the rest of it
    will not arrive. `turn` identifies the turn of the event loop in which the request is answered: all requests with
    the same turn had been read when it began. It is None for a request that was read together with an earlier one of
    its connection. `client_ended` turns true when the client has ended its half of the connection or is gone.
    `waits_for` is what the answer waits for: the body, or a change. It gets the result None when the request is
    complete, too large or lost, or when the client ends.
    """

    # In the class, because most requests have these values, and one is made for each.
    fault: RequestError | None = None
    refusal: RequestError | None = None
    http_1_0 = False
    keep_alive = True
    awaits_continue = False
    complete = True
    body = b""
    max_body = MAX_BODY
    _oversized = False
    lost = False
    invite: Callable[[], None] | None = None
    turn: object | None = None
    client_ended = False
    waits_for: asyncio.Future[Any] | None = None

    def __init__(
        self, method: str, path: bytes, query: bytes, headers: Mapping[bytes, bytes], peer: str | None
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.peer = peer

    async def receive_body(self) -> None:
        """Wait until the request is complete. Raises PayloadTooLarge, Disconnected."""
        if not (self.complete or self._oversized or self.lost):
            if self.invite is not None and not self.body:
                self.invite()
            self.waits_for = asyncio.get_running_loop().create_future()
            await self.waits_for
        if self.lost:
            raise Disconnected
        if self._oversized:
            raise PayloadTooLarge(self.max_body)

    def add_body(self, data: bytes) -> None:
        """Take a part of the body; everything beyond `max_body` is dropped."""
        if self._oversized:
            return
        if len(self.body) + len(data) > self.max_body:
            self._oversized = True
            self.fault = self.fault or PayloadTooLarge(self.max_body)
            self.body = b""
            self._wake()
        else:
            self.body += data

    def finish(self) -> None:
        """Note that the whole request has arrived."""
        self.complete = True
        self._wake()

    def lose(self) -> None:
        """Note that the rest of the request will not arrive."""
        if not self.complete:
            self.lost = True
            self._wake()

    def end_client(self) -> None:
        """Note that the client sends nothing more, or is gone."""
        self.client_ended = True
        self._wake()

    def _wake(self) -> None:
        if self.waits_for is not None and not self.waits_for.done():
            self.waits_for.set_result(None)


@dataclass(slots=True)
class Response:
    """A response, which may be the same for many requests, so it is never changed; a frozen class takes longer to make.

    `headers` are header lines as they are sent, each ending in CRLF; Content-Length is among them unless the status is
    204 or 304. `chunks` are the parts of the body, `length` bytes in all; they are not sent in response to HEAD.
    """

    status: int
    headers: bytes = b""
    chunks: Sequence[bytes] = ()
    length: int = 0


Answer = tuple[Response, bytes]
"""A response, and the header lines that are added to it for this one request."""
