"""The time of an import of orders, against inserting the same rows into the same table with the same indexes."""

import gc
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from bench.engines import Engines
from bench.machine import this_process_on
from bench.orders import Order, check_answers, order_file, varied_order
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup, Store

EXECUTEMANY, COPY = "`executemany`", "`COPY`"
_CACHE = 256 * 1024  # KiB, so that SQLite keeps the pages of the indexes that it fills
Import = tuple[float, float]  # seconds, and MB of memory at the most


def measure(plan: Plan) -> list[Row]:
    """Measure the time of the whole command over both engines."""
    orders = plan.size(1_000_000, 10_000)
    progress(f"imports of {orders:,} orders")
    with Setup(plan) as setup:
        engines = setup.engines()
        rows = [varied_order(orders, number) for number in range(1, orders + 1)]
        checked: list[int] = []
        loads: dict[str, Callable[[], Import]] = {
            EXECUTEMANY: _executemany(plan, setup.folder(), setup.store(orders, varied=True)),
            COPY: _copy(setup.store(orders, engines, varied=True)),
            "SQLite": lambda: _import(plan, None, rows, checked),
            "PostgreSQL": lambda: _import(plan, engines, rows, checked),
        }
        readings = interleaved(plan.rounds, loads)
    seconds = {name: [taken for taken, _ in found] for name, found in readings.items()}
    memory = max(megabytes for _, megabytes in readings["SQLite"])
    note = (
        f"The command holds {memory:.0f} MB at most. Right after each import, {min(checked)} queries with every filter"
        " and every sort answered as the file says."
    )

    def row(name: str, kind: str, reference: str, goal: Goal | None, note: str = "") -> Row:
        samples = {PRODUCT: seconds[kind], reference: seconds[reference]}
        return Row(name, f"Import of {orders:,} orders, {kind}", "s", samples, reference, goal, note=note)

    return [
        row("import", "SQLite", EXECUTEMANY, Goal(2.5, at_most=True), note),
        row("import-postgres", "PostgreSQL", COPY, None),
    ]


def _executemany(plan: Plan, folder: Path, store: Store) -> Callable[[], Import]:
    """A load that inserts the rows of an imported store into a new file, durably and in one transaction."""
    filled = sqlite3.connect(store.url.removeprefix("sqlite:///"))
    query = "SELECT sql FROM sqlite_master WHERE tbl_name = 'orders' AND sql IS NOT NULL AND type = ?"
    tables = [sql for kind in ("table", "index") for (sql,) in filled.execute(query, (kind,))]
    rows = filled.execute("SELECT * FROM orders ORDER BY id").fetchall()
    filled.close()

    def load() -> Import:
        file = folder / f"reference-{time.monotonic_ns()}.db"
        connection = sqlite3.connect(file)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", f"PRAGMA cache_size = -{_CACHE}"):
            connection.execute(statement)
        for statement in tables:
            connection.execute(statement)
        gc.collect()
        gc.disable()  # it would look through a million rows again and again
        with this_process_on(plan.cores.server):
            began = time.perf_counter()
            connection.executemany(f"INSERT INTO orders VALUES ({', '.join('?' * len(rows[0]))})", rows)
            connection.commit()
            took = time.perf_counter() - began
        gc.enable()
        connection.close()
        file.unlink()
        return took, 0.0

    return load


def _copy(store: Store) -> Callable[[], Import]:
    """A load that copies the rows of an imported store into an empty table like that of the orders."""
    with (
        psycopg.connect(store.url) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY petstore.orders TO STDOUT") as copy,
    ):
        rows = b"".join(bytes(block) for block in copy)

    def load() -> Import:
        with psycopg.connect(store.url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS copied")
            cursor.execute("CREATE TABLE copied (LIKE petstore.orders INCLUDING ALL)")
            began = time.perf_counter()
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write(rows)
            return time.perf_counter() - began, 0.0

    return load


def _import(plan: Plan, engines: Engines | None, expected: Sequence[Order], checked: list[int]) -> Import:
    """Seconds of the whole command, and its largest resident memory in MB; then ask what it imported."""
    with Setup(plan) as setup:
        store = setup.store(0, engines)
        found = setup.timed_import(store, order_file(plan, len(expected), varied=True))
        with setup.petstore(store).connection() as connection:
            checked.append(check_answers(connection, expected))
    return found.seconds, found.memory / 1e6
