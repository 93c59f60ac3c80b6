"""Short lists against a peer in Go's standard library that does the same work on one processor."""

from collections.abc import Callable
from functools import partial

from bench import rivals
from bench.load import SAME, TRACED, Kind, Reading, rated
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import Setup

ORDERS = 10
PEER = "Go's net/http"
LOADS: dict[str, tuple[str, Kind, Goal]] = {
    "go-list": ("List of 10 orders", SAME, Goal(1.1)),
    "go-list-traced": ("List of 10 orders, fresh traceparents", TRACED, Goal(1.0)),
}
"""By the name of a row: its title, the kind of requests, and the goal."""


def measure(plan: Plan) -> list[Row]:
    """Load both with the same requests, one after the other in each round."""
    progress("a peer in Go")
    with Setup(plan) as setup:
        store = setup.store(ORDERS)
        server = setup.petstore(store)
        with server.connection() as connection:
            body = connection.get(LIST)[1]
        servers = {PRODUCT: server, PEER: rivals.peer_in_go(setup, PEER, body, store.key)}
        loads: dict[tuple[str, str], Callable[[], Reading]] = {}
        for name, (_, kind, _) in LOADS.items():
            for service, running in servers.items():
                loads[name, service] = partial(running.wrk, LIST, kind=kind)
        found = interleaved(plan.rounds, loads)
    return [
        rated(name, title, "/s", {service: found[name, service] for service in servers}, PEER, goal)
        for name, (title, _, goal) in LOADS.items()
    ]
