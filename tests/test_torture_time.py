"""Clocks, in a few seconds: `make torture ONLY=time` takes more seeds, and a month."""

import pytest

from torture.groups import time

pytestmark = pytest.mark.anyio


async def test_a_simulated_day_follows_the_model_of_the_windows() -> None:
    assert [] == (await time.a_day(7, 400)).problems


async def test_clock_steps_make_no_client_wait_longer_than_a_window() -> None:
    assert [] == (await time.steps(7, 250)).problems


@pytest.mark.parametrize("year", [2038, 2100])
async def test_the_service_goes_on_after_a_leap(year: int) -> None:
    assert [] == (await time.leap(7, year)).problems
