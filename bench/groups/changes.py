"""What it costs to list again after one change, against the first list that a new process builds."""

from itertools import islice
from statistics import median

from bench.load import Connection
from bench.machine import this_process_on
from bench.orders import LIST
from bench.plan import Plan, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.setup import Setup, Store

COLD, CHANGED, UNCHANGED = "first list of a new process", "after one change", "unchanged"
POSTGRES = ", PostgreSQL"
CHANGES = 3
"""Changes in each round. Each ships another order, so the smallest store needs that many in all rounds."""

Series = dict[str, dict[int, list[float]]]


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure the time to the first byte at several sizes: after a start, after one change, without a change."""
    series: Series = {}
    largest = plan.size(1_000_000, 1_000)
    with this_process_on(plan.cores.load), Setup(plan) as engines_setup:
        engines = engines_setup.engines()
        for orders in plan.pick((100, 1_000, 100_000, 1_000_000), (1_000,)):
            progress(f"list again after one change among {orders:,} orders")
            with Setup(plan) as setup:
                _add(series, "", orders, _times(plan, setup.store(orders)))
                _add(series, POSTGRES, orders, _times(plan, setup.store(orders, engines)))
                engines.redis.empty()
    rows = [
        Row(
            f"list-after-change{name.lower().replace(', ', '-')}",
            f"List again after one change among {largest:,} orders, first byte{name}",
            "ms",
            {PRODUCT: series[CHANGED + name][largest], COLD: series[COLD + name][largest]},
            COLD,
            Goal(0.01, at_most=True),
        )
        for name in ("", POSTGRES)
    ]
    return rows, [Curve("changes", "Time to the first byte of a list", "orders", "ms", series)]


def _add(series: Series, suffix: str, orders: int, found: dict[str, list[float]]) -> None:
    for name, times in found.items():
        series.setdefault(name + suffix, {})[orders] = times


def _times(plan: Plan, store: Store) -> dict[str, list[float]]:
    """Milliseconds to the first byte, with a new server in each round; after changes, a median of CHANGES readings."""
    found: dict[str, list[float]] = {COLD: [], CHANGED: [], UNCHANGED: []}
    numbers = iter(range(1, store.orders + 1))
    for _ in range(plan.rounds):
        with Setup(plan) as setup, setup.petstore(store).connection() as connection:
            found[COLD].append(connection.first_byte(LIST))
            found[UNCHANGED].append(connection.first_byte(LIST))
            found[CHANGED].append(
                median(_after_change(store, connection, number) for number in islice(numbers, CHANGES))
            )
    return found


def _after_change(store: Store, connection: Connection, order_id: int) -> float:
    store.petstore("orders", "ship", str(order_id))
    return connection.first_byte(LIST)
