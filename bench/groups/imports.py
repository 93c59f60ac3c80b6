"""Importing a file of orders, against sqlite3's `executemany` of the same rows, parsed beforehand."""

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.engines import postgres, redis_server
from bench.machine import BenchError
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Goal, Row
from bench.stores import environment, order_file, shared

REFERENCE = "`executemany` of parsed rows"
_TABLE = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, pet_id INTEGER, quantity INTEGER, ship_date TEXT, complete INTEGER,
                     status TEXT NOT NULL) STRICT
"""
Import = tuple[float, float]  # seconds, and MB of memory at the most


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure the time of the whole command, over SQLite and over PostgreSQL."""
    orders = plan.size(1_000_000, 10_000)
    progress(f"imports of {orders:,} orders")
    file = order_file(plan, orders)
    rows = [_parsed(line) for line in file.read_bytes().splitlines()]
    with plan.scratch() as folder, postgres(plan, plan.cores.database) as engine, redis_server(plan, 0) as counters:
        loads: dict[str, Callable[[], Import]] = {"reference": lambda: (_executemany(folder, rows), 0.0)}
        for name, command in plan.products.items():
            loads[name] = partial(_import, plan, command, file, partial(_sqlite, folder))
            loads[f"PostgreSQL {name}"] = partial(_import, plan, command, file, partial(shared, engine, counters))
        readings = interleaved(min(plan.rounds, 3), loads)
    reference = {REFERENCE: [seconds for seconds, _ in readings["reference"]]}
    products = {name: [seconds for seconds, _ in readings[name]] for name in plan.products}
    scaled = {name: [seconds for seconds, _ in readings[f"PostgreSQL {name}"]] for name in plan.products}
    title = f"Import of {orders:,} orders"
    memory = max(megabytes for _, megabytes in readings[PRODUCT])
    note = f"The command holds {memory:.0f} MB at most. Neither side is pinned to a core."
    goal = Goal(4, aim=2, at_most=True)
    return [
        Row("import", f"{title}, SQLite", "s", products | reference, REFERENCE, goal, note=note),
        Row("import-postgres", f"{title}, PostgreSQL", "s", scaled | reference, REFERENCE),
    ], []


def _parsed(line: bytes) -> tuple[int, int, int, str, int, str]:
    order = json.loads(line)
    return order["id"], order["petId"], order["quantity"], order["shipDate"], int(order["complete"]), "pending"


def _executemany(folder: Path, rows: list[tuple[int, int, int, str, int, str]]) -> float:
    """Seconds to insert the rows durably into a new SQLite file."""
    file = folder / f"reference-{time.monotonic_ns()}.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_TABLE)
    began = time.perf_counter()
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    took = time.perf_counter() - began
    connection.close()
    file.unlink()
    return took


def _sqlite(folder: Path) -> dict[str, str]:
    return {"PETSTORE_DATABASE_URL": f"sqlite:///{folder / f'{time.monotonic_ns()}.db'}"}


def _import(plan: Plan, command: Path, file: Path, new_store: Callable[[], dict[str, str]]) -> Import:
    """Seconds of the whole command, and its largest resident memory in MB."""
    log, settings = plan.folder / "import.log", new_store()
    began = time.perf_counter()
    with log.open("wb") as output:
        arguments: list[str | Path] = [command, "orders", "import", file, "--format", "jsonl", "--json"]
        process = subprocess.Popen(arguments, env=environment(**settings), stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"petstore orders import: {log.read_text()[-2000:]}")
    scheme, _, place = settings["PETSTORE_DATABASE_URL"].partition("://")
    if scheme == "sqlite":
        for left in Path(place[1:]).parent.glob("*.db*"):
            left.unlink()
    return took, usage.ru_maxrss / 1000
