"""Values that the console computes behind its pages: what closing does with a computation under way."""

import asyncio

import pytest

from petstore_server.console.cache import Cached

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
