"""What it costs to list again after one change, against the first list that a new process builds."""

from itertools import islice
from statistics import median

from bench.load import Connection
from bench.machine import this_process_on
from bench.orders import LIST
from bench.plan import Plan, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup, Store

COLD = "first list of a new process"
CHANGES = 3  # in each round; each ships another order


def measure(plan: Plan) -> list[Row]:
    """Measure the time to the first byte on both engines: after a start, and after one change."""
    orders = plan.size(1_000_000, 1_000)
    progress(f"list again after one change among {orders:,} orders")
    with this_process_on(plan.cores.load), Setup(plan) as setup:
        stores = {"": setup.store(orders), ", PostgreSQL": setup.store(orders, setup.engines())}
        return [
            Row(
                f"list-after-change{name.lower().replace(', ', '-')}",
                f"List again after one change among {orders:,} orders, first byte{name}",
                "ms",
                _times(plan, store),
                COLD,
                Goal(0.01, at_most=True),
            )
            for name, store in stores.items()
        ]


def _times(plan: Plan, store: Store) -> dict[str, list[float]]:
    """Milliseconds to the first byte, with a new server in each round; after changes, a median of CHANGES readings."""
    found: dict[str, list[float]] = {PRODUCT: [], COLD: []}
    numbers = iter(range(1, store.orders + 1))
    for _ in range(plan.rounds):
        with Setup(plan) as setup, setup.petstore(store).connection() as connection:
            found[COLD].append(connection.first_byte(LIST))
            found[PRODUCT].append(
                median(_after_change(store, connection, number) for number in islice(numbers, CHANGES))
            )
    return found


def _after_change(store: Store, connection: Connection, order_id: int) -> float:
    store.petstore("orders", "ship", str(order_id))
    return connection.first_byte(LIST)
