"""Latency of pages of 100 orders without load: each filter, each sort, at the beginning and far into the list."""

import json
import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from bench.load import Connection
from bench.machine import BenchError, this_process_on
from bench.plan import Plan
from bench.results import PRODUCT, Goal, Row
from bench.stores import Store

PAGES = "/v2/store/orders"
FILTERS = (
    "",
    "status=pending",
    "petId=7",
    "complete=true",
    "shipDateFrom=2026-06-01T00:00:00Z",
    "shipDateTo=2026-06-01T00:00:00Z",
    "updatedFrom=2020-01-01T00:00:00Z",
)
SORTS = ("id", "-id", "shipDate", "-shipDate", "updatedAt", "-updatedAt")
DEEPEST = {("", "id"), ("", "shipDate"), ("", "updatedAt")}
"""The filters and sorts that are followed almost to the end; the others are followed for 50,000 orders."""
REQUESTS = 10  # of each page in a round


class Place(NamedTuple):
    """The first page of a query, and one far into it."""

    query: str
    first: str
    deep: str


def titles(engine: str) -> dict[str, str]:
    """The names and titles of the rows for one engine."""
    return {
        f"v2-current-{engine.lower()}": f"First page after the start on a new import, {engine}",
        f"v2-latency-{engine.lower()}": f"Page of 100, any filter, sort and depth, 99th percentile, {engine}",
        f"v2-depth-{engine.lower()}": f"Deep page, the worst query, {engine}",
    }


def measure(plan: Plan, url: str, store: Store, engine: str) -> list[Row]:
    """Measure the latencies of all pages in turn, over one connection."""
    with this_process_on(plan.cores.load), Connection(url, store.authorization) as connection:
        current = _wait_until_current(connection, store.orders)
        places = list(_places(connection, store.orders))
        found = {target: [connection.latency(target)] for place in places for target in (place.first, place.deep)}
        rounds = []
        for _ in range(plan.rounds):
            taken: list[float] = []
            for target, times in found.items():
                some = [connection.latency(target) for _ in range(REQUESTS)]
                times += some
                taken += some
            rounds.append(statistics.quantiles(taken, n=100)[98])
    medians = {target: statistics.median(times[1:]) for target, times in found.items()}
    worst = max(places, key=lambda place: medians[place.deep] / medians[place.first])
    slowest = max(medians, key=medians.__getitem__)
    (imported, imported_title), (latency, title), (depth, depth_title) = titles(engine).items()
    slow = slowest.partition("?")[2].partition("&cursor")[0]
    note = (
        f"{len(places)} queries over one connection. The slowest, `{slow}`, has a median of {medians[slowest]:.2f} ms."
    )
    first = "its first page"
    return [
        Row(imported, imported_title, "s", {PRODUCT: [current]}, note="Until then, pages get 503."),
        Row(latency, title, "ms", {PRODUCT: rounds}, goal=Goal(5, at_most=True, absolute=True), note=note),
        Row(
            depth,
            depth_title,
            "ms",
            {PRODUCT: [medians[worst.deep]], first: [medians[worst.first]]},
            first,
            Goal(1.5, at_most=True),
            note=f"The query is `{worst.query}`.",
        ),
    ]


def _wait_until_current(connection: Connection, orders: int) -> float:
    """Wait until pages show the last order that was imported, as indexes may follow an import; return the seconds."""
    began = time.monotonic()
    deadline = began + 300
    while time.monotonic() < deadline:
        response, body = connection.get(f"{PAGES}?sort=-id&limit=1")
        if response.status == 200 and [orders] == [order["id"] for order in json.loads(body)["data"]]:
            return time.monotonic() - began
        time.sleep(0.2)
    raise BenchError(f"Pages do not show order {orders} five minutes after its import.")


def _places(connection: Connection, orders: int) -> Iterator[Place]:
    for chosen in FILTERS:
        for sort in SORTS:
            query = "&".join(part for part in (chosen, f"sort={sort}") if part)
            pages = orders * 9 // 10_000 if (chosen, sort) in DEEPEST else min(50, orders // 2_000)
            cursor = _cursor(connection, query, pages)
            first = f"{PAGES}?{query}&limit=100"
            yield Place(query, first, f"{first}&cursor={quote(cursor)}" if cursor else first)


def _cursor(connection: Connection, query: str, pages: int) -> str:
    """The cursor after so many pages of 1,000 orders, or the last one if the query has fewer."""
    cursor = ""
    for _ in range(max(1, pages)):
        target = f"{PAGES}?{query}&limit=1000" + (f"&cursor={quote(cursor)}" if cursor else "")
        response, body = connection.get(target)
        if response.status != 200:
            raise BenchError(f"{target}: status {response.status}: {body[:500]!r}")
        following = json.loads(body).get("nextCursor", "")
        if not following:
            break
        cursor = following
    return cursor
