"""Version 2 of the API: its methods in both clients."""

import functools
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, SupportsIndex, Unpack, cast

from petstore_client import _operations as operations
from petstore_client._admission import Session
from petstore_client._arguments import integer, new_order, query
from petstore_client._effects import Effects, T
from petstore_client.v2 import Changes, Filters, Granularity, Order, Page, Usage

P = ParamSpec("P")


class Runner(Protocol):
    """A client that runs the effects of `_operations`, blocking."""

    _core: Any

    def _session(self) -> Session: ...
    def _run(self, effects: Effects[T], key: str = "") -> T: ...
    def _iterate(self, effects: Effects[None]) -> Generator[Any, None, None]: ...


class V2:
    """Version 2 of the API (beta), with the limits, the retries and the options of its client.

    The errors of a call are those of `Client.list_orders`, and those that its method names.
    """

    def __init__(self, client: Runner) -> None:
        self._client = client

    def list_orders(self, *, limit: SupportsIndex = 100, cursor: str | None = None, **filters: Unpack[Filters]) -> Page:
        """One page of the orders that match all filters.

        limit: the most orders on the page, from 1 to 1000.
        cursor: the `next_cursor` of the page before, for the same filters and sort; None for the first page.
        filters: status, pet_id, complete, ship_date_from, ship_date_to, updated_from, reference, sort; see
            `petstore_client.v2.Filters`.

        Raises APIStatusError 400 `invalid_parameter` or `invalid_cursor`; TypeError, ConfigurationError (a ValueError).
        """
        return self._client._run(operations.list_page(self._client._session(), limit=limit, cursor=cursor, **filters))

    def iter_orders(self, *, limit: SupportsIndex = 1000, **filters: Unpack[Filters]) -> Generator[Order, None, None]:
        """The orders that match all filters, one by one, in the memory of one page.

        limit: the most orders in one request, from 1 to 1000; the iteration has no limit.
        filters: those of `list_orders`.

        Each page is a separate call: it is retried, and `deadline` applies to it. Raises the errors of `list_orders`.
        """
        query({"limit": limit, **filters})  # which raises here, not when the iteration begins
        return self._client._iterate(operations.iter_pages(self._client._session, limit=limit, **filters))

    def follow_changes(
        self, *, after: str | None = None, limit: SupportsIndex = 1000, wait: SupportsIndex = 30
    ) -> Generator[Changes, None, None]:
        """The pages of changes after a token, as they happen. No page is empty; store its `next` when it is handled.

        after: the `next` of an earlier page; "now"; or None for the beginning: every order once, then every change.
        limit: the most orders on a page, from 1 to 1000.
        wait: seconds, up to 30, for which the server holds a request until something changes.

        The iteration ends only when the client is closed, which another thread may do. Each page is a separate call:
        it is retried, and `deadline` applies to it. Raises ChangesResetError if the store was restored since `after`,
        or the account sees other orders than then.
        """
        query({"after": after, "limit": limit})
        enter, core, hold = self._client._session, self._client._core, integer("wait", wait)
        return self._client._iterate(operations.follow_changes(enter, lambda: core.closed, hold, after, limit=limit))

    def get_order(self, order_id: SupportsIndex) -> Order:
        """One order. Raises NotFoundError."""
        return self._client._run(operations.get_order(self._client._session(), order_id))

    def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order, as `Client.cancel_order` does."""
        return self._client._run(operations.cancel_order(self._client._session(), order_id, operations.CANCEL_ORDER_V2))

    def place_order(
        self,
        *,
        pet_id: SupportsIndex,
        quantity: SupportsIndex,
        ship_date: datetime | None = None,
        reference: str | None = None,
        idempotency_key: str | uuid.UUID | None = None,
    ) -> Order:
        """Place an order, once, however often the request is repeated. When this returns, it is stored durably.

        pet_id, quantity: the pet, and the number of units, at least 1.
        ship_date: when the order should ship, an aware datetime.
        reference: your own number of the order, 1 to 64 visible characters, by which a list can be filtered. An account
            has one order with it: another one is ConflictError `reference_in_use`, whose `order_id` is the first.
        idempotency_key: 1 to 255 visible ASCII characters, or a UUID; None makes a new key for this call. Pass the key
            of an earlier call to repeat that call.

        Experimental: it may change or disappear in any release. The key needs the scope `orders:write`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` or 422 `idempotency_key_reused`, and
        ConflictError `idempotency_key_in_use` or `reference_in_use`. Every exception, a KeyboardInterrupt or
        CancelledError too, has the `idempotency_key` with which another call does not place a second order.
        """
        body, key = new_order(pet_id, quantity, ship_date, reference, idempotency_key)
        return self._client._run(operations.place_order(self._client._session(), body, key), key)

    def get_usage(
        self, *, granularity: Granularity = "hour", start: datetime | None = None, end: datetime | None = None
    ) -> Usage:
        """The plan, the key and the limits of the account, which orders it sees, and its requests by hour or day.

        granularity: "hour" or "day", the length of the entries of the history.
        start, end: aware datetimes between which the history lies; by default the last 24 hours.

        Raises APIStatusError 400 `invalid_parameter`.
        """
        usage = operations.get_usage(self._client._session(), granularity=granularity, start=start, end=end)
        return self._client._run(usage)


def _awaited(method: Callable[Concatenate[V2, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same method for an AsyncClient, whose calls return awaitables."""

    @functools.wraps(method)
    async def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Any:
        return await cast(Any, method)(self, *arguments, **options)

    return call


def _iterated(
    method: Callable[Concatenate[V2, P], Generator[T, None, None]],
) -> Callable[Concatenate[Any, P], AsyncGenerator[T, None]]:
    """The same method for an AsyncClient, whose iterations are asynchronous."""
    return cast(Any, method)  # type: ignore[no-any-return]


class AsyncV2:
    """Version 2 of the API (beta) for asyncio. The arguments and errors are those of `V2`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    list_orders, iter_orders = _awaited(V2.list_orders), _iterated(V2.iter_orders)
    get_order, cancel_order = _awaited(V2.get_order), _awaited(V2.cancel_order)
    place_order, get_usage = _awaited(V2.place_order), _awaited(V2.get_usage)
    follow_changes = _iterated(V2.follow_changes)
