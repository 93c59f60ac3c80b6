"""Deliveries of webhooks: what messages have, who gets them, and several deliveries at the same time (D24)."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from petstore_server.domain.accounts import RESUME, VisibleOrders, edit, suspend
from petstore_server.domain.errors import InvalidToken
from petstore_server.domain.lists import Filters, Page, PageQuery, Position, Sort, SortField
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.tokens import position_after, token_of
from petstore_server.domain.webhooks import WebhookState
from petstore_server.operations.webhooks import Start
from petstore_server.store import Store, webhooks
from petstore_server.store.statements import Execute, Work
from petstore_server.webhooks import delivery
from testing.stores import BY
from testing.subprocesses import PATIENCE
from testing.webhooks import Delivering, Receiver, account, after, delivering, hang, reply

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


async def test_what_changes_again_is_sent_once_as_it_is_then_in_the_order_of_the_last_changes(one: Delivering) -> None:
    async with Receiver(reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await put(one.store, Order(1), Order(2), Order(3))
        await one.round()
        await one.store.orders.change(2, CANCEL, BY)
        await put(one.store, Order(1, quantity=7))
        one.clock.now = (await one.found(webhook)).next_at
        await one.round()
        failed, repeated = receiver.received
        assert ([1, 2, 3], [3, 2, 1]) == (failed.orders, repeated.orders)
        assert failed.id != repeated.id
        assert ["pending", "cancelled", 7] == [
            repeated.message["data"]["orders"][0]["status"],
            receiver.copy[2]["status"],
            receiver.copy[1]["quantity"],
        ]


async def test_a_message_has_at_most_a_hundred_orders_and_20_000_bytes(one: Delivering) -> None:
    await put(one.store, *[Order(number) for number in range(1, 251)])
    await put(one.store, *[Order(number, reference=f"{number:ž>64}") for number in range(1_000, 1_200)])
    async with Receiver() as receiver:
        await one.webhook(await account(one.store), receiver.url)
        await one.round()
    messages = [received.message["data"] for received in receiver.received]
    assert [*range(1, 251), *range(1_000, 1_200)] == receiver.orders
    assert [True] * (len(messages) - 1) + [False] == [message["more"] for message in messages]
    sizes = [len(message["orders"]) for message in messages]
    assert ([100, 100], True) == (sizes[:2], max(sizes[3:-1]) < 100)
    assert max(len(received.body) for received in receiver.received) < delivery.MAX_BYTES + 500


async def test_the_next_of_a_message_is_where_list_changes_goes_on(one: Delivering) -> None:
    await put(one.store, *[Order(number) for number in range(1, 151)])
    async with Receiver() as receiver:
        await one.webhook(await account(one.store), receiver.url)
        await one.round()
        first, last = receiver.received
    clock = await one.store.search.change_clock()
    for message, expected in ((first, last.orders), (last, [])):
        after = position_after(message.message["data"]["next"], clock)
        page = await one.store.search.page(PageQuery(Filters(), Sort(SortField.UPDATED_AT), 1_000, after))
        assert expected == [row[5] for row in page.rows]


async def test_a_replay_since_a_time_skips_no_order_that_is_not_delivered(one: Delivering) -> None:
    async with Receiver(reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await put(one.store, Order(1))
        await one.round()
        await one.service.edit(webhook.id, BY._replace(at=time.time() + 60), start=Start(since=time.time() + 30))
        await one.round()
    assert [[1], [1]] == [each.orders for each in receiver.received]


@pytest.mark.parametrize("at", [-(2**63), -1, 253_402_300_800_000_000, 2**63 - 1])
async def test_a_token_of_a_time_that_no_message_can_name_is_refused(one: Delivering, at: int) -> None:
    zoo = await account(one.store, orders=VisibleOrders.OWN)
    epoch = (await one.store.search.change_clock()).epoch
    with pytest.raises(InvalidToken):
        await one.webhook(zoo, "https://127.0.0.1/", Start(token_of(epoch, Position(at, 0), zoo)))


@pytest.mark.parametrize(
    "start", [Start("beginning"), Start("now"), Start(since=2e9)], ids=["beginning", "now", "since"]
)
async def test_a_replay_skips_no_reset(one: Delivering, start: Start) -> None:
    zoo = await account(one.store)
    await put(one.store, Order(1), Order(2, account="zoo"))
    async with Receiver() as receiver:
        webhook = (await one.webhook(zoo, receiver.url)).webhook
        await one.round()
        await one.store.accounts.change("zoo", edit(None, None, VisibleOrders.OWN), BY)
        await one.service.edit(webhook.id, BY._replace(at=2e9), start=start)
        await one.round()
    assert [2] == [*receiver.copy]


async def test_a_reset_is_delivered_to_a_webhook_that_is_before_the_year_1(one: Delivering) -> None:
    zoo = await account(one.store)
    await put(one.store, Order(1), Order(2, account="zoo"))
    async with Receiver() as receiver:
        webhook = (await one.webhook(zoo, receiver.url)).webhook
        await one.service.edit(webhook.id, BY, start=Start(since=-62_135_596_800.0))
        await one.store.accounts.change("zoo", edit(None, None, VisibleOrders.OWN), BY)
        await one.round()
    assert ["orders.reset", "orders.changed"] == [received.message["type"] for received in receiver.received]
    assert [2] == [*receiver.copy]


async def test_a_filtered_webhook_reports_only_orders_that_have_the_status_now(one: Delivering) -> None:
    async with Receiver() as receiver, Receiver() as others:
        zoo = await account(one.store)
        await one.webhook(zoo, receiver.url, statuses=CANCELLED)
        await one.webhook(zoo, others.url)
        await put(one.store, Order(1), Order(2, status=Status.CANCELLED), Order(3))
        await one.round()
        await one.store.orders.change(3, CANCEL, BY)
        await one.round()
        await put(one.store, Order(4))
        await one.round()
    assert ([2, 3], [1, 2, 3, 3, 4]) == (receiver.orders, others.orders)


async def test_the_time_of_a_suspension_is_none_of_failures(one: Delivering) -> None:
    async with Receiver(reply(500), reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await put(one.store, Order(1))
        await one.round()
        await one.store.accounts.change("zoo", suspend(one.clock.now), BY)
        one.clock.now += 4 * DAY
        await one.store.accounts.change("zoo", RESUME, BY)
        assert (await one.found(webhook)).failing_since is None
        await one.round()
        failed = await one.found(webhook)
        assert (WebhookState.ACTIVE, 1, one.clock.now) == (failed.state, failed.failures, failed.failing_since)
        one.clock.now = failed.next_at
        await one.round()
    assert [1, 1, 1] == receiver.orders


async def test_a_failure_ends_once_the_partner_has_skipped_its_order(one: Delivering) -> None:
    async with Receiver(reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await put(one.store, Order(1))
        await one.round()
        await one.service.edit(webhook.id, BY, start=Start("now"))
        await one.round()
        assert (await one.found(webhook)).failing_since is None
    assert [1] == receiver.orders


@pytest.mark.parametrize("edited", [False, True])
async def test_a_failure_ends_once_its_order_has_left_the_statuses(one: Delivering, *, edited: bool) -> None:
    async with Receiver(reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=(Status.PENDING,))).webhook
        await put(one.store, Order(1))
        await one.round()
        await one.store.orders.change(1, CANCEL, BY)
        if edited:
            await one.service.edit(webhook.id, BY, url=receiver.url)
        one.clock.now = (await one.found(webhook)).next_at or one.clock.now
        await one.round()
        assert (0, None) == ((found := await one.found(webhook)).failures, found.failing_since)
        assert (0, None) == ((seen := await one.store.webhooks.summary()).failing, seen.behind_since)
    assert [1] == receiver.orders


async def test_a_filtered_webhook_goes_on_within_orders_that_changed_at_the_same_time(one: Delivering) -> None:
    orders = [Order(number, status=Status.CANCELLED) for number in range(1, 151)]
    async with Receiver(reply(204), reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=CANCELLED)).webhook
        await put(one.store, *orders)
        await one.round()
        one.clock.now = (await one.found(webhook)).next_at
        await one.round()
    first, failed, repeated = receiver.received
    assert [*range(1, 101)] == first.orders
    assert [*range(101, 151)] == failed.orders == repeated.orders


@pytest.fixture(name="leased")
def _leased(one: Delivering, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The identifiers of webhooks in the order in which processes lease them."""
    leased: list[str] = []
    lease = one.store.webhooks.lease

    async def noting(ids: Sequence[str], *rest: Any) -> Any:
        leased.extend(ids)
        return await lease(ids, *rest)

    monkeypatch.setattr(type(one.store), "webhooks", one.store.webhooks)
    monkeypatch.setattr(one.store.webhooks, "lease", noting)
    return leased


async def test_webhooks_with_nothing_to_report_are_not_leased_until_an_order_concerns_them(
    one: Delivering, leased: list[str]
) -> None:
    zoo, own = await account(one.store), await account(one.store, "own", VisibleOrders.OWN)
    async with Receiver() as receiver:
        cancelled = (await one.webhook(zoo, receiver.url, statuses=CANCELLED)).webhook.id
        without = (await one.webhook(own, receiver.url)).webhook.id  # which has no order at all
        await one.round()
        for number in range(1, 4):
            await put(one.store, Order(number))
            await one.round()
        assert [without] == leased
        async with delivering(one.store, one.clock, holder="two") as restarted:
            await restarted.round()
        assert [without, without] == leased
        await put(one.store, Order(5, account="own"))
        await one.round()
        assert ([without] * 3, [5]) == (leased, receiver.orders)
        await one.store.orders.change(2, CANCEL, BY)
        await one.round()
    assert ([without] * 3 + [cancelled], [5, 2]) == (leased, receiver.orders)


async def test_webhooks_of_which_only_a_delivery_finds_out_whether_they_have_an_order_are_last(
    one: Delivering, leased: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = webhooks._CHANGED.replace(str(webhooks.MAX_EXAMINED), "2")
    monkeypatch.setattr(webhooks, "_CHANGED", few)
    monkeypatch.setattr(webhooks, "MAX_EXAMINED", 2)
    await put(one.store, Order(1, status=Status.CANCELLED))
    for number in range(2, 6):
        await put(one.store, Order(number))
    zoo = await account(one.store)
    async with Receiver() as some, Receiver() as every:
        first = (await one.webhook(zoo, some.url, statuses=CANCELLED)).webhook.id
        second = (await one.webhook(zoo, every.url)).webhook.id
        await one.round()
    assert ([second, first], [1], [1, 2, 3, 4, 5]) == (leased, some.orders, every.orders)


def tick() -> Work[None]:
    """Moves the clock without a change."""
    yield Execute("UPDATE petstore.clock SET change = change + 1, at = at + 5")


async def test_a_clock_that_ticks_without_a_change_silences_no_webhook(one: Delivering) -> None:
    await put(one.store, Order(1))
    async with Receiver() as receiver:
        await one.webhook(await account(one.store), receiver.url)
        await one.round()
        await one.store.engine.transaction(tick)
        await one.round()
        await one.store.orders.change(1, CANCEL, BY)
        await one.round()
    assert [1, 1] == receiver.orders


async def test_a_replay_that_begins_while_nothing_is_found_is_not_lost(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = one.store.search.page

    async def replayed(query: PageQuery) -> Page:
        found = await page(query)
        await one.service.edit(webhook.id, BY, start=Start("beginning"))
        return found

    await put(one.store, Order(1))
    async with Receiver() as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url)).webhook
        await one.round()
        await one.store.engine.transaction(tick)
        with monkeypatch.context() as patched:
            patched.setattr(one.store.search, "page", replayed)
            await one.round()
        await one.round()
    assert [1, 1] == receiver.orders


async def test_a_webhook_with_other_statuses_reports_orders_that_it_passed_before(one: Delivering) -> None:
    async with Receiver() as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=CANCELLED)).webhook
        await put(one.store, Order(1))
        await one.round()
        await one.service.edit(webhook.id, BY, statuses=(Status.PENDING,))
        await one.round()
    assert [1] == receiver.orders


@pytest.fixture(name="far_orders")
async def _far_orders(one: Delivering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancelled orders 200 and 201 behind fifty pending ones, of which a page examines ten."""
    monkeypatch.setattr("petstore_server.store.search.MAX_WORK", 10)
    monkeypatch.setattr("petstore_server.store.search.NARROW", 1)
    for number in range(1, 51, 5):
        await put(one.store, *[Order(number + each) for each in range(5)])
    await put(one.store, *[Order(number, status=Status.CANCELLED) for number in (200, 201)])


@pytest.mark.usefixtures("far_orders")
async def test_a_long_walk_over_orders_that_do_not_match_moves_the_position(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_LONG_WALK", 2)
    async with Receiver(reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=CANCELLED)).webhook
        await one.round()
    assert [200, 201] == receiver.orders
    assert (await one.found(webhook)).position > webhook.position


@pytest.mark.usefixtures("far_orders")
async def test_the_lag_is_not_0_while_a_message_fails_whose_orders_take_long_to_find(one: Delivering) -> None:
    async with Receiver(reply(500)) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=CANCELLED)).webhook
        for lag in (7, 0):
            await one.round()
            assert lag == await one.service.lag(await one.found(webhook), one.clock.now + 7)
            one.clock.now += 10
    assert [200, 201] * 2 == receiver.orders


async def test_accounts_that_see_their_own_orders_get_no_others(one: Delivering) -> None:
    async with Receiver() as zoo, Receiver() as acme, Receiver() as shop:
        for name, receiver in (("zoo", zoo), ("acme", acme)):
            await one.webhook(await account(one.store, name, VisibleOrders.OWN), receiver.url)
        await one.webhook(await account(one.store, "shop"), shop.url)
        await put(one.store, Order(1, account="zoo"), Order(2, account="acme"), Order(3), Order(4, account="zoo"))
        await one.round()
        await one.store.orders.change(2, CANCEL, BY)
        await one.round()
    assert ([1, 4], [2, 2], [1, 2, 3, 4, 2]) == (zoo.orders, acme.orders, shop.orders)
    assert "zoo" not in str([zoo.received, acme.received, shop.received])


# Deliveries at the same time


async def test_a_failure_at_an_address_that_was_replaced_meanwhile_does_not_count(one: Delivering) -> None:
    await put(one.store, Order(1))
    changed = asyncio.Event()
    async with Receiver() as other, Receiver(after(changed, reply(410))) as receiver:
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


@pytest.mark.parametrize(
    ("statuses", "changes", "received"),
    [((), {"start": Start("beginning")}, [1, 2, 1, 2]), (CANCELLED, {"statuses": (Status.PENDING,)}, [2, 1])],
    ids=["position", "statuses"],
)
async def test_what_is_set_during_an_attempt_is_kept_and_skips_no_order(
    one: Delivering, statuses: tuple[Status, ...], changes: dict[str, Any], received: list[int]
) -> None:
    answered = asyncio.Event()
    await put(one.store, Order(1))
    await put(one.store, Order(2, status=Status.CANCELLED))
    async with Receiver(after(answered, reply(204))) as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=statuses)).webhook
        await one.look()
        await receiver.until(1)
        await one.service.edit(webhook.id, BY, **changes)
        answered.set()
        await one.finish()
        await one.round()
    assert received == receiver.orders


@pytest.mark.usefixtures("far_orders")
async def test_statuses_that_are_set_while_nothing_is_found_skip_no_order(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = one.store.search.page

    async def changed(query: PageQuery) -> Page:
        found = await page(query)
        await one.service.edit(webhook.id, BY, statuses=(Status.PENDING,))
        return found

    monkeypatch.setattr(delivery, "_LONG_WALK", 1)
    async with Receiver() as receiver:
        webhook = (await one.webhook(await account(one.store), receiver.url, statuses=CANCELLED)).webhook
        with monkeypatch.context() as patched:
            patched.setattr(one.store.search, "page", changed)
            await one.round()
        await one.round()
    assert [*range(1, 51)] == receiver.orders


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


async def test_webhooks_of_an_account_take_turns_where_it_has_more_than_its_places(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_OF_ACCOUNT", 1)
    await put(one.store, *[Order(number) for number in range(1, 301)])
    async with Receiver() as first, Receiver() as second, Receiver() as other:
        zoo = await account(one.store)
        for receiver in (first, second):
            await one.webhook(zoo, receiver.url)
        await one.webhook(await account(one.store, "acme"), other.url)
        for number in (1, 1, 2, 2, 3, 3):
            await one.round()
            assert number >= max(len(first.received), len(second.received))
            assert [*range(1, 301)] == other.orders
        assert [*range(1, 301)] == first.orders == second.orders


async def test_webhooks_that_have_failed_take_turns_where_there_are_fewer_places(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_FAILING", 1)
    await put(one.store, *[Order(number) for number in range(1, 301)])
    async with Receiver(reply(500)) as first, Receiver(reply(500)) as second:
        for number, receiver in enumerate((first, second)):
            await one.webhook(await account(one.store, f"account {number}"), receiver.url)
        await one.round()
        one.clock.now += 10
        await one.round()
        assert [100] == [len(each.orders) - 100 for each in (first, second) if len(each.received) > 1]
        await one.round()
        await one.round()
        assert [*range(1, 101), *range(1, 301)] == first.orders == second.orders


async def test_what_changes_during_a_delivery_is_looked_for_at_once(
    one: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "IDLE_SECONDS", PATIENCE)
    answered = asyncio.Event()

    await put(one.store, Order(1))
    async with Receiver(after(answered, reply(204))) as receiver:
        await one.webhook(await account(one.store), receiver.url)
        await one.look()
        await receiver.until(1)
        await put(one.store, Order(2))
        await one.look()
        answered.set()
        await one.finish()
        await one.round()
    assert [1, 2] == receiver.orders
