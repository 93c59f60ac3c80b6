"""What a store holds, read with the product's own code, and whether it agrees with what was acknowledged."""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from petstore_server.domain import keys
from petstore_server.domain.accounts import Limits, Plan, VisibleOrders
from petstore_server.domain.audit import Actor, AuditFilters
from petstore_server.domain.errors import DomainError
from petstore_server.domain.keys import ApiKey, Environment, Scope
from petstore_server.domain.lists import Filters, PageQuery, Sort, SortField
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.placements import Placement
from petstore_server.engines.sqlite.maintenance import check
from petstore_server.runtime.opening import is_sqlite, sqlite_path
from petstore_server.store import Store
from testing.stores import opened_at

BY = Actor("operator:torture", 1_000.0)
UNLIMITED = Limits(1_000_000_000, 1_000_000_000)
_ACTIONS = {"order.cancel": Status.CANCELLED, "order.ship": Status.SHIPPED}


class Acknowledged(NamedTuple):
    """A change that a client was promised. `pet_id` is None for a cancel; `at` is a place in a log of events."""

    order_id: int
    pet_id: int | None = None
    at: int = 0


class State(NamedTuple):
    """The orders of a store by id, and how often each (action, subject) is in its audit log."""

    orders: dict[int, Order]
    audit: Counter[tuple[str, str]]
    largest_id: int


async def read_state(store: Store) -> State:
    orders = {order.id: order async for batch in store.orders.scan() for order in batch}
    audit = Counter([(entry.action, entry.subject) async for entry in store.audit.entries(AuditFilters())])
    return State(orders, audit, await store.orders.last_identifier())


def disagreements(state: State, acknowledged: Iterable[Acknowledged]) -> list[str]:
    """What is lost of what was acknowledged, and where orders and the audit log disagree."""
    found = [text for promise in acknowledged for text in _broken(state, promise)]
    for order in state.orders.values():
        for action, status in _ACTIONS.items():
            if state.audit[action, f"order:{order.id}"] != (order.status is status):
                found.append(f"order {order.id} is {order.status}, and the audit log disagrees")
    if state.orders and state.largest_id < max(state.orders):
        found.append(f"the clock assigns {state.largest_id + 1} again")
    return found


def _broken(state: State, promise: Acknowledged) -> Iterator[str]:
    """What is lost of one change."""
    order_id, pet_id, _ = promise
    order = state.orders.get(order_id)
    if order is None:
        yield f"order {order_id} is lost"
    elif pet_id is None and order.status is not Status.CANCELLED:
        yield f"the cancel of {order_id} is lost"
    elif pet_id is not None and order.pet_id != pet_id:
        yield f"order {order_id} is another one"
    if pet_id is not None and state.audit["order.place", f"order:{order_id}"] != 1:
        yield f"the audit log lacks the placement of {order_id}"


async def new_key(
    url: str, account: str = "acme", limits: Limits = UNLIMITED, orders: VisibleOrders = VisibleOrders.ALL
) -> str:
    """Make an account, and the store if it is missing; return a key of it that may do everything."""
    key = keys.new_key(Environment.PRODUCTION, secrets.randbelow)
    made = ApiKey(
        keys.new_key_id(secrets.randbelow), account, keys.digest(key), Environment.PRODUCTION, frozenset(Scope), "", 0.0
    )
    async with opened_at(url) as store:
        await store.accounts.create(account, Plan.ENTERPRISE, limits, BY, orders=orders)
        await store.keys.create(made, BY)
    return key


async def put_orders(url: str, ids: range) -> None:
    """Put pending orders into the store, which is made if it is missing."""
    async with opened_at(url) as store:
        for first in range(ids.start, ids.stop, 1000):
            batch = [Order(number, number, 1) for number in range(first, min(first + 1000, ids.stop))]
            await store.orders.import_batch(batch, "import:1", BY)


async def problems(url: str, acknowledged: Iterable[Acknowledged]) -> list[str]:
    """Open the store as the product does, compare it, and go on with it: what is wrong, in words."""
    try:
        async with opened_at(url) as store:
            found = disagreements(await read_state(store), acknowledged)
            found += await _going_on(store)
    except DomainError as error:
        return [f"the store cannot be used: {error}"]
    except Exception as error:  # noqa: BLE001 - a traceback in place of a sentence is a defect too
        return [f"the product fails with {error!r}"]
    return found + (check(sqlite_path(url)) if is_sqlite(url) else [])


async def _going_on(store: Store) -> list[str]:
    """Place an order: it must be later than everything that the store has."""
    largest = await store.orders.last_identifier()
    page = await store.search.page(PageQuery(Filters(), Sort(SortField.UPDATED_AT, descending=True), 1))
    placed = await store.orders.place(Placement(1, f"after {largest}", 1, 1, None), BY)
    found = await store.search.find(placed.order_id)
    if placed.order_id <= largest or any(order.updated_at >= found.updated_at for order in page.orders):
        return [f"the clock went back: order {placed.order_id} after {largest}"]
    return []


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"
