"""Time from starting the command to the first response that says ready."""

from collections.abc import Callable

from bench import rivals
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import Store, sqlite_store

ORDERS = 1_000


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure the start of a server with 1,000 orders, after one start that fills the caches of the disk."""
    progress(f"start with {ORDERS:,} orders")
    with sqlite_store(plan, ORDERS) as store:
        _ready(plan, store)
        loads: dict[str, Callable[[], float]] = {
            PRODUCT: lambda: _ready(plan, store),
            rivals.FASTAPI: lambda: _rival_ready(plan),
        }
        readings = interleaved(plan.size(10, 1), loads)
    title = f"Start to ready, {ORDERS:,} orders"
    return [Row("start", title, "s", readings, goal=Goal(0.5, at_most=True, absolute=True))], []


def _ready(plan: Plan, store: Store) -> float:
    with petstore(plan, store) as server:
        return server.ready_seconds


def _rival_ready(plan: Plan) -> float:
    with rivals.fastapi(plan, ORDERS) as rival:
        return rival.server.ready_seconds
