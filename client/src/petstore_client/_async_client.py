"""The client for asyncio: every call is awaited."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self

import httpx2

from petstore_client._admission import Session
from petstore_client._base import BaseClient, build_request, warn_of_sunset
from petstore_client._effects import Effects, Emit, Exchange, Queue, Read, Send, Sleep, T
from petstore_client._http import Reply, reply_of
from petstore_client._operations import cancel_order, get_pet, iter_orders, list_orders
from petstore_client._options import Options, takes
from petstore_client._types import Order, Pet


class AsyncClient(BaseClient[httpx2.AsyncClient, httpx2.AsyncBaseTransport]):
    """A client of the Pet Store Orders API for asyncio. Use it with `async with`, or call `close`; tasks may share it.

    Limits belong to the base URL and key: all clients in a process that have both in common share them. The hooks are
    plain functions.
    """

    @takes(Options[httpx2.AsyncClient, httpx2.AsyncBaseTransport])
    def __init__(self, options: Options[httpx2.AsyncClient, httpx2.AsyncBaseTransport]) -> None:
        self._configure(options)
        self._http = httpx2.AsyncClient(**self._http_options())

    async def list_orders(self) -> list[Order]:
        """All orders, ascending by id, regardless of status: one consistent list.

        Raises AuthenticationError, PermissionDeniedError, RateLimitError, ServerError, APIConnectionError,
        InvalidResponseError.
        """
        return self._keep(await self._run(list_orders(self._session, self._known_list())))

    async def iter_orders(self) -> AsyncGenerator[Order, None]:
        """All orders, one by one as they arrive, in memory that does not grow with the list.

        After the first order nothing is repeated: a list that ends early raises InvalidResponseError (`truncated`),
        one that stalls APITimeoutError. Other errors as for `list_orders`. The connection is in use until the
        iteration ends or is closed (`contextlib.aclosing`).
        """
        driver = _Driver(iter_orders(self._session), self._http, self._session)
        try:
            while (orders := await driver.run()) is not None:
                for order in orders:
                    yield order
        finally:
            await driver.close()

    async def cancel_order(self, order_id: int) -> None:
        """Cancel a pending order. When this returns, the cancellation is stored durably.

        The request is repeated if its response was lost; a repetition that finds the order cancelled is a success.
        Raises NotFoundError, ConflictError (`code` is `order_already_shipped` or `order_already_cancelled`), and the
        errors of `list_orders`; their `may_have_been_applied` says whether the order may be cancelled nevertheless.
        """
        await self._run(cancel_order(self._session, order_id))

    async def get_pet(self, pet_id: int) -> Pet:
        """A pet. Deprecated: emits a DeprecationWarning that names the sunset; after it, raises APIStatusError 410.

        Raises NotFoundError, and the errors of `list_orders`.
        """
        pet, sunset = await self._run(get_pet(self._session, pet_id))
        warn_of_sunset(sunset, stacklevel=2)
        return pet

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

    async def _run(self, effects: Effects[T]) -> T:
        driver = _Driver(effects, self._http, self._session)
        try:
            await driver.run()
        finally:
            await driver.close()
        return driver.call.result


class _Driver(Generic[T]):
    """Performs the effects of one call on an event loop."""

    def __init__(self, effects: Effects[T], http: httpx2.AsyncClient, session: Session) -> None:
        self.call = Exchange(effects)
        self._http = http
        self._session = session
        self._response: httpx2.Response | None = None
        self._pieces: AsyncIterator[bytes] = _complete(b"")

    async def run(self) -> list[Order] | None:
        """Continue until the call emits orders, and return them; None at its end. Raises PetstoreError."""
        effect = self.call.resume()
        while effect is not None and not isinstance(effect, Emit):
            try:
                outcome = await self._perform(effect)
            except BaseException as error:  # noqa: BLE001 - the call raises it again unless it can handle it
                effect = self.call.fail(error)
            else:
                effect = self.call.resume(outcome)
        return None if effect is None else effect.orders

    async def close(self) -> None:
        """End the call in any state."""
        try:
            self.call.end()
        finally:
            await self._close_response()

    async def _perform(self, effect: Send | Read | Sleep | Queue) -> Reply | bytes | None:
        if isinstance(effect, Read):
            return await anext(self._pieces, None)
        await self._close_response()
        if isinstance(effect, Send):
            return await self._send(effect)
        if isinstance(effect, Sleep):
            await self._session.options.clock.sleep_async(effect.seconds)
        else:
            await self._queue(effect)
        return None

    async def _queue(self, effect: Queue) -> None:
        decided = asyncio.Event()
        loop = asyncio.get_running_loop()

        def notify() -> None:  # from any thread
            with suppress(RuntimeError):  # the loop has been closed, so the task no longer waits
                loop.call_soon_threadsafe(decided.set)

        self._session.gate.when_decided(effect.ticket, notify)
        with suppress(TimeoutError):
            async with asyncio.timeout(effect.seconds):
                await decided.wait()

    async def _send(self, effect: Send) -> Reply:
        request = build_request(self._http, effect, self._session.target)
        response = self._response = await self._http.send(request, stream=True)
        # A test transport may return a complete body, which httpx2 has already decoded.
        self._pieces = _complete(response.content) if response.is_stream_consumed else response.aiter_raw()
        return reply_of(response)

    async def _close_response(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()


async def _complete(body: bytes) -> AsyncIterator[bytes]:
    yield body
