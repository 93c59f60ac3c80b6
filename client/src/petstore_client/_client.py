"""The client for threads: every call blocks until it has its result."""

import threading
from collections.abc import Generator, Iterator
from datetime import datetime
from typing import Any, Self, SupportsIndex, Unpack

import httpx2

from petstore_client import _operations as operations
from petstore_client import v2
from petstore_client._arguments import new_order
from petstore_client._base import BaseClient, deprecated
from petstore_client._core import BaseDriver
from petstore_client._effects import Effects, Queue, Read, Send, Sleep, T
from petstore_client._http import Reply
from petstore_client._types import Order, Pet, SystemClock
from petstore_client.errors import keep_key
from petstore_client.v2 import Granularity, Usage


class Client(BaseClient[httpx2.Client, httpx2.BaseTransport]):
    """A client of the Pet Store Orders API. Use it as a context manager, or call `close`; threads may share it.

    Limits belong to the base URL and key: all clients in a process that have both in common share them.
    """

    _http, _transport = httpx2.Client, httpx2.BaseTransport

    def list_orders(self) -> list[Order]:
        """All orders, ascending by id, regardless of status: one consistent list.

        Raises AuthenticationError, PermissionDeniedError, RateLimitError, ServerError, APIConnectionError,
        InvalidResponseError.
        """
        return self._keep(self._run(operations.list_orders(self._session(), self._known_list())))

    def iter_orders(self) -> Generator[Order, None, None]:
        """All orders, one by one as they arrive, in memory that does not grow with the list.

        After the first order nothing is repeated: a list that ends early raises InvalidResponseError (`truncated`),
        one that stalls APITimeoutError. Other errors as for `list_orders`. The connection is in use until the
        iteration ends or is closed.
        """
        return self._iterate(operations.iter_orders(self._session))

    def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order. When this returns, the cancellation is stored durably.

        The request is repeated if its response was lost; a repetition that finds the order cancelled is a success.
        Raises NotFoundError, ConflictError (`code` is `order_already_shipped` or `order_already_cancelled`), and the
        errors of `list_orders`; their `may_have_been_applied` says whether the order may have been cancelled.
        """
        self._run(operations.cancel_order(self._session(), order_id))

    @property
    def v2(self) -> "V2":
        """Version 2 of the API (beta): filters, pages, single orders, placing orders, usage."""
        return V2(self)

    @deprecated("GET /pets/{petId} is deprecated and will be withdrawn.")
    def get_pet(self, pet_id: SupportsIndex) -> Pet:
        """A pet. Deprecated: emits a DeprecationWarning that names the sunset; after it, raises APIStatusError 410.

        Raises NotFoundError, and the errors of `list_orders`.
        """
        return self._warn_of_sunset(self._run(operations.get_pet(self._session(), pet_id)))

    def close(self) -> None:
        """Close all connections. Calls that are waiting, and later calls, raise PetstoreError."""
        if self._core.close():
            self._core.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, effects: Effects[T]) -> T:
        driver = _Driver(effects, self._core, self._options)
        try:
            driver.run()
        finally:
            driver.close()
        return driver.result

    def _iterate(self, effects: Effects[None]) -> Generator[Any, None, None]:
        driver = _Driver(effects, self._core, self._options)
        try:
            while (orders := driver.run()) is not None:
                yield from orders
        finally:
            driver.close()


class V2:
    """Version 2 of the API (beta), with the limits, the retries and the options of its client.

    The errors of a call are those of `Client.list_orders`, and those that its method names.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client

    def list_orders(
        self, *, limit: SupportsIndex = 100, cursor: str | None = None, **filters: Unpack[v2.Filters]
    ) -> v2.Page:
        """One page of the orders that match all filters.

        limit: the most orders on the page, from 1 to 1000.
        cursor: the `next_cursor` of the page before, for the same filters and sort; None for the first page.

        Raises APIStatusError 400 `invalid_parameter` or `invalid_cursor`; TypeError, ConfigurationError (a ValueError).
        """
        return self._client._run(operations.list_page(self._client._session(), limit=limit, cursor=cursor, **filters))

    def iter_orders(
        self, *, limit: SupportsIndex = 1000, **filters: Unpack[v2.Filters]
    ) -> Generator[v2.Order, None, None]:
        """The orders that match all filters, one by one, in the memory of one page.

        limit: the most orders in one request, from 1 to 1000; the iteration has no limit.

        Each page is a separate call: it is retried, and `deadline` applies to it. Raises the errors of `list_orders`.
        """
        pages = operations.iter_pages(self._client._session, limit=limit, **filters)
        return self._client._iterate(pages)

    def get_order(self, order_id: SupportsIndex) -> v2.Order:
        """One order. Raises NotFoundError."""
        return self._client._run(operations.get_order(self._client._session(), order_id))

    def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order, as `Client.cancel_order` does."""
        self._client._run(operations.cancel_order(self._client._session(), order_id, operations.CANCEL_ORDER_V2))

    def place_order(
        self,
        *,
        pet_id: SupportsIndex,
        quantity: SupportsIndex,
        ship_date: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> v2.Order:
        """Place an order, once, however often the request is repeated. When this returns, it is stored durably.

        pet_id, quantity: the pet, and the number of units, at least 1.
        ship_date: when the order should ship, an aware datetime.
        idempotency_key: 1 to 255 visible ASCII characters; None makes a new key for this call. Pass the key of an
            earlier call to repeat that call.

        Experimental: it may change or disappear in any release. The key needs the scope `orders:write`.

        Raises PermissionDeniedError, APIStatusError 400 `invalid_body` or 422 `idempotency_key_reused`, and
        ConflictError `idempotency_key_in_use`. Every exception, a KeyboardInterrupt too, has the `idempotency_key` with
        which another call does not place a second order.
        """
        body, key = new_order(pet_id, quantity, ship_date, idempotency_key)
        try:
            return self._client._run(operations.place_order(self._client._session(), body, key))
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
        usage = operations.get_usage(self._client._session(), granularity=granularity, start=start, end=end)
        return self._client._run(usage)


class _Driver(BaseDriver[T, httpx2.Client]):
    """Performs effects, blocking."""

    _pieces: Iterator[bytes]

    def run(self) -> list[Any] | None:
        """Continue until orders are emitted, and return them; None at the end. Raises PetstoreError."""
        while (effect := self.resume()) is not None:
            try:
                self.outcome = self._perform(effect)
            except BaseException as error:  # noqa: BLE001 - the call raises it again unless it can handle it
                self.error = error
        return self.emitted

    def close(self) -> None:
        """End the call in any state."""
        try:
            self._effects.close()
        finally:
            self._close_response()

    def _perform(self, effect: Sleep | Queue | Send | Read) -> Any:
        if isinstance(effect, Read):
            return next(self._pieces, None)
        self._close_response()
        return self._send(effect) if isinstance(effect, Send) else self._wait(effect)

    def _send(self, effect: Send) -> Reply:
        response = self._core.http.send(self.request(effect), stream=True, auth=None, follow_redirects=False)
        # A test transport may return a complete body, which httpx2 has already decoded.
        self._pieces = response.iter_bytes() if response.is_stream_consumed else response.iter_raw()
        return self.received(response)

    def _close_response(self) -> None:
        if (response := self.to_close()) is not None:
            response.close()

    def _wait(self, effect: Sleep | Queue) -> None:
        """Wait until the time is over, the ticket is decided, or the client is closed."""
        if isinstance(effect, Sleep) and not isinstance(self._clock, SystemClock):
            self._clock.sleep(effect.seconds)
            return
        wake = threading.Event()
        with self._core.waking(wake.set):
            if isinstance(effect, Queue):
                self._core.gate.when_decided(effect.ticket, wake.set)
            wake.wait(effect.seconds)
