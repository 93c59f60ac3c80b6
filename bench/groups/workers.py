"""Two workers against one, over PostgreSQL and Redis."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.engines import postgres, redis_server
from bench.groups.cancels import MAX_PER_SECOND
from bench.load import Reading, Successive, cancel, rated, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import LIST, make_store, shared

ONE = "one worker"
LISTS, CANCELS = "List of 1,000 orders, two workers", "Durable cancel, two workers"


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists and cancels with one worker and with two, on the cores that the load and the engines leave."""
    orders = min(1_000_000, MAX_PER_SECOND * plan.rounds * plan.seconds)
    progress("two workers against one")
    usable = plan.cores.usable
    apart = [core for core in usable if core not in (plan.cores.load, plan.cores.database)]
    loads: dict[tuple[str, str], Callable[[], Reading]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(plan.scratch())
        engine = stack.enter_context(postgres(plan, plan.cores.database))
        counters = stack.enter_context(redis_server(plan.cores.database))
        for workers, name in enumerate((ONE, PRODUCT), 1):
            core = ",".join(map(str, apart if len(apart) >= workers else usable))
            for title, filled in ((LISTS, 1_000), (CANCELS, orders)):
                store = make_store(plan, folder, filled, settings=shared(engine, counters))
                server = stack.enter_context(petstore(plan, store, core=core, PETSTORE_WORKERS=str(workers)))
                url, sent, watch = server.url + LIST, store.authorization, {name: server.pid}
                if title == CANCELS:
                    loads[title, name] = Successive(plan, url, cancel, headers=sent, watch=watch)
                else:
                    loads[title, name] = partial(wrk, plan, url, headers=sent, watch=watch)
        readings = interleaved(plan.rounds, loads)
    note = ""
    if len(apart) < 2:
        note = (
            f"On {len(usable)} cores, the second worker shares one with the load, PostgreSQL and Redis, which limit it."
        )
    return [
        _row(title, {name: readings[title, name] for name in (PRODUCT, ONE)}, note if title == LISTS else "")
        for title in (LISTS, CANCELS)
    ], []


def _row(title: str, readings: dict[str, list[Reading]], note: str) -> Row:
    name = f"workers-{title.split(maxsplit=1)[0].lower()}"
    return rated(name, title, "requests/s", readings, ONE, Goal(1.8), note)
