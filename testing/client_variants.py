"""Both client variants behind one interface, so that every test of behaviour runs with each."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import httpx2

from petstore_client import AsyncClient, Client, Clock, Order
from petstore_client._versions import AsyncV2
from petstore_client._webhooks import AsyncWebhooks
from petstore_client.testing import FakeClock, FakePetstore, Fault, Raw, Serve

T = TypeVar("T")


class Connect(Protocol):
    """Makes a client of a fake service; a context manager."""

    def __call__(self, fake: FakePetstore, **options: Any) -> AbstractContextManager[Client]: ...


def faulty(orders: Iterable[Order], *faults: Fault, **options: Any) -> FakePetstore:
    """A fake service with these orders, and these faults for its next requests."""
    fake = FakePetstore(orders, **options)
    fake.then(*faults)
    return fake


class Own(NamedTuple):
    """A fault that a test writes: a function of the request, the clock, and what carries the request out."""

    apply: Callable[[httpx2.Request, Clock, Serve], Raw]


class Silent(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Delivers requests to a fake service, and loses the responses: a thread is interrupted, a task waits forever."""

    def __init__(self, fake: FakePetstore) -> None:
        self._fake = fake
        self.sent = asyncio.Event()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._fake.handle_request(request)
        raise KeyboardInterrupt

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await self._fake.handle_async_request(request)
        self.sent.set()
        await asyncio.Event().wait()
        raise AssertionError


class Held(httpx2.BaseTransport):
    """Delivers requests to a fake service, the first of them only after `release` is set."""

    def __init__(self, fake: FakePetstore) -> None:
        self._fake = fake
        self.sent, self.release = threading.Event(), threading.Event()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if not self.sent.is_set():
            self.sent.set()
            assert self.release.wait(60)
        return self._fake.handle_request(request)


class Synchronous:
    """An AsyncClient, its `v2`, or the `webhooks` of that, whose calls are run to their end, on the fake's clock."""

    def __init__(
        self, inner: AsyncClient | AsyncV2 | AsyncWebhooks, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._inner = inner
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if isinstance(found, AsyncV2 | AsyncWebhooks):
            return Synchronous(found, self._run)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        if isinstance(result, AsyncClient):
            return Synchronous(result, self._run)
        return self._run(result) if asyncio.iscoroutine(result) else _blocking(result, self._run)


def _blocking(items: AsyncGenerator[T, None], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[T]:
    async def following() -> T | None:
        return await anext(items, None)

    try:
        while (item := run(following())) is not None:
            yield item
    finally:
        closing = _closed(items)
        with suppress(RuntimeError):  # an iteration that was abandoned, and whose loop has been closed
            run(closing)
        closing.close()


async def _closed(orders: Any) -> None:
    await orders.aclose()


def blocking(fake: FakePetstore, **options: Any) -> Client:
    return fake.client(**options)


@contextmanager
def asynchronous(fake: FakePetstore, **options: Any) -> Iterator[Client]:
    assert isinstance(fake.clock, FakeClock)
    # One loop for all calls: an asynchronous iteration belongs to the loop that started it.
    with asyncio.Runner(loop_factory=fake.clock.new_event_loop) as runner:
        client = fake.async_client(**options)
        yield cast(Client, Synchronous(client, runner.run))
        runner.run(client.close())
