"""The client for threads: every call blocks until it has its result."""

import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, Self, SupportsIndex

import httpx2

from petstore_client import _operations as operations
from petstore_client._base import BaseClient, deprecated
from petstore_client._core import BaseDriver
from petstore_client._effects import Effects, Queue, Read, Send, Sleep, T
from petstore_client._http import Reply
from petstore_client._types import Order, Pet, SystemClock
from petstore_client._versions import V2
from petstore_client.errors import keep_key

# Python runs the handler of a signal that arrives just before a wait begins, or on another thread, only after the wait.
_SIGNAL_SECONDS = 1.0


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
        one that stalls APITimeoutError. Before it, the errors are those of `list_orders`. The connection is in use
        until the iteration ends or is closed.
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
        """Version 2 of the API (beta): finding, following, placing and managing orders, and usage."""
        return V2(self)

    @deprecated("GET /pets/{petId} is deprecated and will be withdrawn.")
    def get_pet(self, pet_id: SupportsIndex) -> Pet:
        """A pet. Deprecated: emits a DeprecationWarning that names the sunset; after it, raises APIStatusError 410.

        Raises NotFoundError, and the errors of `list_orders`.
        """
        return self._warn_of_sunset(self._run(operations.get_pet(self._session(), pet_id)))

    def close(self) -> None:
        """Close all connections. Calls under way, which may wait for a limit, and later calls raise PetstoreError."""
        if self._core.close():
            for each in self._core.streams.valuerefs():  # a list, because other threads may connect at the same time
                with suppress(OSError):
                    if (stream := each()) is not None:  # closing a socket does not wake a thread that reads from it
                        socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)
            self._core.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, effects: Effects[T], key: str = "") -> T:
        driver: _Driver[T] | None = None
        try:
            driver = _Driver(effects, self._core, self._options)
            try:
                driver.run()
            finally:
                driver.close()
            return driver.result  # noqa: TRY300 - an interruption here needs the key too
        except BaseException as error:
            keep_key(error, key)
            if driver is not None:
                driver.note_doubt(error)
            raise

    def _iterate(self, effects: Effects[None]) -> Generator[Any, None, None]:
        driver = _Driver(effects, self._core, self._options)
        try:
            while (orders := driver.run()) is not None:
                yield from orders
        finally:
            driver.close()


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
        request = self.request(effect)
        request.extensions["trace"] = self._core.trace
        response = self._core.http.send(request, stream=True, auth=None, follow_redirects=False)
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
            ends = time.monotonic() + effect.seconds
            while (left := ends - time.monotonic()) > 0 and not wake.wait(min(left, _SIGNAL_SECONDS)):
                pass
