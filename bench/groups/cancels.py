"""Durable cancels over 32 connections, against pgbench cancelling the same orders in the same order on PostgreSQL."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.engines import Postgres, postgres, redis_server
from bench.load import CONNECTIONS, Reading, Successive, cancel, rated, wrk
from bench.machine import BenchError
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import nginx, petstore
from bench.stores import LIST, make_store, shared, sqlite_store

UNIT = "cancels/s"
MAX_PER_SECOND = 40_000
"""The rate for which enough orders are imported."""

REFERENCE = "pgbench, the same orders in the same order"
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
INDEXES = """
SELECT indexname FROM pg_indexes
WHERE schemaname = 'petstore' AND tablename IN ('orders', 'audit') AND indexname NOT LIKE '%_pkey'
"""


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure both engines, pgbench, and what the load can do at most."""
    orders = min(1_000_000, MAX_PER_SECOND * plan.rounds * plan.seconds)
    progress(f"cancels among {orders:,} orders on SQLite and on PostgreSQL with Redis")
    with ExitStack() as stack:
        folder = stack.enter_context(plan.scratch())
        server_core_postgres = stack.enter_context(postgres(plan, plan.cores.server))
        engine = stack.enter_context(postgres(plan, plan.cores.database))
        counters = stack.enter_context(redis_server(plan.cores.database))
        limit = stack.enter_context(nginx(plan, folder))
        loads: dict[str, Callable[[], Reading]] = {
            REFERENCE: _Pgbench(plan, server_core_postgres, folder, orders, indexes=True),
            NO_INDEXES: _Pgbench(plan, server_core_postgres, folder, orders, indexes=False),
            "load": lambda: wrk(plan, f"{limit.url}/nothing", kind=cancel(1)),
        }
        embedded = stack.enter_context(sqlite_store(plan, orders))
        scaled = make_store(plan, folder, orders, settings=shared(engine, counters))
        for kind, store in (("sqlite", embedded), ("shared", scaled)):
            server = stack.enter_context(petstore(plan, store))
            watch = {PRODUCT: server.pid}
            if store is scaled:
                watch |= {"PostgreSQL": engine.pid, "Redis": counters.process.pid}
            loads[kind] = Successive(plan, server.url + LIST, cancel, headers=store.authorization, watch=watch)
        readings = interleaved(plan.rounds, loads)
    return [
        _row("sqlite", "Durable cancel, SQLite", Goal(1.0), readings),
        _row("shared", "Durable cancel, PostgreSQL and Redis", Goal(0.8), readings),
    ], []


class _Pgbench:
    """A load of pgbench on the tables of a store: the UPDATE and the audit row in one statement, a commit for each."""

    def __init__(self, plan: Plan, engine: Postgres, folder: Path, orders: int, *, indexes: bool) -> None:
        self._plan = plan
        self._engine = engine
        self._url = engine.new_url()
        self._script = folder / "cancel.sql"
        self._script.write_text(PGBENCH_CANCEL)
        self._next, self._cancelled = 1, 0
        make_store(plan, folder, orders, settings={"PETSTORE_DATABASE_URL": self._url})
        for (name,) in [] if indexes else engine.rows(self._url, INDEXES):
            engine.execute(self._url, f"DROP INDEX petstore.{name}")
        engine.execute(self._url, "VACUUM ANALYZE")

    def __call__(self) -> Reading:
        """Cancel the orders that follow those of the load before; each must have been pending."""
        found = self._engine.pgbench(
            self._plan, self._url, self._script, CONNECTIONS, next=self._next, clients=CONNECTIONS
        )
        [(number, last)] = self._engine.rows(
            self._url, "SELECT count(*), max(id) FROM petstore.orders WHERE status = 'cancelled'"
        )
        self._cancelled += found.transactions
        if number != self._cancelled:
            raise BenchError(f"pgbench cancelled {number:,} orders in {self._cancelled:,} transactions.")
        self._next = last + 1
        return Reading(found.rate)


def _row(kind: str, title: str, goal: Goal, readings: dict[str, list[Reading]]) -> Row:
    compared = {PRODUCT: readings[kind], REFERENCE: readings[REFERENCE], NO_INDEXES: readings[NO_INDEXES]}
    most = min(each.rate for each in readings["load"])
    note = f"The load generator can send {most:,.0f} cancels per second at least (to nginx `return 204`)."
    return rated(f"cancel-{kind}", title, UNIT, compared, REFERENCE, goal, note if kind == "sqlite" else "")
