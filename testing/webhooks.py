"""Receivers of webhooks on loopback that behave as a test says, and what delivers to them."""

import asyncio
import ipaddress
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar

import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Plan, VisibleOrders, edit
from petstore_server.domain.webhooks import SigningSecrets, Webhook
from petstore_server.operations.webhooks import Revealed, Start, WebhookService
from petstore_server.store import Store
from petstore_server.store.statements import Execute, Work
from petstore_server.store.webhooks import LEASE_SECONDS
from petstore_server.webhooks import addresses as addresses_module
from petstore_server.webhooks.addresses import Addresses
from petstore_server.webhooks.delivery import Deliveries
from petstore_server.webhooks.sending import ATTEMPT_SECONDS, Sender
from testing.clock import Clock
from testing.listening import Listening
from testing.nginx_front import make_certificate
from testing.stores import BY
from testing.subprocesses import until
from testing.webhook_messages import SECRET, Received

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
BEGINNING = Start("beginning")


Test = TypeVar("Test")
Behaviour = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]
"""Responds to a request, or not; afterwards the connection is closed."""


def reply(status: int, *headers: str, body: bytes = b"") -> Behaviour:
    """Responds with a status; headers are as `Retry-After: 5`."""
    return write(head(status, f"Content-Length: {len(body)}", *headers) + body)


def head(status: int, *headers: str) -> bytes:
    """The beginning of a response, up to its body."""
    return "\r\n".join([f"HTTP/1.1 {status} Any", *headers, "", ""]).encode()


def write(text: bytes, *, then: Behaviour | None = None) -> Behaviour:
    """Responds with these bytes, which may be anything."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        if then is not None:
            await then(received, writer)

    return behave


async def hang(_: Received, writer: asyncio.StreamWriter) -> None:
    """Does nothing until the sender ends the connection."""
    with suppress(OSError):
        await writer.wait_closed()


async def hang_too_long(received: Received, writer: asyncio.StreamWriter) -> None:
    """Does nothing until the sender, which has read everything that was written, finds that its time is over.

    The clock of the event loop jumps, so this takes no longer on a busy machine.
    """
    loop = asyncio.get_running_loop()
    for _ in range(10):  # a single sleep may end late, and together with the sender's time
        await asyncio.sleep(0.01)
    now = loop.time
    loop.time = lambda: now() + ATTEMPT_SECONDS  # type: ignore[method-assign]
    await hang(received, writer)


async def reset(_: Received, writer: asyncio.StreamWriter) -> None:
    """Resets the connection."""
    await asyncio.sleep(0.01)  # so that what was written before arrives
    writer.transport.abort()


def after(event: asyncio.Event, behaviour: Behaviour) -> Behaviour:
    """Behaves in this way once the event is set."""

    async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
        await event.wait()
        await behaviour(received, writer)

    return behave


def endless(text: bytes) -> Behaviour:
    """Repeats the text until the sender ends the connection."""

    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while not writer.transport.is_closing():
                writer.write(text)
                await writer.drain()

    return behave


class Receiver(Listening):
    """A receiver of webhooks: it behaves once in each of the given ways, and then in the `usual` one."""

    def __init__(
        self, *behaviours: Behaviour, usual: Behaviour | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(tls)
        self.behaviours = deque(behaviours)
        self.usual = usual or reply(204)
        self.received: list[Received] = []
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/hook"

    @property
    def orders(self) -> list[int]:
        """The orders of all messages, one after another."""
        return [order_id for received in self.received for order_id in received.orders]

    @property
    def copy(self) -> dict[int, dict[str, Any]]:
        """The orders that a receiver has which keeps a copy of them."""
        kept: dict[int, dict[str, Any]] = {}
        for received in self.received:
            if received.message["type"] == "orders.reset":
                kept = {}
            kept |= {order["id"]: order for order in received.message["data"].get("orders", [])}
        return kept

    async def until(self, number: int) -> None:
        """Wait until so many requests were received."""
        await until(lambda: len(self.received) >= number)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.001)  # in which the transports close their sockets

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        super()._begin(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                received = await _read(reader)
                self.received.append(received)
                behave = self.behaviours.popleft() if self.behaviours else self.usual
                await behave(received, writer)
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Received(first.split(" ")[1], headers, body)


def server_tls(folder: Path, names: str = "IP:127.0.0.1") -> tuple[ssl.SSLContext, Path]:
    """What a receiver uses for TLS, and the file of its certificate, which is for the names and signed by itself.

    A sender trusts it if SSL_CERT_FILE names the file.
    """
    make_certificate(folder, names)
    certificate = folder / "fullchain.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, folder / "privkey.pem")
    return context, certificate


@dataclass
class Delivering:
    """What one process does for webhooks, with a clock that the test sets. `uniform` is 0: pauses have no spread."""

    store: Store
    clock: Clock
    sender: Sender
    service: WebhookService
    deliveries: Deliveries
    holder: str = ""
    outcomes: list[str] = field(default_factory=list)

    async def webhook(self, account: int, url: str, start: Start = BEGINNING, **options: Any) -> Revealed:
        """A new webhook of the account, which sees what that sees."""
        [found] = [each for each in await self.store.accounts.list() if each.id == account]
        owner = found.orders.owner(account)
        return await self.service.create((account, found.name), owner, url, BY, start=start, **options)

    async def look(self) -> None:
        """Begin what is due."""
        await self.deliveries.look(self.clock.now)

    async def finish(self) -> None:
        """Wait until no delivery is under way."""
        await until(lambda: not self.deliveries.under_way)

    async def round(self) -> None:
        """Begin what is due, and wait until it has ended."""
        await self.look()
        await self.finish()

    async def found(self, webhook: Webhook) -> Webhook:
        """The webhook as it is in the store now."""
        return await self.store.webhooks.find(webhook.id)


@asynccontextmanager
async def delivering(
    store: Store,
    clock: Clock | None = None,
    addresses: Addresses | None = None,
    holder: str = "one",
    networks: Sequence[Any] = LOOPBACK,
) -> AsyncIterator[Delivering]:
    """What delivers the webhooks of a store; several of these, with other holders, are as so many processes."""
    clock = clock or Clock()
    addresses = addresses or Addresses(networks)
    async with AsyncExitStack() as stack:
        sender = Sender(SigningSecrets(SECRET), addresses, None, clock)
        deliveries = Deliveries(store, sender, holder, lambda: 0.0)
        stack.push_async_callback(deliveries.close)
        yield Delivering(store, clock, sender, WebhookService(store, addresses, sender), deliveries, holder)


async def account(store: Store, name: str = "zoo", orders: VisibleOrders = VisibleOrders.ALL) -> int:
    """A new account that sees these orders; return its id."""
    created = await store.accounts.create(name, Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    if orders is not VisibleOrders.ALL:
        await store.accounts.change(name, edit(None, None, orders), BY)
    return created.id


async def end_leases(store: Store) -> None:
    """Set the leases back, as if their time had passed."""

    def work() -> Work[None]:
        yield Execute(f"UPDATE petstore.webhooks SET leased_until = leased_until - {LEASE_SECONDS}")

    await store.engine.transaction(work)


class Names:
    """Stands for `socket.getaddrinfo`: each look-up of a name has the next of its results, the last one repeatedly.

    Other hosts are addresses. In the arguments, `_` stands for a point.
    """

    def __init__(self, **names: Sequence[Sequence[str] | Exception]) -> None:
        self._results = {name.replace("_", "."): deque(results) for name, results in names.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, **_: object) -> list[Any]:
        self.asked.append(host)
        results = self._results.get(host.rstrip("."), deque([[host]]))
        found = results.popleft() if len(results) > 1 else results[0]
        if isinstance(found, Exception):
            raise found
        return [(None, None, 0, "", (address, port)) for address in found]


def named(monkeypatch: pytest.MonkeyPatch, *results: Sequence[str] | Exception) -> Names:
    """Have shop.example resolved to these addresses, in one look-up after another."""
    names = Names(shop_example=results)
    monkeypatch.setattr(addresses_module, "socket", SimpleNamespace(getaddrinfo=names, SOCK_STREAM=1))
    return names


def failure(row: str) -> Callable[[Test], Test]:
    """Names the row of docs/decisions/0026-webhooks.md that a test is of; test_webhook_failures.py compares them."""
    assert row
    return lambda test: test
