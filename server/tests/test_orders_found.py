"""Listing orders by status and pet, on one snapshot."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import DamagedRecord
from petstore_server.domain.lists import Filters
from petstore_server.domain.orders import Order, Status
from petstore_server.operations.orders import list_orders
from petstore_server.store import Store
from testing.damage import set_record
from testing.stores import Stores

ACTOR = Actor("operator:test", 1_795_000_000.0)
COUNT = 2500
STATUSES = (Status.PENDING, Status.SHIPPED, Status.CANCELLED, Status.PENDING)


def order(number: int) -> Order:
    return Order(number, number % 7, 2, "2026-11-20T09:30:00.5Z", number % 2 == 0, STATUSES[number % 4])


async def fill(store: Store) -> list[Order]:
    orders = [order(number) for number in range(-5, COUNT)]
    await store.orders.import_batch(orders, "import", ACTOR)
    return orders


async def found(store: Store, *statuses: Status, pet_id: int | None = None, limit: int | None = None) -> list[Order]:
    filters = Filters(frozenset(statuses), pet_id)
    return [each async for batch in list_orders(store, filters, limit) for each in batch]


async def test_orders_are_found_by_status_and_pet_in_any_number(store: Store) -> None:
    orders = await fill(store)
    assert orders == await found(store)
    assert orders[:1001] == await found(store, limit=1001)
    pending = [each for each in orders if each.status is Status.PENDING]
    assert pending == await found(store, Status.PENDING)
    for limit in (1, 999, 1000, 1001):
        assert pending[:limit] == await found(store, Status.PENDING, limit=limit)
    several = [each for each in orders if each.status is not Status.PENDING and each.pet_id == 3]
    assert several == await found(store, Status.SHIPPED, Status.CANCELLED, pet_id=3)


async def test_a_list_that_is_left_early_ends_its_transaction_at_once(store: Store) -> None:
    await fill(store)
    abandoned: list[AsyncGenerator[object]] = []
    usual = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=abandoned.append)  # gets those that are left to the garbage collector
    try:
        assert 1 == len(await found(store, limit=1))
        async with aclosing(list_orders(store)) as batches:
            await anext(batches)
    finally:
        sys.set_asyncgen_hooks(*usual)
    assert [] == abandoned


async def test_a_damaged_record_fails_the_list_that_shows_it(each_backend: Stores, store: Store) -> None:
    await fill(store)
    set_record(each_backend, 7, "{")
    for statuses in ((), (Status.PENDING,)):
        with pytest.raises(DamagedRecord):
            await found(store, *statuses)
    assert [order(2)] == await found(store, Status.CANCELLED, limit=1, pet_id=2)
