"""The HTTP connection: uvicorn's protocol, held against hostile peers.

uvicorn with httptools keeps dripping and silent connections open and lets headers grow without bound. Here a request
has a deadline, a silent connection an end, a reader that stalls is cut off, and a request's head is bounded in bytes.
What the parser refuses gets an Error body; what it accepts goes to the gate, whatever its target's form.
"""

import asyncio
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from petstore_server.http.errors import BadRequest, HeadersTooLarge, error_body

REQUEST_SECONDS = 10.0
"""Within which a request must have come whole, head and body, from its first byte on."""

IDLE_SECONDS = 60
"""After which a connection that sends nothing is closed."""

STALL_SECONDS = 60.0
"""After which a reader that takes nothing of its answer is cut off."""

MAX_HEAD = 128 * 1024
"""Bytes of a head that are still parsed, so that the gate can answer it; a larger one ends the connection."""

WRITE_BUFFER = 1024 * 1024
"""Bytes under way to a client before the answer waits; list bodies are shared, so these are no copies."""


class Connection(HttpToolsProtocol):
    """One client connection."""

    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True
    _whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        self._cancel_deadline()
        self._cancel_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # Upgrade is ignored (D2); the request was taken as any other, and the connection ends after it
        except httptools.HttpParserError:
            self._refuse(400, BadRequest.code, "This is no well-formed HTTP/1.1 request; send one that is.")
            return
        if self._in_head and self._head_bytes > MAX_HEAD:
            self._refuse(431, HeadersTooLarge.code, HeadersTooLarge().message)
        elif not self._whole and self._deadline is None:  # what comes in one piece costs no timer
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._cut)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer what has come whole from a client that will send no more (True: keep open for writing), then close."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if not self._whole or cycle is None or cycle.response_complete:
            return False
        cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._whole = False
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are dropped
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self.url = _origin_form(self.url)
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._whole = True
        self._cancel_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is not None:  # the rest of the body is still to come, and is bounded by the deadline
            self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_SECONDS, self._cut)

    def resume_writing(self) -> None:
        self._cancel_stall()
        super().resume_writing()

    def _await_request(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(IDLE_SECONDS, self.timeout_keep_alive_handler)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _cut(self) -> None:
        """End the connection at once: what was not sent whole must not look as if it were."""
        if not self.transport.is_closing():
            self.transport.abort()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer what the parser, or the bound on heads, keeps from the gate, unless an answer is under way."""
        if self.transport.is_closing():
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle and not cycle.response_complete and (cycle.response_started or not cycle.more_body):
            self._cut()  # an earlier request's answer is under way, and must not be taken for this one's
            return
        body = error_body(code, message, status)
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


def _origin_form(target: bytes) -> bytes:
    """The path and query of a request target (RFC 9112 §3.2).

    The absolute form loses its scheme and authority; `*` and the authority form of CONNECT, which name no path,
    become one that is not served. The parser has refused what is not ASCII.
    """
    if not target.startswith(b"/"):
        scheme, separator, rest = target.partition(b"://")
        slash = rest.find(b"/")
        target = rest[slash:] if separator and scheme.isalpha() and slash >= 0 else b"/" + target
    return target.partition(b"#")[0]
