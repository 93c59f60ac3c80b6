"""What accounts get that see their own orders only, among a million orders of another account and of none."""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median

from bench.access import add_keys, name_of_account
from bench.engines import Engines
from bench.load import Connection, Reading, p99, rated
from bench.machine import BenchError, this_process_on
from bench.orders import LIST, PAGES, SORTS, varied_order
from bench.plan import Plan, interleaved, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import ACCOUNT, Running, Setup

FIRST, UNCHANGED = "first list", "unchanged"
FOREIGN, OWN = "after a change of another's order", "after a change of an own order"
CHANGES = 20  # of others' orders in each round
WARM_SECONDS = 1  # after a start, in which the process compiles the pages of the console
PAUSE = 0.01  # seconds before each list but the first
REQUESTS = 100  # of each page in a round

CHANGED = "/v2/store/changes?limit=100"

MANY, ONE = 32, "one account"
"""Accounts without orders, whose requests take turns: their lists cost nothing but the look for changes."""

Times = dict[str, list[float]]


def measure(plan: Plan) -> list[Row]:
    """Measure lists of several sizes, pages in each sort and changes, on both engines."""
    others = plan.size(1_000_000, 2_000)
    sizes = plan.pick((10, 1_000, 100_000), (10, 100))
    owners = _owners(others, sizes)
    file = _file(plan.folder / "owned.jsonl", others + sum(sizes), owners)
    rows: list[Row] = []
    pages: dict[str, Times] = {}
    with this_process_on(plan.cores.load), Setup(plan) as setup:
        for engine, engines in {"SQLite": None, "PostgreSQL": setup.engines()}.items():
            progress(f"own lists among {others:,} orders of others on {engine}")
            subject = _Subject(setup, engines, file, owners)
            rows += _list_rows(engine, f"own list of {sizes[1]:,} orders among {others:,}", subject.lists()[sizes[1]])
            pages[engine] = subject.pages()
            rows.append(
                rated(
                    f"own-many-{engine.lower()}",
                    f"Own lists of {MANY} accounts, {engine}",
                    "lists/s",
                    subject.many(),
                    ONE,
                )
            )
    for name in next(iter(pages.values())):
        slug = name.lower().replace(",", "").replace(" ", "-")
        samples = {engine: found[name] for engine, found in pages.items()}
        goal = Goal(5, at_most=True, absolute=True) if "own" in name else None
        rows.append(Row(f"own-{slug}", f"p99, {name}", "ms", samples, goal=goal))
    return rows


def _list_rows(engine: str, title: str, times: Times) -> list[Row]:
    first, again = {PRODUCT: times[FIRST]}, {PRODUCT: times[FOREIGN], UNCHANGED: times[UNCHANGED]}
    bounds = Goal(20, at_most=True, absolute=True), Goal(1.1, at_most=True)
    return [
        Row(f"own-first-{engine.lower()}", f"First {title}, {engine}", "ms", first, goal=bounds[0]),
        Row(f"own-again-{engine.lower()}", f"Repeated {title}, {FOREIGN}, {engine}", "ms", again, UNCHANGED, bounds[1]),
    ]


def _owners(others: int, sizes: Sequence[int]) -> dict[int, int]:
    """The accounts that own orders by identifier, at random places: the account at an index has so many orders."""
    chosen = iter(random.Random(0).sample(range(1, others + sum(sizes) + 1), sum(sizes)))
    return {order_id: index for index, size in enumerate(sizes) for order_id in islice(chosen, size)}


def _file(file: Path, orders: int, owners: Mapping[int, int]) -> Path:
    """A JSON Lines file of pending orders; of those that others have, every second one is of the account `bench`."""
    with file.open("w") as output:
        for number in range(1, orders + 1):
            order = {**varied_order(orders, number), "status": "pending"}
            if number in owners:
                order |= {"account": name_of_account(owners[number]), "reference": f"own-{number}"}
            elif number % 2:
                order |= {"account": ACCOUNT, "reference": f"other-{number}"}
            output.write(f"{json.dumps(order)}\n")
    return file


class _Subject:
    """A store on one engine, and an account for each size that sees its own orders only."""

    def __init__(self, setup: Setup, engines: Engines | None, file: Path, owners: Mapping[int, int]) -> None:
        self._plan = setup.plan
        self._sizes = Counter(owners.values())
        self._store = setup.store(0, engines)
        self._keys = add_keys(self._store, len(self._sizes) + MANY, orders="own")
        self._store.petstore("orders", "import", file)
        if engines is not None:
            engines.postgres.execute(self._store.url, "VACUUM ANALYZE")
        self._others = (number for number in count(1) if number not in owners)
        self._own = {index: iter([each for each, owner in owners.items() if owner == index]) for index in self._sizes}

    def lists(self) -> dict[int, Times]:
        """Milliseconds to the first byte of the lists, by size, with a new server in each round."""
        found: dict[int, Times] = {size: defaultdict(list) for size in self._sizes.values()}
        for _ in range(self._plan.rounds):
            with Setup(self._plan) as setup:
                server = setup.petstore(self._store)
                time.sleep(WARM_SECONDS)
                for index, size in self._sizes.items():
                    with server.connection() as foreign, _as(server, self._keys[index]).connection() as own:
                        for name, times in self._list(index, own, foreign).items():
                            found[size][name].append(median(times))
        return found

    def _list(self, index: int, own: Connection, foreign: Connection) -> Times:
        """The times of the first list, and of later ones that take turns."""
        times: Times = {FIRST: [own.first_byte(LIST)], UNCHANGED: [], FOREIGN: []}
        for order_id in islice(self._others, CHANGES):
            times[UNCHANGED].append(_later(own))
            _cancel(foreign, order_id)
            times[FOREIGN].append(_later(own))
        _cancel(own, next(self._own[index]))
        return times | {OWN: [_later(own)]}

    def pages(self) -> Times:
        """The 99th percentiles of the slowest sort and of changes in each round: own ones, and those of all orders."""
        found: Times = defaultdict(list)
        with Setup(self._plan) as setup:
            server = setup.petstore(self._store)
            largest = max(self._sizes, key=self._sizes.__getitem__)
            for _ in range(self._plan.rounds):
                for whose, each in {"own": _as(server, self._keys[largest]), "all": server}.items():
                    with each.connection() as connection:
                        found[f"page of {whose} orders, slowest sort"].append(
                            max(_p99(connection, f"{PAGES}?sort={sort}&limit=100") for sort in SORTS)
                        )
                        found[f"changes of {whose} orders"].append(_p99(connection, CHANGED))
        return found

    def many(self) -> dict[str, list[Reading]]:
        """Loads with the keys of many accounts, and with the key of one of them."""
        loads = {}
        with Setup(self._plan) as setup:
            server = setup.petstore(self._store)
            for name, keys in {PRODUCT: self._keys[-MANY:], ONE: self._keys[-1:]}.items():
                file = setup.folder() / "keys"
                file.write_text("\n".join(keys))
                loads[name] = partial(server.wrk, LIST, kind=("keys", file, 1))
            return interleaved(self._plan.rounds, loads)


def _as(server: Running, key: str) -> Running:
    return replace(server, headers={"Authorization": f"Bearer {key}"})


def _cancel(connection: Connection, order_id: int) -> None:
    response, _ = connection.send("DELETE", f"{LIST}/{order_id}")
    if response.status != 204:
        raise BenchError(f"Order {order_id} was not cancelled: status {response.status}")


def _later(connection: Connection) -> float:
    """The time of a list after a pause, so that the processor's caches are as cold each time."""
    time.sleep(PAUSE)
    return connection.first_byte(LIST)


def _p99(connection: Connection, target: str) -> float:
    return p99([connection.latency(target) for _ in range(REQUESTS)])
