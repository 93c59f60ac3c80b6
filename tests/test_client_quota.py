"""Many workers with one key: no bans, no early requests, and nearly the whole quota used.

The service consists of the real MemoryLimiter and the real limit headers, in virtual time; a response takes 50 ms
unless a test says otherwise. It counts the requests, and those that arrive before the Retry-After of an earlier 429 has
elapsed.
"""

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from petstore_client import AsyncClient, RateLimitError
from petstore_client._types import Clock
from petstore_client.testing import FakeClock, FakePetstore
from petstore_server.api.headers import limit_headers
from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan
from petstore_server.domain.bans import BanPolicy
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.windows import Outcome
from petstore_server.limits.memory import MemoryLimiter
from testing.clock import OwnClock

DAY = 86_400
LATENCY = 0.05


class LimitedService(httpx2.AsyncBaseTransport):
    """Only the limits of the server: every admitted request gets 204."""

    def __init__(self, clock: Clock, limits: Limits, latency: float = 0.0) -> None:
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
    limits: Limits,
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
    return Day(limits.per_day, service.admitted, service.early, limiter.strikes, limiter.bans, cancelled, sum(failed))


BASE_URL = "http://petstore.test/v1"
FREE = Limits(60, 500)
LARGER = Limits(300, 600)
"""As many requests per minute as on the plans free and pro, and fewer per day: each takes a millisecond."""


Clients = Callable[[Clock, LimitedService], list[AsyncClient]]


def in_one_process(number: int) -> Clients:
    """Clients that share a gate."""
    return lambda clock, service: [
        AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock) for _ in range(number)
    ]


def in_processes(number: int, later: float = 0.0) -> Clients:
    """Clients that know nothing of each other. Each wakes so many seconds later than the one before it."""
    return lambda clock, service: [
        AsyncClient(BASE_URL, api_key="key", transport=service, clock=OwnClock(clock, late=late * later))
        for late in range(number)
    ]


@pytest.mark.parametrize(("clients", "limits"), [(1, FREE), (20, FREE), (1, LARGER)])
def test_twenty_workers_use_a_plan_for_a_day_without_an_early_request(clients: int, limits: Limits) -> None:
    day = simulate(20, in_one_process(clients), limits)
    assert (0, 0, 0) == (day.bans, day.strikes, day.early)
    assert day.share >= 0.95, day


@pytest.mark.parametrize(("processes", "pause"), [(4, 2.0), (8, 0.0), (20, 30.0)])
def test_independent_processes_are_not_banned(processes: int, pause: float) -> None:
    day = simulate(20, in_processes(processes), FREE, pause=pause)
    assert 0 == day.bans, day
    assert day.strikes < 20, day  # at most about one each, in the first minute and at the end of the day's quota
    assert day.share >= 0.95, day


@pytest.mark.parametrize(
    ("processes", "per_minute", "later", "part"), [(8, 60, 0.0, 0.75), (20, 300, 0.0, 0.75), (4, 60, 1.0, 0.5)]
)
def test_processes_that_share_a_key_get_equal_parts_of_its_limit(
    processes: int, per_minute: int, later: float, part: float
) -> None:
    minutes = 5 if per_minute == 300 else 10
    limits = Limits(per_minute, 100_000)
    day = simulate(processes, in_processes(processes, later), limits, seconds=minutes * 60, latency=0.005)
    equal = minutes * per_minute / processes
    assert min(day.cancelled) >= part * equal, day
    assert sum(day.cancelled) >= 0.95 * minutes * per_minute, day
    assert (0, 0) == (day.bans, day.failed), day


def test_five_hundred_concurrent_cancels_on_the_free_plan_all_succeed() -> None:
    clock = FakeClock()
    service = LimitedService(clock, PLAN_LIMITS[Plan.FREE], LATENCY)

    async def cancel_all() -> None:
        async with AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock) as petstore:
            await asyncio.gather(*[petstore.cancel_order(order) for order in range(500)])

    clock.run(cancel_all())
    assert (500, 0) == (service.admitted, service.refused)


def limited(response: httpx2.Response) -> dict[str, str]:
    """What a response says about limits and bans."""
    code = json.loads(response.read())["code"] if response.status_code == 429 else ""
    headers = {name: value for name, value in response.headers.items() if "ratelimit" in name or name == "retry-after"}
    return {"code": code, **headers}


BURSTS = st.tuples(st.sampled_from([0, 0.5, 1, 2, 7, 30, 61, 600, 90_000]), st.sampled_from([1, 2, 21]))
"""A pause in seconds, and how many requests follow it."""


@given(st.lists(BURSTS, max_size=15))
@example([(0, 21), (2, 21), (600, 21), (2, 21), (7_200, 21), (2, 21), (90_000, 21), (2, 21)])  # four bans
def test_the_fake_service_limits_and_bans_as_the_real_one_does(bursts: list[tuple[float, int]]) -> None:
    clock = FakeClock()
    service = LimitedService(clock, Limits(3, 12))
    fake = FakePetstore(per_minute=3, per_day=12, clock=clock)
    headers = {"authorization": f"Bearer {fake.api_key}"}
    request = httpx2.Request("GET", f"{fake.base_url}/store/orders", headers=headers)

    async def compare() -> None:
        for pause, count in bursts:
            clock.advance(pause)
            for _ in range(count):
                real = await service.handle_async_request(request)
                assert limited(real) == limited(fake.handle_request(request))

    clock.run(compare())
    assert (service.early, service.limiter.bans) == (fake.early, fake.bans)
