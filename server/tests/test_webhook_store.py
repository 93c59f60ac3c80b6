"""Webhooks in the store: leases, which are due, limits, and which secret signs (D24)."""

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from petstore_server.domain.accounts import VisibleOrders, close, edit, suspend
from petstore_server.domain.errors import TooManyWebhooks, WebhookNotFound, WebhookSecretChanged
from petstore_server.domain.lists import Position
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.webhooks import Attempt, Webhook, WebhookState
from petstore_server.domain.webhooks import edit as edit_webhook
from petstore_server.store import Store
from petstore_server.store.statements import Execute, Work
from testing.stores import BY, Stores, log
from testing.webhooks import account, end_leases

NOW = 5_000.0
DIGEST = "a digest"
ATTEMPT = Attempt(NOW, 204, 3, "")


async def new(store: Store, account_id: int, name: str = "wh_one", **fields: Any) -> Webhook:
    """A new webhook, which has to report everything, unless fields say otherwise."""
    found = next(each for each in await store.accounts.list() if each.id == account_id)
    webhook = Webhook(name, account_id, found.name, "https://shop.example/", NOW, **fields)
    return await store.webhooks.create(webhook, DIGEST, BY)


async def due(store: Store, now: float = NOW) -> dict[str, tuple[int | None, int]]:
    """The webhooks that are due, with their owner and the time of the last change."""
    return {
        each.id: (each.owner, each.last) for each in await store.webhooks.due(await store.search.change_clock(), now)
    }


async def leased(store: Store, *names: str, holder: str = "one") -> list[str]:
    return sorted(each.id for each in await store.webhooks.lease(names, holder, NOW, DIGEST))


async def set_fields(store: Store, fields: str) -> None:
    def work() -> Work[None]:
        yield Execute(f"UPDATE petstore.webhooks SET {fields}")

    await store.engine.transaction(work)


def moved(webhook: Webhook) -> Webhook:
    return replace(webhook, position=Position(99, 9), attempts=(ATTEMPT,))


async def test_the_audit_log_shows_that_a_url_has_changed_also_if_only_its_query_has(store: Store) -> None:
    await new(store, await account(store))
    for url in ("https://shop.example/?a", "https://shop.example/?b", "https://shop.example/?a"):
        await store.webhooks.change("wh_one", edit_webhook(url=url), BY)
    await store.webhooks.change("wh_one", edit_webhook(url=url, statuses=(Status.SHIPPED,)), BY)
    entries = [each for each in await log(store) if each.action == "webhook.edit"]
    same = {"url": "https://shop.example/"}
    assert [*[(same, same)] * 3, ({"statuses": []}, {"statuses": ["shipped"]})] == [
        (each.before, each.after) for each in entries
    ]


async def test_one_of_several_processes_gets_the_lease_until_its_time_has_passed(store: Store) -> None:
    webhook = await new(store, await account(store))
    assert ["wh_one"] == await leased(store, "wh_one")
    for holder in ("one", "two"):
        assert [] == await leased(store, "wh_one", holder=holder)
    assert {} == await due(store)
    await end_leases(store)
    assert ["wh_one"] == [*await due(store)] == await leased(store, "wh_one", holder="two")
    assert await store.webhooks.finish("wh_one", "one", NOW, moved, go_on=True) is None
    assert webhook == await store.webhooks.find("wh_one")
    assert moved(webhook) == await store.webhooks.finish("wh_one", "two", NOW, moved, go_on=True)
    assert moved(webhook) == await store.webhooks.find("wh_one")


async def test_a_webhook_that_another_transaction_has_locked_is_not_waited_for(
    postgres_stores: Stores,
) -> None:
    async with postgres_stores.opened() as store:
        zoo = await account(store)
        for name in ("wh_one", "wh_two"):
            await new(store, zoo, name)
        with psycopg.connect(postgres_stores.url) as other:
            other.execute("SELECT 1 FROM petstore.webhooks WHERE id = 'wh_one' FOR UPDATE")
            assert ["wh_two"] == await leased(store, "wh_one", "wh_two")


@pytest.mark.parametrize("go_on", [True, False])
async def test_a_lease_is_renewed_or_ended_with_the_outcome(go_on: bool, store: Store) -> None:
    await new(store, await account(store))
    await leased(store, "wh_one")
    found = await store.webhooks.finish("wh_one", "one", NOW, lambda webhook: webhook, go_on=go_on)
    assert go_on is (found is not None)
    assert ([] if go_on else ["wh_one"]) == await leased(store, "wh_one", holder="two")


@pytest.mark.parametrize(
    ("fields", "recorded"),
    [
        ({"failures": 1}, []),
        ({"state": WebhookState.STOPPED}, ["webhook.stop"]),
        ({"state": WebhookState.ENDED}, ["webhook.end"]),
    ],
)
async def test_what_does_not_deliver_any_more_does_not_go_on(
    fields: dict[str, Any], recorded: list[str], store: Store
) -> None:
    await new(store, await account(store))
    await leased(store, "wh_one")
    outcome = lambda webhook: replace(webhook, **fields)  # noqa: E731
    assert await store.webhooks.finish("wh_one", "one", NOW, outcome, go_on=True) is None
    assert recorded == [entry.action for entry in await log(store) if entry.actor == "service"]


async def test_a_lease_is_only_given_for_what_is_still_due(store: Store) -> None:
    await new(store, await account(store))
    for fields in (f"next_at = {NOW + 1}", "state = 'paused'", "state = 'stopped'", "state = 'ended'"):
        await set_fields(store, fields)
        assert ([], {}) == (await leased(store, "wh_one"), await due(store))
        await set_fields(store, "state = 'active', next_at = 0")
    assert ["wh_one"] == await leased(store, "wh_one")


@pytest.mark.parametrize("fields", ["leased_until = leased_until + 3600", f"leased_until = 0, next_at = {NOW + DAY}"])
async def test_a_clock_that_was_set_back_does_not_hold_up_deliveries(fields: str, store: Store) -> None:
    await new(store, await account(store))
    await leased(store, "wh_one")
    await set_fields(store, fields)
    assert ["wh_one"] == [*await due(store)] == await leased(store, "wh_one", holder="two")


async def test_a_process_that_stops_releases_only_its_own_leases(store: Store) -> None:
    zoo = await account(store)
    for name in ("wh_one", "wh_two"):
        await new(store, zoo, name)
    await leased(store, "wh_one", holder="one")
    await leased(store, "wh_two", holder="two")
    await store.webhooks.release("one")
    assert ["wh_one"] == [*await due(store)]


async def test_a_webhook_that_was_deleted_meanwhile_is_not_made_again(store: Store) -> None:
    await new(store, await account(store))
    await leased(store, "wh_one")
    await store.webhooks.delete("wh_one", BY)
    assert await store.webhooks.finish("wh_one", "one", NOW, moved, go_on=True) is None
    with pytest.raises(WebhookNotFound):
        await store.webhooks.find("wh_one")


async def test_those_are_due_whose_account_sees_a_change_after_their_position(store: Store) -> None:
    everything, own = await account(store), await account(store, "own", VisibleOrders.OWN)
    other = await account(store, "other", VisibleOrders.OWN)
    epoch = (await store.search.change_clock()).epoch
    for name, each in (("all", everything), ("own", own), ("other", other)):
        history = epoch if each == everything else f"{epoch} {each}"
        await new(store, each, name, history=history, position=Position(1, 0))
    assert {} == await due(store)
    await store.orders.import_batch([Order(1, account="own")], "import:1", BY)
    at = (await store.search.change_clock()).at
    assert {"all": (None, at), "own": (own, at)} == await due(store)
    await set_fields(store, f"position_at = {at}, position_id = {2**63 - 1}")
    assert {} == await due(store)
    await store.orders.change(1, CANCEL, BY)
    assert {"all", "own"} == {*await due(store)}
    await set_fields(store, "next_at = 6000")
    assert ({}, {"all", "own"}) == (await due(store), {*await due(store, 6_000.0)})


@pytest.mark.parametrize("orders", [*VisibleOrders])
async def test_a_webhook_of_another_history_is_due_without_a_change(orders: VisibleOrders, store: Store) -> None:
    zoo = await account(store, orders=orders)
    other = next(each for each in VisibleOrders if each is not orders)
    epoch = (await store.search.change_clock()).epoch
    history = epoch if orders is VisibleOrders.ALL else f"{epoch} {zoo}"
    await new(store, zoo, history=history, position=Position(2**62, 0))
    assert {} == await due(store)
    await store.accounts.change("zoo", edit(None, None, other), BY)
    assert ["wh_one"] == [*await due(store)]


async def test_webhooks_of_suspended_and_closed_accounts_are_not_due(store: Store) -> None:
    await new(store, await account(store))
    assert ["wh_one"] == [*await due(store)]
    await store.accounts.change("zoo", suspend(1.0), BY)
    assert ({}, []) == (await due(store), await leased(store, "wh_one"))
    assert (await store.webhooks.find("wh_one")).suspended
    await store.accounts.change("zoo", close(2.0), BY)
    await end_leases(store)
    assert ({}, []) == (await due(store), await leased(store, "wh_one"))
    assert WebhookState.ENDED is (await store.webhooks.find("wh_one")).state


async def test_an_account_has_at_most_20_webhooks_however_many_are_made_at_the_same_time(store: Store) -> None:
    zoo, acme = await account(store), await account(store, "acme")
    made = await asyncio.gather(*(new(store, zoo, f"wh_{number}") for number in range(25)), return_exceptions=True)
    assert 20 == sum(isinstance(each, Webhook) for each in made)
    assert 5 == sum("20 webhooks" in each.message for each in made if isinstance(each, TooManyWebhooks))
    await new(store, acme, "wh_of_acme")


async def test_another_secret_is_refused_while_there_are_webhooks(store: Store) -> None:
    webhooks = store.webhooks
    await webhooks.use_secret("the first")
    await webhooks.use_secret(DIGEST)  # nothing was signed yet
    zoo = await account(store)
    await new(store, zoo)
    assert (True, False) == (await webhooks.has_secret(DIGEST), await webhooks.has_secret("other"))
    for refused in (
        webhooks.use_secret("other"),
        webhooks.create(Webhook("wh_two", zoo, "zoo", "https://b.example/", NOW), "other", BY),
    ):
        with pytest.raises(WebhookSecretChanged):
            await refused
    [rotated] = await webhooks.rotate_all("other", BY)
    assert (2, 0.0) == (rotated.generation, rotated.previous_until)
    assert [] == await leased(store, "wh_one")  # for a process that was not stopped, and would sign with the old secret
    await webhooks.use_secret("other")
    await webhooks.delete("wh_one", BY)
    assert await webhooks.has_secret("any")
