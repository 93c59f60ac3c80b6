"""A day of virtual time: workers that use as much quota as they can, with the server's own limiter.

The service consists of the real MemoryLimiter and the real limit headers; a response takes 50 ms unless a test says
otherwise. It counts the requests, and those that arrive before the Retry-After of an earlier 429 has elapsed.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx2

from petstore_client import AsyncClient, RateLimitError
from petstore_client._types import Clock
from petstore_client.testing import FakeClock
from petstore_server.api.headers import limit_headers
from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.windows import Outcome
from petstore_server.limits.memory import MemoryLimiter

DAY = 86_400
LATENCY = 0.05


class LimitedService(httpx2.AsyncBaseTransport):
    """Only the limits of the server: every admitted request gets 204."""

    def __init__(self, clock: Clock, limits: Limits, latency: float) -> None:
        self._clock = clock
        self._latency = latency
        self.limiter = MemoryLimiter(BanPolicy(), clock.now)
        self._grant = Principal("key_1", 1, "acme", Plan.ENTERPRISE, limits, DEFAULT_SCOPES)
        self._retry_at = float("-inf")
        self.admitted = self.refused = self.early = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(self._latency / 2)
        now = self._clock.now()
        self.early += now < self._retry_at
        decision = await self.limiter.admit(self._grant)
        lines = limit_headers(decision).split(b"\r\n")
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines) if name]
        if decision.outcome is Outcome.ADMITTED:
            self.admitted += 1
            response = httpx2.Response(204, headers=headers)
        else:
            self.refused += 1
            self._retry_at = max(self._retry_at, now + decision.retry_after)
            code = "api_key_banned" if decision.outcome is Outcome.BANNED else "rate_limit_exceeded"
            body = {"code": code, "message": "No.", "status": 429}
            response = httpx2.Response(429, headers=headers, json=body)
        await asyncio.sleep(self._latency / 2)
        return response


@dataclass
class Day:
    """The result of a simulated day. `cancelled` counts the orders of each worker, `failed` the calls that raised."""

    quota: int
    admitted: int
    refused: int
    early: int
    strikes: int
    bans: int
    cancelled: list[int]
    failed: int

    @property
    def share(self) -> float:
        """The used part of the day's quota."""
        return self.admitted / self.quota


def simulate(
    workers: int,
    clients: Callable[[Clock, LimitedService], Sequence[AsyncClient]],
    limits: Limits = PLAN_LIMITS[Plan.FREE],
    pause: float = 0.0,
    seconds: float = DAY,
    latency: float = LATENCY,
) -> Day:
    """Let workers cancel orders one by one for a day, or some seconds of it; they share the clients.

    They begin within the first five seconds. A worker that gets a RateLimitError continues at `retry_at`. Between two
    calls each worker pauses, for `pause` seconds on average.
    """
    clock = FakeClock()
    service = LimitedService(clock, limits, latency)
    source = random.Random(4)
    cancelled, failed = [0] * workers, [0] * workers

    async def work(number: int, client: AsyncClient) -> None:
        await asyncio.sleep(source.uniform(0.0, 5.0))
        for order in itertools.count():
            try:
                await client.cancel_order(order)
                cancelled[number] += 1
            except RateLimitError as error:
                failed[number] += 1
                await asyncio.sleep(max(0.0, error.retry_at.timestamp() - clock.now()))
            await asyncio.sleep(source.uniform(0.0, 2 * pause))

    async def day() -> None:
        shared = clients(clock, service)
        tasks = [asyncio.create_task(work(number, shared[number % len(shared)])) for number in range(workers)]
        await asyncio.sleep(seconds - 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    clock.run(day())
    limiter = service.limiter
    return Day(
        limits.per_day, service.admitted, service.refused, service.early, limiter.strikes, limiter.bans, cancelled,
        sum(failed),
    )  # fmt: skip
