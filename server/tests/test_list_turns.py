"""Lists in one turn of the event loop: they share one look at the store, and none misses an acknowledged change."""

import asyncio
import json
import socket
from contextlib import ExitStack

import pytest

from petstore_server.domain.accounts import Plan
from petstore_server.domain.keys import DEFAULT_SCOPES, Scope
from petstore_server.domain.orders import Order
from petstore_server.runtime.opening import opened_store
from petstore_server.store.listing import Listing, OrderList
from testing import wire
from testing.process import exchange
from testing.service import UNLIMITED, Service

TARGET = "/v1/store/orders"


async def writer_key(service: Service) -> str:
    """A key that may do everything."""
    account = await service.account(Plan.ENTERPRISE, UNLIMITED)
    return await service.key(account, scopes=DEFAULT_SCOPES | {Scope.ORDERS_WRITE})


def request(key: str, method: str, target: str, *lines: str, body: str = "") -> bytes:
    return wire.head(method, target, f"Content-Length: {len(body)}", *lines, key=key) + body.encode()


def lists(raw: bytes) -> list[list[int]]:
    """The identifiers in each list among the responses on a connection."""
    bodies = [response.body for response in wire.responses(raw)]
    return [[order["id"] for order in json.loads(body)] for body in bodies if body.startswith(b"[")]


async def sent(service: Service, *payloads: bytes) -> list[bytes]:
    """Send each payload over a connection of its own, all in one turn of the event loop; return the responses."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        address = ("127.0.0.1", service.transport.port)
        peers = [stack.enter_context(socket.create_connection(address)) for _ in payloads]
        await asyncio.sleep(0.05)  # the server accepts them
        for peer, payload in zip(peers, payloads, strict=True):
            peer.sendall(payload)  # without giving way to the server
        return [await loop.run_in_executor(None, exchange, peer, b"") for peer in peers]


@pytest.mark.usefixtures("each_deployment")
async def test_a_pipelined_list_shows_what_the_request_before_it_has_changed(service: Service) -> None:
    await service.orders(Order(7), Order(8))
    key = await writer_key(service)
    plain, last = request(key, "GET", TARGET), request(key, "GET", TARGET, "Connection: close")
    body = json.dumps({"petId": 1, "quantity": 1})
    place = request(key, "POST", "/v2/store/orders", "Content-Type: application/json", "Idempotency-Key: a", body=body)
    cancel = request(key, "DELETE", f"{TARGET}/7")
    await sent(service, last)
    received = await sent(service, plain + place + plain + cancel + last, *[plain + last] * 10)
    assert [[7, 8], [7, 8, 9], [7, 8, 9]] == lists(received[0])
    assert [200, 201, 200, 204, 200] == [response.status for response in wire.responses(received[0])]
    assert all(len(found) == 2 and found[0] in ([7, 8], [7, 8, 9]) for found in map(lists, received[1:]))
    assert [[[7, 8, 9]]] * 5 == [lists(one) for one in await sent(service, *[last] * 5)]


@pytest.mark.usefixtures("each_deployment")
async def test_a_change_by_another_program_shows_in_every_list_of_a_later_turn(service: Service) -> None:
    last = request(await writer_key(service), "GET", TARGET, "Connection: close")
    async with opened_store(service.settings.database_url) as other:
        for number in range(1, 6):
            await other.orders.import_batch([Order(number)], "test", service.actor)
            expected = list(range(1, number + 1))
            for _ in range(2):  # a list that is updated, then one that is found to be current
                assert [[expected]] * 3 == [lists(one) for one in await sent(service, last, last, last)]


async def test_lists_of_one_turn_look_at_a_file_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    current = Listing.current

    async def counted(self: Listing) -> OrderList:
        nonlocal looks
        looks += 1
        return await current(self)

    monkeypatch.setattr(Listing, "current", counted)
    await service.orders(Order(7))
    last = request(await writer_key(service), "GET", TARGET, "Connection: close")
    await sent(service, last)
    looks = 0
    assert [[[7]]] * 8 == [lists(one) for one in await sent(service, *[last] * 8)]
    assert 1 == looks
