"""The gate: which requests are sent, and when, as a service sees them."""

import asyncio
from itertools import pairwise

import pytest

from petstore_client import AsyncClient, Order, RateLimitError
from petstore_client.testing import FakePetstore, RateLimited
from testing.delayed import LATENCY, Delayed, list_at_once, other_process, run

ORDERS = [Order(id=1)]


def test_no_more_requests_are_in_flight_than_the_window_has_left() -> None:
    fake = FakePetstore(ORDERS, per_minute=4)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 6)

    transport = run(fake, program)
    assert [0.0] + [LATENCY] * 3 == transport.sent[:4]
    assert 60.0 <= transport.sent[4]
    assert (6, 0) == (len(fake.requests), fake.early)


def test_a_service_that_refuses_forever_ends_the_call_by_time() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[RateLimited(1)] * 100)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        with pytest.raises(RateLimitError) as caught:
            await petstore.list_orders()
        assert "max_wait" == caught.value.ended_by

    assert 5 < len(run(fake, program, jitter=lambda: 1.0).sent) < 12
    assert fake.clock.monotonic() < 150


def test_requests_that_other_processes_may_have_used_are_left_to_them() -> None:
    fake = FakePetstore(ORDERS, per_minute=60)

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        for _ in range(6):
            await petstore.list_orders()
            other_process(fake, 7)
            await asyncio.sleep(1)
        other_process(fake, 60 - 48)
        await asyncio.sleep(8)
        await petstore.list_orders()

    assert 60.0 <= run(fake, program).sent[6]
    assert 0 == fake.early
    assert 61 == len(fake.requests)  # none was refused


def test_a_call_that_gives_up_makes_room() -> None:
    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        transport.delays.append(20)
        calls = [petstore.list_orders(), petstore.with_options(deadline=5).list_orders(), petstore.list_orders()]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (ORDERS, ORDERS) == (first, third)
        assert isinstance(second, RateLimitError)
        assert ("deadline", False) == (second.ended_by, second.sent)

    assert [0.0, 20.0] == run(FakePetstore(ORDERS), program).sent


def gaps(sent: list[float]) -> list[float]:
    return [round(second - first, 3) for first, second in pairwise(sent)]


def test_in_the_window_after_an_exhausted_one_requests_are_spaced() -> None:
    fake = FakePetstore(ORDERS, per_minute=60)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 200)

    sent = run(fake, program).sent
    windows = [[time for time in sent if start <= time < start + 60] for start in (0, 60, 120)]
    assert [60, 60, 60] == [len(window) for window in windows]
    assert windows[0][-1] < 1
    assert {1.0} == set(gaps(windows[1]))
    assert 60 + 200 - 180 == 60 + len([time for time in sent if time >= 180])


def test_a_call_is_refused_more_often_than_max_retries() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[RateLimited(1)] * 6)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        assert ORDERS == await petstore.list_orders()

    assert 7 == len(run(fake, program, max_retries=0).sent)
