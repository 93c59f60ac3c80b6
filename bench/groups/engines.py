"""Processor time that the server, PostgreSQL and Redis each spend on a request of a service that uses both."""

from collections.abc import Callable
from contextlib import ExitStack

from bench.engines import postgres, redis_server
from bench.load import Connection, Reading, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Row
from bench.servers import petstore
from bench.stores import LIST, make_store, shared

CANCELS_PER_SECOND = 40_000


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists, unchanged lists and cancels over PostgreSQL and Redis, at several numbers of connections."""
    connections = plan.pick((1, 32, 256), (1, 32))
    cancels = [number for number in connections if number > 1]
    orders = min(1_000_000, CANCELS_PER_SECOND * plan.rounds * plan.seconds * len(cancels))
    progress("processor time of PostgreSQL and Redis")
    with ExitStack() as stack:
        folder = stack.enter_context(plan.scratch())
        engine = stack.enter_context(postgres(plan, plan.cores.database))
        counters = stack.enter_context(redis_server(plan, plan.cores.database))
        listed = make_store(plan, folder, 1_000, settings=shared(engine, counters))
        settings = {**shared(engine, counters), "PETSTORE_REDIS_URL": counters.url.replace("/0", "/1")}
        cancelled = make_store(plan, folder, orders, settings=settings)
        reader = stack.enter_context(petstore(plan, listed))
        writer = stack.enter_context(petstore(plan, cancelled))
        with Connection(reader.url, listed.authorization) as connection:
            etag = connection.get(LIST)[0].headers["ETag"]

        def read(number: int, **headers: str) -> Callable[[], Reading]:
            sent = listed.authorization | {name.replace("_", "-"): text for name, text in headers.items()}
            watch = {PRODUCT: reader.pid, "PostgreSQL": engine.pid, "Redis": counters.pid}
            return lambda: wrk(plan, reader.url + LIST, headers=sent, connections=number, watch=watch)

        def cancel(number: int) -> Callable[[], Reading]:
            watch = {PRODUCT: writer.pid, "PostgreSQL": engine.pid, "Redis": counters.pid}

            def load() -> Reading:
                kind = ("ids", cancelled.next_id, "DELETE")
                url, sent = writer.url + LIST, cancelled.authorization
                reading = wrk(plan, url, headers=sent, kind=kind, connections=number, watch=watch)
                cancelled.next_id = reading.last + 1
                return reading

            return load

        loads = {("List of 1,000 orders", number): read(number) for number in connections}
        loads |= {("Unchanged list (304)", number): read(number, If_None_Match=etag) for number in connections}
        loads |= {("Durable cancel", number): cancel(number) for number in cancels}
        readings = interleaved(min(plan.rounds, 3), loads)
    return [_row(title, number, found) for (title, number), found in readings.items()], []


def _row(title: str, connections: int, readings: list[Reading]) -> Row:
    return Row(
        f"engines-{title.split()[0].lower()}-{connections}",
        f"{title}, {connections} connection{'s' * (connections > 1)}",
        "requests/s",
        {PRODUCT: [each.rate for each in readings]},
        costs={process: [each.costs[process] for each in readings] for process in readings[0].costs},
    )
