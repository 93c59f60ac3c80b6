"""Many workers with one key: no bans, no early requests, and nearly the whole quota used."""

import asyncio

import pytest

from petstore_client import AsyncClient
from petstore_client._options import Pacing
from petstore_client._types import Clock
from petstore_client.testing import FakeClock
from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan
from quota_simulation import LimitedService, OwnClock, simulate

BASE_URL = "http://petstore.test/v1"
LARGER = Limits(300, 3_000)
"""As many requests per minute as on the plan pro, and fewer per day: each takes a millisecond."""


@pytest.mark.parametrize("pacing", [None, "minute", "day"])
@pytest.mark.parametrize("clients", [1, 20])
def test_twenty_workers_use_a_free_plan_for_a_day_without_an_early_request(clients: int, pacing: Pacing | None) -> None:
    def shared(clock: Clock, service: LimitedService) -> list[AsyncClient]:
        return [
            AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock, pacing=pacing) for _ in range(clients)
        ]

    day = simulate(20, shared)
    assert (0, 0, 0) == (day.bans, day.strikes, day.early)
    assert day.share >= 0.95, day


def test_a_larger_plan_is_used_fully() -> None:
    day = simulate(
        20, lambda clock, service: [AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock)], LARGER
    )
    assert (0, 0, 0) == (day.bans, day.strikes, day.early)
    assert day.share >= 0.95, day


@pytest.mark.parametrize(("processes", "pause"), [(4, 2.0), (8, 0.0), (20, 3.0), (20, 30.0)])
def test_independent_processes_are_not_banned(processes: int, pause: float) -> None:
    def apart(clock: Clock, service: LimitedService) -> list[AsyncClient]:
        return [
            AsyncClient(BASE_URL, api_key="key", transport=service, clock=OwnClock(clock)) for _ in range(processes)
        ]

    day = simulate(20, apart, pause=pause)
    assert 0 == day.bans, day
    assert day.strikes < processes, day  # at most one each, at the end of the day's quota
    assert day.share >= 0.95, day


def test_five_hundred_concurrent_cancels_on_the_free_plan_all_succeed() -> None:
    clock = FakeClock()
    service = LimitedService(clock, PLAN_LIMITS[Plan.FREE])

    async def cancel_all() -> None:
        async with AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock) as petstore:
            await asyncio.gather(*[petstore.cancel_order(order) for order in range(500)])

    clock.run(cancel_all())
    assert (500, 0) == (service.admitted, service.refused)
