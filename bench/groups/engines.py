"""Processor time that the server, PostgreSQL and Redis each spend on a request of a service that uses both."""

from collections.abc import Callable
from functools import partial

from bench.groups.cancels import MAX_PER_SECOND
from bench.load import Reading, cancel, rated
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Row
from bench.setup import Setup


def measure(plan: Plan) -> list[Row]:
    """Measure lists, unchanged lists and cancels over PostgreSQL and Redis, at several numbers of connections."""
    connections = plan.pick((32, 256), (32,))
    orders = min(1_000_000, MAX_PER_SECOND * plan.rounds * plan.seconds * len(connections))
    progress("processor time of PostgreSQL and Redis")
    with Setup(plan) as setup:
        engines = setup.engines()
        reader = setup.petstore(setup.store(1_000, engines))
        other = engines.redis.url.replace("/0", "/1")
        writer = setup.petstore(setup.store(orders, engines), PETSTORE_REDIS_URL=other)
        kinds: dict[str, Callable[..., Reading]] = {
            "List of 1,000 orders": partial(reader.wrk, LIST),
            "Unchanged list (304)": partial(reader.wrk, LIST, headers=reader.unchanged()),
            "Durable cancel": writer.successive(LIST, cancel),
        }
        loads = {
            (title, number): partial(kind, connections=number)
            for title, kind in kinds.items()
            for number in connections
        }
        readings = interleaved(plan.rounds, loads)
    return [
        rated(
            f"engines-{title.split(maxsplit=1)[0].lower()}-{number}",
            f"{title}, {number} connections",
            "requests/s",
            {PRODUCT: found},
        )
        for (title, number), found in readings.items()
    ]
