"""What a number of accounts asks of the service, and which part of it is used up first.

    .venv/bin/python bench/scaling_simulation.py [--accounts 100 1000 100000 1000000] [--orders N] [--no-etags]

Accounts poll the list and cancel orders by the habits below; ten minutes of the busiest hour are played through,
request by request, with one seed, so every run prints the same. What a request costs is measured, not assumed: COSTS
names the programs. `--orders` keeps the list at that length instead of letting it grow with the accounts.
"""

import argparse
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

WINDOW = 600  # seconds that are played through
DAY = 86_400
BUSIEST = 2.0  # the busiest hour, as a multiple of the day's mean
HISTORY = 2 * DAY  # seconds before the window in which changes of the list are known


class Habit(NamedTuple):
    """Of a plan: its share of the accounts, the median seconds between polls, and cancellations a day."""

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
ORDERS_EACH = 100  # orders an account has in the store, a year's
SHOWN_CHANGES = 3  # of an order in its life: placed, shipped, completed
BATCH_SECONDS = 60  # operators bring changes in once a minute at most
ACCESS_CHANGES = 1 / (90 * DAY)  # of an account's keys, plan or state, a second


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time, and bytes, over PostgreSQL and Redis.

    From bench/shared_engines.py, but for a byte of a list, which is from bench/requests_against_nginx.py, and the bytes
    of an order and their compression, which are those of an import file of orders.
    """

    list_request: float = 105e-6
    list_byte: float = 0.22e-9
    unchanged: float = 105e-6
    cancel: float = 130e-6
    redis_decision: float = 14e-6
    redis_account: int = 154
    postgres_look: float = 200e-6
    postgres_key: float = 90e-6
    postgres_cancel: float = 40e-6
    order_bytes: float = 90.0
    gzip_ratio: float = 0.17
    head_bytes: int = 600


COSTS = Costs()

# What one of each part gives; a machine of ordinary size, used to 60 %.
CORES, GIGABIT, GIBIBYTE = 4, 125e6, 2**30
USED = 0.6


@dataclass
class Played:
    """What happened in the window."""

    accounts: int
    orders: int
    lists: int = 0
    unchanged: int = 0
    cancels: int = 0
    body_bytes: float = 0.0
    key_look_ups: int = 0
    changes: int = 0  # of the list

    @property
    def requests(self) -> int:
        return self.lists + self.unchanged + self.cancels

    def __post_init__(self) -> None:
        self.by_second: Counter[int] = Counter()


def play(accounts: int, orders: int, with_etags: bool) -> Played:
    """Play the window through."""
    rng = random.Random(20261120)
    played = Played(accounts, orders)
    changes = _moments_of_change(rng, orders)
    drops = list(_moments(rng, ACCESS_CHANGES * accounts, -HISTORY, WINDOW))
    played.changes = sum(0 <= moment < WINDOW for moment in changes)
    body = orders * COSTS.order_bytes
    for habit in HABITS:
        for _ in range(round(habit.share * accounts)):
            _poll(played, rng, habit, changes, drops, body, with_etags)
            for moment in _moments(rng, habit.cancels / DAY * BUSIEST, 0, WINDOW):
                played.cancels += 1
                played.by_second[int(moment)] += 1
                played.key_look_ups += _dropped(drops, moment - habit.interval, moment)
    return played


def _poll(
    played: Played,
    rng: random.Random,
    habit: Habit,
    changes: list[float],
    drops: list[float],
    body: float,
    with_etags: bool,
) -> None:
    """One account's polls of the list."""
    interval = max(1.0, rng.lognormvariate(math.log(habit.interval), SPREAD)) / BUSIEST
    clocked = rng.random() < AT_THE_MINUTE
    if clocked:
        interval = max(60.0, round(interval / 60) * 60.0)
    etag, zipped = rng.random() < WITH_ETAG and with_etags, rng.random() < WITH_GZIP
    moment = rng.random() * interval
    if clocked:
        moment = moment // 60 * 60 + rng.random()
    while moment < WINDOW:
        since = moment - interval
        played.by_second[int(moment)] += 1
        played.key_look_ups += _dropped(drops, since, moment)
        if etag and bisect_right(changes, since) == bisect_right(changes, moment):
            played.unchanged += 1
        else:
            played.lists += 1
            played.body_bytes += body * (COSTS.gzip_ratio if zipped else 1.0)
        moment += interval


def _moments(rng: random.Random, rate: float, begin: float, end: float) -> Iterator[float]:
    """Moments of a Poisson process of that rate a second."""
    moment = begin + rng.expovariate(rate)
    while moment < end:
        yield moment
        moment += rng.expovariate(rate)


def _moments_of_change(rng: random.Random, orders: int) -> list[float]:
    """When the list changed: in batches, so at most once each BATCH_SECONDS."""
    rate = orders * SHOWN_CHANGES / (365 * DAY)
    changed = 1 - math.exp(-rate * BATCH_SECONDS)
    return [
        second + 30.5  # half a minute after the polls that a clock starts
        for second in range(-HISTORY, WINDOW, BATCH_SECONDS)
        if rng.random() < changed
    ]


def _dropped(drops: list[float], since: float, moment: float) -> bool:
    """Whether a process forgot the key since its last request, as access changed somewhere."""
    return bisect_right(drops, since) != bisect_right(drops, moment)


class Row(NamedTuple):
    """One line of the table: a text, or how many of a part are needed."""

    name: str
    text: str
    parts: float = 0.0


def rows(played: Played) -> list[Row]:
    """What the window asks of each part."""
    a_second = 1 / WINDOW
    mean, peak = played.requests * a_second, max(played.by_second.values())
    body = played.orders * COSTS.order_bytes
    out = (played.body_bytes + played.requests * COSTS.head_bytes) * a_second
    looks = (played.lists + played.unchanged) * a_second
    host = a_second * (
        played.lists * COSTS.list_request
        + played.body_bytes * COSTS.list_byte
        + played.unchanged * COSTS.unchanged
        + played.cancels * COSTS.cancel
    )
    postgres = looks * COSTS.postgres_look + a_second * (
        played.key_look_ups * COSTS.postgres_key + played.cancels * COSTS.postgres_cancel
    )
    counters = played.accounts * COSTS.redis_account
    renewed = played.changes * a_second * body * (1 + COSTS.gzip_ratio)  # one edge, which asks for each form once
    return [
        Row("orders", f"{played.orders:,}"),
        Row("requests a second", f"{mean:,.1f}"),
        Row("in the fullest second", f"{peak:,}"),
        Row("cancellations a second", f"{played.cancels * a_second:,.2f}"),
        Row("polls answered 304", f"{played.unchanged / max(1, played.lists + played.unchanged):.0%}"),
        Row("requests whose key is looked up anew", f"{played.key_look_ups / max(1, played.requests):.0%}"),
        Row("list, plain", _bytes(body)),
        Row("answers a second", _bytes(out)),
        Row("the same behind an edge by ETag", _bytes(played.requests * a_second * COSTS.head_bytes + renewed)),
        Row("links of 1 Gbit/s", "", out / GIGABIT / USED),
        Row("cores that serve", "", host / USED),
        Row("cores that serve 304s in the fullest second", "", peak * COSTS.unchanged),
        Row("memory for the list (GiB a process)", "", body * (1 + COSTS.gzip_ratio) / GIBIBYTE),
        Row("cores of PostgreSQL", "", postgres / USED),
        Row("cores of Redis", "", mean * COSTS.redis_decision / USED),
        Row("cores of Redis in the fullest second", "", peak * COSTS.redis_decision),
        Row("memory of Redis (GiB)", "", counters / GIBIBYTE),
        Row("breaks first", first_to_break(out, host, body, postgres, mean)),
    ]


def first_to_break(out: float, host: float, body: float, postgres: float, mean: float) -> str:
    """Which part of one ordinary host, with one database and one Redis beside it, is used up the most."""
    use = {
        "bytes out": out / GIGABIT,
        "processor": host / CORES,
        "list in memory": body * (1 + COSTS.gzip_ratio) / (4 * GIBIBYTE),
        "PostgreSQL": postgres / CORES,
        "Redis": mean * COSTS.redis_decision,
    }
    name = max(use, key=lambda part: use[part])
    return f"{name}, {_figure(use[name] / USED)} times" if use[name] > USED else "nothing"


def _bytes(number: float) -> str:
    units = ("B", "kB", "MB", "GB", "TB")
    scale = min(int(math.log(max(number, 1), 1000)), len(units) - 1)
    return f"{number / 1000**scale:,.1f} {units[scale]}"


def table(scales: list[int], orders: int | None, with_etags: bool) -> str:
    """The whole table, one column for each number of accounts."""
    columns = [rows(play(scale, orders or scale * ORDERS_EACH, with_etags)) for scale in scales]
    lines = [["accounts", *[f"{scale:,}" for scale in scales]]]
    lines += [[same[0].name, *[row.text or _figure(row.parts) for row in same]] for same in zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    )


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.2g}" if number >= 0.01 else "< 0.01"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounts", type=int, nargs="+", default=[100, 1_000, 100_000, 1_000_000])
    parser.add_argument("--orders", type=int, help="length of the list (otherwise it grows with the accounts)")
    parser.add_argument("--no-etags", action="store_true", help="as if no client sent If-None-Match")
    arguments = parser.parse_args()
    print(table(arguments.accounts, arguments.orders, not arguments.no_etags))


if __name__ == "__main__":
    main()
