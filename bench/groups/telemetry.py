"""What log lines and the usage history cost: the same list from servers with and without them."""

from collections.abc import Mapping

from bench.load import Reading, wrk
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Row
from bench.servers import petstore
from bench.stores import LIST, Store, sqlite_store

LOGGED = {"PETSTORE_ACCESS_LOG": "all"}
NO_HISTORY = {"PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "0", "PETSTORE_USAGE_DAILY_RETENTION_DAYS": "0"}


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists of 10 orders with an access log, written to a file, and without a usage history."""
    progress("log lines and the usage history")
    with sqlite_store(plan, 10) as store:
        readings = interleaved(
            plan.rounds,
            {
                "default": lambda: _load(plan, store, {}),
                "logged": lambda: _load(plan, store, LOGGED),
                "no history": lambda: _load(plan, store, NO_HISTORY),
            },
        )
    rates = {name: [each.rate for each in found] for name, found in readings.items()}
    costs = {name: [each.costs[PRODUCT] for each in found] for name, found in readings.items()}
    title = "List of 10 orders with"
    return [
        Row(
            "log-line",
            f"{title} an access log (`PETSTORE_ACCESS_LOG=all`)",
            "lists/s",
            {PRODUCT: rates["logged"], "without": rates["default"]},
            "without",
            costs={PRODUCT: costs["logged"], "without": costs["default"]},
        ),
        Row(
            "usage-history",
            f"{title} a usage history",
            "lists/s",
            {PRODUCT: rates["default"], "without": rates["no history"]},
            "without",
            costs={PRODUCT: costs["default"], "without": costs["no history"]},
        ),
    ], []


def _load(plan: Plan, store: Store, settings: Mapping[str, str]) -> Reading:
    """Start a server for each load: only one process may serve a SQLite store."""
    with petstore(plan, store, **settings) as server:
        return wrk(plan, server.url + LIST, headers=store.authorization, watch={PRODUCT: server.pid})
