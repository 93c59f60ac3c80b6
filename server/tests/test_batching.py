"""Coalescing: what shares a batch, evenly by flow, who gets which outcome, and what a failure ends."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.batching import Batcher, SharedCall
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.fair_queue import FairQueue


class Doubler:
    """Doubles numbers in batches, once its gate is set; odd numbers are refused."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.fault: Exception | None = None

    async def perform(self, numbers: list[int]) -> Sequence[int | Exception]:
        self.batches.append(numbers)
        await self.gate.wait()
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return [number * 2 if number % 2 == 0 else ValueError(number) for number in numbers]


async def test_what_comes_while_a_batch_is_under_way_shares_the_next() -> None:
    doubler = Doubler()
    batcher = Batcher(doubler.perform, limit=2)
    calls = [asyncio.create_task(batcher.submit(0))]
    await asyncio.sleep(0.01)
    calls += [asyncio.create_task(batcher.submit(number)) for number in (2, 4, 6)]
    await asyncio.sleep(0.01)
    assert [[0]] == doubler.batches
    doubler.gate.set()
    assert [0, 4, 8, 12] == await asyncio.gather(*calls)
    assert [[0], [2, 4], [6]] == doubler.batches


async def test_one_caller_with_many_items_does_not_delay_the_others() -> None:
    doubler = Doubler()
    doubler.gate.set()
    batcher = Batcher(doubler.perform, limit=4)
    calls = [asyncio.create_task(batcher.submit(number, flow="greedy")) for number in range(0, 40, 2)]
    calls.append(asyncio.create_task(batcher.submit(100, flow="modest")))
    await asyncio.gather(*calls)
    assert [100, 0, 2] == doubler.batches[0]
    assert 4 == max(map(len, doubler.batches))


async def test_so_many_batches_are_under_way_as_allowed() -> None:
    doubler = Doubler()
    batcher = Batcher(doubler.perform, concurrency=2)
    calls = []
    for number in (0, 2, 4):
        calls.append(asyncio.create_task(batcher.submit(number)))
        await asyncio.sleep(0.01)
    assert [[0], [2]] == doubler.batches
    doubler.gate.set()
    assert [0, 4, 8] == await asyncio.gather(*calls)


async def test_an_outage_ends_waiting_calls_too_and_any_other_error_only_its_batch() -> None:
    doubler = Doubler()
    batcher = Batcher(doubler.perform)
    for fault, refused in ((ServiceUnavailable("gone"), 2), (ZeroDivisionError(), 1)):
        doubler.gate.clear()
        doubler.fault = fault
        first = asyncio.create_task(batcher.submit(2))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher.submit(4))
        await asyncio.sleep(0.01)
        doubler.gate.set()
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert [fault] * refused == [outcome for outcome in outcomes if outcome != 8]


class Divider:
    """Divides by numbers, in batches that fail as a whole for a zero; a negative number is an outage."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def perform(self, numbers: list[int]) -> Sequence[float | Exception]:
        self.batches.append(numbers)
        await asyncio.sleep(0)
        if min(numbers) < 0 and len(numbers) < 4:
            raise ServiceUnavailable("gone")
        return [1 / abs(number) for number in numbers]


async def test_a_separable_batch_that_fails_for_an_item_is_repeated_without_it() -> None:
    divider = Divider()
    batcher = Batcher(divider.perform, limit=8, separable=True)
    numbers = [1, 2, 0, 4, 5, 6, 7, 8, 9]
    outcomes = await asyncio.gather(*map(batcher.submit, numbers), return_exceptions=True)
    assert [2] == [place for place, outcome in enumerate(outcomes) if isinstance(outcome, ZeroDivisionError)]
    assert [1 / number for number in numbers if number] == [each for each in outcomes if isinstance(each, float)]
    assert [[1, 2, 0, 4, 5, 6, 7, 8], [1, 2, 0, 4], [1, 2], [0, 4], [0], [4], [5, 6, 7, 8], [9]] == divider.batches


async def test_an_outage_between_the_halves_of_a_batch_ends_those_that_were_not_performed() -> None:
    divider = Divider()
    batcher = Batcher(divider.perform, limit=4, separable=True)
    outcomes = await asyncio.gather(*map(batcher.submit, [1, 0, -1, 4, 5]), return_exceptions=True)
    expected = [float, ZeroDivisionError, ServiceUnavailable, ServiceUnavailable, ServiceUnavailable]
    assert expected == [type(outcome) for outcome in outcomes]


async def test_a_batch_that_is_not_separable_is_performed_once() -> None:
    divider = Divider()
    batcher = Batcher(divider.perform)
    outcomes = await asyncio.gather(*map(batcher.submit, [1, 0]), return_exceptions=True)
    assert [ZeroDivisionError] * 2 == [type(outcome) for outcome in outcomes]
    assert [[1, 0]] == divider.batches


async def test_an_item_whose_time_is_over_while_it_waits_is_never_performed() -> None:
    doubler = Doubler()
    batcher = Batcher(doubler.perform)
    first = asyncio.create_task(batcher.submit(2))
    await asyncio.sleep(0)
    ends = asyncio.get_running_loop().time() + 0.05
    late = [asyncio.create_task(batcher.submit(number, ends)) for number in (4, 6)]
    patient = asyncio.create_task(batcher.submit(8))
    for call in late:
        with pytest.raises(TimeoutError):
            await call
    assert not first.done()
    doubler.gate.set()
    assert [4, 16] == [await first, await patient]
    assert [[2], [8]] == doubler.batches


async def test_an_item_whose_time_is_over_while_it_is_performed_ends_no_other() -> None:
    doubler = Doubler()
    batcher = Batcher(doubler.perform)
    ends = asyncio.get_running_loop().time() + 0.05
    late, patient = (asyncio.create_task(batcher.submit(2, ends)), asyncio.create_task(batcher.submit(4, ends + 60)))
    with pytest.raises(TimeoutError):
        await late
    doubler.gate.set()
    assert 8 == await patient
    assert [[2, 4]] == doubler.batches


async def test_after_a_pause_of_the_process_an_item_has_its_result_and_one_that_waited_is_not_performed() -> None:
    performed: list[list[int]] = []

    async def perform(items: list[int]) -> list[int]:
        performed.append(items)
        return await asyncio.sleep(0.2, items)

    batcher = Batcher(perform)
    ends = asyncio.get_running_loop().time() + 0.5
    calls = [asyncio.create_task(batcher.submit(2, ends))]
    await asyncio.sleep(0.01)
    calls.append(asyncio.create_task(batcher.submit(4, ends)))
    await asyncio.sleep(0)
    time.sleep(0.6)  # noqa: ASYNC251 - pauses the process
    assert 2 == await calls[0]
    with pytest.raises(TimeoutError):
        await calls[1]
    assert [[2]] == performed


async def test_a_shared_call_serves_everyone_who_came_before_it_began() -> None:
    asked = 0
    gate = asyncio.Event()

    async def ask() -> int:
        nonlocal asked
        asked += 1
        found = asked
        await gate.wait()
        return found

    shared = SharedCall(ask)
    early = [asyncio.create_task(shared()) for _ in range(50)]
    await asyncio.sleep(0.01)
    late = [asyncio.create_task(shared()) for _ in range(50)]
    await asyncio.sleep(0.01)
    gate.set()
    assert [1] * 50 == await asyncio.gather(*early)
    assert [2] * 50 == await asyncio.gather(*late)
    await shared.close()
    assert 2 == asked


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=60), st.integers(1, 12))
def test_each_take_has_as_many_items_of_each_flow_in_their_order(flows: list[str], most: int) -> None:
    queue = FairQueue[tuple[str, int]]()
    for number, flow in enumerate(flows):
        queue.add(flow, (flow, number))
    left, taken = Counter(flows), list[tuple[str, int]]()
    while queue:
        found = queue.take(most)
        counts = Counter(flow for flow, _ in found)
        assert 1 <= len(found) <= most
        served = min(len(left), most)
        assert served == len(counts)
        assert all(count == min(left[flow], most // served) for flow, count in counts.items())
        left -= counts
        taken += found
    assert sorted(taken, key=lambda item: item[1]) == list(zip(flows, range(len(flows)), strict=True))
    assert all(
        [item for item in taken if item[0] == flow] == sorted(item for item in taken if item[0] == flow)
        for flow in flows
    )


def test_owners_that_one_take_has_no_place_for_come_first_in_the_next() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "b1", "b2", "c1", "d1"):
        queue.add(item[0], item)
    assert ["a1", "b1"] == queue.take(2)
    queue.add("e", "e1")
    assert [["c1", "d1"], ["a2", "b2"], ["e1"], []] == [queue.take(2) for _ in range(4)]


def test_owners_with_few_items_come_before_those_that_have_more_than_their_share() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.add(item[0], item)
    assert [["b1", "c1", "c2", "a1", "a2"], ["a3"]] == [queue.take(6), queue.take(6)]
