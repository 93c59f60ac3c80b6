"""The client for asyncio: every call is awaited."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any, Self, SupportsIndex

import httpx2

from petstore_client import _operations as operations
from petstore_client._admission import Session
from petstore_client._base import BaseClient, deprecated
from petstore_client._core import BaseDriver
from petstore_client._effects import Effects, Queue, Read, Send, Sleep, T
from petstore_client._http import Reply
from petstore_client._types import Order, Pet
from petstore_client._versions import AsyncV2
from petstore_client.errors import PetstoreError, keep_key


class AsyncClient(BaseClient[httpx2.AsyncClient, httpx2.AsyncBaseTransport]):
    """A client of the Pet Store Orders API for asyncio. Use it with `async with`, or call `close`; tasks may share it.

    Limits belong to the base URL and key: all clients in a process that have both in common share them. A client
    belongs to the event loop of its first call. The hooks are plain functions.
    """

    _http, _transport = httpx2.AsyncClient, httpx2.AsyncBaseTransport

    async def list_orders(self) -> list[Order]:
        """All orders, ascending by id, regardless of status: one consistent list, as `Client.list_orders`."""
        return self._keep(await self._run(operations.list_orders(self._session(), self._known_list())))

    def iter_orders(self) -> AsyncGenerator[Order, None]:
        """All orders, one by one as they arrive, in bounded memory, as `Client.iter_orders`."""
        return self._iterate(operations.iter_orders(self._session))

    async def cancel_order(self, order_id: SupportsIndex) -> None:
        """Cancel a pending order. When this returns, the cancellation is stored durably, as `Client.cancel_order`."""
        await self._run(operations.cancel_order(self._session(), order_id))

    @property
    def v2(self) -> "AsyncV2":
        """Version 2 of the API (beta): finding, following, placing and managing orders, and usage."""
        return AsyncV2(self)

    @deprecated("GET /pets/{petId} is deprecated and will be withdrawn.")
    async def get_pet(self, pet_id: SupportsIndex) -> Pet:
        """A pet. Deprecated: emits a DeprecationWarning that names the sunset, as `Client.get_pet`."""
        return self._warn_of_sunset(await self._run(operations.get_pet(self._session(), pet_id)))

    async def close(self) -> None:
        """Close all connections. Calls under way, which may wait for a limit, and later calls raise PetstoreError."""
        if self._core.close() and self._core.loop in (None, _running_loop()):
            await self._core.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _session(self) -> Session:
        session, loop = super()._session(), _running_loop()
        if self._core.loop not in (None, loop):
            raise PetstoreError("This client belongs to another event loop, that of its first call; make one for each.")
        self._core.loop = loop
        return session

    async def _run(self, effects: Effects[T], key: str = "") -> T:
        driver: _Driver[T] | None = None
        try:
            driver = _Driver(effects, self._core, self._options)
            try:
                await driver.run()
            finally:
                await driver.close()
            return driver.result  # noqa: TRY300 - an interruption here needs the key too
        except BaseException as error:
            keep_key(error, key)
            if driver is not None:
                driver.note_doubt(error)
            raise

    async def _iterate(self, effects: Effects[None]) -> AsyncGenerator[Any, None]:
        driver = _Driver(effects, self._core, self._options)
        try:
            while (orders := await driver.run()) is not None:
                for order in orders:
                    yield order
        finally:
            await driver.close()


def _running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the caller. Raises PetstoreError if it is not one of asyncio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        hint = "with trio, use Client in a thread (trio.to_thread.run_sync)"
        raise PetstoreError(f"AsyncClient needs a running event loop of asyncio; {hint}.") from None


class _Driver(BaseDriver[T, httpx2.AsyncClient]):
    """Performs effects on an event loop."""

    _pieces: AsyncIterator[bytes]

    async def run(self) -> list[Any] | None:
        """Continue until orders are emitted, and return them; None at the end. Raises PetstoreError."""
        while (effect := self.resume()) is not None:
            try:
                self.outcome = await self._perform(effect)
            except BaseException as error:  # noqa: BLE001 - the call raises it again unless it can handle it
                self.error = error
        return self.emitted

    async def close(self) -> None:
        """End the call in any state."""
        try:
            self._effects.close()
        finally:
            await self._close_response()

    async def _perform(self, effect: Sleep | Queue | Send | Read) -> Any:
        if isinstance(effect, Read):
            return await anext(self._pieces, None)
        await self._close_response()
        return await (self._send(effect) if isinstance(effect, Send) else self._wait(effect))

    async def _send(self, effect: Send) -> Reply:
        async def trace(event: str, info: dict[str, Any]) -> None:
            self._core.trace(event, info)

        request = self.request(effect)
        request.extensions["trace"] = trace
        response = await self._core.http.send(request, stream=True, auth=None, follow_redirects=False)
        # A test transport may return a complete body, which httpx2 has already decoded.
        self._pieces = response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()
        return self.received(response)

    async def _close_response(self) -> None:
        if (response := self.to_close()) is not None:
            await response.aclose()

    async def _wait(self, effect: Sleep | Queue) -> None:
        """Wait until the time is over, the ticket is decided, or the client is closed."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            with suppress(RuntimeError):  # the wait has ended by itself
                scope.reschedule(loop.time())

        def wake() -> None:  # from any thread
            with suppress(RuntimeError):  # the loop has been closed, so the task no longer waits
                loop.call_soon_threadsafe(end)

        with suppress(TimeoutError):
            async with asyncio.timeout(effect.seconds if isinstance(effect, Queue) else None) as scope:
                with self._core.waking(wake):
                    if isinstance(effect, Sleep):
                        await self._clock.sleep_async(effect.seconds)
                    else:
                        self._core.gate.when_decided(effect.ticket, wake)
                        await loop.create_future()
