"""Ships: one by one against cancels, and in batches against pgbench changing the same orders in the same order."""

from collections.abc import Callable

from bench.load import BATCH, Reading, cancel, rated, ship, ship_together
from bench.orders import PAGES
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import WRITER, Setup

SCOPES = (*WRITER, "orders:manage")
BATCHES_AT_ONCE = 4  # connections that send batches, one after another
MAX_PER_SECOND = 20_000  # orders shipped or cancelled one by one, for which enough are imported
MAX_IN_BATCHES = 60_000
CANCELS = "cancels of other orders by the same key"
REFERENCE = f"pgbench, {BATCH} of the same orders in a statement"
# Clients take turns: that of number 3 ships the fourth batch of the load, then the one that comes four batches later.
PGBENCH_SHIP = rf"""
\set first :next + :client_id * {BATCH}
\set last :first + {BATCH - 1}
\set next :next + :clients * {BATCH}
WITH changed AS (
    UPDATE petstore.orders
    SET status = 'shipped', ship_date = 1796083200000000, revision = revision + 1,
        record = replace(record, '2026-10-07T03:51:47Z', '2026-12-01T00:00:00Z'),
        updated_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE id BETWEEN :first AND :last AND status = 'pending' RETURNING id
)
INSERT INTO petstore.audit (at, actor, action, subject, before, after)
SELECT extract(epoch FROM now()), 'key_bench0000001', 'ship', 'order ' || id,
    '{{"status": "pending"}}', '{{"status": "shipped"}}' FROM changed;
"""


def measure(plan: Plan) -> list[Row]:
    """Measure both engines, and pgbench."""
    seconds = plan.rounds * plan.seconds
    one_by_one, together = MAX_PER_SECOND * seconds, MAX_IN_BATCHES * seconds
    orders = min(2 * one_by_one + together, plan.size(1_500_000, 300_000))
    progress(f"ships among {orders:,} orders on SQLite and on PostgreSQL with Redis")
    rows = []
    with Setup(plan) as setup:
        postgres = setup.postgres(plan.cores.server)
        reference = setup.pgbench(
            postgres, orders, PGBENCH_SHIP, "shipped", together=BATCH, connections=BATCHES_AT_ONCE
        )
        loads: dict[tuple[str, str], Callable[[], Reading]] = {("", REFERENCE): reference}
        stores = {"sqlite": setup.store(orders, scopes=SCOPES)}
        stores["shared"] = setup.store(orders, setup.engines(), scopes=SCOPES)
        for kind, store in stores.items():
            server = setup.petstore(store)
            cancels, ships = server.successive(PAGES, cancel), server.successive(PAGES, ship)
            batches = server.successive(f"{PAGES}/batch", ship_together, connections=BATCHES_AT_ONCE)
            ships.last, batches.last = orders // 5, 2 * orders // 5
            loads |= {(kind, CANCELS): cancels, (kind, "ship"): ships, (kind, "batch"): _by_order(batches)}
        readings = interleaved(plan.rounds, loads)
    for kind, engine in (("sqlite", "SQLite"), ("shared", "PostgreSQL and Redis")):
        single = {PRODUCT: readings[kind, "ship"], CANCELS: readings[kind, CANCELS]}
        rows.append(rated(f"ship-{kind}", f"Durable ship, {engine}", "ships/s", single, CANCELS, Goal(0.9)))
        in_batches = {PRODUCT: readings[kind, "batch"], REFERENCE: readings["", REFERENCE]}
        rows.append(rated(f"batch-{kind}", f"Ships in batches, {engine}", "ships/s", in_batches, REFERENCE))
    return rows


def _by_order(load: Callable[[], Reading]) -> Callable[[], Reading]:
    """The load of batches, with rates and costs of orders."""

    def measured() -> Reading:
        found = load()
        costs = {process: cost / BATCH for process, cost in found.costs.items()}
        return Reading(found.rate * BATCH, found.p50, found.p99, found.last, costs)

    return measured
