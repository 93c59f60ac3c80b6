"""One connection to the public port, without retries: what a check sends is what the service gets."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

ORDERS = "/v2/store/orders"
LIST = "/v1/store/orders"


class Reply(NamedTuple):
    """A response, with the names of its headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class NoReply(Exception):
    """The connection failed before the response was complete: the request may have had its effect."""


class Connection:
    """Sends one request after the other, over a connection that is made again when it is gone."""

    def __init__(self, port: int, key: str, timeout: float = 30.0) -> None:
        self.port = port
        self._key = key
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def place(self, key: str, pet_id: int) -> Reply:
        body = json.dumps({"petId": pet_id, "quantity": 1}).encode()
        return await self.request("POST", ORDERS, body, f"Content-Type: application/json\r\nIdempotency-Key: {key}\r\n")

    async def cancel(self, order_id: int) -> Reply:
        return await self.request("DELETE", f"{LIST}/{order_id}")

    async def read(self, order_id: int) -> Reply:
        return await self.request("GET", f"{ORDERS}/{order_id}")

    async def request(self, method: str, target: str, body: bytes = b"", headers: str = "") -> Reply:
        """Send a request, and return its response. Raises NoReply."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        key = f"Authorization: Bearer {self._key}\r\n" if self._key else ""
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\n{key}{length}{headers}\r\n"
        try:
            async with asyncio.timeout(self._timeout):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self.port)
                reader, writer = self._streams
                writer.write(head.encode("latin-1") + body)
                reply = await _read(reader, method)
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
            self.close()
            raise NoReply(repr(error)) from None
        except asyncio.CancelledError:
            self.close()
            raise
        if reply.headers.get("connection") == "close":
            self.close()
        return reply

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def place_and_cancel(
    connection: Connection, number: int, chance: random.Random, promised: Callable[[int, int | None], None]
) -> bool:
    """Place the order of a number, and cancel half of them. False: it was refused, or not all was answered.

    `promised` takes the order and its pet when the order was placed, and None as the pet when it was cancelled.
    """
    try:
        placed = await connection.place(f"key-{number}", number)
        if placed.status == 201:
            order_id = placed.json["id"]
            promised(order_id, number)
            if chance.random() < 0.5 and (await connection.cancel(order_id)).status == 204:
                promised(order_id, None)
            return True
    except NoReply:
        pass
    await asyncio.sleep(0.01)
    return False


async def _read(reader: asyncio.StreamReader, method: str) -> Reply:
    status_line, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    status = int(status_line.split(" ")[1])
    if method == "HEAD" or status in (204, 304):
        return Reply(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Reply(status, headers, await _chunks(reader))
    return Reply(status, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
