"""Lists per second against nginx sending the same bytes; short ones also with another X-Request-Id in each request."""

from functools import partial
from typing import NamedTuple

from bench.load import FRESH, SAME, Reading, rated
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup
from testing.subprocesses import peak_resident

GZIP = {"Accept-Encoding": "gzip"}
HUGE = 1_000_000
HUGE_CONNECTIONS, HUGE_SECONDS = 4, 5
"""With more connections, none would get a complete list of a million orders in the time of a load."""


class Kind(NamedTuple):
    """One kind of list: what it is compared with, and the goals for identical requests and for those with an id."""

    name: str
    title: str
    reference: str
    goal: Goal
    fresh_goal: Goal | None = None
    path: str = "/list"  # of nginx
    gzip: bool = False
    unchanged: bool = False


KINDS = {
    10: [Kind("list-10", "List of 10 orders", "nginx `return 200`", Goal(0.6), Goal(0.5), "/fixed")],
    1_000: [
        Kind("list-1000", "List of 1,000 orders", "nginx", Goal(0.9)),
        Kind("list-1000-gzip", "List of 1,000 orders, gzip", "nginx `gzip_static`", Goal(0.9), gzip=True),
        Kind("list-unchanged", "Unchanged list (304)", "nginx 304", Goal(0.6), unchanged=True),
    ],
    100_000: [
        Kind("list-100000", "List of 100,000 orders", "nginx", Goal(0.95)),
        Kind("list-100000-gzip", "List of 100,000 orders, gzip", "nginx `gzip_static`", Goal(0.9), gzip=True),
    ],
    HUGE: [Kind("list-1000000", "List of 1,000,000 orders", "nginx", Goal(0.95))],
}


def measure(plan: Plan) -> list[Row]:
    """Measure short and long lists, unchanged ones and compressed ones."""
    rows = []
    for orders in plan.pick([*KINDS], (10, 1_000)):
        progress(f"lists of {orders:,} orders")
        with Setup(plan) as setup:
            subject = _Subject(setup, orders)
            for kind in KINDS[orders]:
                rows += subject.rows(kind)
            if orders == HUGE:
                rows.append(subject.memory())
    return rows


class _Subject:
    """Servers of the product over stores of one size, and nginx with the same bytes."""

    def __init__(self, setup: Setup, orders: int) -> None:
        self._plan = setup.plan
        self._orders = orders
        folder, self._server = setup.folder(), setup.petstore(setup.store(orders))
        with self._server.connection() as connection:
            self._body = connection.get(LIST)[1]
            (folder / "list").write_bytes(self._body)
            if orders < HUGE:
                (folder / "list.gz").write_bytes(connection.get(LIST, **GZIP)[1])
        self._nginx = setup.nginx(folder, self._body if orders == 10 else b"")

    def rows(self, kind: Kind) -> list[Row]:
        """Measure one kind of list: a row for identical requests and, with a goal, one for requests with an id each."""
        sent = (SAME, FRESH) if kind.fresh_goal else (SAME,)
        base = self._loads(kind)
        loads = {(name, ids): partial(load, kind=ids) for ids in sent for name, load in base.items()}
        readings = interleaved(self._plan.rounds, loads)
        return [_row(kind, ids, {name: readings[name, ids] for name in base}) for ids in sent]

    def _loads(self, kind: Kind) -> dict[str, partial[Reading]]:
        """The loads of one kind of list, without the one of `load.lua`."""
        servers = {PRODUCT: (self._server, LIST), kind.reference: (self._nginx, kind.path)}
        options = {"connections": HUGE_CONNECTIONS, "seconds": HUGE_SECONDS} if self._orders == HUGE else {}
        loads = {}
        for name, (server, path) in servers.items():
            wanted = (GZIP if kind.gzip else {}) | (server.unchanged(path) if kind.unchanged else {})
            loads[name] = partial(server.wrk, path, headers=wanted, **options)
        return loads

    def memory(self) -> Row:
        """The largest memory of the server that these loads have needed, apart from the list itself."""
        beyond = (peak_resident(self._server.pid) - len(self._body)) / 1e6
        title = f"Memory apart from the list, {self._orders:,} orders"
        note = f"The list has {len(self._body) / 1e6:.0f} MB."
        goal = Goal(96, at_most=True, absolute=True)
        return Row("list-memory", title, "MB", {PRODUCT: [beyond]}, goal=goal, note=note)


def _row(kind: Kind, ids: tuple[object, ...], readings: dict[str, list[Reading]]) -> Row:
    if ids == FRESH:
        title = f"{kind.title}, fresh ids"
        return rated(f"{kind.name}-fresh", title, "lists/s", readings, kind.reference, kind.fresh_goal)
    return rated(kind.name, kind.title, "lists/s", readings, kind.reference, kind.goal)
