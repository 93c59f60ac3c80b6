"""What a log line for every request costs: the same list with and without an access log."""

from bench.load import Reading, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Row
from bench.servers import petstore
from bench.stores import LIST, Store, sqlite_store

WITHOUT = "without an access log"


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists of 10 orders with and without a log line for each request, written to a file."""
    progress("a log line for each request")
    with sqlite_store(plan, 10) as store:
        readings = interleaved(
            plan.rounds, {PRODUCT: lambda: _load(plan, store, "all"), WITHOUT: lambda: _load(plan, store, "off")}
        )
    samples = {name: [each.rate for each in found] for name, found in readings.items()}
    names = {PRODUCT: "with a line", WITHOUT: "without"}
    costs = {names[name]: [each.costs[PRODUCT] for each in found] for name, found in readings.items()}
    title = "List of 10 orders with an access log (`PETSTORE_ACCESS_LOG=all`)"
    return [Row("log-line", title, "lists/s", samples, WITHOUT, costs=costs)], []


def _load(plan: Plan, store: Store, access_log: str) -> Reading:
    """Start a server for each load: only one process may serve a SQLite store."""
    with petstore(plan, store, PETSTORE_ACCESS_LOG=access_log) as server:
        return wrk(plan, server.url + LIST, headers=store.authorization, watch={PRODUCT: server.pid})
