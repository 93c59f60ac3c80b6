"""`make bench-against COMMIT=HEAD~1`: what each operation costs against another commit, on this machine.

    python -m bench.against COMMIT [--rounds 10] [--seconds 1] [--only cancel,import] [--orders 200000]

The other commit's program runs from a work tree of its own, with the libraries of this one. Loads take turns, and a
ratio is taken in each round before the median. Processor time depends less on other work on the machine than a rate.
The results are printed, not stored: they depend on the commit.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.engines import Engines
from bench.load import FRESH, Reading, cancel, place, place_with_reference
from bench.machine import ROOT, BenchError, cpu_seconds
from bench.orders import LIST, PAGES, order_file
from bench.plan import Plan, interleaved, need, progress, run
from bench.results import PRODUCT
from bench.setup import WRITER, Running, Setup, Store

SOURCE = Path("server", "src")
Loads = dict[str, Callable[[], Reading]]
LISTED, IMPORTED = 1_000, 100_000
MAX_PER_SECOND = 10_000  # cancels, for which enough orders are placed before


def main() -> int:
    """Measure and print; return the exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended, and the work tree removed
    try:
        need("wrk")
        with tempfile.TemporaryDirectory(prefix="petstore-bench-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            plan = Plan(options.rounds, options.seconds, False, folder)
            with _work_tree(folder / "other", options.commit) as other:
                for engine in ("SQLite", "PostgreSQL"):
                    _measure(plan, engine, {"this": ROOT / SOURCE, "other": other / SOURCE}, options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=(__doc__ or "").strip())
    parser.add_argument("commit", help="of this repository: a tag, a branch or a hash")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=1, help="of each load")
    parser.add_argument("--orders", type=int, default=200_000, help="in the store; a cancel takes one of them")
    parser.add_argument("--only", default="", help="loads whose names begin so, with commas between")
    return parser.parse_args()


@contextmanager
def _work_tree(folder: Path, commit: str) -> Iterator[Path]:
    """A work tree of a commit, which is removed afterwards."""
    run(["git", "-C", ROOT, "worktree", "add", "--detach", folder, commit])
    try:
        yield folder
    finally:
        run(["git", "-C", ROOT, "worktree", "remove", "--force", folder])


def _measure(plan: Plan, engine: str, programs: Mapping[str, Path], options: argparse.Namespace) -> None:
    """Run the loads of both programs in turn on one engine, and print what they took."""
    progress(f"fill stores of {options.orders:,} orders on {engine}")
    with Setup(plan) as setup:
        engines = setup.engines() if engine == "PostgreSQL" else None
        found = {program: _loads(setup, engines, source, options.orders) for program, source in programs.items()}
        chosen = [name for name in found["this"] if name.startswith(tuple(options.only.split(",")))]
        if not chosen:
            raise BenchError(f"Unknown: {options.only}. The loads are: {', '.join(found['this'])}.")
        progress(f"{', '.join(chosen)} on {engine}")
        loads = {(name, program): found[program][name] for name in chosen for program in programs}
        readings = interleaved(plan.rounds, loads)
    for name in chosen:
        print(_line(f"{name}, {engine}", readings[name, "this"], readings[name, "other"]), flush=True)


def _loads(setup: Setup, engines: Engines | None, source: Path, orders: int) -> Loads:
    """The loads of one program, whose modules are in `source`."""

    def store(number: int) -> Store:
        if engines is None:
            settings = {"PETSTORE_DATABASE_URL": f"sqlite:///{setup.folder() / 'store.db'}"}
        else:
            settings = engines.settings()
        return setup.store(number, engines, settings={**settings, "PYTHONPATH": str(source)}, scopes=WRITER)

    filled, listed = store(orders), store(LISTED)
    if engines is not None:
        engines.postgres.execute(filled.url, "VACUUM ANALYZE")
    server, short = setup.petstore(filled), setup.petstore(listed)
    placed = _Placed(server, orders)
    return {
        "list of 1,000": partial(short.wrk, LIST),
        "list of 1,000, fresh ids": partial(short.wrk, LIST, kind=FRESH),
        "unchanged list": partial(short.wrk, LIST, headers=short.unchanged()),
        "page of 100": partial(server.wrk, f"{PAGES}?limit=100&status=pending&sort=-id"),
        "single order": partial(server.wrk, f"{PAGES}/{orders // 2}"),
        "cancel": server.successive(LIST, cancel),
        "placed order": placed.place,
        "cancel of a placed order": placed.cancel,
        "placed order with a reference": server.successive(PAGES, place_with_reference),
        "import": partial(_import, setup, store, engines),
        "start": partial(_start, setup, store(LISTED)),
    }


class _Placed:
    """Loads that place orders, and cancel them."""

    def __init__(self, server: Running, orders: int) -> None:
        self.place = server.successive(PAGES, place)
        self._cancel = server.successive(LIST, cancel)
        self._cancel.last = self._first = orders
        self._most = MAX_PER_SECOND * server.plan.seconds

    def cancel(self) -> Reading:
        """Cancel placed orders, once there are enough of them."""
        while self._first + self.place.last < self._cancel.last + self._most:
            self.place()
        return self._cancel()


def _import(setup: Setup, empty: Callable[[int], Store], engines: Engines | None) -> Reading:
    """Import a clean file into a new store; return orders per second, and the processor time for each."""
    store, file = empty(0), order_file(setup.plan, IMPORTED, varied=True)
    postgres = engines.processes()["PostgreSQL"] if engines else None
    before = cpu_seconds(postgres) if postgres else 0.0
    found = setup.timed_import(store, file)
    costs = {PRODUCT: found.cpu_seconds / IMPORTED * 1e6}
    if postgres:
        costs["PostgreSQL"] = (cpu_seconds(postgres) - before) / IMPORTED * 1e6
    return Reading(IMPORTED / found.seconds, costs=costs)


def _start(setup: Setup, store: Store) -> Reading:
    """Start a server on a filled store, until it is ready; return starts per second."""
    with Setup(setup.plan) as own:
        server = own.petstore(store)
        return Reading(1 / server.ready_seconds, costs={PRODUCT: cpu_seconds(server.pid) * 1e6})


def _line(title: str, this: list[Reading], other: list[Reading]) -> str:
    """How much time and processor time each request takes, as a ratio to the other program and for both."""
    pairs = list(zip(this, other, strict=True))
    ratios = {"time": [theirs.rate / ours.rate for ours, theirs in pairs]}
    for name in this[0].costs:
        ratios[name] = [ours.costs[name] / theirs.costs[name] for ours, theirs in pairs if theirs.costs[name]] or [1.0]
    shown = [f"{name} {median(found):.3f} ({min(found):.2f}-{max(found):.2f})" for name, found in ratios.items()]
    rates = [f"{median(each.rate for each in found):,.0f}/s" for found in (other, this)]
    costs = [
        " -> ".join(f"{median(each.costs[name] for each in found):.0f}" for found in (other, this)) + f" us {name}"
        for name in this[0].costs
    ]
    return f"{title}: {'; '.join(shown)} [{', '.join([' -> '.join(rates), *costs])}]"


if __name__ == "__main__":
    sys.exit(main())
