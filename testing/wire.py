"""HTTP/1.1 as a test words it: single requests, what no HTTP client sends, and many requests over few connections."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

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


async def read_response(reader: asyncio.StreamReader) -> Response:
    """The next response on a connection."""
    status, headers = _parsed((await reader.readuntil(b"\r\n\r\n"))[:-4])
    return Response(status, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


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
        return self.body.partition(b'"code":"')[2].partition(b'"')[0].decode() or str(self.status)


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
    try:
        await writer.wait_closed()
    except OSError:
        return
