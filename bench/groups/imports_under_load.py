"""What the clients of a busy server notice of an import into its store: latencies during it, and without it."""

from pathlib import Path

from bench.engines import Engines
from bench.load import Load, Successive, cancel
from bench.machine import pinned
from bench.orders import LIST, PAGES, order_file
from bench.plan import PETSTORE, Plan, progress, run
from bench.results import PRODUCT, Goal, Row
from bench.setup import Running, Setup

CONNECTIONS = 16  # that read pages, and as many that cancel
MAX_SECONDS = 600  # seconds of an import
IDLE = "without an import"
IMPORT = ("orders", "import", "--format", "jsonl")
Latencies = dict[str, tuple[float, float]]  # by operation: the 99th percentiles without an import and during one


def measure(plan: Plan) -> list[Row]:
    """Measure both engines with a new store in each round."""
    waiting, imported = plan.size(400_000, 60_000), plan.size(1_000_000, 100_000)
    file = order_file(plan, imported, varied=True, first=waiting + 1)
    found: dict[str, list[Latencies]] = {"SQLite": [], "PostgreSQL": []}
    for number in range(plan.rounds):
        progress(f"an import of {imported:,} orders into the store of a busy server, round {number + 1}")
        for name, latencies in found.items():
            with Setup(plan) as setup:
                engines = setup.engines() if name == "PostgreSQL" else None
                latencies.append(_latencies(setup, waiting, engines, file))
    rows = []
    for name, rounds in found.items():
        for title in rounds[0]:
            idle, during = zip(*(each[title] for each in rounds), strict=True)
            samples = {PRODUCT: [*during], IDLE: [*idle]}
            row = f"import-{title.split()[0].lower()}-{name.lower()}"
            title = f"{title} during an import of {imported:,} orders, p99, {name}"
            rows.append(Row(row, title, "ms", samples, IDLE, Goal(3, at_most=True)))
    return rows


def _latencies(setup: Setup, waiting: int, engines: Engines | None, file: Path) -> Latencies:
    plan, store = setup.plan, setup.store(waiting, engines)
    server = setup.petstore(store)
    cancels = server.successive(LIST, cancel)
    loads = _start(server, cancels, 2 * plan.seconds)
    idle = [load.wait() for load in loads]
    cancels.ended(idle[1])
    loads = _start(server, cancels, MAX_SECONDS)
    try:
        run(pinned(plan.cores.database, [PETSTORE, *IMPORT, file]), env=store.environment)
    finally:
        during = [load.stop() for load in loads]
    return {
        title: (without.p99, with_import.p99)
        for title, without, with_import in zip(("Page of 100", "Cancel"), idle, during, strict=True)
    }


def _start(server: Running, cancels: Successive, seconds: int) -> list[Load]:
    """Start to read pages, and to cancel."""
    pages = server.load(f"{PAGES}?limit=100", connections=CONNECTIONS, seconds=seconds)
    return [pages, cancels.start(connections=CONNECTIONS, seconds=seconds)]
