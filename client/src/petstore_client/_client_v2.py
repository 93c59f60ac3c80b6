"""`client.v2`: version 2 of the API, blocking and awaited."""

import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Protocol, SupportsIndex

from petstore_client import _operations_v2 as operations
from petstore_client._admission import Session
from petstore_client._arguments import NewOrder, PageQuery, PagesQuery, UsageQuery
from petstore_client._effects import Effects, T
from petstore_client._options import takes
from petstore_client.errors import keep_key
from petstore_client.v2 import Order, Page, Usage


class Run(Protocol):
    """Performs a call, blocking."""

    def __call__(self, effects: Effects[T]) -> T: ...


class AsyncRun(Protocol):
    """Performs a call on an event loop."""

    def __call__(self, effects: Effects[T]) -> Coroutine[Any, Any, T]: ...


Iterate = Callable[[Effects[None]], Generator[Any, None, None]]
AsyncIterate = Callable[[Effects[None]], AsyncGenerator[Any, None]]


class V2:
    """Version 2 of the API (beta), with the limits, the retries and the options of its client."""

    def __init__(self, session: Callable[[], Session], run: Run, iterate: Iterate) -> None:
        self._session = session
        self._run = run
        self._iterate = iterate

    @takes(PageQuery)
    def list_orders(self, query: PageQuery) -> Page:
        """One page of the orders that match all filters.

        Raises the errors of `Client.list_orders`, and APIStatusError 400 `invalid_parameter` or `invalid_cursor`.
        """
        return self._run(operations.list_orders(self._session(), query))

    @takes(PagesQuery)
    def iter_orders(self, pages: PagesQuery) -> Generator[Order, None, None]:
        """The orders that match all filters, one by one, in the memory of one page.

        Each page is a separate call: it is retried, and `deadline` applies to it. Raises the errors of `list_orders`.
        """
        return self._iterate(operations.iter_orders(self._session, pages))

    def get_order(self, order_id: SupportsIndex) -> Order:
        """One order. Raises NotFoundError, and the errors of `Client.list_orders`."""
        return self._run(operations.get_order(self._session(), order_id))

    def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order, as `Client.cancel_order` does."""
        self._run(operations.cancel_order(self._session(), order_id))

    @takes(NewOrder)
    def place_order(self, order: NewOrder) -> Order:
        """Place an order, once, however often the request is repeated. When this returns, it is stored durably.

        Experimental: it may change or disappear in any release. The key needs the scope `orders:write`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` or 422 `idempotency_key_reused`, ConflictError
        `idempotency_key_in_use`, and the errors of `Client.list_orders`. `may_have_been_applied` says whether the order
        may have been placed; another call with the `idempotency_key` of the error does not place a second one.
        """
        key = order.idempotency_key or uuid.uuid4().hex
        try:
            return self._run(operations.place_order(self._session(), order, key))
        except BaseException as error:
            keep_key(error, key)
            raise

    @takes(UsageQuery)
    def get_usage(self, query: UsageQuery) -> Usage:
        """The plan and the limits of the account, and its requests by hour or day.

        Raises the errors of `Client.list_orders`, and APIStatusError 400 `invalid_parameter`.
        """
        return self._run(operations.get_usage(self._session(), query))


class AsyncV2:
    """Version 2 of the API (beta) for asyncio, with the limits, the retries and the options of its client."""

    def __init__(self, session: Callable[[], Session], run: AsyncRun, iterate: AsyncIterate) -> None:
        self._session = session
        self._run = run
        self._iterate = iterate

    @takes(PageQuery)
    async def list_orders(self, query: PageQuery) -> Page:
        """One page of the orders that match all filters.

        Raises the errors of `AsyncClient.list_orders`, and APIStatusError 400 `invalid_parameter` or `invalid_cursor`.
        """
        return await self._run(operations.list_orders(self._session(), query))

    @takes(PagesQuery)
    def iter_orders(self, pages: PagesQuery) -> AsyncGenerator[Order, None]:
        """The orders that match all filters, one by one, in the memory of one page.

        Each page is a separate call: it is retried, and `deadline` applies to it. Raises the errors of `list_orders`.
        """
        return self._iterate(operations.iter_orders(self._session, pages))

    async def get_order(self, order_id: SupportsIndex) -> Order:
        """One order. Raises NotFoundError, and the errors of `AsyncClient.list_orders`."""
        return await self._run(operations.get_order(self._session(), order_id))

    async def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order, as `AsyncClient.cancel_order` does."""
        await self._run(operations.cancel_order(self._session(), order_id))

    @takes(NewOrder)
    async def place_order(self, order: NewOrder) -> Order:
        """Place an order, once, however often the request is repeated. When this returns, it is stored durably.

        Experimental: it may change or disappear in any release. The key needs the scope `orders:write`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` or 422 `idempotency_key_reused`, ConflictError
        `idempotency_key_in_use`, and the errors of `AsyncClient.list_orders`. `may_have_been_applied` says whether the
        order may have been placed; another call with the `idempotency_key` of the error does not place a second one.
        """
        key = order.idempotency_key or uuid.uuid4().hex
        try:
            return await self._run(operations.place_order(self._session(), order, key))
        except BaseException as error:
            keep_key(error, key)
            raise

    @takes(UsageQuery)
    async def get_usage(self, query: UsageQuery) -> Usage:
        """The plan and the limits of the account, and its requests by hour or day.

        Raises the errors of `AsyncClient.list_orders`, and APIStatusError 400 `invalid_parameter`.
        """
        return await self._run(operations.get_usage(self._session(), query))
