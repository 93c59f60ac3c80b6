"""`make bench-profile`: flame graphs of where the server spends its time, for five kinds of requests.

py-spy samples the server's Python functions while wrk loads it; time in C counts for the function that called it. A
sample does not stop the server, which would make system calls seem longer, so a few samples are wrong. Each thread that
works has a tower. The pictures are in build/bench.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.engines import postgres, redis_server
from bench.load import SAME, Kind, Load, cancel, place
from bench.machine import ROOT, BenchError, pinned
from bench.plan import Plan, need, progress
from bench.queries import PAGES
from bench.servers import Running, petstore
from bench.stores import LIST, WRITER, Store, make_store, shared

FOLDER = ROOT / "build" / "bench"
PY_SPY = Path(sys.executable).with_name("py-spy")
SECONDS = 10
RATE = 200  # samples per second
ORDERS = 300_000


def main() -> int:
    """Draw all pictures; return the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        need("wrk")
        with tempfile.TemporaryDirectory(prefix="petstore-bench-") as name, ExitStack() as stack:
            folder = Path(name)
            folder.chmod(0o755)
            plan = Plan(1, SECONDS + 2, False, folder)
            for title, store, server, target, kind in _subjects(plan, stack):
                _draw(plan, title, store, server, target, kind)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _subjects(plan: Plan, stack: ExitStack) -> Iterator[tuple[str, Store, Running, str, Kind]]:
    """A name for each picture, and the load that it shows."""
    folder = stack.enter_context(plan.scratch())
    engine = stack.enter_context(postgres(plan, plan.cores.database))
    counters = stack.enter_context(redis_server(plan.cores.database))
    short = make_store(plan, stack.enter_context(plan.scratch()), 10)
    embedded = make_store(plan, folder, ORDERS, scopes=WRITER)
    scaled = make_store(plan, folder, ORDERS, scopes=WRITER, settings=shared(engine, counters))
    short_server, server, scaled_server = (
        stack.enter_context(petstore(plan, store)) for store in (short, embedded, scaled)
    )
    yield "list", short, short_server, LIST, SAME
    yield "page", embedded, server, f"{PAGES}?limit=100", SAME
    yield "cancel-sqlite", embedded, server, LIST, cancel(1)
    yield "cancel-postgresql", scaled, scaled_server, LIST, cancel(1)
    yield "placed-sqlite", embedded, server, PAGES, place(1)
    yield "placed-postgresql", scaled, scaled_server, PAGES, place(1)


def _draw(plan: Plan, title: str, store: Store, server: Running, target: str, kind: Kind) -> None:
    load = Load(plan, server.url + target, headers=store.authorization, kind=kind)
    file = FOLDER / f"flames-{title}.svg"
    options = ["--nonblocking", "--threads", "--rate", str(RATE), "--duration", str(SECONDS), "--output", str(file)]
    command = pinned(plan.cores.load, [PY_SPY, "record", "--pid", str(server.pid), *options])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rate = load.wait().rate
    if done.returncode:
        raise BenchError(f"py-spy: {done.stderr.strip()[-1000:]}")
    progress(f"{file.relative_to(ROOT)}: {title}, {rate:,.0f} requests per second while sampled")


if __name__ == "__main__":
    sys.exit(main())
