"""Simulate the load of a number of accounts, and find the part of the service that saturates first.

    .venv/bin/python bench/scaling_simulation.py [--accounts 100 1000 100000 1000000] [--orders N] [--no-etags]

Accounts poll the list and cancel orders as HABITS says. Ten minutes of the busiest hour are simulated request by
request with one seed, so every run prints the same. What a request costs is taken from the results of `make bench`
(`measured_costs`). `--orders` sets the length of the list instead of letting it grow with the accounts. `make bench`
writes the tables into docs/scaling.md.
"""

import argparse
import json
import math
import random
import re
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).with_name("results.json")
SIZES = (100, 1_000, 100_000, 1_000_000)

WINDOW = 600  # simulated seconds
DAY = 86_400
BUSIEST = 2.0  # the busiest hour, as a multiple of the day's mean
HISTORY = 2 * DAY  # seconds before the window in which changes of the list are known


class Habit(NamedTuple):
    """A plan's share of the accounts, the median seconds between polls, and cancellations per day."""

    share: float
    interval: float
    cancels: float


HABITS = (
    Habit(0.900, 3600.0, 2.0),  # free
    Habit(0.080, 300.0, 20.0),  # pro
    Habit(0.019, 60.0, 300.0),  # business
    Habit(0.001, 10.0, 5000.0),  # enterprise
)
SPREAD = 1.0  # sigma of the log-normal that polling intervals follow
AT_THE_MINUTE = 0.5  # of the polling programs are started by a clock, in the first second of a minute
WITH_ETAG = 0.7  # send If-None-Match
WITH_GZIP = 0.6  # accept gzip
ORDERS_EACH = 100  # orders of one account in the store: those of a year
SHOWN_CHANGES = 3  # of an order in its life: placed, shipped, completed
BATCH_SECONDS = 60  # operators import changes at most once per minute
ACCESS_CHANGES = 1 / (90 * DAY)  # of an account's keys, plan or state, per second


ORDER_BYTES = 90.0  # of an order in the list, as in the files that the benchmarks import
GZIP_RATIO = 0.17
HEAD_BYTES = 600


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time of the server, PostgreSQL and Redis, and bytes of Redis."""

    request: float
    list_byte: float
    cancel: float
    redis_decision: float
    redis_account: float
    postgres_look: float
    postgres_cancel: float


def measured_costs(file: Path = RESULTS) -> Costs:
    """The costs that `make bench` measured last, over 32 connections, in the groups `engines`, `lists` and `limits`.

    A look-up of a key is not measured: like a look at the list, it is one query that an index answers, so it is taken
    to cost PostgreSQL as much.
    """
    groups = json.loads(file.read_bytes())
    rows = {row["name"]: row for name in ("engines", "lists", "limits") for row in groups[name]["rows"]}

    def seconds(row: str, process: str = "petstore") -> float:
        return float(statistics.median(rows[row]["costs"][process])) / 1e6

    return Costs(
        request=seconds("engines-unchanged-32"),
        list_byte=(seconds("list-100000") - seconds("list-10")) / (100_000 * ORDER_BYTES),
        cancel=seconds("engines-durable-32"),
        redis_decision=seconds("engines-unchanged-32", "Redis"),
        redis_account=statistics.median(rows["limits-memory"]["samples"]["petstore"]),
        postgres_look=seconds("engines-unchanged-32", "PostgreSQL"),
        postgres_cancel=seconds("engines-durable-32", "PostgreSQL"),
    )


# Capacity of one of each part: an ordinary machine, at 60 % utilisation.
CORES, GIGABIT, GIBIBYTE = 4, 125e6, 2**30
USED = 0.6


Times = list[float]


@dataclass
class Played:
    """Counts of what happened in the window."""

    accounts: int
    orders: int
    lists: int = 0
    unchanged: int = 0
    cancels: int = 0
    body_bytes: float = 0.0
    key_look_ups: int = 0
    changes: int = 0  # of the list
    by_second: Counter[int] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        return self.lists + self.unchanged + self.cancels


def play(accounts: int, orders: int, with_etags: bool) -> Played:
    """Simulate the window."""
    rng = random.Random(20261120)
    played = Played(accounts, orders)
    changes = _change_times(rng, orders)
    drops = list(_times(rng, ACCESS_CHANGES * accounts, -HISTORY, WINDOW))
    played.changes = sum(0 <= time < WINDOW for time in changes)
    for habit in HABITS:
        for _ in range(round(habit.share * accounts)):
            _poll(played, rng, habit, changes, drops, with_etags)
            for time in _times(rng, habit.cancels / DAY * BUSIEST, 0, WINDOW):
                played.cancels += 1
                played.by_second[int(time)] += 1
                played.key_look_ups += _dropped(drops, time - habit.interval, time)
    return played


def _poll(played: Played, rng: random.Random, habit: Habit, changes: Times, drops: Times, with_etags: bool) -> None:
    """One account's polls of the list."""
    body = played.orders * ORDER_BYTES
    interval = max(1.0, rng.lognormvariate(math.log(habit.interval), SPREAD)) / BUSIEST
    clocked = rng.random() < AT_THE_MINUTE
    if clocked:
        interval = max(60.0, round(interval / 60) * 60.0)
    etag, zipped = rng.random() < WITH_ETAG and with_etags, rng.random() < WITH_GZIP
    time = rng.random() * interval
    if clocked:
        time = time // 60 * 60 + rng.random()
    while time < WINDOW:
        since = time - interval
        played.by_second[int(time)] += 1
        played.key_look_ups += _dropped(drops, since, time)
        if etag and bisect_right(changes, since) == bisect_right(changes, time):
            played.unchanged += 1
        else:
            played.lists += 1
            played.body_bytes += body * (GZIP_RATIO if zipped else 1.0)
        time += interval


def _times(rng: random.Random, rate: float, begin: float, end: float) -> Iterator[float]:
    """Times of a Poisson process with this rate per second."""
    time = begin + rng.expovariate(rate)
    while time < end:
        yield time
        time += rng.expovariate(rate)


def _change_times(rng: random.Random, orders: int) -> Times:
    """When the list changed: in batches, so at most once each BATCH_SECONDS."""
    rate = orders * SHOWN_CHANGES / (365 * DAY)
    changed = 1 - math.exp(-rate * BATCH_SECONDS)
    return [
        second + 30.5  # half a minute after the polls that a clock starts
        for second in range(-HISTORY, WINDOW, BATCH_SECONDS)
        if rng.random() < changed
    ]


def _dropped(drops: Times, since: float, time: float) -> bool:
    """Whether a process dropped its cached keys since this key's last request, because access changed."""
    return bisect_right(drops, since) != bisect_right(drops, time)


def rows(played: Played, costs: Costs) -> list[tuple[str, str]]:
    """The lines of the table: what the load is, and how many of each part it needs."""
    a_second = 1 / WINDOW
    mean, peak = played.requests * a_second, max(played.by_second.values())
    body = played.orders * ORDER_BYTES
    out = (played.body_bytes + played.requests * HEAD_BYTES) * a_second
    looks = (played.lists + played.unchanged) * a_second
    host = a_second * (
        (played.lists + played.unchanged) * costs.request
        + played.body_bytes * costs.list_byte
        + played.cancels * costs.cancel
    )
    postgres = looks * costs.postgres_look + a_second * (
        played.key_look_ups * costs.postgres_look + played.cancels * costs.postgres_cancel
    )
    counters = played.accounts * costs.redis_account
    renewed = played.changes * a_second * body * (1 + GZIP_RATIO)  # one edge, which requests each form once
    return [
        ("orders", f"{played.orders:,}"),
        ("requests per second", f"{mean:,.1f}"),
        ("requests in the busiest second", f"{peak:,}"),
        ("cancellations per second", f"{played.cancels * a_second:,.2f}"),
        ("polls that get 304", f"{played.unchanged / max(1, played.lists + played.unchanged):.0%}"),
        ("requests with a key look-up", f"{played.key_look_ups / max(1, played.requests):.0%}"),
        ("list, uncompressed", _bytes(body)),
        ("response bytes per second", _bytes(out)),
        ("the same with an edge cache", _bytes(played.requests * a_second * HEAD_BYTES + renewed)),
        ("links of 1 Gbit/s", _number(out / GIGABIT / USED)),
        ("cores for serving", _number(host / USED)),
        ("cores for 304s in the busiest second", _number(peak * costs.request)),
        ("list in memory (GiB per process)", _number(body * (1 + GZIP_RATIO) / GIBIBYTE)),
        ("cores for PostgreSQL", _number(postgres / USED)),
        ("cores for Redis", _number(mean * costs.redis_decision / USED)),
        ("cores for Redis in the busiest second", _number(peak * costs.redis_decision)),
        ("memory for Redis (GiB)", _number(counters / GIBIBYTE)),
        ("saturates first", first_to_saturate(out, host, body, postgres, mean * costs.redis_decision)),
    ]


def first_to_saturate(out: float, host: float, body: float, postgres: float, redis: float) -> str:
    """The most used part of one ordinary host with one database and one Redis."""
    use = {
        "network": out / GIGABIT,
        "processor": host / CORES,
        "list in memory": body * (1 + GZIP_RATIO) / (4 * GIBIBYTE),
        "PostgreSQL": postgres / CORES,
        "Redis": redis,
    }
    name = max(use, key=lambda part: use[part])
    return f"{name}, {_number(use[name] / USED)} times" if use[name] > USED else "nothing"


def _bytes(number: float) -> str:
    units = ("B", "kB", "MB", "GB", "TB")
    scale = min(int(math.log(max(number, 1), 1000)), len(units) - 1)
    return f"{number / 1000**scale:,.1f} {units[scale]}"


def table(scales: Sequence[int], orders: int | None, with_etags: bool) -> str:
    """The whole table, one column for each number of accounts."""
    costs = measured_costs()
    columns = [rows(play(scale, orders or scale * ORDERS_EACH, with_etags), costs) for scale in scales]
    lines = [["accounts", *[f"{scale:,}" for scale in scales]]]
    lines += [[same[0][0], *[text for _, text in same]] for same in zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    )


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.2g}" if number >= 0.01 else "< 0.01"


def write_tables(page: Path) -> None:
    """Replace the tables of a page: those behind `<!-- simulation -->`, or `<!-- simulation: ORDERS -->`."""

    def replaced(found: re.Match[str]) -> str:
        return f"{found[1]}{table(SIZES, int(found[2]) if found[2] else None, True)}\n```"

    marked = r"(<!-- simulation(?:: (\d+))? -->\n```text\n).*?\n```"
    page.write_text(re.sub(marked, replaced, page.read_text(), flags=re.DOTALL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounts", type=int, nargs="+", default=SIZES)
    parser.add_argument("--orders", type=int, help="length of the list (otherwise it grows with the accounts)")
    parser.add_argument("--no-etags", action="store_true", help="as if no client sent If-None-Match")
    arguments = parser.parse_args()
    print(table(arguments.accounts, arguments.orders, not arguments.no_etags))


if __name__ == "__main__":
    main()
