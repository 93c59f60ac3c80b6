"""Sample data for `petstore serve --demo`: a small store with which every response of the API can be produced.

Its accounts have a history, so that the operator console has something to show: one is close to its limit, one is
refused, one has a banned key, one is suspended.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from petstore_server.console.recent_requests import INTERVALS, SAMPLE_SECONDS, Totals
from petstore_server.console.sources import Sources
from petstore_server.domain.accounts import PLAN_LIMITS, Plan, VisibleOrders, suspend
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban, BanPolicy, ban_seconds
from petstore_server.domain.keys import Environment
from petstore_server.domain.orders import CANCEL, Order, Status, ship
from petstore_server.domain.pets import Pet
from petstore_server.domain.timestamps import DAY, HOUR, format_timestamp
from petstore_server.domain.usage import (
    Activity,
    Granularity,
    KeylessCounts,
    ResponseCounts,
    Usage,
    UsageCounts,
    uses_of,
)
from petstore_server.domain.windows import Count
from petstore_server.operations.accounts import issue_key
from petstore_server.store import Store

_PETS = "Biscuit dog, Pixel cat, Clover rabbit, Mango parrot, Nimbus cat, Pebble tortoise, Juniper dog, Echo budgerigar"
_ORDERS = 40  # order 7 and pet 7, the examples of the contract, exist
_PENDING, _SHIPPED = 1, 4  # ids of orders
_SUSPENDED, _BANNED, _PARTNER = "Quiet Cat Cafe", "Paws Express", "Harbour Pets"
_ALL, _OWN = "demo", "demo-partner"  # the visitor's accounts
_OWNERS = {2: _PARTNER, 3: _OWN}  # by the remainder of an order's id by 5; the others are the shop's
_DAYS, _HOURLY_DAYS = 90, 2  # of history before today; the last ones have a row for each hour
_REQUESTS = (("listOrders", 0.97, "unchanged"), ("getPet", 0.02, "succeeded"), ("cancelOrder", 0.01, "cancelled"))
_BANS = (4, 5, 6)  # levels; the last one is in force


class _Profile(NamedTuple):
    """How an account uses the service: its share of the day's limit, and refused requests for each admitted one."""

    plan: Plan
    share: float
    refused: float = 0.0
    reason: str = "refused_minute"


_PROFILES: Mapping[str, _Profile] = {
    _PARTNER: _Profile(Plan.BUSINESS, 0.34),
    "Acme Pet Supplies": _Profile(Plan.PRO, 0.93, 0.012),
    "Nightly Sync": _Profile(Plan.FREE, 1.0, 0.21, "refused_day"),
    _BANNED: _Profile(Plan.PRO, 0.22, 0.4, "refused_banned"),
    "Veterinary Supplies of Greater Northern Europe and Scandinavia": _Profile(Plan.PRO, 0.48, 0.002),
    _SUSPENDED: _Profile(Plan.FREE, 0.0),
}
"""The sample accounts by name. The visitor's own accounts have no history, so that their first request is seen."""


class Demo(NamedTuple):
    """For a visitor: keys that see all orders and their own only, and ids of a pending and a shipped order."""

    key: str
    own_key: str
    pending: int
    shipped: int


async def fill(store: Store, environment: Environment, clock: Callable[[], float] = time.time) -> Demo:
    """Fill an empty store: pets, orders, sample accounts with their usage, and two on the free plan to use."""
    actor = Actor("operator:demo", clock())
    keys = {name: await _add_account(store, environment, name, actor) for name in _PROFILES}
    await _add_incidents(store, keys[_BANNED], actor)
    secrets: dict[VisibleOrders, str] = {}
    for name, orders in ((_ALL, VisibleOrders.ALL), (_OWN, VisibleOrders.OWN)):
        note, limits = "yours, to try things out", PLAN_LIMITS[Plan.FREE]
        await store.accounts.create(name, Plan.FREE, limits, actor, note=note, orders=orders)
        issued = await issue_key(store, name, environment=environment, actor=actor, note="serve --demo")
        secrets[orders] = issued.secret
    await _add_orders(store, actor, Actor(f"key:{keys[_PARTNER]}", actor.at))
    await store.responses.add(_responses(actor.at))
    await store.audit.record_backup("petstore-demo.db", actor._replace(at=actor.at - 5 * HOUR))
    return Demo(secrets[VisibleOrders.ALL], secrets[VisibleOrders.OWN], _PENDING, _SHIPPED)


def show_sample(sources: Sources, now: float, sign_in_command: str) -> None:
    """Mark the pages of the console as sample data, with sample requests in the hour before `now` (Unix seconds)."""
    sources.is_sample = True
    sources.sign_in_command = sign_in_command
    sources.requests.begin_with(recent_requests(now))


def recent_requests(now: float) -> list[Totals]:
    """Samples of the hour before `now`, as a server that ran then would have taken them; counts end at zero."""
    numbers = random.Random(11)  # noqa: S311 - the same sample data every time
    requests = Counter({("listOrders", "304"): 0, ("listOrders", "429"): 0})
    totals = []
    for minute in range(INTERVALS):
        durations = {0.0005: 0.9, 0.001: 0.97, 0.0025: 0.995, 0.005: 1.0}  # fraction finished within this many seconds
        took = Counter({bound: round(requests.total() * part) for bound, part in durations.items()})
        totals.append(Totals(now - minute * SAMPLE_SECONDS, requests.copy(), took))
        counts = numbers.randint(1, 9), numbers.choice((0, 0, 0, 0, 0, 2))
        requests.subtract(dict(zip(requests, counts, strict=True)))
    return totals[::-1]


def _responses(now: float) -> dict[int, ResponseCounts]:
    """The responses of the week before `now` (Unix seconds), by hour."""
    numbers = random.Random(13)  # noqa: S311 - the same sample data every time
    hours = range(Granularity.HOUR.start(now - 7 * DAY), int(now) - HOUR, HOUR)
    return {
        hour: ResponseCounts(
            numbers.choices((0, 1), (6, 1))[0],
            {0.0005: numbers.randint(150, 250), 0.001: 15, 0.0025: 5, 0.005: numbers.randint(0, 2)},
        )
        for hour in hours
    }


async def _add_account(store: Store, environment: Environment, name: str, actor: Actor) -> str:
    """An account that is older than its history, with its windows and a key; return the id of that."""
    profile, began = _PROFILES[name], actor._replace(at=actor.at - (_DAYS + 1) * DAY)
    limits = PLAN_LIMITS[profile.plan]
    account = await store.accounts.create(name, profile.plan, limits, began, orders=VisibleOrders.OWN)
    key_id = (await issue_key(store, name, environment=environment, actor=began, note="warehouse")).key.id
    used = round(account.limits.per_day * profile.share)
    if used:
        usage = Usage(day=Count(int(actor.at) - DAY // 2, used))
        history = {(account.id, *where): counts for where, counts in _history(name, used, actor.at)}
        now = Granularity.HOUR.start(actor.at)
        uses = {(account.id, each): now for operation, *_ in _REQUESTS for each in uses_of(operation)}
        activity = Activity(history, {}, {key_id: now}, uses)
        await store.usage.save({account.id: usage}, [], activity)
    return key_id


def _history(name: str, used: int, now: float) -> Iterator[tuple[tuple[int, str], UsageCounts]]:
    """What an account did in each day, and in each hour of the last ones, when it uses so much of a day's limit."""
    profile, numbers = _PROFILES[name], random.Random(name)  # noqa: S311 - the same sample data every time
    first, hourly = (Granularity.DAY.start(now) - days * DAY for days in (_DAYS, _HOURLY_DAYS))
    for start in (*range(first, hourly, DAY), *range(hourly, int(now) + 1, HOUR)):
        wave = 1.0 if start < hourly else (1 - 0.9 * math.cos((start % DAY - 2 * HOUR) / DAY * math.tau)) / 24
        admitted = round(used * wave * numbers.uniform(0.6, 1.0))
        for operation, share, response in _REQUESTS:
            if number := round(admitted * share):
                counts = {"admitted": number, response: number, profile.reason: round(number * profile.refused)}
                yield (start, operation), UsageCounts(**counts)


async def _add_incidents(store: Store, banned_key: str, actor: Actor) -> None:
    """Requests without a key, an account that was suspended, and a key that was banned several times."""
    now, numbers = int(actor.at), random.Random(7)  # noqa: S311
    first = Granularity.DAY.start(now) - _HOURLY_DAYS * DAY
    keyless = {start: KeylessCounts(numbers.randint(0, 9)) for start in range(first, now + 1, HOUR)}
    await store.usage.save({}, [], Activity({}, keyless, {}))
    suspended = actor._replace(at=actor.at - 2 * DAY)
    await store.accounts.change(_SUSPENDED, suspend(suspended.at), suspended)
    for level in _BANS:  # each is in the audit log, and twice as long as the one before
        began = now - 240 - (_BANS[-1] - level) * 3 * HOUR
        await store.usage.save({}, [Ban(banned_key, began, began + ban_seconds(level, BanPolicy()), level)])


async def _add_orders(store: Store, operator: Actor, partner: Actor) -> None:
    """Pets and orders, of which order 7 was corrected, and some were shipped and cancelled one by one."""
    pets = [Pet(number, *pet.split()) for number, pet in enumerate(_PETS.split(", "), 1)]
    await store.pets.import_batch(pets, "import-demo-pets", operator, file="pets.csv")
    now = datetime.fromtimestamp(int(operator.at), UTC)
    orders = [_order(number, now) for number in range(1, _ORDERS + 1)]
    wrong = [order._replace(quantity=70) if order.id == 7 else order for order in orders]
    await store.orders.import_batch(wrong, "import-demo", operator, file="orders.csv", assigned=True)
    await store.orders.import_batch([orders[6]], "import-demo-corrected", operator, file="corrected.csv")
    for kind, name in (("pets", "import-demo-pets"), ("orders", "import-demo"), ("orders", "import-demo-corrected")):
        await store.imports.set_state(kind, name, operator, "", state="finished")
    for number in (38, 39):
        await store.orders.change(number, ship(now), operator)
    await store.orders.change(37, CANCEL, partner)


def _order(number: int, now: datetime) -> Order:
    """Every fourth order has shipped, every tenth is cancelled."""
    shipped = number % 4 == 0
    status = Status.SHIPPED if shipped else Status.CANCELLED if number % 10 == 0 else Status.PENDING
    ship_date = format_timestamp(now + timedelta(days=-number if shipped else number))
    pet = (number - 1) % 8 + 1  # of the eight above
    return Order(number, pet, 1 + number % 3, ship_date, number % 8 == 0, status, account=_OWNERS.get(number % 5))
