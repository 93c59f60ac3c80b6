"""A `PublicServer` with a handler of the test, and clients that read as slowly as a test wants; a slow admin port."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from petstore_server.api.errors import error_response
from petstore_server.api.representation import body_response
from petstore_server.runtime.servers import AdminServer
from petstore_server.server import listener as listening
from petstore_server.server.listener import PublicServer
from petstore_server.server.messages import Answer, Disconnected, Request, Response
from petstore_server.server.scheduler import Deadlines
from testing.subprocesses import PATIENCE

LIST = 10_000_000
"""Bytes: more than the kernel takes before the client reads."""

GET = b"GET / HTTP/1.1\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"

Respond = Callable[[Request], Coroutine[Any, Any, Response | None]]

_opened: list[asyncio.StreamWriter] = []


def plain(body: bytes) -> Response:
    return body_response((body,), "text/plain")


async def respond(request: Request) -> Response | None:
    """A long list in response to GET, and the length of the body, once it is there, in response to POST."""
    try:
        await request.receive_body()
    except Disconnected:
        return None
    if request.method == "POST":
        return plain(b"%d" % len(request.body))
    chunk = bytes(100_000)
    return Response(200, b"Content-Length: %d\r\n" % LIST, [chunk] * (LIST // len(chunk)), LIST)


@asynccontextmanager
async def serving(
    answer: Respond = respond, max_connections: int = 100, *, tick: float = 0.1, **deadlines: float
) -> AsyncIterator[tuple[PublicServer, int]]:
    """A server with these deadlines, in ticks of so many seconds, and its port. Closes what `connect` has opened."""

    async def answered(request: Request) -> Answer | None:
        response = error_response(request.refusal) if request.refusal else await answer(request)
        return None if response is None else (response, b"")

    server = PublicServer(answered, time.time, max_connections, Deadlines(**deadlines))
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listener:
        patch.setattr(listening, "TICK_SECONDS", tick)
        await server.start(listener)
        try:
            yield server, listener.getsockname()[1]
        finally:
            while _opened:
                _opened.pop().close()
            await server.stop(0)


async def connect(port: int, *, receive_buffer: int = 4096) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection over which little is on its way unread."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
    _opened.append(writer)
    return reader, writer


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the connection ends."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def begin_slowly(monkeypatch: pytest.MonkeyPatch, begun: list[Any], error: OSError | None = None) -> None:
    """Admin servers note in `begun` when they have started, which takes them a while; or they raise the error."""
    startup = AdminServer.startup

    async def start(server: AdminServer, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.sleep(0.01)
        if error:
            raise error
        await startup(server, sockets)
        begun.append("admin port")

    monkeypatch.setattr(AdminServer, "startup", start)
