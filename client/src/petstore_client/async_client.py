"""The client for asyncio: every call is awaited."""

import random
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self

import httpx2

from petstore_client.clock import SYSTEM_CLOCK, Clock
from petstore_client.events import RateLimitEvent, RetryEvent
from petstore_client.exchange_async import AsyncExchange
from petstore_client.limits import RateLimit
from petstore_client.operations import cancel_order, get_pet, iter_orders, list_orders
from petstore_client.records import Order, Pet
from petstore_client.shared import Options, Pacing, Shared, warn_of_sunset
from petstore_client.steps import Steps, T


class AsyncClient:
    """A client of the Pet Store Orders API for asyncio. Use it with `async with`, or call `close`; tasks may share it.

    The arguments are those of `Client`; the transport is an asynchronous one. The hooks are plain functions.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float | None = 30.0,
        max_retries: int = 4,
        max_wait: float = 75.0,
        transport: httpx2.AsyncBaseTransport | None = None,
        retry_timeout: float = 120.0,
        retry_budget: float = 20.0,
        conditional: bool = True,
        pacing: Pacing | None = None,
        on_retry: Callable[[RetryEvent], object] | None = None,
        on_rate_limit: Callable[[RateLimitEvent], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        options = Options(
            timeout, max_retries, max_wait, retry_timeout, retry_budget, conditional, pacing,
            on_retry, on_rate_limit, clock, jitter,
        )  # fmt: skip
        self._shared = Shared(base_url, api_key, options)
        self._http = httpx2.AsyncClient(transport=transport, **self._shared.http_options())

    async def list_orders(self) -> list[Order]:
        """All orders, ascending by id, whatever has become of them: one consistent list.

        Raises AuthenticationError, PermissionDeniedError, RateLimitError, ServerError, APIConnectionError,
        InvalidResponseError.
        """
        return self._shared.keep(await self._run(list_orders(self._shared.session, self._shared.known_list())))

    async def iter_orders(self) -> AsyncGenerator[Order, None]:
        """The same, one after the other as they arrive, in memory that does not grow with the list.

        Once the first order is out nothing is repeated: a list that breaks off raises InvalidResponseError
        (`truncated`), one that stalls APITimeoutError. Other errors as `list_orders`. The connection is busy until the
        iteration ends or is closed (`contextlib.aclosing`).
        """
        exchange = self._exchange(iter_orders(self._shared.session))
        try:
            while (orders := await exchange.run()) is not None:
                for order in orders:
                    yield order
        finally:
            await exchange.close()

    async def cancel_order(self, order_id: int) -> None:
        """Cancel a pending order; when this returns, the cancellation is stored durably.

        It is repeated where the answer was lost, and a repetition that finds the order cancelled has succeeded.
        Raises NotFoundError, ConflictError (`code` is `order_already_shipped` or `order_already_cancelled`), and the
        errors of `list_orders`; their `may_have_been_applied` tells whether the order may be cancelled all the same.
        """
        await self._run(cancel_order(self._shared.session, order_id))

    async def get_pet(self, pet_id: int) -> Pet:
        """A pet. Deprecated: warns with a DeprecationWarning that names the sunset; after it, APIStatusError 410.

        Raises NotFoundError, and the errors of `list_orders`.
        """
        pet, sunset = await self._run(get_pet(self._shared.session, pet_id))
        warn_of_sunset(sunset, stacklevel=2)
        return pet

    @property
    def rate_limit(self) -> RateLimit | None:
        """Where the limits stood after the last answer that told of them; None before the first."""
        return self._shared.session.rate_limit

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shared.target.base_url}>"

    async def _run(self, steps: Steps[T]) -> T:
        exchange = self._exchange(steps)
        try:
            await exchange.run()
        finally:
            await exchange.close()
        return exchange.result

    def _exchange(self, steps: Steps[T]) -> AsyncExchange[T]:
        session = self._shared.session
        return AsyncExchange(steps, self._http, session.target, session.gate, session.clock)
