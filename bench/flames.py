"""`make bench-profile`: flame graphs of where the server spends its time, for five kinds of requests.

py-spy samples the server's Python functions while wrk loads it; time in C counts for the function that called it. A
sample does not stop the server, which would make system calls seem longer, so a few samples are wrong. Each thread that
works has a tower. The pictures are in build/bench.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.load import SAME, Kind, cancel, place
from bench.machine import ROOT, BenchError, pinned
from bench.orders import LIST, PAGES
from bench.plan import Plan, need, progress
from bench.setup import WRITER, Running, Setup

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
        with tempfile.TemporaryDirectory(prefix="petstore-bench-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            with Setup(Plan(1, SECONDS + 2, False, folder)) as setup:
                for title, server, target, kind in _subjects(setup):
                    _draw(title, server, target, kind)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _subjects(setup: Setup) -> Iterator[tuple[str, Running, str, Kind]]:
    """A name for each picture, and the load that it shows."""
    stores = setup.store(10), setup.store(ORDERS, scopes=WRITER), setup.store(ORDERS, setup.engines(), scopes=WRITER)
    short, embedded, scaled = map(setup.petstore, stores)
    yield "list", short, LIST, SAME
    yield "page", embedded, f"{PAGES}?limit=100", SAME
    yield "cancel-sqlite", embedded, LIST, cancel(1)
    yield "cancel-postgresql", scaled, LIST, cancel(1)
    yield "placed-sqlite", embedded, PAGES, place(1)
    yield "placed-postgresql", scaled, PAGES, place(1)


def _draw(title: str, server: Running, target: str, kind: Kind) -> None:
    load = server.load(target, kind=kind)
    file = FOLDER / f"flames-{title}.svg"
    options = ["--nonblocking", "--threads", "--rate", str(RATE), "--duration", str(SECONDS), "--output", str(file)]
    command = pinned(server.plan.cores.load, [PY_SPY, "record", "--pid", str(server.pid), *options])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rate = load.wait().rate
    if done.returncode:
        raise BenchError(f"py-spy: {done.stderr.strip()[-1000:]}")
    progress(f"{file.relative_to(ROOT)}: {title}, {rate:,.0f} requests per second while sampled")


if __name__ == "__main__":
    sys.exit(main())
