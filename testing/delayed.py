"""A transport with latency, and what a test needs to see which requests a client sent at which time."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2

from petstore_client import AsyncClient
from petstore_client.testing import FakeClock, FakePetstore

LATENCY = 0.1


class Delayed(httpx2.AsyncBaseTransport):
    """Delivers requests to a fake service at once, and its responses after `latency` seconds, or the next of `delays`.

    `sent` has the time of each request in seconds since the first one, and `most` the largest number of requests that
    were in flight at the same time.
    """

    def __init__(self, fake: FakePetstore, latency: float = LATENCY) -> None:
        self.sent: list[float] = []
        self.delays: deque[float] = deque()
        self.most = 0
        self._fake = fake
        self._latency = latency
        self._in_flight = 0
        self._began = fake.clock.now()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(round(self._fake.clock.now() - self._began, 3))
        delay = self.delays.popleft() if self.delays else self._latency
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        try:
            return await self._fake.handle_async_request(request)
        finally:
            await asyncio.sleep(delay)
            self._in_flight -= 1


Program = Callable[[AsyncClient, Delayed], Coroutine[Any, Any, None]]


def run(fake: FakePetstore, program: Program, **options: Any) -> Delayed:
    """Run a program with a client of the fake, on the fake's clock; return its transport."""
    transport = Delayed(fake)

    async def main() -> None:
        async with fake.async_client(**{"transport": transport, "jitter": lambda: 0.0, **options}) as petstore:
            await program(petstore, transport)

    assert isinstance(fake.clock, FakeClock)
    fake.clock.run(main())
    return transport


async def list_at_once(petstore: AsyncClient, number: int) -> list[Any]:
    """List the orders this many times concurrently. Returns the lists or exceptions."""
    return await asyncio.gather(*[petstore.list_orders() for _ in range(number)], return_exceptions=True)


def other_process(fake: FakePetstore, requests: int) -> None:
    """Send requests with the same key from another process."""
    with fake.client(clock=FakeClock(), conditional=False) as petstore:
        for _ in range(requests):
            petstore.list_orders()
