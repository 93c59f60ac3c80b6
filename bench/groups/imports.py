"""The time of an import of orders, against inserting the same rows into the same table with the same indexes."""

import gc
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg

from bench.engines import postgres, redis_server
from bench.load import Connection
from bench.machine import BenchError, pinned, this_process_on
from bench.plan import PETSTORE, Plan, interleaved, progress
from bench.queries import Order, check_answers
from bench.results import PRODUCT, Curve, Goal, Row
from bench.servers import petstore
from bench.stores import Store, make_store, order_file, shared, sqlite_store, varied_order

EXECUTEMANY, COPY = "`executemany` into the same table", "`COPY` into the same table"
_POLL_SECONDS = 0.05
_CACHE = 256 * 1024  # KiB, so that SQLite keeps the pages of the indexes that it fills
Import = tuple[float, float]  # seconds, and MB of memory at the most


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure the time of the whole command over both engines."""
    orders = plan.size(1_000_000, 10_000)
    progress(f"imports of {orders:,} orders")
    with ExitStack() as stack:
        folder = stack.enter_context(plan.scratch())
        engine = stack.enter_context(postgres(plan, plan.cores.database))
        counters = stack.enter_context(redis_server(plan.cores.database))
        rows = [varied_order(orders, number) for number in range(1, orders + 1)]
        checked: list[int] = []
        loads: dict[str, Callable[[], Import]] = {
            EXECUTEMANY: _executemany(plan, folder, orders),
            COPY: _copy(make_store(plan, folder, orders, varied=True, settings=shared(engine, counters))),
        }
        stores = {"SQLite": lambda: None, "PostgreSQL": lambda: shared(engine, counters)}
        for kind, settings in stores.items():
            loads[kind] = partial(_import, plan, settings, rows, checked)
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
    ], []


def _executemany(plan: Plan, folder: Path, orders: int) -> Callable[[], Import]:
    """A load that inserts the rows of an imported store into a new file, durably and in one transaction."""
    with sqlite_store(plan, orders, varied=True) as store:
        filled = sqlite3.connect(store.environment["PETSTORE_DATABASE_URL"].removeprefix("sqlite:///"))
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
    url = store.environment["PETSTORE_DATABASE_URL"]
    with (
        psycopg.connect(url) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY petstore.orders TO STDOUT") as copy,
    ):
        rows = b"".join(bytes(block) for block in copy)

    def load() -> Import:
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS copied")
            cursor.execute("CREATE TABLE copied (LIKE petstore.orders INCLUDING ALL)")
            began = time.perf_counter()
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write(rows)
            return time.perf_counter() - began, 0.0

    return load


def _import(
    plan: Plan, settings: Callable[[], Mapping[str, str] | None], expected: Sequence[Order], checked: list[int]
) -> Import:
    """Seconds of the whole command, and its largest resident memory in MB; then ask what it imported."""
    with plan.scratch() as folder:
        store = make_store(plan, folder, 0, settings=settings())
        log = folder / "import.log"
        file = order_file(plan, len(expected), varied=True)
        arguments: list[str | Path] = [PETSTORE, "orders", "import", file, "--format", "jsonl", "--json"]
        began = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen(
                pinned(plan.cores.server, arguments), env=store.environment, stdout=output, stderr=output
            )
            memory = 0.0
            while process.poll() is None:
                memory = max(memory, _peak_memory(process.pid))
                time.sleep(_POLL_SECONDS)
        took = time.perf_counter() - began
        if process.returncode:
            raise BenchError(f"petstore orders import: {log.read_text()[-2000:]}")
        with petstore(plan, store) as server, Connection(server.url, store.authorization) as connection:
            checked.append(check_answers(connection, expected))
    return took, memory


def _peak_memory(pid: int) -> float:
    """The largest resident memory of a process in MB. That of its resource usage includes this process, before exec."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")), 0.0)
