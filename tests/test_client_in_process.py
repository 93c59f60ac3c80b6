"""The client with the real service in this process, over SQLite; every exchange is checked by the contract."""

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from petstore_client import (
    AsyncClient,
    AsyncV2,
    ConflictError,
    KeyBannedError,
    Order,
    PreconditionFailedError,
    v2,
)
from petstore_client.testing import FakeClock
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order as Stored
from petstore_server.domain.orders import Status
from testing.checked_clients import CheckedAsyncTransport
from testing.clock import START, Clock, OwnClock
from testing.deployment import Deployment
from testing.service import UNLIMITED, Service, running


class Connected(CheckedAsyncTransport):
    """Makes clients of a service, and counts their requests in `sent`."""

    _numbers = itertools.count(1)

    def __init__(self, service: Service, clock: FakeClock | None = None) -> None:
        super().__init__(service.transport)
        self._base_url = f"http://petstore-{next(self._numbers)}.test/v1"  # each test has its own limits
        self._clock = {"clock": clock} if clock else {}
        self.sent = 0
        self.lost = 0  # how many of the next responses are lost

    def __call__(self, key: str, **options: Any) -> AsyncClient:
        return AsyncClient(self._base_url, **{"api_key": key, "transport": self, **self._clock, **options})

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent += 1
        response = await super().handle_async_request(request)
        if self.lost:
            self.lost -= 1
            raise httpx2.ReadError("lost", request=request)
        return response


Clocked = tuple[Service, Connected, FakeClock]


@pytest.fixture(name="connected")
def _connected(service: Service) -> Connected:
    return Connected(service)


@pytest.fixture(name="clocked")
async def _clocked(deployment: Deployment) -> AsyncIterator[Clocked]:
    """A service and a client that share a fake clock."""
    clock = FakeClock(START)
    async with running(deployment, Following(clock)) as service:
        yield service, Connected(service, clock), clock


async def test_orders_are_listed_and_streamed_exactly(service: Service, connected: Connected) -> None:
    await service.orders(
        Stored(7, 1, 2, "2026-11-20T12:00:00.123456Z", False, Status.SHIPPED),
        Stored(-(2**63)),
        Stored(2**63 - 1, quantity=-(2**63)),
        *(Stored(number, number % 7, 1) for number in range(10_000, 13_000)),
    )
    expected = [
        Order(id=-(2**63)),
        Order(id=7, pet_id=1, quantity=2, ship_date=datetime(2026, 11, 20, 12, 0, 0, 123456, UTC), complete=False),
        *(Order(id=number, pet_id=number % 7, quantity=1) for number in range(10_000, 13_000)),
        Order(id=2**63 - 1, quantity=-(2**63)),
    ]
    async with connected(await service.key()) as petstore:
        assert expected == await petstore.list_orders()
        assert expected == await petstore.list_orders()  # 304
        assert expected == [order async for order in petstore.iter_orders()]


@pytest.mark.parametrize("by", [-7200.0, 7200.0])
async def test_a_429_caused_by_others_is_waited_out_without_a_strike(clocked: Clocked, by: float) -> None:
    """Whatever the clock of the client's host says."""
    service, connected, clock = clocked
    account = await service.account(Plan.ENTERPRISE, Limits(5, 1000))
    key = await service.key(account)
    async with connected(key, clock=OwnClock(clock, ahead=by)) as one, connected(key) as apart:
        await one.list_orders()
        for _ in range(4):
            await apart.list_orders()
        assert [] == await one.list_orders()  # is refused, and waits for the next window
    assert 60 <= clock.slept <= 62
    assert 7 == connected.sent
    assert 0 == service.backend.local.strikes


async def test_a_ban_caused_by_others_is_raised_immediately(clocked: Clocked) -> None:
    service, connected, clock = clocked
    account = await service.account(Plan.ENTERPRISE, Limits(1, 1000))
    key = await service.key(account)
    headers = {"Authorization": f"Bearer {key}"}
    await service.client.get("/v1/store/orders", headers=headers)
    for _ in range(21):
        await service.client.get("/v1/store/orders", headers=headers)
        clock.advance(2.1)
    async with connected(key) as petstore:
        for sent in (True, False):
            with pytest.raises(KeyBannedError) as caught:
                await petstore.list_orders()
            assert sent is caught.value.sent
        assert 1 == connected.sent
        clock.advance(caught.value.retry_at.timestamp() - clock.now())
        assert [] == await petstore.list_orders()


async def shop(service: Service, connected: Connected, account: str = "") -> AsyncClient:
    """A client of the shop's own systems."""
    account = account or await service.account(Plan.ENTERPRISE, UNLIMITED)
    key = await service.key(account, scopes=frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL, Scope.ORDERS_MANAGE}))
    return connected(key, jitter=lambda: 0.0)


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_each_change_is_made_once_whatever_responses_are_lost(
    service: Service, connected: Connected, lost: int
) -> None:
    async with await shop(service, connected) as petstore:

        def losing() -> AsyncV2:
            connected.lost = lost
            return petstore.v2

        put = await losing().put_order(8, pet_id=3, quantity=2, reference="R", create_only=True)
        updated = await losing().update_order(8, quantity=3, if_match=put.etag)
        shipped = await losing().ship_order(8, if_match=updated.etag)
        completed = await losing().complete_order(8, if_match=shipped.etag)
        assert (3, "R", "shipped", True) == (
            completed.quantity, completed.reference, completed.status, completed.complete,
        )  # fmt: skip
        assert completed == await petstore.v2.get_order(8)
        assert completed.etag == (await petstore.v2.get_order(8)).etag
        await petstore.v2.put_order(9)
        await losing().cancel_order(9, if_match=(await petstore.v2.get_order(9)).etag)
        with pytest.raises(PreconditionFailedError):
            await petstore.v2.update_order(8, quantity=4, if_match=put.etag)
        with pytest.raises(ConflictError) as caught:
            await petstore.v2.put_order(10, reference="R")
        assert ("reference_in_use", 8) == (caught.value.code, caught.value.order_id)


@pytest.mark.parametrize("lost", [0, 1])
async def test_batches_of_any_length_are_carried_out_once(service: Service, connected: Connected, lost: int) -> None:
    async with await shop(service, connected) as petstore:
        operations: list[v2.BatchOperation] = [v2.Put(number, quantity=1) for number in range(1, 701)]
        created = await petstore.v2.batch_orders(operations)
        assert [201] * 700 == [each.status for each in created]
        connected.lost = lost
        operations = [v2.Ship(number) for number in range(1, 600)]
        operations += [v2.Cancel(650), v2.Ship(650), v2.Complete(1), v2.Complete(700), v2.Put(701, quantity=1)]
        before = connected.sent
        results = await petstore.v2.batch_orders(operations)
        assert 2 + 2 * lost == connected.sent - before  # lost, repeated, and the orders read; and the second part
        assert [200] * 599 == [each.status for each in results][:599]
        assert [*range(1, 600), None, None, 1, None, 701] == [each.order and each.order.id for each in results]
        assert ["order_already_cancelled", "order_not_shipped"] == [each.error.code for each in results if each.error]
        assert 599 == len([order async for order in petstore.v2.iter_orders(status="shipped")])


class Following(Clock):
    """A clock for the service that follows the client's."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock.now())
        self._clock = clock

    def __call__(self) -> float:
        self.now = self._clock.now()
        return self.now
