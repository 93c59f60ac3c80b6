"""Many concurrent requests over few connections, written to the socket directly."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from testing.checked_clients import contract


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


async def _work(port: int, key: str, queue: Iterable[tuple[str, str]], replies: list[Reply], check: bool) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    for method, target in queue:
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
        try:
            writer.write(head.encode())
            status, headers, body = await _read(reader)
        except (OSError, asyncio.IncompleteReadError):
            replies.append(Reply(target, 0))
            break
        if check:
            contract().check(method, target, status, headers, body)
        replies.append(Reply(target, status, body))
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        return


async def _read(reader: asyncio.StreamReader) -> tuple[int, list[tuple[str, str]], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head[:-4].split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    body = await reader.readexactly(int(dict(headers).get("content-length", "0")))
    return int(status_line.split(" ")[1]), headers, body
