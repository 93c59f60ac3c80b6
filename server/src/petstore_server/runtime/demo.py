"""Sample data for `petstore serve --demo`: a small store with which every response of the API can be produced."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, Environment
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.pets import Pet
from petstore_server.domain.timestamps import format_timestamp
from petstore_server.operations.accounts import create_account
from petstore_server.operations.keys import Randbelow, issue_key
from petstore_server.ports import Actor, Store

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


class Demo(NamedTuple):
    """What a visitor needs: the key, and ids of a pending and a shipped order."""

    key: str
    pending: int
    shipped: int


async def fill(
    store: Store,
    environment: Environment,
    clock: Callable[[], float] = time.time,
    randbelow: Randbelow = secrets.randbelow,
) -> Demo:
    """Put pets, orders, and an account on the free plan with one key into an empty store."""
    actor = Actor("operator:demo", clock())
    await store.pets.import_batch([Pet(number, *pet) for number, pet in enumerate(_PETS, 1)], "demo", actor)
    orders = [_order(number, datetime.fromtimestamp(actor.at, UTC)) for number in range(1, _ORDERS + 1)]
    await store.orders.import_batch(orders, "demo", actor)
    await create_account(store, "demo", Plan.FREE, PLAN_LIMITS[Plan.FREE], actor)
    issued = await issue_key(
        store,
        "demo",
        environment=environment,
        scopes=DEFAULT_SCOPES,
        expires_at=None,
        note="serve --demo",
        actor=actor,
        randbelow=randbelow,
    )
    return Demo(issued.secret, _first(orders, Status.PENDING), _first(orders, Status.SHIPPED))


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
