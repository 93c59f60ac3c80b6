"""The client with the real service in this process, over SQLite; every exchange is checked by the contract."""

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from petstore_client import AsyncClient, KeyBannedError, Order
from petstore_client.testing import FakeClock
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.orders import Order as Stored
from petstore_server.domain.orders import Status
from testing.checked_clients import CheckedAsyncTransport
from testing.clock import START, Clock, OwnClock
from testing.deployment import Deployment
from testing.service import Service, running

pytestmark = pytest.mark.anyio


class Connected(CheckedAsyncTransport):
    """Makes clients of a service, and counts their requests in `sent`."""

    _numbers = itertools.count(1)

    def __init__(self, service: Service, clock: FakeClock | None = None) -> None:
        super().__init__(service.transport)
        self._base_url = f"http://petstore-{next(self._numbers)}.test/v1"  # each test has its own limits
        self._clock = {"clock": clock} if clock else {}
        self.sent = 0

    def __call__(self, key: str, **options: Any) -> AsyncClient:
        return AsyncClient(self._base_url, **{"api_key": key, "transport": self, **self._clock, **options})

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent += 1
        return await super().handle_async_request(request)


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


class Following(Clock):
    """A clock for the service that follows the client's."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock.now())
        self._clock = clock

    def __call__(self) -> float:
        self.now = self._clock.now()
        return self.now
