"""Where a request ends: this server and h11 see the same requests in the same bytes, or the connection is closed."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import Mock

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from petstore_server.api.errors import error_response
from petstore_server.server.connection import Connection
from petstore_server.server.listener import PublicServer
from petstore_server.server.messages import Answer, Disconnected, Request, Response

EXAMPLES = 60


class Seen(NamedTuple):
    method: str
    target: bytes
    body: int


class Reading(NamedTuple):
    """What a server made of some bytes: the whole requests, and whether it goes on reading behind them."""

    requests: list[Seen]
    reads_on: bool


CLOSED = socket.socket()
CLOSED.close()


def open_transport() -> Mock:
    """A transport that collects what is written to it."""
    made = Mock(asyncio.Transport, written=[], ended=False)
    made.get_extra_info.side_effect = {"socket": CLOSED}.get
    made.get_write_buffer_size.return_value = 0
    made.is_closing.side_effect = lambda: made.ended
    made.write.side_effect = made.written.append
    made.writelines.side_effect = made.written.extend
    for end in (made.write_eof, made.close, made.abort):
        end.side_effect = partial(setattr, made, "ended", True)
    return made


def read_here(pieces: list[bytes]) -> Reading:
    """What this server makes of the pieces. Each request it sees has one response, and a refusal is the last one."""
    requests: list[Seen] = []

    async def respond(request: Request) -> Answer | None:
        if request.refusal is not None:
            return error_response(request.refusal), b""
        try:
            await request.receive_body()
        except Disconnected:
            return None
        target = request.path + (b"?" + request.query if request.query else b"")
        requests.append(Seen(request.method, target, len(request.body)))
        return Response(204), b""

    async def run() -> Mock:
        server, wire = PublicServer(respond, lambda: 0.0, 10), open_transport()
        connection = Connection(server)
        connection.connection_made(wire)
        for piece in pieces:
            if wire.ended:
                break
            buffer = connection.get_buffer(len(piece))
            buffer[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            for _ in range(40):  # what can be done now
                await asyncio.sleep(0)
        connection.connection_lost(None)
        return wire

    wire = asyncio.run(run())
    statuses = [line[9:12] for line in b"".join(wire.written).split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    refused = statuses[len(requests) :]
    assert [b"204"] * len(requests) == statuses[: len(requests)]
    assert refused in ([], [b"400"], [b"501"])
    assert wire.ended or not refused
    return Reading(requests, not wire.ended)


class H11Server:
    """h11, and a server on it that refuses every CONNECT and ignores every Upgrade."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self._incoming = Seen("", b"", 0)
        self._kept_1_0 = False
        self._connection = h11.Connection(h11.SERVER)

    def read(self, pieces: list[bytes]) -> Reading:
        try:
            reads_on = all(self._take(piece) for piece in pieces)
        except h11.RemoteProtocolError:
            reads_on = False
        return Reading(self.requests, reads_on)

    def _take(self, piece: bytes) -> bool:
        """Read the requests in a piece; return whether more may follow."""
        self._connection.receive_data(piece)
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Request):
                target = event.target if event.target.startswith(b"/") else b"/" + event.target
                self._incoming = Seen(event.method.decode(), target, 0)
                tokens = b",".join(value for name, value in event.headers if name == b"connection").lower()
                self._kept_1_0 = event.http_version == b"1.0" and b"keep-alive" in tokens
            elif isinstance(event, h11.Data):
                self._incoming = self._incoming._replace(body=self._incoming.body + len(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self.requests.append(self._incoming)
                if not self._respond():
                    return False
            else:
                return event is h11.NEED_DATA

    def _respond(self) -> bool:
        """Refuse the request; return whether the connection is kept."""
        self._connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
        self._connection.send(h11.EndOfMessage())
        if self._connection.our_state is not h11.MUST_CLOSE:
            self._connection.start_next_cycle()
        elif not self._kept_1_0:
            return False
        else:  # h11 keeps no connection of HTTP/1.0
            behind, _ = self._connection.trailing_data
            self._connection = h11.Connection(h11.SERVER)
            if behind:  # nothing would mean the end of the input
                self._connection.receive_data(behind)
        return True


SMUGGLED = b"DELETE /smuggled HTTP/1.1\r\nX-Swallow: "
BODIES = (b"", b"hello", SMUGGLED, SMUGGLED + b"x\r\nHost: x\r\n\r\n", b"0\r\n\r\n", b"x" * 300)
CONNECTIONS = ("", "close", "keep-alive", "Upgrade", "upgrade, HTTP2-Settings", "Upgrade, close", "Keep-Alive, Upgrade")
LENGTHS = (
    "%d",
    "000%d",
    "%d\t",
    "+%d",
    "%x",
    "%d, %d",
    "%d\r\nContent-Length: %d",
    "%d\r\nContent-Length: 1",
    "-%d",
    "",
)
CODINGS = ("chunked", "Chunked", "chunked ")
OTHER_CODINGS = (
    *(
        "gzip, chunked",
        "gzip\r\nTransfer-Encoding: chunked",
        "chunked, gzip",
        "chunked, chunked",
        "chunked\r\nTransfer-Encoding: identity",
        "identity",
        "xchunked",
        "gzip",
    ),
    *("chunked;q=1", "\x0bchunked", "chunked\r\nContent-Length: 5", "", "chunked,", ", chunked", "x, chunked"),
)


def chunked(body: bytes, size: int, extension: bytes, trailer: bytes) -> bytes:
    """The body in chunks of this size."""
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    encoded = [b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    return b"".join([*encoded, b"0\r\n", trailer, b"\r\n"])


@st.composite
def messages(draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """A request, often with a doubtful end."""
    method = draw(st.sampled_from(("GET", "HEAD", "POST", "DELETE", "CONNECT")))
    target = draw(st.sampled_from(("/a", "/b?c", "x:443") if method == "CONNECT" else ("/a", "/b?c")))
    lines = [f"{method} {target} HTTP/{draw(st.sampled_from(('1.1', '1.1', '1.0')))}", "Host: x"]
    if connection := draw(st.sampled_from(CONNECTIONS)):
        lines.append(f"Connection: {connection}")
    if draw(st.booleans()):
        lines.append(f"Upgrade: {draw(st.sampled_from(('h2c', 'websocket', 'TLS/1.0, h2c')))}")
    body: bytes = draw(st.sampled_from(BODIES))
    framing = draw(st.sampled_from(("none", "length", "length", "chunked", "chunked", "doubtful")))
    if framing == "length":
        form = draw(st.sampled_from(("%d", "%d", "%d", *LENGTHS)))
        lines.append(f"Content-Length: {form.replace('%d', str(len(body))).replace('%x', f'{len(body):x}')}")
    elif framing != "none":
        lines.append(f"Transfer-Encoding: {draw(st.sampled_from(CODINGS if framing == 'chunked' else OTHER_CODINGS))}")
        extension = draw(st.sampled_from((b"", b"", b";a=b")))
        trailer = draw(st.sampled_from((b"", b"", b"X-Trailer: x\r\n", b"Content-Length: 7\r\n")))
        body = chunked(body, draw(st.sampled_from((1, 7, 1000))), extension, trailer)
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@st.composite
def segments(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[bytes]:
    """Pipelined requests, cut into pieces anywhere."""
    data = b"".join(draw(st.lists(messages(), min_size=1, max_size=4)))
    cuts = draw(st.lists(st.integers(1, len(data)), max_size=6))
    return [data[start:end] for start, end in pairwise(sorted({0, len(data), *cuts}))]


@settings(max_examples=EXAMPLES, deadline=None)
@example([b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 26\r\n\r\n" + SMUGGLED])
@given(segments())
def test_no_request_is_seen_where_h11_sees_none(pieces: list[bytes]) -> None:
    here, there = read_here(pieces), H11Server().read(pieces)
    assert here.requests == there.requests[: len(here.requests)]
    assert here == there or not here.reads_on
