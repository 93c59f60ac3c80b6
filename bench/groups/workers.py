"""Two workers against one, over PostgreSQL and Redis."""

from collections.abc import Callable
from functools import partial

from bench.groups.cancels import MAX_PER_SECOND
from bench.load import Reading, cancel, rated
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup

ONE = "one worker"
LISTS, CANCELS = "List of 1,000 orders, two workers", "Durable cancel, two workers"


def measure(plan: Plan) -> list[Row]:
    """Measure lists and cancels with one worker and with two, on the cores that the load and the engines leave."""
    orders = min(1_000_000, MAX_PER_SECOND * plan.rounds * plan.seconds)
    progress("two workers against one")
    usable = plan.cores.usable
    apart = [core for core in usable if core not in (plan.cores.load, plan.cores.database)]
    loads: dict[tuple[str, str], Callable[[], Reading]] = {}
    with Setup(plan) as setup:
        engines = setup.engines()
        for workers, name in enumerate((ONE, PRODUCT), 1):
            core = ",".join(map(str, apart if len(apart) >= workers else usable))
            start = partial(setup.petstore, core=core, PETSTORE_WORKERS=str(workers))
            reader, writer = start(setup.store(1_000, engines)), start(setup.store(orders, engines))
            loads[LISTS, name] = partial(reader.wrk, LIST, watch={name: reader.pid})
            loads[CANCELS, name] = writer.successive(LIST, cancel, watch={name: writer.pid})
        readings = interleaved(plan.rounds, loads)
    note = ""
    if len(apart) < 2:
        note = (
            f"On {len(usable)} cores, the second worker shares one with the load, PostgreSQL and Redis, which limit it."
        )
    return [
        _row(title, {name: readings[title, name] for name in (PRODUCT, ONE)}, note if title == LISTS else "")
        for title in (LISTS, CANCELS)
    ]


def _row(title: str, readings: dict[str, list[Reading]], note: str) -> Row:
    name = f"workers-{title.split(maxsplit=1)[0].lower()}"
    return rated(name, title, "requests/s", readings, ONE, Goal(1.8), note)
