"""Short forms of `make torture`: each group with few seeds, images, kills, requests and seconds."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from torture import crashes, power, power_commands
from torture.groups import copies, creation, histories, resources, time

pytestmark = pytest.mark.system

RUNS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "power lost by a server": lambda: power.served(7, 12, orders=150),
    "flushes that fail": lambda: power.failing_flushes(7, 6, orders=300, faults=2),
    "power lost during an import": lambda: power_commands.imported(7, 8, orders=1_500),
    "power lost during a restore": lambda: power_commands.restored(7, 10),
    "power lost during a backup": lambda: power_commands.backed_up(7, 10),
    "power lost during a migration": lambda: power_commands.migrated(7, 10),
    "PostgreSQL killed": lambda: crashes.killed(7, 2),
    "a history on SQLite": lambda: histories.history(7, "sqlite", 2, 0.5),
    "a history on PostgreSQL": lambda: histories.history(7, "postgres", 2, 0.5),
    "limits": lambda: histories.limits(7, 1.5),
    "hostile variation": lambda: resources.hostile(7, 400, warm=300),
    "steps of the clock": lambda: time.steps(7, 250),
    "a leap to 2038": lambda: time.leap(7, 2038),
    "a leap to 2100": lambda: time.leap(7, 2100),
    "stores that eight processes create": lambda: creation.creation(1, 20),
    "copies through kills and a restore": lambda: copies.copies(1, "sqlite", 300),
    "copies through kills and a failover": lambda: copies.copies(1, "postgres", 300),
}


@pytest.mark.parametrize("name", RUNS)
async def test_a_short_run_finds_nothing(name: str) -> None:
    assert [] == (await RUNS[name]()).problems


async def test_a_server_that_flushes_nothing_is_found_out() -> None:
    outcome = await power.served(7, 5, orders=100, flush=False)
    assert "order 1 is lost" in " ".join(outcome.problems)
