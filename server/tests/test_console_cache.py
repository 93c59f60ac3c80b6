"""Values that the console computes behind its pages: what closing does with a computation under way."""

import asyncio

import pytest

from petstore_server.console.cache import Cached
from petstore_server.domain.errors import ServiceUnavailable

pytestmark = pytest.mark.anyio


async def test_closing_waits_for_a_computation_that_ends() -> None:
    done: list[str] = []

    async def compute() -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        done.append("connection closed")
        return 1

    cached = Cached(compute, 60.0)
    assert cached.latest() is None
    await asyncio.sleep(0)
    await cached.close()
    assert ["connection closed"] == done


async def test_closing_cancels_a_computation_that_does_not_end() -> None:
    cancelled: list[str] = []

    async def compute() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("cancelled")
            raise
        return 1

    cached = Cached(compute, 60.0)
    assert cached.latest() is None
    await asyncio.sleep(0)
    await cached.close(wait_seconds=0)
    assert ["cancelled"] == cancelled


async def test_a_value_that_takes_long_is_shown_later() -> None:
    allowed = asyncio.Event()
    computed = 0

    async def compute() -> int:
        nonlocal computed
        await allowed.wait()
        computed += 1
        return computed

    cached = Cached(compute, seconds=0)
    assert cached.is_empty
    assert None is await cached.soon(0.01)
    allowed.set()
    assert 1 == await cached.soon(10)
    allowed.clear()
    assert 1 == await cached.soon(0.01)
    allowed.set()
    assert 2 == await cached.soon(10)
    await cached.close()


async def test_a_failure_to_compute_a_value_is_raised() -> None:
    async def compute() -> int:
        raise ServiceUnavailable("the store is gone")

    with pytest.raises(ServiceUnavailable):
        await Cached(compute, 1).soon(10)
