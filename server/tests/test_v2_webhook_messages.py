"""What the operations on webhooks make of the messages: positions, states, pings and secrets (D24)."""

import asyncio
from datetime import datetime

import pytest

from petstore_server.api.v2.webhooks import MAX_PINGS
from petstore_server.domain.accounts import VisibleOrders, close
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.webhooks import WebhookState
from testing.partner_webhooks import (
    WEBHOOKS,
    act,
    audited,
    create,
    created,
    deliver,
    patch,
    receiving,
    set_state,
    shown,
    thanks,
)
from testing.partners import CHANGES, partner, set_orders
from testing.service import Service, code, embedded
from testing.webhook_messages import SETTINGS
from testing.webhooks import after

pytestmark = [pytest.mark.usefixtures("each_deployment"), pytest.mark.settings(**SETTINGS)]


@pytest.mark.parametrize("visible", VisibleOrders)
async def test_a_webhook_begins_now_at_the_beginning_or_at_a_token(service: Service, visible: VisibleOrders) -> None:
    client = await partner(service, visible)
    first = await client.placed("1")
    token = (await client.get(CHANGES)).json()["next"]
    second = await client.placed("2")
    begin = {"now": [], "beginning": [first, second], token: [second]}
    expected: list[int] = []
    async with receiving() as receiver:
        for after, orders in begin.items():
            webhook = await created(client, url=receiver.url, after=after)
            await deliver(service)
            expected += orders
            assert expected == receiver.orders
            assert 0 == (await shown(client, webhook))["lag"]
        for after, orders in begin.items():  # a replay, by a change
            assert 200 == (await patch(client, webhook, after=after)).status_code
            await deliver(service)
            expected += orders
            assert expected == receiver.orders
        third = await client.placed("3")
        await deliver(service)
        assert [*expected, third, third, third] == receiver.orders
    attempts = (await shown(client, webhook))["attempts"]
    assert {(200, "thanks")} == {(attempt["status"], attempt["excerpt"]) for attempt in attempts}


async def test_the_lag_is_the_age_of_the_first_change_that_is_not_delivered(service: Service) -> None:
    await service.orders(Order(1), Order(2, status=Status.SHIPPED))
    client = await partner(service, VisibleOrders.ALL)
    webhooks = [await created(client, after=after) for after in ("beginning", "now")]
    webhooks.append(await created(client, after="beginning", statuses=["cancelled"]))
    [first, _] = (await client.get("/v2/store/orders")).json()["data"]
    for seconds in (0, 90):
        service.clock.now = datetime.fromisoformat(first["updatedAt"]).timestamp() + seconds
        assert [seconds, 0, 0] == [(await shown(client, webhook))["lag"] for webhook in webhooks]


@pytest.mark.parametrize("state", WebhookState)
async def test_a_ping_is_sent_unless_the_webhook_has_ended(service: Service, state: WebhookState) -> None:
    client = await partner(service)
    async with receiving() as receiver:
        webhook = await created(client, url=f"{receiver.url}?x=1")
        await set_state(service, webhook, state)
        before = await shown(client, webhook)
        response = await act(client, webhook, "ping")
        if state is WebhookState.ENDED:
            assert ((409, "webhook_ended"), []) == (code(response), receiver.received)
            return
        attempt = response.json()
        assert (200, 200, "thanks") == (response.status_code, attempt["status"], attempt["excerpt"])
        [message] = receiver.received
        assert {"type": "ping", "timestamp": "2026-10-26T07:33:20Z", "data": {}} == message.message
        assert message.is_signed(webhook["secret"])
        assert str(int(service.clock.now)) == message.headers["webhook-timestamp"]
        assert ("application/json", "identity") == (message.headers["content-type"], message.headers["accept-encoding"])
        assert before == await shown(client, webhook)  # nor is it one of the attempts
        assert ("webhook.ping", True) == ((await audited(service))[-1][0], "200" in (await audited(service))[-1][1])


async def test_a_ping_shows_what_the_receiver_does_wrong(service: Service) -> None:
    client = await partner(service)
    async with receiving() as receiver:
        webhook = await created(client, url=receiver.url)
        for status in (500, 302, 410):
            receiver.usual = thanks(status)
            attempt = (await act(client, webhook, "ping")).json()
            assert (status, "thanks") == (attempt["status"], attempt["excerpt"])
    attempt = (await act(client, webhook, "ping")).json()
    assert {"at", "milliseconds", "excerpt"} == attempt.keys()
    assert "no connection" in attempt["excerpt"]
    found = await shown(client, webhook)
    assert ("active", []) == (found["state"], found["attempts"])


@embedded
async def test_pings_of_one_account_do_not_delay_those_of_others(service: Service) -> None:
    client, other = await partner(service), await partner(service)
    released = asyncio.Event()
    async with receiving() as slow, receiving() as quick:
        slow.usual = after(released, thanks())
        webhook, others = await created(client, url=slow.url), await created(other, url=quick.url)
        pings = [asyncio.create_task(act(client, webhook, "ping")) for _ in range(MAX_PINGS)]
        await slow.until(MAX_PINGS)
        refused = await act(client, webhook, "ping")
        assert (503, "service_unavailable") == code(refused)
        assert 200 == (await act(other, others, "ping")).json()["status"]
        released.set()
        assert {200} == {ping.status_code for ping in await asyncio.gather(*pings)}
        assert 200 == (await act(client, webhook, "ping")).status_code


@embedded
async def test_a_ping_is_answered_although_its_account_sees_other_orders_by_then(service: Service) -> None:
    client, released = await partner(service), asyncio.Event()
    async with receiving() as receiver:
        receiver.usual = after(released, thanks())
        webhook = await created(client, url=receiver.url)
        ping = asyncio.create_task(act(client, webhook, "ping"))
        await receiver.until(1)
        await set_orders(service, client.account, VisibleOrders.ALL)
        await service.background_round()
        released.set()
        assert 200 == (await ping).json()["status"]


async def test_after_a_rotation_both_secrets_sign_until_the_grace_ends(service: Service) -> None:
    client = await partner(service)
    async with receiving() as receiver:
        webhook = await created(client, url=receiver.url)
        secrets = [webhook["secret"]]

        async def signing() -> list[bool]:
            assert 200 == (await act(client, webhook, "ping")).status_code
            return [receiver.received[-1].is_signed(secret) for secret in secrets]

        for body, grace in (({}, DAY), ({"json": None}, DAY), ({"json": {}}, DAY), ({"json": {"grace": 60}}, 60)):
            response = await act(client, webhook, "rotate", **body)
            assert (200, "no-store") == (response.status_code, response.headers["cache-control"])
            secrets.append(response.json()["secret"])
            assert {**webhook, "secret": secrets[-1]} == response.json()
            assert [*[False] * (len(secrets) - 2), True, True] == await signing()
            service.clock.now += grace - 1
            assert [True, True] == (await signing())[-2:]
            service.clock.now += 1
            assert [*[False] * (len(secrets) - 1), True] == await signing()
        secrets.append((await act(client, webhook, "rotate", json={"grace": 0})).json()["secret"])
        assert [*[False] * (len(secrets) - 1), True] == await signing()
        assert len(secrets) == len({*secrets})
        assert "secret" not in await shown(client, webhook)


async def test_a_webhook_whose_receiver_is_gone_has_ended_and_can_only_be_read_and_deleted(service: Service) -> None:
    client = await partner(service)
    async with receiving() as receiver:
        receiver.usual = thanks(410)
        webhook = await created(client, url=receiver.url)
        await client.placed("1")
        await deliver(service)
        found = await shown(client, webhook)
        assert ("ended", 0, [410]) == (found["state"], found["lag"], [each["status"] for each in found["attempts"]])
        for response in (
            await patch(client, webhook, state="active"),
            await patch(client, webhook, after="now"),
            await patch(client, webhook),
            await act(client, webhook, "ping"),
            await act(client, webhook, "rotate"),
        ):
            assert (409, "webhook_ended") == code(response)
        assert found == await shown(client, webhook)
        assert 1 == len(receiver.received)
    assert 204 == (await client.send("DELETE", f"{WEBHOOKS}/{webhook['id']}")).status_code


@pytest.mark.parametrize("state", [WebhookState.PAUSED, WebhookState.STOPPED])
async def test_a_webhook_goes_on_where_it_was_once_it_is_resumed(service: Service, state: WebhookState) -> None:
    client = await partner(service)
    async with receiving() as receiver:
        webhook = await created(client, url=receiver.url)
        await set_state(service, webhook, state)
        order_id = await client.placed("1")
        await deliver(service)
        found = await shown(client, webhook)
        assert (str(state), True, []) == (found["state"], "failingSince" in found, receiver.received)
        assert "paused" == (await patch(client, webhook, state="paused")).json()["state"]
        await set_state(service, webhook, state)
        assert "active" == (await patch(client, webhook, state="active")).json()["state"]
        await deliver(service)
        assert [order_id] == receiver.orders
        assert "failingSince" not in await shown(client, webhook)


async def test_an_account_that_comes_to_see_other_orders_gets_a_reset(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(Order(1), Order(2))
    async with receiving() as receiver:
        await created(client, url=receiver.url, after="beginning")
        await deliver(service)
        order_id = await client.placed("1")
        await set_orders(service, client.account, VisibleOrders.OWN)
        await deliver(service)
        first, reset, own = receiver.received
        assert ([1, 2], "orders.reset", [order_id]) == (first.orders, reset.message["type"], own.orders)
        token = reset.message["data"]["next"]
        await service.background_round()
        assert [order_id] == [order["id"] for order in (await client.get(CHANGES, after=token)).json()["data"]]


async def test_a_key_of_an_account_that_is_being_closed_creates_nothing(service: Service) -> None:
    """The process has not noticed yet that the account is closed."""
    client = await partner(service)
    await client.get(WEBHOOKS)
    await service.backend.store.accounts.change(client.account, close(service.clock.now), service.actor)
    assert (503, "service_unavailable") == code(await create(client))
    assert [] == await service.backend.store.webhooks.of_account()
