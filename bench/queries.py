"""Queries of version 2 over the varied orders of `stores`, and what they must answer."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from bench.load import Connection
from bench.machine import BenchError
from bench.stores import COMMON_PET, FREQUENT_PET, RARE_PET

PAGES = "/v2/store/orders"
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
