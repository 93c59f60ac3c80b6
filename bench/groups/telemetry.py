"""What log lines and the usage history cost: the same list from servers with and without them."""

from functools import partial

from bench.load import Reading
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Row
from bench.setup import Setup, Store

SETTINGS = {
    "default": {},
    "logged": {"PETSTORE_ACCESS_LOG": "all"},
    "no history": {"PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "0", "PETSTORE_USAGE_DAILY_RETENTION_DAYS": "0"},
}
WITHOUT = "without"


def measure(plan: Plan) -> list[Row]:
    """Measure lists of 10 orders with an access log, written to a file, and without a usage history."""
    progress("log lines and the usage history")
    with Setup(plan) as setup:
        store = setup.store(10)
        loads = {name: partial(_load, plan, store, settings) for name, settings in SETTINGS.items()}
        readings = interleaved(plan.rounds, loads)

    def row(name: str, what: str, loaded: str, other: str) -> Row:
        samples = {PRODUCT: readings[loaded], WITHOUT: readings[other]}
        rates = {each: [reading.rate for reading in found] for each, found in samples.items()}
        costs = {each: [reading.costs[PRODUCT] for reading in found] for each, found in samples.items()}
        return Row(name, f"List of 10 orders with {what}", "lists/s", rates, WITHOUT, costs=costs)

    return [
        row("log-line", "an access log (`PETSTORE_ACCESS_LOG=all`)", "logged", "default"),
        row("usage-history", "a usage history", "default", "no history"),
    ]


def _load(plan: Plan, store: Store, settings: dict[str, str]) -> Reading:
    """Start a server for each load: only one process may serve a SQLite store."""
    with Setup(plan) as setup:
        return setup.petstore(store, **settings).wrk(LIST)
