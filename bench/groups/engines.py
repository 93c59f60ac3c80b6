"""Processor time that the server, PostgreSQL and Redis each spend on a request of a service that uses both."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.engines import postgres, redis_server
from bench.load import Connection, Reading, Successive, cancel, rated, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Row
from bench.servers import petstore
from bench.stores import LIST, make_store, shared

CANCELS_PER_SECOND = 40_000


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists, unchanged lists and cancels over PostgreSQL and Redis, at several numbers of connections."""
    connections = plan.pick((32, 256), (32,))
    orders = min(1_000_000, CANCELS_PER_SECOND * plan.rounds * plan.seconds * len(connections))
    progress("processor time of PostgreSQL and Redis")
    with ExitStack() as stack:
        folder = stack.enter_context(plan.scratch())
        engine = stack.enter_context(postgres(plan, plan.cores.database))
        counters = stack.enter_context(redis_server(plan.cores.database))
        listed = make_store(plan, folder, 1_000, settings=shared(engine, counters))
        settings = {**shared(engine, counters), "PETSTORE_REDIS_URL": counters.url.replace("/0", "/1")}
        cancelled = make_store(plan, folder, orders, settings=settings)
        reader = stack.enter_context(petstore(plan, listed))
        writer = stack.enter_context(petstore(plan, cancelled))
        with Connection(reader.url, listed.authorization) as connection:
            etag = connection.get(LIST)[0].headers["ETag"]

        def read(number: int, **headers: str) -> Callable[[], Reading]:
            sent = listed.authorization | {name.replace("_", "-"): text for name, text in headers.items()}
            watch = {PRODUCT: reader.pid, "PostgreSQL": engine.pid, "Redis": counters.process.pid}
            return lambda: wrk(plan, reader.url + LIST, headers=sent, connections=number, watch=watch)

        watch = {PRODUCT: writer.pid, "PostgreSQL": engine.pid, "Redis": counters.process.pid}
        cancels = Successive(plan, writer.url + LIST, cancel, headers=cancelled.authorization, watch=watch)
        loads: dict[tuple[str, int], Callable[[], Reading]] = {
            ("List of 1,000 orders", number): read(number) for number in connections
        }
        loads |= {("Unchanged list (304)", number): read(number, If_None_Match=etag) for number in connections}
        loads |= {("Durable cancel", number): partial(cancels, connections=number) for number in connections}
        readings = interleaved(plan.rounds, loads)
    return [
        rated(
            f"engines-{title.split(maxsplit=1)[0].lower()}-{number}",
            f"{title}, {number} connections",
            "requests/s",
            {PRODUCT: found},
        )
        for (title, number), found in readings.items()
    ], []
