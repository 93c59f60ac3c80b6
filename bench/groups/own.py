"""What accounts get that see their own orders only, among a million orders of another account and of none."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import count, islice
from pathlib import Path
from statistics import median

from bench.access import add_keys, name_of_account
from bench.engines import Engines
from bench.load import Connection, p99
from bench.machine import this_process_on
from bench.orders import LIST, PAGES, SORTS, varied_order
from bench.plan import Plan, progress
from bench.results import PRODUCT, Goal, Row
from bench.setup import ACCOUNT, Setup

FIRST, UNCHANGED, FOREIGN = "first list", "unchanged", "after a change of another's order"
CHANGES = 20  # of others' orders in each round
WARM_SECONDS = 1  # after a start, in which the process compiles the pages of the console
PAUSE = 0.01  # seconds before each list but the first
REQUESTS = 100  # of each page in a round

CHANGED = "/v2/store/changes?limit=100"
LISTING, PAGING = 0, 1
"""The accounts that see their own orders only: one that lists them, and one that reads pages and changes."""

Times = dict[str, list[float]]


def measure(plan: Plan) -> list[Row]:
    """Measure the list of one account, and the pages in each sort and the changes of another, on both engines."""
    others = plan.size(1_000_000, 2_000)
    sizes = {LISTING: plan.size(1_000, 10), PAGING: plan.size(100_000, 100)}
    owners = _owners(others, sizes)
    file = _file(plan.folder / "owned.jsonl", others + len(owners), owners)
    rows: list[Row] = []
    pages: dict[str, Times] = {}
    with this_process_on(plan.cores.load), Setup(plan) as setup:
        for engine, engines in {"SQLite": None, "PostgreSQL": setup.engines()}.items():
            progress(f"own lists among {others:,} orders of others on {engine}")
            subject = _Subject(setup, engines, file, owners)
            rows += _list_rows(engine, f"own list of {sizes[LISTING]:,} orders among {others:,}", subject.lists())
            pages[engine] = subject.pages()
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


def _owners(others: int, sizes: Mapping[int, int]) -> dict[int, int]:
    """The accounts that own orders by identifier, at random places: each account has so many orders."""
    number = sum(sizes.values())
    chosen = iter(random.Random(0).sample(range(1, others + number + 1), number))
    return {order_id: account for account, size in sizes.items() for order_id in islice(chosen, size)}


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
    """A store on one engine, with the accounts that see their own orders only."""

    def __init__(self, setup: Setup, engines: Engines | None, file: Path, owners: Mapping[int, int]) -> None:
        self._plan = setup.plan
        self._store = setup.store(0, engines)
        self._keys = add_keys(self._store, 2, orders="own")
        self._store.petstore("orders", "import", file)
        if engines is not None:
            engines.postgres.execute(self._store.url, "VACUUM ANALYZE")
        self._others = (number for number in count(1) if number not in owners)

    def lists(self) -> Times:
        """Milliseconds to the first byte of the list, with a new server in each round: medians of later ones."""
        found: Times = {FIRST: [], UNCHANGED: [], FOREIGN: []}
        for _ in range(self._plan.rounds):
            with Setup(self._plan) as setup:
                server = setup.petstore(self._store)
                time.sleep(WARM_SECONDS)
                with server.connection() as foreign, server.with_key(self._keys[LISTING]).connection() as own:
                    found[FIRST].append(own.first_byte(LIST))
                    later: Times = {UNCHANGED: [], FOREIGN: []}
                    for order_id in islice(self._others, CHANGES):
                        later[UNCHANGED].append(_later(own))
                        foreign.cancel(order_id)
                        later[FOREIGN].append(_later(own))
                    for name, times in later.items():
                        found[name].append(median(times))
        return found

    def pages(self) -> Times:
        """The 99th percentiles of the slowest sort and of changes in each round: own ones, and those of all orders."""
        found: Times = defaultdict(list)
        with Setup(self._plan) as setup:
            server = setup.petstore(self._store)
            for _ in range(self._plan.rounds):
                for whose, each in {"own": server.with_key(self._keys[PAGING]), "all": server}.items():
                    with each.connection() as connection:
                        found[f"page of {whose} orders, slowest sort"].append(
                            max(_p99(connection, f"{PAGES}?sort={sort}&limit=100") for sort in SORTS)
                        )
                        found[f"changes of {whose} orders"].append(_p99(connection, CHANGED))
        return found


def _later(connection: Connection) -> float:
    """The time of a list after a pause, so that the processor's caches are as cold each time."""
    time.sleep(PAUSE)
    return connection.first_byte(LIST)


def _p99(connection: Connection, target: str) -> float:
    return p99([connection.latency(target) for _ in range(REQUESTS)])
