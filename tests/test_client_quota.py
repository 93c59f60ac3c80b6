"""Many workers with one key: no bans, no early requests, and nearly the whole quota used."""

import asyncio
from collections.abc import Callable

import pytest

from petstore_client import AsyncClient
from petstore_client._types import Clock
from petstore_client.testing import FakeClock
from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan
from testing.clock import OwnClock
from testing.quota_simulation import LATENCY, LimitedService, simulate

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


@pytest.mark.parametrize("clients", [1, 20])
def test_twenty_workers_use_a_free_plan_for_a_day_without_an_early_request(clients: int) -> None:
    day = simulate(20, in_one_process(clients), FREE)
    assert (0, 0, 0) == (day.bans, day.strikes, day.early)
    assert day.share >= 0.95, day


def test_a_larger_plan_is_used_fully() -> None:
    day = simulate(20, in_one_process(1), LARGER)
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
