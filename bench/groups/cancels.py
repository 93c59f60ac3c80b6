"""Durable cancels over 32 connections, against pgbench cancelling the same orders in the same order on PostgreSQL."""

from collections.abc import Callable

from bench.load import Reading, cancel, rated
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup

UNIT = "cancels/s"
MAX_PER_SECOND = 40_000
"""The rate for which enough orders are imported."""

REFERENCE = "pgbench"
NO_INDEXES = "pgbench, primary keys only"
# Clients take turns: that of number 3 cancels the fourth order of the load, then the one that comes 32 later.
PGBENCH_CANCEL = r"""
\set id :next + :client_id
\set next :next + :clients
WITH changed AS (
    UPDATE petstore.orders
    SET status = 'cancelled', updated_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE id = :id AND status = 'pending' RETURNING id
)
INSERT INTO petstore.audit (at, actor, action, subject, before, after)
SELECT extract(epoch FROM now()), 'key_bench0000001', 'cancel', 'order ' || id,
    '{"status": "pending"}', '{"status": "cancelled"}' FROM changed;
"""
NO_SECONDARY_INDEXES = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT indexname FROM pg_indexes
        WHERE schemaname = 'petstore' AND tablename IN ('orders', 'audit') AND indexname NOT LIKE '%_pkey'
    LOOP EXECUTE 'DROP INDEX petstore.' || name; END LOOP; END $$
"""


def measure(plan: Plan) -> list[Row]:
    """Measure both engines, pgbench, and what the load can do at most."""
    orders = min(1_000_000, MAX_PER_SECOND * plan.rounds * plan.seconds)
    progress(f"cancels among {orders:,} orders on SQLite and on PostgreSQL with Redis")
    with Setup(plan) as setup:
        reference = setup.postgres(plan.cores.server)
        limit = setup.nginx(setup.folder())
        loads: dict[str, Callable[[], Reading]] = {
            REFERENCE: setup.pgbench(reference, orders, PGBENCH_CANCEL, "cancelled"),
            NO_INDEXES: setup.pgbench(reference, orders, PGBENCH_CANCEL, "cancelled", before=NO_SECONDARY_INDEXES),
            "load": lambda: limit.wrk("/nothing", kind=cancel(1)),
        }
        stores = {"sqlite": setup.store(orders), "shared": setup.store(orders, setup.engines())}
        for kind, store in stores.items():
            loads[kind] = setup.petstore(store).successive(LIST, cancel)
        readings = interleaved(plan.rounds, loads)
    return [
        _row("sqlite", "Durable cancel, SQLite", Goal(1.0), readings),
        _row("shared", "Durable cancel, PostgreSQL and Redis", Goal(0.8), readings),
    ]


def _row(kind: str, title: str, goal: Goal, readings: dict[str, list[Reading]]) -> Row:
    compared = {PRODUCT: readings[kind], REFERENCE: readings[REFERENCE], NO_INDEXES: readings[NO_INDEXES]}
    most = min(each.rate for each in readings["load"])
    note = f"The load generator can send {most:,.0f} cancels per second at least (to nginx `return 204`)."
    return rated(f"cancel-{kind}", title, UNIT, compared, REFERENCE, goal, note if kind == "sqlite" else "")
