"""What the usage history costs: the same list from servers that record a history and from servers that do not."""

from bench.load import Reading, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import LIST, Store, sqlite_store

WITHOUT = "without a history"
OFF = {"PETSTORE_USAGE_HOURS_DAYS": "0", "PETSTORE_USAGE_DAYS_DAYS": "0"}


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists of 10 orders with and without a usage history."""
    progress("the usage history")
    with sqlite_store(plan, 10) as store:
        readings = interleaved(
            plan.rounds, {PRODUCT: lambda: _load(plan, store, {}), WITHOUT: lambda: _load(plan, store, OFF)}
        )
    samples = {name: [each.rate for each in found] for name, found in readings.items()}
    names = {PRODUCT: "with a history", WITHOUT: WITHOUT}
    costs = {names[name]: [each.costs[PRODUCT] for each in found] for name, found in readings.items()}
    title = "List of 10 orders with a usage history"
    return [Row("usage-history", title, "lists/s", samples, WITHOUT, Goal(0.97), costs)], []


def _load(plan: Plan, store: Store, settings: dict[str, str]) -> Reading:
    """Start a server for each load: only one process may serve a SQLite store."""
    with petstore(plan, store, **settings) as server:
        return wrk(plan, server.url + LIST, headers=store.authorization, watch={PRODUCT: server.pid})
