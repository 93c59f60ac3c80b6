"""Both client variants behind one interface, so that every test of behaviour runs with each."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from petstore_client import AsyncClient, Order, Pet, RateLimit, ResponseEvent
from petstore_client.testing import FakeClock, FakePetstore

T = TypeVar("T")


class AnyClient(Protocol):
    """What a test does with a client of either variant."""

    def list_orders(self) -> list[Order]: ...
    def iter_orders(self) -> Iterator[Order]: ...
    def cancel_order(self, order_id: int) -> None: ...
    def get_pet(self, pet_id: int) -> Pet: ...
    def close(self) -> None: ...
    def with_options(self, **changes: Any) -> "AnyClient": ...
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
        orders = self._client.iter_orders()

        async def following() -> Order | None:
            return await anext(orders, None)

        try:
            while (order := self._run(following())) is not None:
                yield order
        finally:
            self._run(_closed(orders))

    def cancel_order(self, order_id: int) -> None:
        self._run(self._client.cancel_order(order_id))

    def get_pet(self, pet_id: int) -> Pet:
        pet: Pet = self._run(self._client.get_pet(pet_id))
        return pet

    def close(self) -> None:
        self._run(self._client.close())

    def with_options(self, **changes: Any) -> "Synchronous":
        return Synchronous(self._client.with_options(**changes), self._run)

    @property
    def last_response(self) -> ResponseEvent | None:
        return self._client.last_response

    @property
    def rate_limit(self) -> RateLimit | None:
        return self._client.rate_limit


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
