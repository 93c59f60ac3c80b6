"""Limits: nothing is sent early, and all clients with the same key share what they know."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from petstore_client import APIConnectionError, AsyncClient, Client, Clock, Order, RateLimitError, RateLimitEvent
from petstore_client._types import SYSTEM_CLOCK
from petstore_client.testing import Dropped, FakePetstore, RateLimited, Raw, Serve
from testing.client_variants import Connect, Held, Own, Silent, faulty
from testing.served_fake import served

ORDERS = [Order(id=1)]


@pytest.mark.anyio
async def test_threads_and_tasks_share_a_gate() -> None:
    fake = FakePetstore(ORDERS)
    transport = Held(fake)
    with fake.client(transport=transport) as client, ThreadPoolExecutor() as pool:
        blocked = pool.submit(client.list_orders)
        assert transport.sent.wait(60)
        async with fake.async_client() as asynchronous:
            calls = [asyncio.create_task(asynchronous.list_orders()) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert [] == fake.requests
            transport.release.set()
            assert [ORDERS] * 3 == await asyncio.gather(*calls)
        assert ORDERS == blocked.result(10)
    assert 4 == len(fake.requests)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "transport"), [(Client, httpx2.HTTPTransport), (AsyncClient, httpx2.AsyncHTTPTransport)]
)
async def test_requests_that_wait_for_a_connection_when_the_gate_closes_wait_for_the_gate(
    kind: type[Client | AsyncClient], transport: Any
) -> None:
    def refuse(*sent: Any) -> Raw:
        while petstore._core.gate._in_flight < 4:
            time.sleep(0.001)
        return RateLimited(1).apply(*sent)

    async def call() -> list[Order]:
        if isinstance(petstore, Client):
            return await asyncio.to_thread(petstore.list_orders)
        return await petstore.list_orders()

    fake = FakePetstore(ORDERS, clock=SYSTEM_CLOCK)
    with served(fake) as url:
        petstore = kind(url, api_key=fake.api_key, transport=transport(limits=httpx2.Limits(max_connections=1)))
        await call()
        fake.then(Own(refuse))
        assert [ORDERS] * 4 == await asyncio.gather(*[call() for _ in range(4)])
        await asyncio.to_thread(petstore.close) if isinstance(petstore, Client) else await petstore.close()
    assert (6, 0) == (len(fake.requests), fake.early)


def test_a_request_that_gets_its_connection_after_the_gate_reopened_waits_for_its_turn() -> None:
    def connect(request: httpx2.Request, clock: Clock, serve: Serve) -> Raw:
        if len(fake.requests) == 2:
            petstore._core.gate.ban(clock.monotonic() + 5)
            clock.sleep(5)
        request.extensions["trace"]("http11.send_request_headers.started", {})
        return serve()

    fake = faulty(ORDERS, *[Own(connect)] * 3)
    with fake.client() as petstore:
        assert [ORDERS] * 2 == [petstore.list_orders(), petstore.list_orders()]
    assert 3 == len(fake.requests)  # the second one was not sent, and the third one is sent first


@pytest.mark.anyio
@pytest.mark.parametrize("refused", [False, True])
async def test_tasks_that_are_cancelled_let_the_next_one_pass(refused: bool) -> None:
    fake = faulty(ORDERS, *[RateLimited(5)] * refused)
    transport = Silent(fake)
    async with fake.async_client(transport=transport) as held, fake.async_client() as free:
        if refused:  # then the next request is sent by itself
            with pytest.raises(RateLimitError):
                await free.with_options(max_wait=0).list_orders()
        probe = asyncio.create_task(held.list_orders())
        await transport.sent.wait()
        queued, waiting = [asyncio.create_task(free.list_orders()) for _ in range(2)]
        await asyncio.sleep(0)
        queued.cancel()
        probe.cancel()
        assert ORDERS == await waiting


def interrupt(fake: FakePetstore) -> None:
    """Send a request with a blocking client, and interrupt it before the response arrives."""
    with fake.client(transport=Silent(fake)) as petstore, pytest.raises(KeyboardInterrupt):
        petstore.list_orders()


def close_coroutine(fake: FakePetstore) -> None:
    """Send a request in a coroutine that is closed before the response arrives."""

    async def main() -> None:
        async with fake.async_client(transport=Silent(fake)) as petstore:
            call = petstore.list_orders()
            call.send(None)
            call.close()

    asyncio.run(main())


def lose_response(fake: FakePetstore) -> None:
    """Send a request whose response is lost, and give up."""
    fake.then(Dropped(applied=True))
    with fake.client(max_retries=0) as petstore, pytest.raises(APIConnectionError):
        petstore.list_orders()


@pytest.mark.parametrize("cancel", [interrupt, close_coroutine, lose_response])
def test_a_request_without_a_response_counts_as_charged(
    connect: Connect, cancel: Callable[[FakePetstore], None]
) -> None:
    fake = FakePetstore(ORDERS, per_minute=2)
    limits_met: list[RateLimitEvent] = []
    with connect(fake, on_rate_limit=limits_met.append) as petstore:
        petstore.list_orders()
        cancel(fake)
        assert 2 == len(fake.requests)
        petstore.list_orders()
    assert [False] == [event.refused for event in limits_met]  # the gate held the third request, the server did not
    assert 60.0 == pytest.approx(fake.requests[2].at - fake.requests[0].at)


def test_an_abandoned_iteration_lets_the_next_call_pass(connect: Connect) -> None:
    fake = FakePetstore([Order(id=number) for number in range(5)], per_minute=2)
    with connect(fake) as petstore:
        iteration: Iterator[Order] = petstore.iter_orders()
        assert Order(id=0) == next(iteration)
        del iteration
        assert 5 == len(petstore.list_orders())
