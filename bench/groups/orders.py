"""Single orders of version 2 on SQLite, and orders placed on both engines."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.engines import Postgres, postgres, redis_server
from bench.load import CONNECTIONS, Reading, Successive, place, rated, wrk
from bench.plan import Plan, interleaved, progress
from bench.queries import PAGES
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import LIST, WRITER, make_store, shared, sqlite_store

INSERT = "pgbench, inserting the same rows"
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


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure single orders against a short list, and placed orders against pgbench."""
    orders = plan.size(1_000_000, 20_000)
    progress(f"single and placed orders among {orders:,} orders")
    with ExitStack() as stack:
        folder = stack.enter_context(plan.scratch())
        inserts = stack.enter_context(postgres(plan, plan.cores.server))
        engine = stack.enter_context(postgres(plan, plan.cores.database))
        counters = stack.enter_context(redis_server(plan.cores.database))
        ten = stack.enter_context(sqlite_store(plan, 10))
        fill = partial(make_store, plan, folder, orders, varied=True, scopes=WRITER)
        stores = {"SQLite": fill(), "PostgreSQL": fill(settings=shared(engine, counters))}
        servers = {name: stack.enter_context(petstore(plan, store)) for name, store in stores.items()}
        watch = {name: {PRODUCT: server.pid} for name, server in servers.items()}
        watch["PostgreSQL"] |= {"PostgreSQL": engine.pid, "Redis": counters.process.pid}

        short = stack.enter_context(petstore(plan, ten))
        url, sent = f"{servers['SQLite'].url}{PAGES}/{orders // 2}", stores["SQLite"].authorization
        singles = {
            PRODUCT: partial(wrk, plan, url, headers=sent, watch=watch["SQLite"]),
            LIST_OF_10: partial(wrk, plan, short.url + LIST, headers=ten.authorization),
        }
        rows = [_row("order", "Single order", "requests/s", LIST_OF_10, interleaved(plan.rounds, singles))]

        loads: dict[str, Callable[[], Reading]] = {
            name: Successive(plan, server.url + PAGES, place, headers=stores[name].authorization, watch=watch[name])
            for name, server in servers.items()
        }
        loads[INSERT] = _inserts(plan, inserts, folder, orders)
        placed = interleaved(plan.rounds, loads)
    for name in stores:
        readings = {PRODUCT: placed[name], INSERT: placed[INSERT]}
        rows.append(_row(f"place-{name.lower()}", f"Placed order, durable, {name}", "orders/s", INSERT, readings))
    return rows, []


def _inserts(plan: Plan, engine: Postgres, folder: Path, orders: int) -> Callable[[], Reading]:
    """A load of pgbench: an order, its audit entry and its idempotency key in one statement, a commit each."""
    database, script = engine.new_url(), folder / "place.sql"
    script.write_text(PGBENCH_PLACE)
    make_store(plan, folder, orders, varied=True, settings={"PETSTORE_DATABASE_URL": database})
    engine.execute(database, f"CREATE SEQUENCE bench_ids START {orders + 1};\nVACUUM ANALYZE")
    return lambda: Reading(engine.pgbench(plan, database, script, CONNECTIONS).rate)


def _row(name: str, title: str, unit: str, reference: str, readings: dict[str, list[Reading]]) -> Row:
    return rated(name, title, unit, readings, reference, Goal(0.7))
