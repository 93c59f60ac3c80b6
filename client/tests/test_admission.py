"""The gate: which requests are sent, and when, as a service sees them."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from petstore_client import AsyncClient, Order, RateLimitError
from petstore_client.testing import Answered, Dropped, FakePetstore, RateLimited
from testing.delayed import LATENCY, Delayed, list_at_once, other_process, run

ORDERS = [Order(id=1)]
JSON = {"content-type": "application/json"}
POLICY = '"minute";q=60;w=60'


def described(remaining: int, left: int) -> Answered:
    """A response that says how much of the minute remains."""
    limits = {"ratelimit-policy": POLICY, "ratelimit": f'"minute";r={remaining};t={left}'}
    return Answered(200, b"[]", {**JSON, **limits})


def test_the_first_request_is_sent_before_all_others() -> None:
    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 5)

    assert [0.0] + [LATENCY] * 4 == run(FakePetstore(ORDERS), program).sent


def test_without_known_limits_a_lost_first_request_releases_the_others() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(Dropped())

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 5)

    assert [0.0] + [LATENCY] * 5 == run(fake, program).sent


def test_no_more_requests_are_in_flight_than_the_window_has_left() -> None:
    fake = FakePetstore(ORDERS, per_minute=4)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 6)

    transport = run(fake, program)
    assert [0.0] + [LATENCY] * 3 == transport.sent[:4]
    assert 60.0 <= transport.sent[4]
    assert (6, 0) == (len(fake.requests), fake.early)


def test_after_an_exhausted_window_one_request_goes_first() -> None:
    fake = FakePetstore(ORDERS, per_minute=1000)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await petstore.list_orders()
        other_process(fake, 998)
        await list_at_once(petstore, 4)

    transport = run(fake, program)
    first, second, *others = [sent for sent in transport.sent if sent >= 60.0]
    assert pytest.approx((60.2, 60.3)) == (first, second)
    assert 1 <= len(others)


def test_each_refusal_in_a_row_adds_twice_as_much_to_the_wait() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[RateLimited(10)] * 5, *[described(60, 60)] * 2, RateLimited(10))

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        for _ in range(4):
            await petstore.list_orders()

    sent = run(fake, program, jitter=lambda: 1.0).sent
    waits = [second - first - LATENCY for first, second in pairwise(sent)]
    assert [10.0, 12.0, 14.0, 18.0, 26.0, 0.0, 0.0, 10.0, 0.9] == pytest.approx(waits, abs=0.001)


def test_a_service_that_refuses_forever_ends_the_call_by_time() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[RateLimited(1)] * 100)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        with pytest.raises(RateLimitError) as caught:
            await petstore.list_orders()
        assert "max_wait" == caught.value.ended_by

    assert 5 < len(run(fake, program, jitter=lambda: 1.0).sent) < 12
    assert fake.clock.monotonic() < 150


def test_requests_in_flight_when_a_limit_is_met_count_as_one_refusal() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(described(60, 60), *[RateLimited(10)] * 21)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await petstore.list_orders()
        await list_at_once(petstore, 20)

    sent = run(fake, program, jitter=lambda: 1.0).sent
    assert [LATENCY] * 20 == sent[1:21]
    assert pytest.approx(10 + 2 * LATENCY) == sent[21]
    assert pytest.approx(10 + 2 * LATENCY + 12 + LATENCY) == sent[22]  # two refusals in a row, not 21


def test_a_late_success_does_not_end_a_wait() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(described(60, 60), RateLimited(30), described(58, 58))

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        await petstore.list_orders()
        transport.delays.extend([0.5, 1.0])
        await asyncio.gather(*[petstore.list_orders() for _ in range(2)], later(petstore))

    async def later(petstore: AsyncClient) -> None:
        await asyncio.sleep(1.5)
        await petstore.list_orders()

    sent = run(fake, program).sent
    assert [0.0, LATENCY, LATENCY] == sent[:3]
    assert 30.6 <= sent[3] < sent[4]  # and one of them goes first


def test_a_success_of_before_a_limit_does_not_release_calls_that_wait_for_the_first_request_after_it() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(described(60, 60), described(58, 58), RateLimited(30))

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        await petstore.list_orders()
        transport.delays.extend([40.0, 0.1, 20.0])  # the success, the 429, and the first request after the limit
        await list_at_once(petstore, 2)

    async def later(petstore: AsyncClient, transport: Delayed) -> None:
        await asyncio.gather(program(petstore, transport), waiting(petstore))

    async def waiting(petstore: AsyncClient) -> None:
        await asyncio.sleep(35)
        await list_at_once(petstore, 2)

    sent = run(fake, later).sent
    assert [0.0, LATENCY, LATENCY, 30.2] == pytest.approx(sent[:4])
    assert 50.2 <= min(sent[4:])


def test_a_success_of_before_a_limit_does_not_replace_the_first_request_after_it() -> None:
    fake = FakePetstore(ORDERS)
    lists = [Answered(200, b"[]", JSON)] * 4
    fake.then(lists[0], lists[1], RateLimited(30), *lists[2:])  # no window is known, so no request is spaced

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        await petstore.list_orders()
        transport.delays.extend([35.0, LATENCY])  # the success arrives when the limit has ended
        await list_at_once(petstore.with_options(max_wait=0), 2)
        await list_at_once(petstore, 2)

    sent = run(fake, program).sent
    assert [0.0, LATENCY, LATENCY, 35.1, 35.2] == pytest.approx(sent)


def test_after_a_limit_a_lost_first_request_is_followed_by_another_one() -> None:
    fake = FakePetstore(ORDERS, per_minute=60)
    fake.then(described(0, 60), Dropped())

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await petstore.list_orders()
        await list_at_once(petstore.with_options(max_retries=0), 4)

    transport = run(fake, program)
    assert [60.1, 60.2] == pytest.approx(transport.sent[1:3])
    assert 1 == transport.most


def test_responses_out_of_order_do_not_increase_the_remaining_requests() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(described(3, 60), described(1, 59), described(2, 60))  # 60 is 59.1, rounded up: the same window

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        await petstore.list_orders()
        transport.delays.extend([0.2, 0.4])
        await list_at_once(petstore, 2)
        await list_at_once(petstore, 2)

    transport = run(fake, program)
    assert [0.0, 0.1, 0.1, 0.5, 0.6] == transport.sent  # the last two one after the other


def test_a_slow_response_does_not_move_the_end_of_a_window() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(described(5, 60), described(0, 50))

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        await petstore.list_orders()
        await asyncio.sleep(10)
        transport.delays.append(30)  # the service decided at some time in these: its window ends within [59, 90]
        await petstore.list_orders()
        await petstore.list_orders()

    assert pytest.approx(60.0, abs=0.2) == run(fake, program).sent[2]


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


def test_usage_before_this_process_started_is_not_attributed_to_others() -> None:
    fake = FakePetstore(ORDERS, per_minute=60)
    other_process(fake, 55)

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        for _ in range(5):
            await petstore.list_orders()
            await asyncio.sleep(10)

    assert run(fake, program).sent[4] < 41


def test_in_a_long_window_other_processes_cause_no_wait() -> None:
    fake = FakePetstore(ORDERS, per_minute=1000, per_day=1000)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        for others in (400, 400, 190):
            await petstore.list_orders()
            other_process(fake, others)
            await asyncio.sleep(600)
        await petstore.list_orders()

    assert pytest.approx(1800, abs=1) == run(fake, program).sent[3]


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


def test_a_request_that_a_limit_holds_loses_its_slot() -> None:
    fake = FakePetstore(ORDERS, per_minute=60)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 60)
        calls = asyncio.create_task(list_at_once(petstore, 40))
        await asyncio.sleep(75)
        other_process(fake, 60 - 16)  # which exhausts the window
        await calls

    sent = run(fake, program).sent
    in_second, in_third = [time for time in sent if 60 <= time < 120], [time for time in sent if time >= 120]
    assert 10 < len(in_second) < 20 < len(in_third)
    assert min(gaps(in_third)) >= 1.0


@pytest.mark.parametrize("option", [{"max_wait": 0.5}, {"deadline": 0.5}], ids=str)
def test_a_call_that_cannot_wait_for_its_slot_is_sent_at_once(option: dict[str, Any]) -> None:
    fake = FakePetstore(ORDERS, per_minute=60)

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        await list_at_once(petstore, 61)
        for _ in range(5):
            assert ORDERS == await petstore.with_options(**option).list_orders()
        await petstore.list_orders()

    *impatient, last = gaps(run(fake, program).sent[60:])
    assert {LATENCY} == set(impatient)
    assert pytest.approx(5.5) == last  # they have used the next five slots


def test_without_known_windows_requests_are_not_spaced() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[Answered(200, b"[]", JSON)] * 3, RateLimited(30), *[Answered(200, b"[]", JSON)] * 5)

    async def program(petstore: AsyncClient, transport: Delayed) -> None:
        for _ in range(8):
            await petstore.list_orders()

    assert {LATENCY} == set(gaps(run(fake, program).sent[4:]))


@pytest.mark.parametrize(("per_minute", "gap"), [(5, 1.0), (120, 0.5), (300, 0.2)])
def test_requests_are_at_most_a_second_apart(per_minute: int, gap: float) -> None:
    fake = FakePetstore(ORDERS, per_minute=per_minute)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 2 * per_minute)

    second = [sent for sent in run(fake, program).sent if sent >= 60]
    assert per_minute == len(second)
    assert [gap] * (per_minute - 1) == pytest.approx(gaps(second), abs=0.002)


def test_spacing_ends_with_the_window() -> None:
    fake = FakePetstore(ORDERS, per_minute=60)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        await list_at_once(petstore, 61)
        await asyncio.sleep(61)
        await list_at_once(petstore, 30)

    assert run(fake, program).sent[-1] < 123


def test_a_call_is_refused_more_often_than_max_retries() -> None:
    fake = FakePetstore(ORDERS)
    fake.then(*[RateLimited(1)] * 6)

    async def program(petstore: AsyncClient, _: Delayed) -> None:
        assert ORDERS == await petstore.list_orders()

    assert 7 == len(run(fake, program, max_retries=0).sent)
