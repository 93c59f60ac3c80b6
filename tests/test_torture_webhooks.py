"""The receivers of torture: what they find wrong with messages, and with what they know at the end."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from torture.receivers import Order, Receiver

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
