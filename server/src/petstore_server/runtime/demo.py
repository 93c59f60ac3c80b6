"""Sample data for `petstore serve --demo`: a small store with which every response of the API can be produced.

Its accounts have a history, so that the operator console has something to show: one is close to its limit, one is
refused, one has a banned key, one is suspended.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from petstore_server.console.sources import Sources
from petstore_server.domain.accounts import PLAN_LIMITS, Account, Plan, suspend
from petstore_server.domain.audit import Actor
from petstore_server.domain.keys import Environment
from petstore_server.domain.orders import CANCEL, Order, Status, ship
from petstore_server.domain.pets import Pet
from petstore_server.domain.timestamps import DAY, HOUR, format_timestamp
from petstore_server.operations.accounts import create_account
from petstore_server.operations.keys import issue_key
from petstore_server.operations.orders import change_orders
from petstore_server.runtime.demo_usage import DAYS, PROFILES, fill_usage, recent_requests
from petstore_server.store import Store

_PETS = (
    ("Biscuit", "dog"),
    ("Pixel", "cat"),
    ("Clover", "rabbit"),
    ("Mango", "parrot"),
    ("Nimbus", "cat"),
    ("Pebble", "tortoise"),
    ("Juniper", "dog"),
    ("Echo", "budgerigar"),
)
_ORDERS = 40  # order 7 and pet 7, the examples of the contract, exist
_SHIPPED_EVERY = 4
_CANCELLED_EVERY = 10
_SUSPENDED = "Quiet Cat Cafe"


class Demo(NamedTuple):
    """What a visitor needs: the key, and ids of a pending and a shipped order."""

    key: str
    pending: int
    shipped: int


async def fill(store: Store, environment: Environment, clock: Callable[[], float] = time.time) -> Demo:
    """Fill an empty store: pets, orders, sample accounts with their usage, and one account on the free plan to use."""
    actor = Actor("operator:demo", clock())
    accounts, keys = await _add_accounts(store, environment, actor)
    await fill_usage(store, accounts, keys, actor.at)
    await create_account(store, "demo", Plan.FREE, PLAN_LIMITS[Plan.FREE], actor, note="yours, to try things out")
    issued = await issue_key(store, "demo", environment=environment, actor=actor, note="serve --demo")
    orders = await _add_orders(store, actor, Actor(f"key:{keys['Harbour Pets']}", actor.at))
    await store.backups.record("petstore-demo.db", actor._replace(at=actor.at - 5 * HOUR))
    return Demo(issued.secret, _first(orders, Status.PENDING), _first(orders, Status.SHIPPED))


def show_sample(sources: Sources, now: float, sign_in_command: str) -> None:
    """Mark the console's pages as those of sample data, and let the last hour have sample requests.

    `now` is in Unix seconds; `sign_in_command` prints a link to the console of this store.
    """
    sources.is_sample = True
    sources.sign_in_command = sign_in_command
    sources.requests.begin_with(recent_requests(now))


async def _add_accounts(
    store: Store, environment: Environment, actor: Actor
) -> tuple[dict[str, Account], dict[str, str]]:
    """The sample accounts, created before their history began, and the id of one key of each."""
    began = Actor(actor.name, actor.at - (DAYS + 1) * DAY)
    accounts, keys = {}, {}
    for number, (name, (plan, _)) in enumerate(PROFILES.items()):
        at = began._replace(at=began.at + number * 60)
        accounts[name] = await create_account(store, name, plan, PLAN_LIMITS[plan], at)
        issued = await issue_key(store, name, environment=environment, actor=at, note="warehouse")
        keys[name] = issued.key.id
    suspended = actor._replace(at=actor.at - 2 * DAY)
    await store.accounts.change(_SUSPENDED, suspend(suspended.at), suspended)
    return accounts, keys


async def _add_orders(store: Store, operator: Actor, partner: Actor) -> list[Order]:
    """Pets and orders, of which order 7 was corrected, and some were shipped and cancelled one by one."""
    await store.pets.import_batch([Pet(number, *pet) for number, pet in enumerate(_PETS, 1)], "import-demo", operator)
    orders = [_order(number, datetime.fromtimestamp(operator.at, UTC)) for number in range(1, _ORDERS + 1)]
    wrong = [order._replace(quantity=70) if order.id == 7 else order for order in orders]
    await store.orders.import_batch(wrong, "import-demo", operator)
    await store.orders.import_batch([order for order in orders if order.id == 7], "import-demo-corrected", operator)
    shipped_at = datetime.fromtimestamp(operator.at, UTC).replace(microsecond=0)
    async for _ in change_orders(store, [38, 39], ship(shipped_at), operator):
        pass
    async for _ in change_orders(store, [37], CANCEL, partner):
        pass
    return orders


def _order(number: int, now: datetime) -> Order:
    """Every fourth order has shipped, every tenth is cancelled."""
    status = Status.PENDING
    if number % _SHIPPED_EVERY == 0:
        status = Status.SHIPPED
    elif number % _CANCELLED_EVERY == 0:
        status = Status.CANCELLED
    shipped = status is Status.SHIPPED
    timestamp = (now + timedelta(days=-number if shipped else number)).replace(microsecond=0)
    pet = (number - 1) % len(_PETS) + 1
    complete = shipped and number % (2 * _SHIPPED_EVERY) == 0
    return Order(number, pet, 1 + number % 3, format_timestamp(timestamp), complete, status)


def _first(orders: list[Order], status: Status) -> int:
    return next(order.id for order in orders if order.status is status)
