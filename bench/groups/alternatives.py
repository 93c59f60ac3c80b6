"""Each operation against a service that does the same work: FastAPI, tuned."""

from collections.abc import Callable
from functools import partial
from statistics import median

from bench import rivals
from bench.groups.cancels import MAX_PER_SECOND
from bench.load import Kind, Reading, cancel, place
from bench.orders import LIST, PAGES
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import WRITER, Setup

GOAL = Goal(5, absolute=True)
Loads = dict[str, dict[str, Callable[[], Reading]]]
"""By the title of an operation and the name of a service."""


def measure(plan: Plan) -> list[Row]:
    """Measure all operations on SQLite, and what the product reaches of the others in each round at the least."""
    rows = []
    for orders in (10, 1_000, min(1_000_000, MAX_PER_SECOND * plan.rounds * plan.seconds)):
        progress(f"other services with {orders:,} orders")
        with Setup(plan) as setup:
            for title, loads in _loads(setup, orders).items():
                found = interleaved(plan.rounds, loads)
                samples = {service: [each.rate for each in readings] for service, readings in found.items()}
                rows.append(Row(f"alternative-{title.lower().replace(' ', '-')}", title, "/s", samples))
    return [_least(rows), *rows]


def _least(rows: list[Row]) -> Row:
    ratios = {row.title: row.ratios(rivals.TUNED) for row in rows}
    least = [min(found) for found in zip(*ratios.values(), strict=True)]
    slowest = min(ratios, key=lambda title: median(ratios[title]))
    note = f"The least is that of: {slowest[0].lower()}{slowest[1:]}."
    title = f"Any operation, of {rivals.TUNED}"
    return Row("least-fastapi-tuned", title, "times", {PRODUCT: least}, goal=GOAL, note=note)


def _loads(setup: Setup, orders: int) -> Loads:
    """The loads of the operations that are measured with so many orders."""
    product = setup.petstore(setup.store(orders, scopes=WRITER))
    servers = {PRODUCT: product, rivals.TUNED: rivals.tuned(setup, orders)}

    def each(target: str) -> dict[str, Callable[[], Reading]]:
        return {name: partial(server.wrk, target) for name, server in servers.items()}

    def successive(kind: Callable[[int], Kind], target: str) -> dict[str, Callable[[], Reading]]:
        return {name: server.successive(target, kind) for name, server in servers.items()}

    if orders == 10:
        return {"List of 10 orders": each(LIST)}
    if orders == 1_000:
        unchanged: dict[str, Callable[[], Reading]] = {
            name: partial(server.wrk, LIST, headers=server.unchanged()) for name, server in servers.items()
        }
        return {"List of 1,000 orders": each(LIST), "Unchanged list (304)": unchanged}
    return {
        "Page of 100 by id": each(f"{PAGES}?limit=100"),
        "Single order": each(f"{PAGES}/{orders // 2}"),
        "Durable cancel": successive(cancel, LIST),
        "Placed order, durable": successive(place, PAGES),
    }
