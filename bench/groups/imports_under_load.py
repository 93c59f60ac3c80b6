"""What the clients of a busy server notice of an import into its store: latencies during it, and without it."""

import subprocess
from pathlib import Path

from bench.engines import postgres, redis_server
from bench.load import Load, Successive, cancel
from bench.machine import BenchError, pinned
from bench.plan import PETSTORE, Plan, progress
from bench.queries import PAGES
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import Running, petstore
from bench.stores import LIST, Store, make_store, order_file, shared

CONNECTIONS = 16  # that read pages, and as many that cancel
MAX_SECONDS = 600  # seconds of an import
IDLE = "without an import"
Latencies = dict[str, tuple[float, float]]  # by operation: the 99th percentiles without an import and during one


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure both engines with a new store in each round."""
    waiting, imported = plan.size(400_000, 60_000), plan.size(1_000_000, 100_000)
    file = order_file(plan, imported, varied=True, first=waiting + 1)
    found: dict[str, list[Latencies]] = {"SQLite": [], "PostgreSQL": []}
    for number in range(plan.rounds):
        progress(f"an import of {imported:,} orders into the store of a busy server, round {number + 1}")
        with plan.scratch() as folder:
            found["SQLite"].append(_latencies(plan, make_store(plan, folder, waiting), file))
        core = plan.cores.database
        with plan.scratch() as folder, postgres(plan, core) as engine, redis_server(core) as counters:
            store = make_store(plan, folder, waiting, settings=shared(engine, counters))
            found["PostgreSQL"].append(_latencies(plan, store, file))
    rows = []
    for name, rounds in found.items():
        for title in rounds[0]:
            idle, during = zip(*(each[title] for each in rounds), strict=True)
            samples = {PRODUCT: [*during], IDLE: [*idle]}
            row = f"import-{title.split()[0].lower()}-{name.lower()}"
            title = f"{title} during an import of {imported:,} orders, p99, {name}"
            rows.append(Row(row, title, "ms", samples, IDLE, Goal(3, at_most=True)))
    return rows, []


def _latencies(plan: Plan, store: Store, file: Path) -> Latencies:
    with petstore(plan, store) as server:
        cancels = Successive(plan, server.url + LIST, cancel, headers=store.authorization)
        loads = _start(plan, server, store, cancels, 2 * plan.seconds)
        idle = [load.wait() for load in loads]
        cancels.ended(idle[1])
        loads = _start(plan, server, store, cancels, MAX_SECONDS)
        try:
            _import(plan, store, file)
        finally:
            during = [load.stop() for load in loads]
    return {
        title: (without.p99, with_import.p99)
        for title, without, with_import in zip(("Page of 100", "Cancel"), idle, during, strict=True)
    }


def _start(plan: Plan, server: Running, store: Store, cancels: Successive, seconds: int) -> list[Load]:
    """Start to read pages, and to cancel."""
    url = f"{server.url}{PAGES}?limit=100"
    pages = Load(plan, url, headers=store.authorization, connections=CONNECTIONS, seconds=seconds)
    return [pages, cancels.start(connections=CONNECTIONS, seconds=seconds)]


def _import(plan: Plan, store: Store, file: Path) -> None:
    command: list[str | Path] = [PETSTORE, "orders", "import", file, "--format", "jsonl"]
    done = subprocess.run(
        pinned(plan.cores.database, command), env=store.environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"petstore orders import: {done.stderr[-2000:]}")
