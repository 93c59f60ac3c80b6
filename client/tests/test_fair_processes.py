"""Processes that share a key: each gets its part of the limit, and the key is not banned.

A process is a client with a separate gate. All of them run on one simulated clock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from petstore_client import AsyncClient, NotFoundError
from petstore_client.testing import FakeClock, FakePetstore
from testing.clock import OwnClock
from testing.delayed import Delayed

MINUTES, PER_MINUTE = 10, 60


def run_processes(fake: FakePetstore, late: list[float], work: Callable[[AsyncClient], Awaitable[None]]) -> list[int]:
    """Run one process for each number in `late`, and return how often each has done the work within MINUTES."""
    clock = fake.clock
    assert isinstance(clock, FakeClock)
    done = [0] * len(late)

    async def run(process: int) -> None:
        own = OwnClock(fake.clock, late=late[process])
        async with fake.async_client(clock=own, transport=Delayed(fake)) as petstore:
            while True:
                await work(petstore)
                done[process] += 1

    async def main() -> None:
        async with asyncio.timeout(MINUTES * 60), asyncio.TaskGroup() as tasks:
            for process in range(len(late)):
                tasks.create_task(run(process))

    with pytest.raises(TimeoutError):
        clock.run(main())
    return done


@pytest.mark.parametrize(
    ("late", "part"), [([0.0] * 2, 0.75), ([0.0] * 20, 0.75), ([0.0, 1.0, 2.0, 3.0], 0.5)], ids=["2", "20", "late"]
)
def test_each_process_gets_its_part_of_the_limit(late: list[float], part: float) -> None:
    fake = FakePetstore(per_minute=PER_MINUTE)

    async def cancel(petstore: AsyncClient) -> None:
        with pytest.raises(NotFoundError):
            await petstore.cancel_order(1)

    done = run_processes(fake, late, cancel)
    assert min(done) >= part * MINUTES * PER_MINUTE / len(late), done
    assert sum(done) >= 0.95 * MINUTES * PER_MINUTE, done
    assert 0 == fake.bans


def test_processes_that_send_now_and_then_do_not_get_the_key_banned() -> None:
    fake = FakePetstore(per_minute=PER_MINUTE)
    random = Random(1)
    processes = 5

    async def cancel_now_and_then(petstore: AsyncClient) -> None:
        await asyncio.sleep(random.expovariate(PER_MINUTE * 1.3 / 60 / processes))  # together more than the limit
        with pytest.raises(NotFoundError):
            await petstore.cancel_order(1)

    run_processes(fake, [0.0] * processes, cancel_now_and_then)
    assert len(fake.requests) >= 0.9 * MINUTES * PER_MINUTE
    assert 0 == fake.bans
