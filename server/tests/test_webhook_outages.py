"""What becomes of messages if the store fails: outages, refused statements, a restore, a failover (D24)."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.engines.sqlite import connections
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.runtime.opening import opened_store
from petstore_server.store import Store
from petstore_server.webhooks import delivery
from testing.damage import Refusal, execute, refuse
from testing.failover import Pair, acknowledge_together, disconnect, promote, running_pair
from testing.proxy import Proxy
from testing.stores import BY, Stores, all_orders, opened_at, seconds_to_recovery, write_locked
from testing.webhooks import Receiver, account, delivering, end_leases, failure, reply

TABLES = ("orders", "clock", "webhooks")


class Shared:
    """What processes note in Redis."""

    def __init__(self) -> None:
        self._noted: dict[str, int] = {}

    async def __call__(self, name: str, number: int) -> int:
        self._noted[name] = max(number, self._noted.get(name, number))
        return self._noted[name]


@pytest.fixture(name="unhurried")
def _unhurried() -> None:
    """Time limits as they are: what cannot be reached is given up."""


@pytest.fixture(autouse=True)
def _each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes look at webhooks each time, and wait only briefly for a file that is locked."""
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.3)


class Outage:
    """An outage that a test begins and ends."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self.begin = begin
        self.end = end

    async def respond(self, *arguments: Any) -> None:
        """Begin, and then respond as a receiver with 204."""
        self.begin()
        await reply(204)(*arguments)


@asynccontextmanager
async def interrupted(stores: Stores) -> AsyncIterator[tuple[Store, Outage]]:
    """A store with an order, and an outage of it."""
    if stores.is_sqlite:
        async with stores.opened() as store:
            lock = write_locked(Path(stores.url.removeprefix("sqlite:///")))
            await store.orders.import_batch([Order(1)], "import:1", BY)
            yield store, Outage(lock.__enter__, lambda: lock.__exit__(None, None, None))
        return
    async with stores.opened():
        port = stores.url.rpartition(":")[2].partition("/")[0]
        async with Proxy(int(port)) as proxy, opened_at(stores.url.replace(port, str(proxy.port))) as store:

            def begin() -> None:
                proxy.refusing = True
                proxy.cut()

            await store.orders.import_batch([Order(1)], "import:1", BY)
            yield store, Outage(begin, lambda: setattr(proxy, "refusing", False))


@failure("cannot be reached")
async def test_delivery_goes_on_after_an_outage(each_backend: Stores) -> None:
    async with interrupted(each_backend) as (store, outage), delivering(store) as one, Receiver() as receiver:
        await one.webhook(await account(store), receiver.url)
        outage.begin()
        with pytest.raises(ServiceUnavailable):
            await one.round()
        assert [] == receiver.received
        outage.end()
        await seconds_to_recovery(store)
        await one.round()
    assert [1] == receiver.orders


async def test_a_look_after_one_that_failed_reads_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 60.0)
    async with delivering(store) as one:
        with monkeypatch.context() as failing:
            failing.setattr(store.webhooks, "due", AsyncMock(side_effect=ServiceUnavailable("its file is damaged")))
            for _ in range(2):
                with pytest.raises(ServiceUnavailable):
                    await one.look()
        await one.look()


async def test_no_look_succeeds_on_a_store_that_is_known_to_be_damaged(store: Store) -> None:
    async with delivering(store) as one:
        await one.look()
        store.engine.damage.seen(ServiceUnavailable("its file is damaged"))
        for _ in range(2):
            with pytest.raises(ServiceUnavailable) as refused:
                await one.look()
            assert "its file is damaged" in refused.value.reason


@failure("is lost between the response and its record")
async def test_a_message_that_could_not_be_recorded_is_repeated_after_its_lease(
    each_backend: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with interrupted(each_backend) as (store, outage), delivering(store) as one:
        async with Receiver(outage.respond) as receiver:
            await one.webhook(await account(store), receiver.url)
            await one.round()
            assert ["delivery not recorded"] == [each.message for each in caplog.records if "deliver" in each.message]
            outage.end()
            await seconds_to_recovery(store)
            await one.round()
            assert [1] == receiver.orders
            await end_leases(store)
            for _ in range(2):
                await one.round()
        first, again = receiver.received
        assert first.id == again.id


def allow(stores: Stores) -> None:
    """Take back what `refuse` has done."""
    if stores.is_sqlite:
        for event in ("INSERT", "UPDATE"):
            execute(stores, f"DROP TRIGGER refused_webhooks_{event}")
    else:
        execute(stores, "DROP TRIGGER refused ON petstore.webhooks")


@failure("refuses the statement that records the outcome")
async def test_a_message_whose_record_is_refused_is_repeated_until_it_is_recorded(
    each_backend: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with each_backend.opened() as store, delivering(store) as one, Receiver() as receiver:
        await store.orders.import_batch([Order(1)], "import:1", BY)
        webhook = (await one.webhook(await account(store), receiver.url)).webhook
        refuse(each_backend, "webhooks", "new.delivered_at IS NOT NULL", Refusal.STATEMENT)
        for _ in range(3):
            await one.round()
            await end_leases(store)
        assert (3, 1) == (len(receiver.received), len({received.id for received in receiver.received}))
        assert ["delivery failed"] * 3 == [each.message for each in caplog.records if each.levelname == "ERROR"]
        allow(each_backend)
        for _ in range(2):
            await one.round()
        assert (4, 1) == (len(receiver.received), len((await one.found(webhook)).attempts))


def keep(stores: Stores, folder: Path) -> None:
    """Make a copy of what a store has."""
    if stores.is_sqlite:
        backup(Path(stores.url.removeprefix("sqlite:///")), folder / "copy.db")
    else:
        execute(stores, "CREATE SCHEMA kept")
        for table in TABLES:
            execute(stores, f"CREATE TABLE kept.{table} AS TABLE petstore.{table}")


def put_back(stores: Stores, folder: Path) -> None:
    """Put the copy in place of what the store has."""
    if stores.is_sqlite:
        restore(Path(stores.url.removeprefix("sqlite:///")), folder / "copy.db", BY)
    else:
        for table in TABLES:
            execute(stores, f"DELETE FROM petstore.{table}")
            execute(stores, f"INSERT INTO petstore.{table} SELECT * FROM kept.{table}")


async def stored(store: Store) -> dict[int, str]:
    """The orders of a store, with their status."""
    return {order.id: str(order.status) for order in await all_orders(store)}


def copied(receiver: Receiver) -> dict[int, str]:
    """The orders that a receiver has a copy of, with their status."""
    return {order_id: order["status"] for order_id, order in receiver.copy.items()}


@failure("is restored from an older copy")
async def test_a_restore_resets_receivers_which_then_get_every_order(each_backend: Stores, tmp_path: Path) -> None:
    share = Shared()
    async with Receiver() as receiver:
        async with each_backend.opened():
            pass
        async with opened_store(each_backend.url, share) as store, delivering(store) as one:
            await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
            webhook = (await one.webhook(await account(store), receiver.url)).webhook
            await one.round()
            keep(each_backend, tmp_path)
            await store.orders.change(1, CANCEL, BY)
            await store.orders.import_batch([Order(3)], "import:2", BY)
            await one.round()
            assert {1: "cancelled", 2: "pending", 3: "pending"} == copied(receiver) == await stored(store)
        put_back(each_backend, tmp_path)
        async with opened_store(each_backend.url, share) as store, delivering(store) as one:
            for _ in range(2):
                await one.round()
            assert {1: "pending", 2: "pending"} == copied(receiver) == await stored(store)
            assert (await one.found(webhook)).replay == 0
    kinds = [received.message["type"] for received in receiver.received]
    assert ["orders.changed", "orders.changed", "orders.reset", "orders.changed"] == kinds
    assert 4 == len({received.id for received in receiver.received})


async def failed_over(prepare: Callable[[Pair], None]) -> Receiver:
    """Deliver two orders, a change of each before and after a failover, and return the receiver.

    `prepare` is called before the first change.
    """
    with running_pair() as pair:
        async with (
            opened_store(pair.url, Shared(), create=True, migrate=True) as store,
            delivering(store) as one,
            Receiver() as receiver,
        ):
            await store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
            await one.webhook(await account(store), receiver.url)
            await one.round()
            await asyncio.to_thread(prepare, pair)
            await store.orders.change(1, CANCEL, BY)
            await one.round()
            await asyncio.to_thread(pair.primary.stop, signal.SIGQUIT)
            await asyncio.to_thread(promote, pair.replica)
            await seconds_to_recovery(store)
            await store.orders.change(2, CANCEL, BY)
            for _ in range(2):
                with suppress(ServiceUnavailable):
                    await one.round()
            assert await stored(store) == copied(receiver)
    return receiver


@failure("fails over and keeps all changes")
async def test_delivery_goes_on_from_its_position_after_a_failover() -> None:
    receiver = await failed_over(lambda pair: acknowledge_together(pair.primary))
    assert [[1, 2], [1], [2]] == [received.orders for received in receiver.received]


@failure("fails over and loses the last changes")
async def test_a_failover_that_loses_changes_resets_receivers() -> None:
    receiver = await failed_over(disconnect)
    assert [[1, 2], [1], [], [1, 2]] == [received.orders for received in receiver.received]
    assert "orders.reset" == receiver.received[2].message["type"]
