"""Time from starting the server to its first response that says ready, and of two short commands."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.machine import pinned
from bench.plan import PETSTORE, Plan, interleaved, progress, run
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup, Store

ORDERS = 1_000
INTERPRETER = "`python -c pass`"
COMMANDS = {"help": ["--help"], "list": ["orders", "list"]}


def measure(plan: Plan) -> list[Row]:
    """Measure each several times, after one start that fills the caches of the disk."""
    progress(f"start with {ORDERS:,} orders")
    with Setup(plan) as setup:
        store = setup.store(ORDERS)
        _ready(plan, store)
        loads = {"ready": partial(_ready, plan, store)}
        loads |= {name: partial(_seconds, plan, store, [PETSTORE, *words]) for name, words in COMMANDS.items()}
        loads["interpreter"] = partial(_seconds, plan, store, [sys.executable, "-c", "pass"])
        found = interleaved(plan.size(10, 2), loads)
    start = f"Start to ready, {ORDERS:,} orders"
    rows = [Row("start", start, "s", {PRODUCT: found["ready"]}, goal=Goal(0.5, at_most=True, absolute=True))]
    for name, words in COMMANDS.items():
        samples = {PRODUCT: found[name], INTERPRETER: found["interpreter"]}
        title, goal = f"`petstore {' '.join(words)}`", Goal(0.1, at_most=True, absolute=True)
        rows.append(Row(f"command-{name}", title, "s", samples, INTERPRETER, goal))
    return rows


def _ready(plan: Plan, store: Store) -> float:
    with Setup(plan) as setup:
        return setup.petstore(store).ready_seconds


def _seconds(plan: Plan, store: Store, command: Sequence[str | Path]) -> float:
    began = time.perf_counter()
    run(pinned(plan.cores.server, command), env=store.environment)
    return time.perf_counter() - began
