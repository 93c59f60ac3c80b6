"""The orders of the benchmarks, queries of version 2 over those that are varied, and what they must answer."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import Connection
from bench.machine import BenchError
from bench.plan import Plan

LIST, PAGES = "/v1/store/orders", "/v2/store/orders"
COMMON_PET, FREQUENT_PET, RARE_PET, ABSENT_PET = 1, 2, 3, 9_999
"""Pets of varied orders: of a million, they have 100,000, 1,600, some 1,380, and none."""

_STATUSES = ("pending", "pending", "pending", "shipped", "shipped")


def order_file(plan: Plan, orders: int, *, varied: bool = False, first: int = 1) -> Path:
    """A JSON Lines file of so many orders from the identifier `first` on, written once per run.

    All are pending and have all fields, unless they are `varied`; `varied_order` describes these.
    """
    file = plan.folder / f"orders-{orders}-{first}{'-varied' if varied else ''}.jsonl"
    if not file.exists():
        order = partial(varied_order, orders) if varied else _order
        with file.open("w") as output:
            output.writelines(f"{json.dumps(order(number))}\n" for number in range(first, first + orders))
    return file


def _order(number: int) -> dict[str, object]:
    shared = {"quantity": 1, "shipDate": "2026-10-07T03:51:47Z", "complete": False}
    return {"id": number, "petId": number % 977, **shared}


def varied_order(orders: int, number: int) -> dict[str, object]:
    """One of so many orders: filters match from none to almost all of them, some only at the end of the list."""
    order: dict[str, object] = {"id": number, "petId": 10 + number % 977, "quantity": 1 + number % 9}
    if number % 10 == 0:
        order["petId"] = COMMON_PET
    elif number % 625 == 1:
        order["petId"] = FREQUENT_PET
    elif number % 720 == 7:
        order["petId"] = RARE_PET
    if number % 10 != 5:
        day, second = divmod(number * 7919 % 25_920_000, 86_400)  # within 300 days
        clock = time.strftime("%H:%M:%S", time.gmtime(second))
        order["shipDate"] = f"2026-{1 + day // 28 % 12:02}-{1 + day % 28:02}T{clock}Z"
    if number % 3:
        order["complete"] = number > orders * 49 // 50
    order["status"] = "cancelled" if number % 1_000 == 3 else _STATUSES[number % 5]
    return order


SORTS = ("id", "-id", "shipDate", "-shipDate", "updatedAt", "-updatedAt")
CHECKED = 5  # orders of each query whose identifiers are compared
Order = Mapping[str, Any]


class Value(NamedTuple):
    """A value of a filter as parameters, and which orders match it."""

    parameters: str
    matches: Callable[[Order], bool]


MIDDLE, LATER = "2026-06-01T00:00:00Z", "2026-06-01T01:00:00Z"
FILTERS: dict[str, tuple[Value, ...]] = {
    "status": (
        Value("status=pending", lambda order: order["status"] == "pending"),
        Value("status=cancelled", lambda order: order["status"] == "cancelled"),
        Value("status=pending&status=shipped", lambda order: order["status"] != "cancelled"),
    ),
    "petId": (
        Value(f"petId={COMMON_PET}", lambda order: order["petId"] == COMMON_PET),
        Value(f"petId={FREQUENT_PET}", lambda order: order["petId"] == FREQUENT_PET),
        Value(f"petId={RARE_PET}", lambda order: order["petId"] == RARE_PET),
    ),
    "complete": (
        Value("complete=true", lambda order: order.get("complete", False)),
        Value("complete=false", lambda order: not order.get("complete", False)),
    ),
    "shipDate": (
        Value(f"shipDateFrom={MIDDLE}", lambda order: order.get("shipDate", "") >= MIDDLE),
        Value(f"shipDateFrom={MIDDLE}&shipDateTo={LATER}", lambda order: MIDDLE <= order.get("shipDate", "") < LATER),
    ),
    "updatedFrom": (Value("updatedFrom=2020-01-01T00:00:00Z", lambda _: True),),
}
"""The filters with values that match few and many orders, all of them after an import without a later change."""


def follow(connection: Connection, query: str, limit: int = 1_000) -> Iterator[dict[str, Any]]:
    """The pages of a query, one after another."""
    cursor = ""
    while True:
        response, body = connection.get(f"{PAGES}?{query}&limit={limit}{cursor}")
        if response.status != 200:
            raise BenchError(f"{PAGES}?{query}: status {response.status}: {body[:500]!r}")
        page = json.loads(body)
        yield page
        if "nextCursor" not in page:
            return
        cursor = f"&cursor={page['nextCursor']}"


def check_answers(connection: Connection, orders: Sequence[Order]) -> int:
    """Compare the first orders of each filter in each sort with those that were imported; return how many queries.

    The orders were imported in the order of their identifiers, so the time of change sorts like the identifier.
    """
    checked = 0
    for sort in SORTS:
        ordered = _sorted(orders, sort)
        for value in (value for values in FILTERS.values() for value in values):
            query = f"sort={sort}&{value.parameters}"
            wanted = [order["id"] for order in islice(filter(value.matches, ordered), CHECKED)]
            pages = follow(connection, query)
            found = list(islice((order["id"] for page in pages for order in page["data"]), CHECKED))
            if found != wanted:
                raise BenchError(f"{PAGES}?{query} answers {found} instead of {wanted}.")
            checked += 1
    return checked


def _sorted(orders: Sequence[Order], sort: str) -> list[Order]:
    """The orders as a page sorts them: ties by identifier in the same direction, without a ship date last."""
    backwards = sort.startswith("-")
    ordered = sorted(orders, key=lambda order: order["id"], reverse=backwards)
    if "shipDate" in sort:
        ordered.sort(key=lambda order: order.get("shipDate", ""), reverse=backwards)
        ordered.sort(key=lambda order: "shipDate" not in order)
    return ordered
