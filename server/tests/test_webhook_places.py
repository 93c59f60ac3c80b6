"""Deliveries of webhooks at the same time: places, turns, and what partners change meanwhile (D24)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from petstore_server.domain.orders import Order, Status
from petstore_server.domain.webhooks import WebhookState
from petstore_server.operations.webhooks import Start
from petstore_server.store import Store
from petstore_server.webhooks import delivery
from testing.stores import BY
from testing.subprocesses import PATIENCE
from testing.webhooks import Delivering, Receiver, account, delivering, hang, reply

CANCELLED = (Status.CANCELLED,)


@pytest.fixture(name="one")
async def _one(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Delivering]:
    """A process that delivers; it looks at webhooks each time."""
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(delivery, "CLOSING_SECONDS", 0.0)
    async with delivering(store) as one:
        yield one


async def put(store: Store, *orders: Order) -> None:
    await store.orders.import_batch(orders, "import:1", BY)


async def test_a_failure_at_an_address_that_was_replaced_meanwhile_does_not_count(one: Delivering) -> None:
    await put(one.store, Order(1))
    async with Receiver() as other:
        changed = asyncio.Event()

        async def gone(*arguments: Any) -> None:
            await changed.wait()
            await reply(410)(*arguments)

        async with Receiver(gone) as receiver:
            webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
            await one.look()
            await receiver.until(1)
            await one.service.edit(webhook.id, BY, url=other.url)
            changed.set()
            await one.finish()
            found = await one.found(webhook)
            assert (WebhookState.ACTIVE, 0, 410) == (found.state, found.failures, found.attempts[-1].status)
            await one.round()
    assert [1] == other.orders


async def test_an_attempt_does_not_move_a_position_that_was_set_meanwhile(one: Delivering) -> None:

    await put(one.store, Order(1), Order(2))
    answered = asyncio.Event()

    async def late(*arguments: Any) -> None:
        await answered.wait()
        await reply(204)(*arguments)

    async with Receiver(late) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await one.look()
        await receiver.until(1)
        await one.service.edit(webhook.id, BY, start=Start("beginning"))
        answered.set()
        await one.finish()
        await one.round()
    assert [1, 2, 1, 2] == receiver.orders


async def test_deliveries_under_way_are_limited_in_all_for_an_account_and_for_failing_webhooks(one: Delivering) -> None:
    await put(one.store, Order(1))
    async with Receiver(usual=hang) as receiver:
        first = await account(one.store)
        for _ in range(12):
            await one.webhook(first, receiver.url)
        await one.look()
        assert 8 == one.deliveries.under_way
        for number in range(4):
            other = await account(one.store, f"account {number}")
            for _ in range(7):
                await one.webhook(other, receiver.url)
        await one.look()
        assert 32 == one.deliveries.under_way


async def test_failing_webhooks_have_a_quarter_of_the_places(one: Delivering) -> None:
    await put(one.store, Order(1))
    async with Receiver(*[reply(500)] * 14, usual=hang) as receiver, Receiver() as quick:
        for number in range(2):
            zoo = await account(one.store, f"account {number}")
            for _ in range(7):
                await one.webhook(zoo, receiver.url)
        await one.round()
        one.clock.now += 10
        await one.look()
        assert 8 == one.deliveries.under_way
        await one.webhook(await account(one.store), quick.url)
        await one.look()
        await quick.until(1)


async def test_webhooks_take_turns_where_there_are_fewer_places(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_DELIVERIES", 1)
    await put(one.store, *[Order(number) for number in range(1, 301)])
    async with Receiver() as first, Receiver() as second:
        for number, receiver in enumerate((first, second)):
            await one.webhook(await account(one.store, f"account {number}"), receiver.url)
        for number in (1, 1, 2, 2, 3, 3):
            await one.round()
            assert number >= max(len(first.received), len(second.received))
        assert [*range(1, 301)] == first.orders == second.orders


async def test_what_changes_during_a_delivery_is_looked_for_at_once(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "IDLE_SECONDS", PATIENCE)
    answered = asyncio.Event()

    async def late(*arguments: Any) -> None:
        await answered.wait()
        await reply(204)(*arguments)

    await put(one.store, Order(1))
    async with Receiver(late) as receiver:
        await one.webhook(await account(one.store), receiver.url)
        await one.look()
        await receiver.until(1)
        await put(one.store, Order(2))
        await one.look()
        answered.set()
        await one.finish()
        await one.round()
    assert [1, 2] == receiver.orders
