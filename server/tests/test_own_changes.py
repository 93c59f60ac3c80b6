"""listChanges of accounts that see only their own orders: what wakes them, and to whom tokens belong (D21)."""

import asyncio
from time import monotonic
from typing import Any

import pytest

from petstore_server.api.v2 import changes
from petstore_server.domain import tokens
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.lists import ChangeClock, Position
from petstore_server.domain.orders import CANCEL, INT64_MIN, Order
from petstore_server.runtime.backend import opened_backend
from testing.partners import CHANGES, ORDERS, Partner, counted, partner, set_orders
from testing.service import Service, code, embedded
from testing.subprocesses import busy

pytestmark = pytest.mark.usefixtures("each_deployment")

ALL, OWN = VisibleOrders.ALL, VisibleOrders.OWN
RESET = (410, "changes_reset")
LOOKS = 3 * changes.LOOK_SECONDS
"""Seconds in which a change is looked for at least twice."""


async def now(client: Partner) -> str:
    """The token for what changes from now on."""
    response = await client.get(CHANGES, after="now")
    assert (200, []) == (response.status_code, response.json()["data"])
    return str(response.json()["next"])


async def changed(client: Partner, token: str) -> list[int]:
    response = await client.get(CHANGES, after=token)
    assert 200 == response.status_code
    return [order["id"] for order in response.json()["data"]]


async def test_a_held_request_is_not_woken_by_changes_of_others_which_cost_one_look_at_the_owners(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [await partner(service) for _ in range(3)]
    await service.orders(Order(1), Order(2, account=clients[0].account), Order(3, account=clients[1].account))
    given = [await now(client) for client in clients]
    async with clients[0].held(given[0]) as first, clients[2].held(given[2], 3) as last:
        asked = counted(service, monkeypatch)
        await service.backend.store.orders.change(1, CANCEL, service.actor)
        await clients[1].send("DELETE", f"{ORDERS}/3")
        await asyncio.sleep(LOOKS)
        looks = asked["last_changes"]
        assert 1 <= looks <= 2  # one for each change, unless both were found together
        await asyncio.sleep(LOOKS)
        assert not first.done()
        assert (looks, 0) == (asked["last_changes"], asked["page"])
        began = monotonic()
        async with opened_backend(service.settings, service.clock) as other:  # another process
            await other.store.orders.change(2, CANCEL, service.actor)
        response = await first
        assert monotonic() - began < 2 * changes.LOOK_SECONDS + busy()
        assert [(2, "cancelled")] == [(order["id"], order["status"]) for order in response.json()["data"]]
        assert (looks + 1, 1) == (asked["last_changes"], asked["page"])
        assert {"data": [], "next": given[2], "more": False} == (await last).json()


async def test_an_import_that_names_the_owner_wakes_a_held_request(service: Service) -> None:
    client = await partner(service)
    await service.orders(Order(1), Order(2))
    token = await now(client)
    async with client.held(token) as waiting:
        await service.orders(Order(1, account=client.account))
        assert [1] == [order["id"] for order in (await waiting).json()["data"]]


async def test_now_is_the_last_own_change(service: Service) -> None:
    client, other = await partner(service), await partner(service)
    empty = await now(client)
    first = await client.placed("a")
    token = await now(client)
    await other.placed("a")
    await service.orders(Order(100))
    assert token == await now(client)
    assert empty != token
    assert [first] == await changed(client, empty)
    assert [] == await changed(client, token)
    await client.send("DELETE", f"{ORDERS}/{first}")
    assert [first] == await changed(client, token)


async def test_a_change_that_is_made_while_now_is_read_is_no_other_history(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, search = await partner(service), service.backend.store.search
    order_id, read = await client.placed("a"), search.change_clock

    async def clock() -> ChangeClock:
        """Have another process make a change right after the clock was read, once."""
        found = await read()
        monkeypatch.setattr(search, "change_clock", read)
        await service.backend.store.orders.change(order_id, CANCEL, service.actor)
        return found

    monkeypatch.setattr(search, "change_clock", clock)
    response = await client.get(CHANGES, after="now")
    assert (200, [order_id]) == (response.status_code, [order["id"] for order in response.json()["data"]])


@embedded
async def test_a_request_that_is_held_during_a_look_keeps_the_later_clock_that_it_has_seen(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = await partner(service), await partner(service, ALL)
    await service.orders(Order(1), Order(2))
    token, search = await now(own), service.backend.store.search
    looks, read = asyncio.Event(), search.last_changes
    going_on = asyncio.Event()

    async def slow(owners: Any) -> Any:
        looks.set()
        await going_on.wait()
        return await read(owners)

    async with own.held(token) as waiting:
        monkeypatch.setattr(search, "last_changes", slow)
        await service.backend.store.orders.change(1, CANCEL, service.actor)
        async with asyncio.timeout(10):
            await looks.wait()
        await service.backend.store.orders.change(2, CANCEL, service.actor)
        async with other.held(await now(other), 1) as later:
            going_on.set()
            assert (200, []) == ((await later).status_code, (await later).json()["data"])
        await own.placed("a")
        assert 200 == (await waiting).status_code


async def test_a_token_belongs_to_what_an_account_sees(service: Service) -> None:
    one, two, everyone, another = [await partner(service, orders) for orders in (OWN, OWN, ALL, ALL)]
    await service.orders(Order(1, account=one.account), Order(2, account=two.account), Order(3))
    given = {client.account: await now(client) for client in (one, two, everyone)}
    for client, of in ((one, two), (two, one), (one, everyone), (everyone, one)):
        assert RESET == code(await client.get(CHANGES, after=given[of.account]))
    assert [] == await changed(another, given[everyone.account])
    epoch = (await service.backend.store.search.change_clock()).epoch
    of_release_1_0 = tokens.token_of(epoch, Position(0, INT64_MIN))
    assert [1, 2, 3] == await changed(everyone, of_release_1_0)
    assert RESET == code(await one.get(CHANGES, after=of_release_1_0))


async def test_a_forged_token_does_not_show_when_orders_of_others_changed(service: Service) -> None:
    client, other = await partner(service), await partner(service)
    await client.placed("a")
    search = service.backend.store.search
    epoch, at = (await search.change_clock()).epoch, (await search.last_changes([client.id]))[client.id]
    forged = {later: tokens.token_of(epoch, Position(at + later, 0), client.id) for later in (0, 1, 10**15)}
    for _ in range(2):
        assert 200 == (await client.get(CHANGES, after=forged[0])).status_code
        for later in (1, 10**15):
            assert RESET == code(await client.get(CHANGES, after=forged[later], wait=1))
        await other.placed("a")
    await client.placed("b")
    assert 200 == (await client.get(CHANGES, after=forged[1])).status_code
    assert RESET == code(await client.get(CHANGES, after=forged[10**15]))


async def test_a_cursor_belongs_to_what_an_account_sees(service: Service) -> None:
    one, two, everyone, another = [await partner(service, orders) for orders in (OWN, OWN, ALL, ALL)]
    await service.orders(*(Order(number, account=(one, two)[number % 2].account) for number in range(8)))
    cursors = {
        client.account: (await client.get(ORDERS, limit=2)).json()["nextCursor"] for client in (one, two, everyone)
    }
    for client, of in ((one, two), (two, one), (one, everyone), (everyone, one)):
        refused = await client.get(ORDERS, limit=2, cursor=cursors[of.account])
        assert (400, "invalid_cursor") == code(refused)
    assert [4, 6] == [order["id"] for order in (await one.get(ORDERS, cursor=cursors[one.account])).json()["data"]]
    assert 6 == len((await another.get(ORDERS, cursor=cursors[everyone.account])).json()["data"])


@pytest.mark.parametrize(("before", "after"), [(ALL, OWN), (OWN, ALL)])
async def test_what_an_account_sees_changes_at_once_for_tokens_cursors_and_held_requests(
    service: Service, before: VisibleOrders, after: VisibleOrders
) -> None:
    client = await partner(service, before)
    await service.orders(*(Order(number, account=client.account) for number in range(4)))
    token, cursor = await now(client), (await client.get(ORDERS, limit=2)).json()["nextCursor"]
    async with client.held(token) as waiting, client.held(token, 2) as ending:
        await set_orders(service, client.account, after)
        await service.background_round()
        assert RESET == code(await client.get(CHANGES, after=token))
        assert (400, "invalid_cursor") == code(await client.get(ORDERS, limit=2, cursor=cursor))
        await client.send("DELETE", f"{ORDERS}/1")
        assert (RESET, RESET) == (code(await waiting), code(await ending))
    assert 4 == len((await client.get(CHANGES)).json()["data"])
