"""How costs grow with the number of orders, of connections and of API keys."""

from collections import defaultdict
from functools import partial
from pathlib import Path

from bench import access
from bench.load import CONNECTIONS, Reading
from bench.machine import raise_descriptor_limit, resident
from bench.orders import LIST
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Curve, Row
from bench.setup import Running, Setup

ROUNDS = 3
HUGE = 1_000_000
"""Orders from which few connections are used: with many, none would be answered completely in the time of a load."""
Series = dict[str, dict[int, list[float]]]


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure the three curves."""
    return [], [*_orders(plan), *_connections(plan), _keys(plan)]


def _orders(plan: Plan) -> list[Curve]:
    """Processor time per request, and memory, with 10 to 1,000,000 orders."""
    costs: Series = defaultdict(dict)
    memory: Series = defaultdict(dict)
    for orders in plan.pick((10, 100, 1_000, 10_000, 100_000, 1_000_000), (10, 1_000)):
        progress(f"cost with {orders:,} orders")
        with Setup(plan) as setup:
            folder, server = setup.folder(), setup.petstore(setup.store(orders))
            with server.connection() as connection:
                body = connection.get(LIST)[1]
            (folder / "list").write_bytes(body)
            options = {"connections": CONNECTIONS if orders < HUGE else 4}
            readings = interleaved(
                min(plan.rounds, ROUNDS),
                {
                    "list": partial(server.wrk, LIST, **options),
                    "unchanged list (304)": partial(server.wrk, LIST, headers=server.unchanged(), **options),
                    "list, nginx": partial(setup.nginx(folder).wrk, "/list", **options),
                },
            )
            for name, found in readings.items():
                costs[name][orders] = [cost for each in found for cost in each.costs.values()]
            memory["server"][orders] = [resident(server.pid) / 1e6]
            memory["the list's bytes"][orders] = [len(body) / 1e6]
    return [
        Curve("orders", "Processor time per request, by orders in the store", "orders", "µs", costs),
        Curve("memory", "Resident memory after these requests, by orders in the store", "orders", "MB", memory),
    ]


def _connections(plan: Plan) -> list[Curve]:
    """Rate and latency of a list of 10 orders with 1 to 1,000 connections."""
    rates: Series = defaultdict(dict)
    latencies: Series = defaultdict(dict)
    numbers = plan.pick((1, 10, 32, 100, 320, 1_000), (1, 32))
    raise_descriptor_limit(max(numbers) * 2 + 200)
    with Setup(plan) as setup:
        server = setup.petstore(setup.store(10))
        with server.connection() as connection:
            fixed = connection.get(LIST)[1]
        reference = setup.nginx(setup.folder(), fixed)
        for number in numbers:
            progress(f"{number:,} connections")
            loads = {
                PRODUCT: partial(server.wrk, LIST, connections=number),
                "nginx": partial(reference.wrk, "/fixed", connections=number),
            }
            readings = interleaved(min(plan.rounds, ROUNDS), loads)
            for name, found in readings.items():
                rates[name][number] = [each.rate for each in found]
                latencies[f"{name}, median"][number] = [each.p50 for each in found]
                latencies[f"{name}, 99th percentile"][number] = [each.p99 for each in found]
    return [
        Curve("connections", "Lists of 10 orders per second, by connections", "connections", "lists/s", rates),
        Curve(
            "latency", "Latency of a list of 10 orders under full load, by connections", "connections", "ms", latencies
        ),
    ]


def _keys(plan: Plan) -> Curve:
    """Processor time of a list of 10 orders when requests use 1 to 100,000 keys in turn, each of another account."""
    costs: Series = defaultdict(dict)
    for number in plan.pick((1, 10, 100, 1_000, 10_000, 100_000), (1, 100)):
        progress(f"{number:,} API keys")
        with Setup(plan) as setup:
            store, keys = setup.store(10), setup.folder() / "keys"
            keys.write_text("\n".join(access.add_keys(store, number)))
            found = _with_keys(plan, setup.petstore(store), keys, number)
        costs["list of 10 orders"][number] = [each.costs[PRODUCT] for each in found]
    title = "Processor time per request, by API keys used in turn"
    return Curve("keys", title, "keys", "µs", costs)


def _with_keys(plan: Plan, server: Running, keys: Path, number: int) -> list[Reading]:
    """Readings after every key has been used once, each load continuing where the one before ended."""
    load = server.successive(LIST, lambda first: ("keys", keys, first))
    while load.last < number:
        load()
    return [load() for _ in range(min(plan.rounds, ROUNDS))]
