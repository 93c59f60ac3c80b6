"""What a log line for every request costs: the same list with and without an access log."""

from collections.abc import Mapping

from bench.load import Reading, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import LIST, Store, sqlite_store


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists of 10 orders with and without an access log, written to a file."""
    progress("a log line for each request")
    title = "List of 10 orders with an access log (`PETSTORE_ACCESS_LOG=all`)"
    return [compare_settings(plan, "log-line", title, {"PETSTORE_ACCESS_LOG": "all"}, {}, "without an access log")], []


def compare_settings(
    plan: Plan,
    name: str,
    title: str,
    settings: Mapping[str, str],
    others: Mapping[str, str],
    reference: str,
    goal: Goal | None = None,
) -> Row:
    """Measure lists of 10 orders from servers with `settings` and, as the reference, from servers with `others`."""
    with sqlite_store(plan, 10) as store:
        readings = interleaved(
            plan.rounds,
            {PRODUCT: lambda: _load(plan, store, settings), reference: lambda: _load(plan, store, others)},
        )
    samples = {each: [reading.rate for reading in found] for each, found in readings.items()}
    names = {PRODUCT: reference.replace("without", "with"), reference: reference}
    costs = {names[each]: [reading.costs[PRODUCT] for reading in found] for each, found in readings.items()}
    return Row(name, title, "lists/s", samples, reference, goal, costs)


def _load(plan: Plan, store: Store, settings: Mapping[str, str]) -> Reading:
    """Start a server for each load: only one process may serve a SQLite store."""
    with petstore(plan, store, **settings) as server:
        return wrk(plan, server.url + LIST, headers=store.authorization, watch={PRODUCT: server.pid})
