"""What becomes of a message if the process that delivers it is killed, stopped or paused at each point (D24)."""

import asyncio
import signal
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from petstore_server.domain.orders import CANCEL, Order
from petstore_server.store import Store
from petstore_server.webhooks import delivery
from testing.deployment import Deployment
from testing.forked_work import deliver_until_killed
from testing.preloaded import forking
from testing.process import serving
from testing.stores import BY, Stores, opened_at
from testing.subprocesses import busy
from testing.webhook_messages import SECRET, SETTINGS
from testing.webhooks import Delivering, Receiver, account, after, delivering, end_leases, failure, hang, reply


@pytest.fixture(name="store")
async def _store(each_backend: Stores, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """A store with an order; processes look at its webhooks each time."""
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(delivery, "CLOSING_SECONDS", 0.1)
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1)], "import:1", BY)
        yield store


async def kill_at(point: str, url: str) -> None:
    """Deliver the webhooks of the store in a process that is killed at a point; return when it has ended."""
    process = forking().Process(target=deliver_until_killed, args=(url, SECRET, point))
    process.start()
    await asyncio.to_thread(process.join)
    assert -signal.SIGKILL == process.exitcode


async def goes_on(one: Delivering) -> None:
    """Let another process deliver, which does nothing before the lease of the other has ended."""
    await one.round()
    await end_leases(one.store)
    await one.round()


@failure("is killed before it sends")
async def test_what_a_killed_process_did_not_send_is_sent_after_its_lease(store: Store, each_backend: Stores) -> None:
    async with delivering(store) as one, Receiver() as receiver:
        await one.webhook(await account(store), receiver.url)
        await kill_at("send", each_backend.url)
        await one.round()
        assert [] == receiver.received
        await goes_on(one)
    assert [1] == receiver.orders


@failure("is killed between the response and its record")
async def test_a_message_without_a_record_is_repeated_once_with_its_identifier(
    store: Store, each_backend: Stores
) -> None:
    async with delivering(store) as one, Receiver() as receiver:
        webhook = (await one.webhook(await account(store), receiver.url)).webhook
        await kill_at("finish", each_backend.url)
        assert [1] == receiver.orders
        await one.round()
        assert [1] == receiver.orders
        await goes_on(one)
        await one.round()
        first, again = receiver.received
        assert (first.id, first.body) == (again.id, again.body)
        assert 1 == len((await one.found(webhook)).attempts)


@failure("is killed after the record")
async def test_a_message_with_a_record_is_not_repeated(store: Store, each_backend: Stores) -> None:
    async with delivering(store) as one, Receiver() as receiver:
        await one.webhook(await account(store), receiver.url)
        await kill_at("after", each_backend.url)
        await goes_on(one)
        await store.orders.change(1, CANCEL, BY)
        await goes_on(one)
    assert ["pending", "cancelled"] == [
        received.message["data"]["orders"][0]["status"] for received in receiver.received
    ]


@failure("is stopped gently")
async def test_another_process_goes_on_at_once_for_one_that_was_stopped(store: Store) -> None:
    async with delivering(store) as one, Receiver(hang) as receiver:
        async with delivering(store, holder="stopped") as stopped:
            await one.webhook(await account(store), receiver.url)
            await stopped.look()
            await receiver.until(1)
            stopped.deliveries.end()
            await one.round()
            assert 1 == len(receiver.received)
        await one.round()
    assert [1, 1] == receiver.orders


async def test_a_stopped_process_finishes_what_is_under_way_and_begins_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "CLOSING_SECONDS", 60.0)
    await store.orders.import_batch([Order(number) for number in range(2, 150)], "import:2", BY)
    answered = asyncio.Event()

    async with Receiver(after(answered, reply(204))) as receiver:
        async with delivering(store) as one:
            webhook = (await one.webhook(await account(store), receiver.url)).webhook
            await one.look()
            await receiver.until(1)
            one.deliveries.end()
            answered.set()
        assert ([*range(1, 101)], 100) == (receiver.orders, (await one.found(webhook)).position.id)
        await one.look()
        assert 0 == one.deliveries.under_way


@failure("runs next to another one")
async def test_one_of_two_processes_delivers_each_message(store: Store, each_backend: Stores) -> None:
    async with (
        each_backend.opened() as other_store,
        delivering(store) as one,
        delivering(other_store, holder="two") as two,
        Receiver() as receiver,
    ):
        first = await account(store)
        for _ in range(5):
            await one.webhook(first, receiver.url)
        for number in range(10):
            await store.orders.import_batch([Order(number)], f"import:{number}", BY)
            await asyncio.gather(one.round(), two.round())
        await asyncio.gather(one.round(), two.round())
        delivered = one.deliveries.outcomes + two.deliveries.outcomes
    assert len(receiver.received) == delivered["delivered"] == len({received.id for received in receiver.received})
    assert sorted([*range(10)] * 5) == sorted(receiver.orders)


@failure("wakes up after its lease has ended")
async def test_a_process_that_wakes_up_after_its_lease_changes_nothing(store: Store) -> None:
    asleep = asyncio.Event()

    async with (
        delivering(store) as one,
        delivering(store, holder="asleep") as sleeper,
        Receiver(after(asleep, reply(500, body=b"of the one that slept"))) as receiver,
    ):
        webhook = (await one.webhook(await account(store), receiver.url)).webhook
        await sleeper.look()
        await receiver.until(1)
        await goes_on(one)
        before = await one.found(webhook)
        asleep.set()
        await sleeper.finish()
        assert before == await one.found(webhook)
        await one.round()
        first, again = receiver.received
    assert (first.id, 204) == (again.id, before.attempts[-1].status)


@pytest.mark.usefixtures("each_deployment")
async def test_a_change_by_another_process_is_delivered_within_a_second(deployment: Deployment) -> None:
    settings = deployment.made({})
    async with (
        opened_at(settings["PETSTORE_DATABASE_URL"]) as store,
        delivering(store) as one,
        Receiver() as receiver,
    ):
        await one.webhook(await account(store), receiver.url)
        with serving(deployment, **SETTINGS):
            for number in range(1, 4):
                began = monotonic()
                await store.orders.import_batch([Order(number)], f"import:{number}", BY)
                await receiver.until(number)
                assert monotonic() < began + 1 + busy()
    assert [1, 2, 3] == receiver.orders


@pytest.mark.usefixtures("each_deployment")
async def test_a_server_that_is_stopped_while_a_receiver_hangs_is_followed_by_the_next_at_once(
    deployment: Deployment,
) -> None:
    settings = deployment.made({})
    async with Receiver(hang) as receiver:
        async with opened_at(settings["PETSTORE_DATABASE_URL"]) as store, delivering(store) as one:
            await store.orders.import_batch([Order(1)], "import:1", BY)
            await one.webhook(await account(store), receiver.url)
        for number in (1, 2):
            with serving(deployment, **SETTINGS) as server:
                await receiver.until(number)
                assert 0 == await asyncio.to_thread(server.stop)
    assert [1, 1] == receiver.orders
