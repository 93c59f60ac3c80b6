"""A day of virtual time: workers who want all they can get, against the server's own limiter.

The service here is the real MemoryLimiter and the real limit headers, behind an answer that takes 50 ms. Every request
is counted, and whether it came before the moment that an earlier 429 had named.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from petstore_client import AsyncClient, RateLimitError
from petstore_client.clock import Clock
from petstore_client.testing import FakeClock
from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.keys import ALL_SCOPES, Principal
from petstore_server.domain.windows import Outcome
from petstore_server.http.headers import limit_headers
from petstore_server.ratelimit.memory import MemoryLimiter

DAY = 86_400
LATENCY = 0.05


class LimitedService(httpx2.AsyncBaseTransport):
    """The limits of the server, and nothing else of it: every admitted request is answered 204."""

    def __init__(self, clock: Clock, plan: Plan) -> None:
        self._clock = clock
        self.limiter = MemoryLimiter(BanPolicy(), clock.now)
        self._grant = Principal("key_1", 1, plan, PLAN_LIMITS[plan], ALL_SCOPES)
        self._retry_at = float("-inf")
        self.admitted = self.refused = self.early = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(LATENCY / 2)
        now = self._clock.now()
        self.early += now < self._retry_at
        decision = await self.limiter.admit(self._grant)
        headers: Any = limit_headers(decision)
        if decision.outcome is Outcome.ADMITTED:
            self.admitted += 1
            response = httpx2.Response(204, headers=headers)
        else:
            self.refused += 1
            self._retry_at = max(self._retry_at, now + decision.retry_after)
            code = "api_key_banned" if decision.outcome is Outcome.BANNED else "rate_limit_exceeded"
            body = {"code": code, "message": "No.", "status": 429}
            response = httpx2.Response(429, headers=headers, json=body)
        await asyncio.sleep(LATENCY / 2)
        return response


@dataclass
class Day:
    """What came of it."""

    quota: int
    admitted: int
    refused: int
    early: int
    strikes: int
    bans: int

    @property
    def share(self) -> float:
        """The part of the day's quota that was used."""
        return self.admitted / self.quota


def simulate(
    workers: int,
    clients: Callable[[Clock, LimitedService], Sequence[AsyncClient]],
    plan: Plan = Plan.FREE,
    pause: float = 0.0,
) -> Day:
    """Let workers cancel one order after the other for a day; they share the clients in turn.

    A worker who is told to come back later does so then, and no sooner. Between two calls each of them does something
    else, for `pause` seconds on average.
    """
    clock = FakeClock()
    service = LimitedService(clock, plan)
    source = random.Random(4)

    async def work(client: AsyncClient) -> None:
        for order in itertools.count():
            try:
                await client.cancel_order(order)
            except RateLimitError as error:
                await asyncio.sleep(max(0.0, error.retry_at.timestamp() - clock.now()))
            await asyncio.sleep(source.uniform(0.0, 2 * pause))

    async def day() -> None:
        shared = clients(clock, service)
        tasks = [asyncio.create_task(work(shared[number % len(shared)])) for number in range(workers)]
        await asyncio.sleep(DAY - 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    clock.run(day())
    quota = PLAN_LIMITS[plan].per_day
    limiter = service.limiter
    return Day(quota, service.admitted, service.refused, service.early, limiter.strikes, limiter.bans)


class OwnClock:
    """The same time under another identity: clients on clocks of their own share no gate, as in so many processes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await self._clock.sleep_async(seconds)
