"""Latency of pages of 100 orders without load: every filter, pair and combination of filters, and far into the list."""

import random
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import combinations, product
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.load import Connection, p99
from bench.machine import this_process_on
from bench.orders import ABSENT_PET, COMMON_PET, FILTERS, PAGES, SORTS, follow
from bench.plan import Plan, progress
from bench.results import Goal, Row
from bench.setup import Setup, Store

REQUESTS = 100  # at least, of each filter and each pair in a round
CHANGED = 300  # orders that are cancelled after the import
DEPTH_REQUESTS = 20  # of each page in a round
DEEP = ("", "status=pending", f"petId={COMMON_PET}")
"""Filters whose matching orders are spread evenly, so that a deep page has as much to read as the first one."""


class Measured(NamedTuple):
    """What was measured on one engine, round by round, and remarks."""

    sets: dict[str, list[float]]  # 99th percentiles by filter or pair
    worst: list[float]
    depth: list[float]
    note: str


def measure(plan: Plan) -> list[Row]:
    """Measure SQLite, PostgreSQL, and PostgreSQL of Debian's packages, which compiles plans, where it is installed."""
    engines: dict[str, Callable[[], Measured]] = {
        "SQLite": partial(_on_sqlite, plan),
        "PostgreSQL": partial(_on_postgres, plan, None),
    }
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    if programs := max(debian, key=lambda found: int(found.parent.name), default=None):
        engines["PostgreSQL of Debian"] = partial(_on_postgres, plan, programs)
    found = {}
    for name, on_engine in engines.items():
        progress(f"pages among {_orders(plan):,} orders on {name}")
        found[name] = on_engine()
    sets = [*found["SQLite"].sets]

    def row(name: str, title: str, unit: str, readings: Callable[[Measured], list[float]], goal: float = 0) -> Row:
        bound = Goal(goal, at_most=True, absolute=True) if goal else None
        return Row(f"pages-{name}", title, unit, {engine: readings(each) for engine, each in found.items()}, goal=bound)

    def slowest(pairs: bool) -> Callable[[Measured], list[float]]:
        names = [name for name in sets if ("&" in name) == pairs]
        return lambda each: [max(round_) for round_ in zip(*(each.sets[name] for name in names), strict=True)]

    rows = [
        row("filter", "p99 of the slowest filter", "ms", slowest(False), 5),
        row("pair", "p99 of the slowest pair", "ms", slowest(True), 5),
        row("worst", "Worst combination", "ms", lambda each: each.worst, 25),
        row("depth", "Deep page of the first", "", lambda each: each.depth, 1.2),
    ]
    rows[2].note = " ".join(f"{engine}: {each.note}" for engine, each in found.items())
    return rows


def _on_sqlite(plan: Plan) -> Measured:
    with Setup(plan) as setup:
        return _measure(setup, setup.store(_orders(plan), varied=True))


def _on_postgres(plan: Plan, programs: Path | None) -> Measured:
    with Setup(plan) as setup:
        engines = setup.engines(programs)
        store = setup.store(_orders(plan), engines, varied=True)
        # What autovacuum would do during the measurement, as after every large import.
        engines.postgres.execute(store.url, "VACUUM ANALYZE")
        found = _measure(setup, store)
        return found._replace(note=f"version {engines.postgres.version}, {found.note}")


def _orders(plan: Plan) -> int:
    return plan.size(1_000_000, 20_000)


def _measure(setup: Setup, store: Store) -> Measured:
    """Measure all queries in turn over one connection."""
    plan, server = setup.plan, setup.petstore(store)
    with this_process_on(plan.cores.load), server.connection() as connection:
        sets = _sets(_change_some(connection, store.orders))
        slowest, each = _latencies(plan, connection, sets)
        depths = _depths(plan, connection, store.orders)
    medians = {query: median(times) for query, times in each.items()}
    worst = max(medians, key=medians.__getitem__)
    deepest = max(depths, key=lambda depth: median(depths[depth]))
    note = (
        f"{len(each):,} combinations with p99 {p99([*medians.values()]):.1f} ms, the worst is `{worst}`; of deep pages,"
        f" `{deepest}`."
    )
    return Measured(slowest, each[worst], depths[deepest], note)


def _latencies(
    plan: Plan, connection: Connection, sets: dict[str, list[str]]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The 99th percentiles of each filter and pair in each round, and one latency of each query in each round."""
    slowest: dict[str, list[float]] = {name: [] for name in sets if name.count("&") < 2}
    each: dict[str, list[float]] = defaultdict(list)
    chance = random.Random(0)
    for _ in range(plan.rounds):
        for name, queries in chance.sample([*sets.items()], len(sets)):
            asked = queries if name in slowest or not plan.quick else queries[::20]
            repeats = -(-plan.size(REQUESTS, 20) // len(asked)) if name in slowest else 1
            times = [[connection.latency(f"{PAGES}?{query}&limit=100") for query in asked] for _ in range(repeats)]
            for query, taken in zip(asked, times[0], strict=True):
                each[query].append(taken)
            if name in slowest:
                slowest[name].append(p99([time for taken in times for time in taken]))
    return slowest, each


def _change_some(connection: Connection, orders: int) -> str:
    """Cancel some pending orders; return a time between the import and these changes."""
    time.sleep(1.1)
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in range(CHANGED):
        order_id = (number * orders // CHANGED // 5 + 1) * 5  # pending, as every fifth order is
        connection.cancel(order_id)
    return since


def _sets(changed_since: str) -> dict[str, list[str]]:
    """The queries of each set of filters, by the names of the filters: each combination of values in each sort."""
    values = {name: [value.parameters for value in found] for name, found in FILTERS.items()}
    values["petId"].append(f"petId={ABSENT_PET}")
    values["shipDate"].append("shipDateTo=2020-01-01T00:00:00Z")
    values["updatedFrom"] += [f"updatedFrom={changed_since}", "updatedFrom=2100-01-01T00:00:00Z"]
    return {
        " & ".join(names): [
            f"sort={sort}&{'&'.join(chosen)}" for chosen in product(*map(values.__getitem__, names)) for sort in SORTS
        ]
        for number in range(1, len(values) + 1)
        for names in combinations(values, number)
    }


def _depths(plan: Plan, connection: Connection, orders: int) -> dict[str, list[float]]:
    """How long a deep page takes of the first one, by query and round.

    900,000 of a million orders precede the deep page, or 50,000 matching ones.
    """
    found = {}
    for query in (f"sort={sort}{'&' * bool(chosen)}{chosen}" for chosen in DEEP for sort in SORTS):
        pages = orders * 9 // 10_000 if "&" not in query and "-" not in query else min(50, orders // 20_000)
        cursor = ""
        for _, page in zip(range(pages), follow(connection, query), strict=False):
            cursor = page.get("nextCursor", "")
        first = f"{PAGES}?{query}&limit=100"
        deep = f"{first}&cursor={cursor}"
        if cursor and b"nextCursor" in connection.get(deep)[1]:
            found[query] = [_ratio(connection, first, deep) for _ in range(plan.rounds)]
    return found


def _ratio(connection: Connection, first: str, deep: str) -> float:
    """The median time of a deep page, divided by that of the first one."""
    times = [(connection.latency(deep), connection.latency(first)) for _ in range(DEPTH_REQUESTS)]
    return median(time for time, _ in times) / median(time for _, time in times)
