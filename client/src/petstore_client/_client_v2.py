"""`client.v2`: version 2 of the API, blocking and awaited."""

import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from datetime import datetime
from functools import partial
from typing import Any, Protocol, SupportsIndex, Unpack

from petstore_client import _operations_v2 as operations
from petstore_client._admission import Session
from petstore_client._arguments import idempotency_key as checked_key
from petstore_client._arguments import new_order, query
from petstore_client._effects import Effects, T
from petstore_client.errors import keep_key
from petstore_client.v2 import Filters, Granularity, Order, Page, Usage


class Run(Protocol):
    """Performs a call, blocking."""

    def __call__(self, effects: Effects[T]) -> T: ...


class AsyncRun(Protocol):
    """Performs a call on an event loop."""

    def __call__(self, effects: Effects[T]) -> Coroutine[Any, Any, T]: ...


Iterate = Callable[[Effects[None]], Generator[Any, None, None]]
AsyncIterate = Callable[[Effects[None]], AsyncGenerator[Any, None]]


class V2:
    """Version 2 of the API (beta), with the limits, the retries and the options of its client.

    The errors of a call are those of `Client.list_orders`, and those that its method names.
    """

    def __init__(self, session: Callable[[], Session], run: Run, iterate: Iterate) -> None:
        self._session = session
        self._run = run
        self._iterate = iterate

    def list_orders(self, *, limit: SupportsIndex = 100, cursor: str | None = None, **filters: Unpack[Filters]) -> Page:
        """One page of the orders that match all filters.

        limit: the most orders on the page, from 1 to 1000.
        cursor: the `next_cursor` of the page before, for the same filters and sort; None for the first page.

        Raises APIStatusError 400 `invalid_parameter` or `invalid_cursor`, and TypeError and ConfigurationError (a
        ValueError) before anything is sent.
        """
        text = query(**{"sort": "id", **filters, "limit": limit, "cursor": cursor})
        return self._run(operations.list_orders(self._session(), text))

    def iter_orders(self, *, limit: SupportsIndex = 1000, **filters: Unpack[Filters]) -> Generator[Order, None, None]:
        """The orders that match all filters, one by one, in the memory of one page.

        limit: the most orders in one request, from 1 to 1000; the iteration has no limit.

        Each page is a separate call: it is retried, and `deadline` applies to it. Raises the errors of `list_orders`.
        """
        page = partial(query, **{"sort": "id", **filters, "limit": limit})
        page()  # raises the errors of the arguments here, not when the iteration begins
        return self._iterate(operations.iter_orders(self._session, page))

    def get_order(self, order_id: SupportsIndex) -> Order:
        """One order. Raises NotFoundError."""
        return self._run(operations.get_order(self._session(), order_id))

    def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order, as `Client.cancel_order` does."""
        self._run(operations.cancel_order(self._session(), order_id))

    def place_order(
        self,
        *,
        pet_id: SupportsIndex,
        quantity: SupportsIndex,
        ship_date: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Order:
        """Place an order, once, however often the request is repeated. When this returns, it is stored durably.

        pet_id, quantity: the pet, and the number of units, at least 1.
        ship_date: when the order should ship, an aware datetime.
        idempotency_key: 1 to 255 visible ASCII characters; None makes a new key for this call. Pass the key of an
            earlier call to repeat that call.

        Experimental: it may change or disappear in any release. The key needs the scope `orders:write`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` or 422 `idempotency_key_reused`, and
        ConflictError `idempotency_key_in_use`. `may_have_been_applied` says whether the order may have been placed.
        Every exception, a KeyboardInterrupt too, has the attribute `idempotency_key`: another call with it does
        not place a second order.
        """
        body = new_order(pet_id, quantity, ship_date)
        key = uuid.uuid4().hex if idempotency_key is None else checked_key(idempotency_key)
        try:
            return self._run(operations.place_order(self._session(), body, key))
        except BaseException as error:
            keep_key(error, key)
            raise

    def get_usage(
        self, *, granularity: Granularity = "hour", start: datetime | None = None, end: datetime | None = None
    ) -> Usage:
        """The plan and the limits of the account, and its requests by hour or day.

        granularity: "hour" or "day", the length of the entries of the history.
        start, end: aware datetimes between which the history lies; by default the last 24 hours.

        Raises APIStatusError 400 `invalid_parameter`.
        """
        text = query(granularity=granularity, start=start, end=end)
        return self._run(operations.get_usage(self._session(), text))


class AsyncV2:
    """Version 2 of the API (beta) for asyncio. The arguments and errors are those of `V2`."""

    def __init__(self, session: Callable[[], Session], run: AsyncRun, iterate: AsyncIterate) -> None:
        self._session = session
        self._run = run
        self._iterate = iterate

    async def list_orders(
        self, *, limit: SupportsIndex = 100, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> Page:
        """One page of the orders that match all filters, as `V2.list_orders`."""
        text = query(**{"sort": "id", **filters, "limit": limit, "cursor": cursor})
        return await self._run(operations.list_orders(self._session(), text))

    def iter_orders(self, *, limit: SupportsIndex = 1000, **filters: Unpack[Filters]) -> AsyncGenerator[Order, None]:
        """The orders that match all filters, one by one, in the memory of one page, as `V2.iter_orders`."""
        page = partial(query, **{"sort": "id", **filters, "limit": limit})
        page()  # raises the errors of the arguments here, not when the iteration begins
        return self._iterate(operations.iter_orders(self._session, page))

    async def get_order(self, order_id: SupportsIndex) -> Order:
        """One order. Raises NotFoundError."""
        return await self._run(operations.get_order(self._session(), order_id))

    async def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order, as `AsyncClient.cancel_order` does."""
        await self._run(operations.cancel_order(self._session(), order_id))

    async def place_order(
        self,
        *,
        pet_id: SupportsIndex,
        quantity: SupportsIndex,
        ship_date: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Order:
        """Place an order, once, however often the request is repeated, as `V2.place_order`.

        Every exception, a CancelledError too, has the `idempotency_key` with which the call can be repeated.
        """
        body = new_order(pet_id, quantity, ship_date)
        key = uuid.uuid4().hex if idempotency_key is None else checked_key(idempotency_key)
        try:
            return await self._run(operations.place_order(self._session(), body, key))
        except BaseException as error:
            keep_key(error, key)
            raise

    async def get_usage(
        self, *, granularity: Granularity = "hour", start: datetime | None = None, end: datetime | None = None
    ) -> Usage:
        """The plan and the limits of the account, and its requests by hour or day, as `V2.get_usage`."""
        text = query(granularity=granularity, start=start, end=end)
        return await self._run(operations.get_usage(self._session(), text))
