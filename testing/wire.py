"""HTTP/1.1 as a test words it: single requests, what no HTTP client sends, and many requests over few connections."""

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import httpx2

from testing.checked_clients import contract
from testing.subprocesses import PATIENCE


class Response(NamedTuple):
    """A response as it was received, with the names of its headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The error's code, or nothing."""
        return self.body.partition(b'"code":"')[2].partition(b'"')[0].decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(method: str, target: str, *lines: str, key: str = "", version: str = "1.1") -> bytes:
    """The head of a request with these further lines."""
    own = ["Host: x", f"Authorization: Bearer {key}"] if key else ["Host: x"]
    return "\r\n".join([f"{method} {target} HTTP/{version}", *own, *lines, "", ""]).encode("latin-1")


def responses(raw: bytes) -> list[Response]:
    """The responses on a connection, which has nothing between or behind them, nor any header twice."""
    found = []
    at = 0
    while at < len(raw):
        end = raw.find(b"\r\n\r\n", at)
        assert end >= 0, raw[-200:]
        status, headers = _parsed(raw[at:end])
        at = end + 4 + int(headers.get("content-length", "0"))
        assert at <= len(raw), "a body is not complete"
        found.append(Response(status, headers, raw[end + 4 : at]))
    return found


async def send(port: int, data: bytes) -> bytes:
    """Send this over a new connection; return all that comes until it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that the server learns at once that nothing reads its response."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class RawTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a new connection to a port of this host, exactly as a test words it.

    HTTP libraries refuse or correct what a server must be able to take.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        body = b"".join([part async for part in request.stream])
        lines = [(name, value) for name, value in request.headers.raw if name.lower() != b"connection"]
        head = b"%s %s HTTP/1.1\r\n" % (request.method.encode(), request.extensions.get("target", request.url.raw_path))
        head += b"".join(b"%s: %s\r\n" % line for line in [*lines, (b"Connection", b"close")])
        received, separator, body = (await send(self.port, head + b"\r\n" + body)).partition(b"\r\n\r\n")
        assert separator, f"not a response: {received!r}"
        assert not (request.method == "HEAD" and body), f"HEAD was answered with {len(body)} bytes"
        status, headers = _parsed(received)
        return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(body))


async def read_response(reader: asyncio.StreamReader, method: str = "GET") -> Response:
    """The next response on a connection, to a request with this method."""
    status, headers = _parsed((await reader.readuntil(b"\r\n\r\n"))[:-4])
    body = b""
    if method != "HEAD" and headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    elif method != "HEAD" and status not in (204, 304):
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Response(status, headers, body)


def _parsed(lines: bytes) -> tuple[int, dict[str, str]]:
    status_line, *fields = lines.decode("latin-1").split("\r\n")
    assert status_line.startswith("HTTP/1.1 "), status_line
    pairs = [(name.lower(), value) for name, _, value in (field.partition(": ") for field in fields)]
    headers = dict(pairs)
    assert len(headers) == len(pairs), fields
    return int(status_line.split(" ")[1]), headers


class Reply(NamedTuple):
    """What became of one request; `status` is 0 where the connection broke before an answer."""

    target: str
    status: int
    body: bytes = b""

    @property
    def code(self) -> str:
        """The error's code, or the status."""
        return Response(self.status, {}, self.body).code or str(self.status)


async def send_all(
    port: int, key: str, requests: Iterable[tuple[str, str]], connections: int = 16, *, check: bool = True
) -> list[Reply]:
    """Send (method, target) pairs over so many connections; return the replies, in no order.

    A connection that breaks ends with a Reply of status 0 for the request under way, and sends no more.
    """
    queue = iter(requests)
    replies: list[Reply] = []
    await asyncio.gather(*[_work(port, key, queue, replies, check) for _ in range(connections)])
    return replies


def codes(ports: Sequence[int], key: str, requests: Sequence[tuple[str, str]]) -> Counter[str]:
    """Send all of these to each port over 32 connections; return how often each error code, or status, came."""

    async def send_to_each() -> list[list[Reply]]:
        return await asyncio.gather(*[send_all(port, key, requests, 32) for port in ports])

    return Counter(reply.code for replies in asyncio.run(send_to_each()) for reply in replies)


Item = TypeVar("Item")


def before(number: int, act: Callable[[], object], items: Iterable[Item]) -> Iterator[Item]:
    """The items; something is done before this one is taken, while others are under way."""
    for taken, item in enumerate(items):
        if taken == number:
            act()
        yield item


async def _work(port: int, key: str, queue: Iterable[tuple[str, str]], replies: list[Reply], check: bool) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    for method, target in queue:
        try:
            writer.write(head(method, target, key=key))
            status, headers, body = await read_response(reader)
        except (OSError, asyncio.IncompleteReadError):
            replies.append(Reply(target, 0))
            break
        if check:
            contract().check(method, target, status, list(headers.items()), body)
        replies.append(Reply(target, status, body))
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
