"""Torture: what its checkers find and what they accept, the table of mutants, and short forms of its runs."""

import json
import random
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any

import pytest

from torture import crashes, power, power_commands
from torture.groups import copies, creation, histories, resources, time
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
from torture.mutants import TABLE, files
from torture.receivers import Order, Receiver

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


_TIMES = ["2026-11-29T09:00:00.000001Z", "2026-11-29T09:00:00.000002Z"]


def order(order_id: int, at: int, status: str = "pending") -> Order:
    return {"id": order_id, "petId": order_id, "quantity": 1, "status": status, "updatedAt": _TIMES[at]}


def changed(*orders: Order) -> dict[str, Any]:
    return {"type": "orders.changed", "data": {"orders": orders, "more": False, "next": "token"}}


RESET = {"type": "orders.reset", "data": {"next": "token"}}


def receiver(*messages: dict[str, Any], statuses: tuple[str, ...] = ()) -> Receiver:
    """One whose account owns orders with odd numbers, after it took the messages."""
    made = Receiver("one", random.Random(1), lambda each: each["petId"] % 2 == 1, statuses)
    for number, message in enumerate(messages):
        made.take(f"msg_{number}", json.dumps(message).encode())
    return made


@pytest.mark.parametrize(
    ("problem", "messages"),
    [
        (None, [changed(order(1, 0)), changed(order(1, 1))]),
        (None, [changed(order(1, 0)), changed(order(1, 0), order(3, 1))]),
        (None, [changed(order(1, 1)), RESET, changed(order(1, 0))]),
        ("is followed by", [changed(order(1, 1)), changed(order(1, 0))]),
        ("differs at", [changed(order(1, 0)), changed(order(1, 0, "shipped"))]),
        ("which is another's", [changed(order(2, 0))]),
        ("not in the order of changes", [changed(order(1, 1), order(3, 0))]),
        ("has 0 orders", [changed()]),
    ],
)
def test_a_receiver_finds_what_is_wrong_with_messages(problem: str | None, messages: Sequence[dict[str, Any]]) -> None:
    found = receiver(*messages).problems
    assert (problem is None) == (found == [])
    assert problem is None or problem in found[0]


def test_a_receiver_refuses_orders_with_other_statuses_than_its_own() -> None:
    found = receiver(changed(order(1, 0, "shipped"), order(3, 1)), statuses=("pending",)).problems
    assert ["one: it got order 1, which is shipped"] == found


def test_a_receiver_finds_repeated_ids_with_other_bytes_and_messages_without_a_signature() -> None:
    made = receiver()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,x"}
    for body in (b"{}", b"{}", b"{} "):
        made.check(headers, body)
    assert (3, 2) == (made.counts["deliveries"], made.counts["repeated"])
    assert 3 == sum("no signature" in problem for problem in made.problems)
    assert 1 == sum("other bytes" in problem for problem in made.problems)


def test_a_copy_is_equal_if_it_has_all_visible_orders_with_the_statuses_as_they_are() -> None:
    filtered = receiver(changed(order(1, 0)), statuses=("pending",))
    assert [] == filtered.differing({1: order(1, 0)})
    assert [] == filtered.differing({1: order(1, 1, "shipped")})
    assert [3] == filtered.differing({1: order(1, 0), 3: order(3, 1)})
    assert [1] == filtered.differing({})
    assert [1] == receiver(changed(order(1, 0))).differing({1: order(1, 1)})


@pytest.mark.parametrize("group", TABLE["groups"].values(), ids=list(TABLE["groups"]))
def test_a_group_of_mutants_names_sources_and_tests(group: dict[str, str]) -> None:
    sources, tests = files(group)
    assert sources
    assert tests


RUNS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "power lost by a server": lambda: power.served(7, 12, orders=150),
    "flushes that fail": lambda: power.failing_flushes(7, 6, orders=300, faults=2),
    "power lost during an import": lambda: power_commands.imported(7, 8, orders=1_500),
    "power lost during a restore": lambda: power_commands.restored(7, 10),
    "power lost during a backup": lambda: power_commands.backed_up(7, 10),
    "power lost during a migration": lambda: power_commands.migrated(7, 10),
    "PostgreSQL killed": lambda: crashes.killed(7, 2),
    "a history on SQLite": lambda: histories.history(7, "sqlite", 2, 0.5),
    "a history on PostgreSQL": lambda: histories.history(7, "postgres", 2, 0.5),
    "limits": lambda: histories.limits(7, 1.5),
    "hostile variation": lambda: resources.hostile(7, 400, warm=300),
    "steps of the clock": lambda: time.steps(7, 250),
    "a leap to 2038": lambda: time.leap(7, 2038),
    "a leap to 2100": lambda: time.leap(7, 2100),
    "stores that eight processes create": lambda: creation.creation(1, 20),
    "copies through kills and a restore": lambda: copies.copies(1, "sqlite", 300),
    "copies through kills and a failover": lambda: copies.copies(1, "postgres", 300),
}


@pytest.mark.system
@pytest.mark.parametrize("name", RUNS)
async def test_a_short_run_finds_nothing(name: str) -> None:
    assert [] == (await RUNS[name]()).problems


@pytest.mark.system
async def test_a_server_that_flushes_nothing_is_found_out() -> None:
    outcome = await power.served(7, 5, orders=100, flush=False)
    assert "order 1 is lost" in " ".join(outcome.problems)
