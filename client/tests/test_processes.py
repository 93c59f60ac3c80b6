"""Processes that share a key: each gets its part of the limit, and the key is not banned.

A process is a client with a separate gate. All of them run on one simulated clock.
"""

import asyncio
from random import Random

import httpx2
import pytest

from petstore_client import NotFoundError
from petstore_client.testing import FakeClock, FakePetstore
from testing.clock import OwnClock

MINUTES, PER_MINUTE = 10, 60


class Delayed(httpx2.AsyncBaseTransport):
    """Delivers the responses of a fake service after a tenth of a second."""

    def __init__(self, fake: FakePetstore) -> None:
        self._fake = fake

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._fake.handle_async_request(request)
        await asyncio.sleep(0.1)
        return response


def run_processes(late: list[float], pause: float) -> tuple[FakePetstore, list[int]]:
    """Cancel for ten minutes, one process for each of `late` (see OwnClock), and return how often each of them did.

    Each waits before a request for `pause` seconds in the mean.
    """
    clock = FakeClock()
    fake = FakePetstore(per_minute=PER_MINUTE, clock=clock)
    random = Random(1)
    done = [0] * len(late)

    async def run(process: int) -> None:
        own = OwnClock(clock, late=late[process])
        async with fake.async_client(clock=own, transport=Delayed(fake)) as petstore:
            while True:
                if pause:
                    await asyncio.sleep(random.expovariate(1 / pause))
                with pytest.raises(NotFoundError):
                    await petstore.cancel_order(1)
                done[process] += 1

    async def run_all() -> None:
        async with asyncio.timeout(MINUTES * 60):
            await asyncio.gather(*map(run, range(len(late))))

    with pytest.raises(TimeoutError):
        clock.run(run_all())
    return fake, done


@pytest.mark.parametrize(
    ("late", "part"), [([0.0] * 2, 0.75), ([0.0] * 20, 0.75), ([0.0, 1.0, 2.0, 3.0], 0.5)], ids=["2", "20", "late"]
)
def test_each_process_gets_its_part_of_the_limit(late: list[float], part: float) -> None:
    fake, done = run_processes(late, 0.0)
    assert min(done) >= part * MINUTES * PER_MINUTE / len(late), done
    assert sum(done) >= 0.95 * MINUTES * PER_MINUTE, done
    assert 0 == fake.bans


def test_processes_that_send_now_and_then_do_not_get_the_key_banned() -> None:
    processes = 5  # which together want to send more than the limit
    fake, _ = run_processes([0.0] * processes, processes * 60 / PER_MINUTE / 1.3)
    assert len(fake.requests) >= 0.9 * MINUTES * PER_MINUTE
    assert 0 == fake.bans
