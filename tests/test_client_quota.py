"""Many workers on one key: no ban, nobody early, and nearly all of the quota."""

import pytest

from petstore_client import AsyncClient
from petstore_client.clock import Clock
from petstore_client.shared import Pacing
from petstore_server.domain.accounts import Plan
from quota_simulation import LimitedService, OwnClock, simulate

BASE_URL = "http://petstore.test/v1"


@pytest.mark.parametrize("pacing", [None, "minute", "day"])
@pytest.mark.parametrize("clients", [1, 20])
def test_twenty_workers_use_their_free_plan_for_a_day_without_one_request_too_early(
    clients: int, pacing: Pacing | None
) -> None:
    def shared(clock: Clock, service: LimitedService) -> list[AsyncClient]:
        return [
            AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock, pacing=pacing) for _ in range(clients)
        ]

    day = simulate(20, shared)
    assert (0, 0, 0) == (day.bans, day.strikes, day.early)
    assert day.share >= 0.95, day


def test_a_larger_plan_is_used_as_well() -> None:
    day = simulate(
        20, lambda clock, service: [AsyncClient(BASE_URL, api_key="key", transport=service, clock=clock)], Plan.PRO
    )
    assert (0, 0, 0) == (day.bans, day.strikes, day.early)
    assert day.share >= 0.95, day


@pytest.mark.parametrize(("processes", "pause"), [(4, 2.0), (8, 0.0), (20, 3.0), (20, 30.0)])
def test_processes_that_know_nothing_of_one_another_earn_no_ban(processes: int, pause: float) -> None:
    def apart(clock: Clock, service: LimitedService) -> list[AsyncClient]:
        return [
            AsyncClient(BASE_URL, api_key="key", transport=service, clock=OwnClock(clock)) for _ in range(processes)
        ]

    day = simulate(20, apart, pause=pause)
    assert 0 == day.bans, day
    assert day.strikes < processes, day  # at most one each, when the day is used up
    assert day.share >= 0.95, day
