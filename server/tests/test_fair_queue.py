"""The queue that its flows share evenly."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from petstore_server.fair_queue import FairQueue


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
