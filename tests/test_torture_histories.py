"""The checker of histories: what one order of events explains, and what none does."""

from math import inf

import pytest

from torture.history import (
    ABSENT,
    CANCEL,
    CANCELLED,
    PENDING,
    PLACE,
    READ,
    SHIP,
    SHIPPED,
    UNKNOWN,
    History,
    Operation,
    is_linearizable,
)

PLACED = Operation(0, 1, PLACE, PENDING)
LOST_CANCEL = Operation(2, inf, CANCEL, UNKNOWN)


@pytest.mark.parametrize(
    ("explained", "operations", "last"),
    [
        (True, [PLACED, Operation(2, 3, READ, PENDING)], PENDING),
        (True, [PLACED, Operation(0.5, 0.6, READ, ABSENT), Operation(0.7, 3, READ, PENDING)], PENDING),
        (True, [PLACED, Operation(2, 5, CANCEL, CANCELLED), Operation(3, 4, READ, CANCELLED)], CANCELLED),
        (True, [PLACED, Operation(2, 5, CANCEL, CANCELLED), Operation(3, 4, READ, PENDING)], CANCELLED),
        (True, [PLACED, LOST_CANCEL, Operation(3, 4, READ, PENDING), Operation(5, 6, READ, CANCELLED)], CANCELLED),
        (True, [PLACED, LOST_CANCEL], PENDING),
        (True, [Operation(0, inf, PLACE, UNKNOWN)], ABSENT),
        (False, [PLACED], ABSENT),
        (False, [PLACED, Operation(2, 3, READ, ABSENT)], PENDING),
        (False, [PLACED, Operation(2, 3, CANCEL, CANCELLED)], PENDING),
        (False, [PLACED, Operation(2, 3, CANCEL, CANCELLED), Operation(4, 5, READ, PENDING)], CANCELLED),
        (False, [PLACED, Operation(2, 3, CANCEL, CANCELLED), Operation(2, 3, CANCEL, CANCELLED)], CANCELLED),
        (True, [PLACED, Operation(2, 5, SHIP, SHIPPED), Operation(3, 4, READ, PENDING)], SHIPPED),
        (True, [PLACED, LOST_CANCEL, Operation(3, 4, SHIP, SHIPPED), Operation(5, 6, READ, SHIPPED)], SHIPPED),
        (False, [PLACED, Operation(2, 3, READ, CANCELLED)], PENDING),
        (False, [PLACED, Operation(2, 5, SHIP, SHIPPED), Operation(3, 4, CANCEL, CANCELLED)], SHIPPED),
        (False, [PLACED, Operation(2, 3, SHIP, SHIPPED)], CANCELLED),
        (False, [PLACED, Operation(2, 3, SHIP, SHIPPED), Operation(4, 5, READ, CANCELLED)], SHIPPED),
        (False, [PLACED, LOST_CANCEL, Operation(3, 4, READ, CANCELLED), Operation(5, 6, READ, PENDING)], CANCELLED),
    ],
)
def test_only_what_one_order_of_events_explains_is_accepted(
    explained: bool, operations: list[Operation], last: str
) -> None:
    assert explained == is_linearizable(operations, last)


def test_two_orders_of_one_key_and_a_follower_that_missed_a_change_are_found() -> None:
    history = History(attempts={"key": (7, 0.0)}, followed=[{1: PENDING, 2: PENDING}])
    history.placed["key"] = {1}
    problems = history.problems({1: CANCELLED, 2: PENDING}, {1: 7, 2: 7})
    assert ["pet 7 has the orders [1, 2]", "follower 0 has missed the orders [1]"] == problems


def test_a_follower_of_own_orders_has_these_and_no_others() -> None:
    truth, owners = {1: PENDING, 2: PENDING, 3: CANCELLED}, {1: "north", 2: "south", 3: "north"}
    seen = [{1: PENDING, 3: CANCELLED}, {1: PENDING}, {1: PENDING, 2: PENDING, 3: CANCELLED}, {1: PENDING, 3: PENDING}]
    found = [History(followed_own=[("north", states)]).problems(truth, {}, owners) for states in seen]
    wrong = "a follower of north is wrong about the orders"
    assert [[], [f"{wrong} [3]"], [f"{wrong} [2]"], [f"{wrong} [3]"]] == found


def test_what_an_account_saw_of_others_is_a_problem() -> None:
    assert ["north got order 2"] == History(seen_of_others=["north got order 2"]).problems({}, {})
