"""Both client variants behind one interface, so that every test of behaviour runs with each."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, SupportsIndex, TypeVar

from petstore_client import AsyncClient, Order, Pet, RateLimit, ResponseEvent, v2
from petstore_client._versions import AsyncV2
from petstore_client.testing import FakeClock, FakePetstore

T = TypeVar("T")


class AnyV2(Protocol):
    """`client.v2` of either variant."""

    def list_orders(self, **query: Any) -> v2.Page: ...
    def iter_orders(self, **filters: Any) -> Iterator[v2.Order]: ...
    def follow_changes(self, **options: Any) -> Iterator[v2.Changes]: ...
    def get_order(self, order_id: SupportsIndex) -> v2.Order: ...
    def cancel_order(self, order_id: SupportsIndex) -> None: ...
    def place_order(self, *arguments: Any, **order: Any) -> v2.Order: ...
    def get_usage(self, **query: Any) -> v2.Usage: ...


class AnyClient(Protocol):
    """What a test does with a client of either variant."""

    def list_orders(self) -> list[Order]: ...
    def iter_orders(self) -> Iterator[Order]: ...
    def cancel_order(self, order_id: SupportsIndex) -> None: ...
    def get_pet(self, pet_id: SupportsIndex) -> Pet: ...
    def close(self) -> None: ...
    def with_options(self, **changes: Any) -> "AnyClient": ...
    @property
    def v2(self) -> AnyV2: ...
    @property
    def last_response(self) -> ResponseEvent | None: ...
    @property
    def rate_limit(self) -> RateLimit | None: ...


class Connect(Protocol):
    """Makes a client of a fake service; a context manager."""

    def __call__(self, fake: FakePetstore, **options: Any) -> AbstractContextManager[AnyClient]: ...


class Synchronous:
    """An AsyncClient whose calls are run to their end, on the fake's clock."""

    def __init__(self, client: AsyncClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client = client
        self._run = run

    def list_orders(self) -> list[Order]:
        listed: list[Order] = self._run(self._client.list_orders())
        return listed

    def iter_orders(self) -> Iterator[Order]:
        return _blocking(self._client.iter_orders(), self._run)

    def cancel_order(self, order_id: SupportsIndex) -> None:
        self._run(self._client.cancel_order(order_id))

    def get_pet(self, pet_id: SupportsIndex) -> Pet:
        pet: Pet = self._run(self._client.get_pet(pet_id))
        return pet

    def close(self) -> None:
        self._run(self._client.close())

    def with_options(self, **changes: Any) -> "Synchronous":
        return Synchronous(self._client.with_options(**changes), self._run)

    @property
    def v2(self) -> AnyV2:
        return SynchronousV2(self._client.v2, self._run)

    @property
    def last_response(self) -> ResponseEvent | None:
        return self._client.last_response

    @property
    def rate_limit(self) -> RateLimit | None:
        return self._client.rate_limit


class SynchronousV2:
    """The same for `AsyncClient.v2`."""

    def __init__(self, version: AsyncV2, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._version = version
        self._run = run

    def iter_orders(self, **filters: Any) -> Iterator[v2.Order]:
        return _blocking(self._version.iter_orders(**filters), self._run)

    def follow_changes(self, **options: Any) -> Iterator[v2.Changes]:
        return _blocking(self._version.follow_changes(**options), self._run)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self._run(getattr(self._version, name)(*args, **options))


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


@contextmanager
def blocking(fake: FakePetstore, **options: Any) -> Iterator[AnyClient]:
    client: Any
    with fake.client(**options) as client:
        yield client


@contextmanager
def asynchronous(fake: FakePetstore, **options: Any) -> Iterator[AnyClient]:
    assert isinstance(fake.clock, FakeClock)
    # One loop for all calls: an asynchronous iteration belongs to the loop that started it.
    with asyncio.Runner(loop_factory=fake.clock.new_event_loop) as runner:
        client = fake.async_client(**options)
        yield Synchronous(client, runner.run)
        runner.run(client.close())
