"""One connection to the public port, without retries: what a check sends is what the service gets."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Self

from testing.wire import Response, head, read_response

ORDERS = "/v2/store/orders"
LIST = "/v1/store/orders"


class NoReply(Exception):
    """The connection failed before the response was complete: the request may have had its effect."""


class Connection:
    """Sends one request after the other, over a connection that is made again when it is gone."""

    def __init__(self, port: int, key: str, timeout: float = 30.0) -> None:
        self.port = port
        self._key = key
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def place(self, key: str, pet_id: int, reference: str | None = None) -> Response:
        named = {} if reference is None else {"reference": reference}
        body = json.dumps({"petId": pet_id, "quantity": 1, **named}).encode()
        return await self.request("POST", ORDERS, body, "Content-Type: application/json", f"Idempotency-Key: {key}")

    async def cancel(self, order_id: int) -> Response:
        return await self.request("DELETE", f"{LIST}/{order_id}")

    async def read(self, order_id: int) -> Response:
        return await self.request("GET", f"{ORDERS}/{order_id}")

    async def change(self, action: str, order_id: int, body: object = None) -> Response:
        """Ship, complete or update an order."""
        content = b"" if body is None else json.dumps(body).encode()
        method, end = ("PATCH", "") if action == "update" else ("POST", f"/{action}")
        return await self.request(method, f"{ORDERS}/{order_id}{end}", content, "Content-Type: application/json")

    async def batch(self, operation: dict[str, object]) -> Response:
        """Send a batch of one operation; return its result as a response of its own."""
        body = json.dumps({"operations": [operation]}).encode()
        reply = await self.request("POST", f"{ORDERS}/batch", body, "Content-Type: application/json")
        if reply.status != 200:
            return reply
        [result] = reply.json["results"]
        return reply._replace(status=result["status"], body=json.dumps(result.get("order", result)).encode())

    async def request(self, method: str, target: str, body: bytes = b"", *lines: str) -> Response:
        """Send a request with these further header lines, and return its response. Raises NoReply."""
        length = [f"Content-Length: {len(body)}"] if body else []
        try:
            async with asyncio.timeout(self._timeout):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self.port)
                reader, writer = self._streams
                writer.write(head(method, target, *length, *lines, key=self._key) + body)
                reply = await read_response(reader, method)
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
