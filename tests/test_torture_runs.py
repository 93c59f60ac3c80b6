"""Short forms of `make torture`: each group with few seeds, requests and seconds."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from torture.groups import creation, histories, mirror, resources, time
from torture.plan import Result

pytestmark = [pytest.mark.anyio, pytest.mark.system]

RUNS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "a history on SQLite": lambda: histories.history(7, "sqlite", 2, 0.5),
    "a history on PostgreSQL": lambda: histories.history(7, "postgres", 2, 0.5),
    "limits": lambda: histories.limits(7, 1.5),
    "hostile variation": lambda: resources.hostile(7, 400, warm=300),
    "a simulated day": lambda: time.a_day(7, 400),
    "steps of the clock": lambda: time.steps(7, 250),
    "a leap to 2038": lambda: time.leap(7, 2038),
    "a leap to 2100": lambda: time.leap(7, 2100),
}


@pytest.mark.parametrize("name", RUNS)
async def test_a_short_run_finds_nothing(name: str) -> None:
    assert [] == (await RUNS[name]()).problems


async def test_no_process_is_refused_a_store_that_others_create() -> None:
    result: Result = await creation.creation(1, 20)
    assert not result.problems
    assert "20 rounds of 8 processes, 20 stores created" in str(result)


async def test_a_copy_is_equal_after_restarts_and_is_begun_again_after_a_restore() -> None:
    result: Result = await mirror.mirror(1, "sqlite", 6.0)
    assert not result.problems
    assert "1 copies" in str(result)
    assert " 1 resets" in str(result)
