"""Single orders of version 2 on SQLite, and orders placed on both engines."""

from collections.abc import Callable
from functools import partial

from bench.engines import Postgres
from bench.load import Reading, place, rated
from bench.orders import LIST, PAGES
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import WRITER, Setup

INSERT = "pgbench"
LIST_OF_10 = "list of 10 orders"
PGBENCH_PLACE = r"""
WITH placed AS (
    INSERT INTO petstore.orders
        (id, status, pet_id, complete, ship_date, created_at, updated_at, revision, placed, record)
    SELECT nextval('bench_ids'), 'pending', 7, 0, 1796083200000000, now_us, now_us, 1, 1,
        '{"petId":7,"quantity":1,"shipDate":"2026-12-01T00:00:00Z"}'
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us) AS clock RETURNING id
), audited AS (
    INSERT INTO petstore.audit (at, actor, action, subject, after)
    SELECT extract(epoch FROM now()), 'key_bench0000001', 'place', 'order ' || id, '{"status": "pending"}' FROM placed
)
INSERT INTO petstore.idempotency_keys (account_id, key, digest, order_id, at)
SELECT 1, gen_random_uuid()::text, sha256(id::text::bytea), id, extract(epoch FROM now()) FROM placed;
"""


def measure(plan: Plan) -> list[Row]:
    """Measure single orders against a short list, and placed orders against pgbench."""
    orders = plan.size(1_000_000, 20_000)
    progress(f"single and placed orders among {orders:,} orders")
    with Setup(plan) as setup:
        inserts, engines = setup.postgres(plan.cores.server), setup.engines()
        fill = partial(setup.store, orders, varied=True, scopes=WRITER)
        servers = {"SQLite": setup.petstore(fill()), "PostgreSQL": setup.petstore(fill(engines))}
        short = setup.petstore(setup.store(10))
        singles = {
            PRODUCT: partial(servers["SQLite"].wrk, f"{PAGES}/{orders // 2}"),
            LIST_OF_10: partial(short.wrk, LIST, watch={}),
        }
        rows = [_row("order", "Single order", "requests/s", LIST_OF_10, interleaved(plan.rounds, singles))]
        loads: dict[str, Callable[[], Reading]] = {
            name: server.successive(PAGES, place) for name, server in servers.items()
        }
        loads[INSERT] = _inserts(setup, inserts, orders)
        placed = interleaved(plan.rounds, loads)
    for name in servers:
        readings = {PRODUCT: placed[name], INSERT: placed[INSERT]}
        rows.append(_row(f"place-{name.lower()}", f"Placed order, durable, {name}", "orders/s", INSERT, readings))
    return rows


def _inserts(setup: Setup, engine: Postgres, orders: int) -> Callable[[], Reading]:
    """A load of pgbench: an order, its audit entry and its idempotency key in one statement, a commit each."""
    database, script = engine.url(engine.new_database()), setup.folder() / "place.sql"
    script.write_text(PGBENCH_PLACE)
    setup.store(orders, varied=True, settings={"PETSTORE_DATABASE_URL": database})
    engine.execute(database, f"CREATE SEQUENCE bench_ids START {orders + 1};\nVACUUM ANALYZE")
    return lambda: Reading(engine.pgbench(setup.plan, database, script).rate)


def _row(name: str, title: str, unit: str, reference: str, readings: dict[str, list[Reading]]) -> Row:
    return rated(name, title, unit, readings, reference, Goal(0.7))
