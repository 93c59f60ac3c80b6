"""What a page shows of sources that are slow or down: the last value with its age, or why there is none."""

import asyncio
from time import monotonic
from unittest.mock import AsyncMock

import pytest

from petstore_server.console.rendering import percent
from petstore_server.console.sources import SLOW, Cached, Reading, read_within
from petstore_server.domain.errors import NotFound, ServiceUnavailable, Unreachable

pytestmark = pytest.mark.anyio

PATIENT = {"old": 60.0, "missing": 60.0, "rest": 0.0}
IMPATIENT = {"old": 0.01, "missing": 0.01, "rest": 1000.0}


async def test_closing_waits_for_a_value_that_is_being_read() -> None:
    done: list[str] = []

    async def read() -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        done.append("connection closed")
        return 1

    cached = Cached(read, missing=0)
    assert Reading() == await cached.get()
    await cached.close()
    assert ["connection closed"] == done


async def test_closing_cancels_a_value_that_does_not_come() -> None:
    cancelled: list[str] = []

    async def read() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("cancelled")
            raise
        return 1

    cached = Cached(read, missing=0)
    await cached.get()
    await asyncio.sleep(0)
    await cached.close(wait_seconds=0)
    assert ["cancelled"] == cancelled


async def test_a_value_that_takes_long_is_shown_later() -> None:
    allowed = asyncio.Event()

    async def read() -> int:
        await allowed.wait()
        return 1

    cached = Cached(read, **IMPATIENT)
    assert Reading() == await cached.get()
    allowed.set()
    await asyncio.sleep(0)
    assert 1 == (await cached.get()).value
    await cached.close()


async def test_concurrent_callers_share_a_value() -> None:
    cached = Cached(AsyncMock(side_effect=[1, 2, 3]), **PATIENT)
    assert [1, 1, 1] == [each.value for each in await asyncio.gather(*[cached.get() for _ in range(3)])]


async def test_a_source_that_goes_down_leaves_the_last_value_with_the_reason() -> None:
    problem = Unreachable("The usage cannot be read", "refused", "Check Redis.")
    cached = Cached(AsyncMock(side_effect=[7, problem, 8]), **PATIENT)
    first, second, third = [await cached.get() for _ in range(3)]
    assert (7, "") == (first.value, first.problem)
    assert (7, True, "The usage cannot be read (refused). Check Redis.") == (
        second.value,
        second.age > 0,
        second.problem,
    )
    assert (8, "") == (third.value, third.problem)


async def test_a_value_that_cannot_be_read_at_all_says_so(caplog: pytest.LogCaptureFixture) -> None:
    value, _, reason = await Cached(AsyncMock(side_effect=RuntimeError("a defect")), **PATIENT).get()
    assert (None, "This cannot be read; the log of the server says why.") == (value, reason)
    assert ["console page lacks a value"] == [record.message for record in caplog.records]


async def test_a_value_is_kept_for_a_multiple_of_the_time_that_it_took() -> None:
    count = 0

    async def read() -> int:
        nonlocal count
        count += 1
        await asyncio.sleep(0.01)
        return count

    kept, current = (Cached(read, old=60, missing=60, rest=rest) for rest in (1000, 0))
    assert [1, 1] == [(await kept.get()).value, (await kept.get()).value]
    assert [2, 3] == [(await current.get()).value, (await current.get()).value]
    briefly, began = Cached(read, old=60, missing=60, rest=1), monotonic()
    assert 4 == (await briefly.get()).value
    await asyncio.sleep(monotonic() - began)
    assert 5 == (await briefly.get()).value


async def test_reading_ends_in_time() -> None:
    async def never() -> int:
        await asyncio.Event().wait()
        return 1

    down, missing = AsyncMock(side_effect=ServiceUnavailable("the store is gone")), AsyncMock(side_effect=NotFound(""))
    assert Reading(problem=SLOW) == await read_within(never(), 0.01)
    assert Reading(problem=SLOW) == await read_within(never(), -1)
    assert Reading(problem="The store is gone.") == await read_within(down(), 1)
    with pytest.raises(NotFound):
        await read_within(missing(), 1)


def test_a_share_is_not_rounded_to_none_or_all() -> None:
    assert ["0%", "<1%", "1%", "50%", "99%", ">99%", "100%"] == [
        percent(share) for share in (0, 0.001, 0.01, 0.5, 0.99, 0.996, 1)
    ]
