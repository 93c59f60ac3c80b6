"""Receivers of webhooks that fail at random, and what they find wrong with the messages they get."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from hashlib import sha256
from time import time
from typing import Any

from testing.listening import Listening
from testing.webhook_messages import Received

Order = dict[str, Any]

HANG_SECONDS = 3.0  # longer than the service waits in these checks
_OUTAGE_SECONDS = 1.0  # at most, during which connections are refused
_FAULTS = {"none": 50, "slow": 10, "hang": 3, "cut": 5, "half": 5, "500": 10, "429": 5, "outage": 4}
"""What a receiver does with a message, with how often. Of those that fail, half have taken the message all the same."""


class Receiver(Listening):
    """One receiver: a copy of the orders that it received, and everything wrong with its messages.

    `sees` says whether its account sees an order; `statuses` are those of its webhook, all if there are none. With
    `faults` it fails at random. It takes a message as its body is complete, and each message once.
    """

    def __init__(
        self, name: str, chance: random.Random, sees: Callable[[Order], bool], statuses: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.name = name
        self.statuses = statuses
        self.copy: dict[int, Order] = {}
        self.next = ""
        self.more = False
        self.secrets: list[str] = []
        self.faults = True
        self.problems: list[str] = []
        self.counts = Counter[str]()
        self._chance = chance
        self._sees = sees
        self._bodies: dict[str, bytes] = {}  # digests of the messages that came, by webhook-id
        self._taken: set[str] = set()
        self._acknowledged: set[str] = set()

    def expected(self, visible: Mapping[int, Order]) -> dict[int, Order]:
        """Of the orders that the account sees, those that the receiver must know as they are now."""
        return {
            order_id: order
            for order_id, order in visible.items()
            if not self.statuses or order["status"] in self.statuses
        }

    def differing(self, visible: Mapping[int, Order]) -> list[int]:
        """The orders about which the copy is wrong. It may hold others that have left the statuses."""
        expected = self.expected(visible)
        wrong = [order_id for order_id, order in expected.items() if self.copy.get(order_id) != order]
        others = self.copy.keys() - expected.keys()
        return wrong + [order_id for order_id in others if not self.statuses or order_id not in visible]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self._chance.choices([*_FAULTS], [*_FAULTS.values()])[0] if self.faults else "none"
        try:
            with suppress(OSError, EOFError):
                await self._receive(reader, writer, fault)
        finally:
            writer.transport.abort() if fault in ("cut", "half") else writer.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}
        length = int(headers["content-length"])
        if fault == "cut":
            await reader.readexactly(length // 2)
            return
        body = await reader.readexactly(length)
        self.check(headers, body)
        message_id = headers["webhook-id"]
        if fault in ("none", "slow") or self._chance.random() < 0.5:
            self.take(message_id, body)
        self.counts[fault] += 1
        if fault == "hang":
            await asyncio.sleep(HANG_SECONDS)
        elif fault == "half":
            writer.write(b"HTTP/1.1 204 No")
            await writer.drain()
        elif fault in ("none", "slow"):
            await asyncio.sleep(self._chance.uniform(0, 0.5) if fault == "slow" else 0)
            self._acknowledged.add(message_id)
            await _respond(writer, "200 OK")
        elif fault == "429":
            at = formatdate(time() + 1, usegmt=True)
            await _respond(writer, "429 Too Many Requests", f"Retry-After: {self._chance.choice(['1', at])}")
        else:
            await _respond(writer, "500 Internal Server Error")
            if fault == "outage" and self._server is not None:
                await self._refuse()

    async def _refuse(self) -> None:
        """Have nothing listen on the port for a time."""
        server, self._server = self._server, None
        assert server is not None
        server.close()
        while self._server is None:
            await asyncio.sleep(self._chance.uniform(0.1, _OUTAGE_SECONDS))
            with suppress(OSError):  # another program has the port for the time being
                await self.start()

    def check(self, headers: dict[str, str], body: bytes) -> None:
        """Check a message as it arrived, and count it."""
        message_id, digest = headers["webhook-id"], sha256(body).digest()
        self.counts["deliveries"] += 1
        self.counts["repeated"] += message_id in self._bodies
        self.counts["repeated although acknowledged"] += message_id in self._acknowledged
        if self._bodies.setdefault(message_id, digest) != digest:
            self._wrong(f"{message_id} has other bytes when it is repeated")
        if not any(Received("", headers, body).is_signed(secret) for secret in self.secrets):
            self._wrong(f"{message_id} has no signature with one of {len(self.secrets)} secrets")

    def take(self, message_id: str, body: bytes) -> None:
        """Bring the copy up to date, unless the message was taken before."""
        if message_id in self._taken:
            return
        self._taken.add(message_id)
        message = json.loads(body)
        data = message["data"]
        if message["type"] == "orders.reset":
            self.counts["resets"] += 1
            self.copy, self.next, self.more = {}, data["next"], False
            return
        self.next, self.more = data["next"], data["more"]
        orders: list[Order] = data["orders"]
        if not 1 <= len(orders) <= 100:
            self._wrong(f"{message_id} has {len(orders)} orders")
        if orders != sorted(orders, key=lambda order: (order["updatedAt"], order["id"])):
            self._wrong(f"{message_id} is not in the order of changes")
        for order in orders:
            self._take_order(order)

    def _take_order(self, order: Order) -> None:
        known = self.copy.get(order["id"])
        if not self._sees(order):
            self._wrong(f"it got order {order['id']}, which is another's")
        if self.statuses and order["status"] not in self.statuses:
            self._wrong(f"it got order {order['id']}, which is {order['status']}")
        if known is not None and known["updatedAt"] > order["updatedAt"]:
            self._wrong(f"order {order['id']} of {known['updatedAt']} is followed by that of {order['updatedAt']}")
        if known is not None and known["updatedAt"] == order["updatedAt"] and known != order:
            self._wrong(f"order {order['id']} differs at {order['updatedAt']}: {known} and {order}")
        self.copy[order["id"]] = order

    def _wrong(self, problem: str) -> None:
        self.problems.append(f"{self.name}: {problem}")


async def _respond(writer: asyncio.StreamWriter, status: str, *lines: str) -> None:
    head = "\r\n".join([f"HTTP/1.1 {status}", "Content-Length: 0", "Connection: close", *lines, "", ""])
    writer.write(head.encode())
    await writer.drain()
