"""The client for threads: every call blocks until it has its result."""

import random
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Self

import httpx2

from petstore_client.clock import SYSTEM_CLOCK, Clock
from petstore_client.events import RateLimitEvent, RetryEvent
from petstore_client.exchange import Exchange
from petstore_client.limits import RateLimit
from petstore_client.operations import cancel_order, get_pet, iter_orders, list_orders
from petstore_client.records import Order, Pet
from petstore_client.shared import Options, Pacing, Shared, warn_of_sunset
from petstore_client.steps import Steps, T


class Client:
    """A client of the Pet Store Orders API. Use it as a context manager, or call `close`; threads may share it.

    base_url: such as `https://api.example.com/v1`; PETSTORE_BASE_URL unless given.
    api_key: PETSTORE_API_KEY unless given. It is shown nowhere: not in repr, logs or exceptions.
    timeout: seconds to wait for a connection, and for each further part of an answer; None waits for ever.
    max_retries: how often a call is repeated at most, after failures of the connection or the server and after 429s.
    max_wait: seconds that a call waits at most, at a time, for a limit to reset; longer waits are RateLimitError.
    transport: an httpx2 transport to send through, such as `httpx2.HTTPTransport(verify=...)`.
    retry_timeout: seconds that a call spends at most on failing attempts and on backing off from them.
    retry_budget: retries of failures that this client may make before successes have to earn further ones.
    conditional: keep the last list with its ETag, so that an unchanged one is not sent again.
    pacing: "minute" spreads the requests that remain over the minute, "day" over the day as well.
    on_retry, on_rate_limit: called with a RetryEvent or a RateLimitEvent, in the calling thread.
    clock, jitter: time, and numbers from 0 to 1; for tests (see `petstore_client.testing`).

    Limits belong to the base URL and key: all clients of a process that have both in common keep them together.
    Raises ConfigurationError for arguments that cannot be right.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float | None = 30.0,
        max_retries: int = 4,
        max_wait: float = 75.0,
        transport: httpx2.BaseTransport | None = None,
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
        self._http = httpx2.Client(transport=transport, **self._shared.http_options())

    def list_orders(self) -> list[Order]:
        """All orders, ascending by id, whatever has become of them: one consistent list.

        Raises AuthenticationError, PermissionDeniedError, RateLimitError, ServerError, APIConnectionError,
        InvalidResponseError.
        """
        return self._shared.keep(self._run(list_orders(self._shared.session, self._shared.known_list())))

    def iter_orders(self) -> Generator[Order, None, None]:
        """The same, one after the other as they arrive, in memory that does not grow with the list.

        Once the first order is out nothing is repeated: a list that breaks off raises InvalidResponseError
        (`truncated`), one that stalls APITimeoutError. Other errors as `list_orders`. The connection is busy until the
        iteration ends or is closed.
        """
        exchange = self._exchange(iter_orders(self._shared.session))
        try:
            while (orders := exchange.run()) is not None:
                yield from orders
        finally:
            exchange.close()

    def cancel_order(self, order_id: int) -> None:
        """Cancel a pending order; when this returns, the cancellation is stored durably.

        It is repeated where the answer was lost, and a repetition that finds the order cancelled has succeeded.
        Raises NotFoundError, ConflictError (`code` is `order_already_shipped` or `order_already_cancelled`), and the
        errors of `list_orders`; their `may_have_been_applied` tells whether the order may be cancelled all the same.
        """
        self._run(cancel_order(self._shared.session, order_id))

    def get_pet(self, pet_id: int) -> Pet:
        """A pet. Deprecated: warns with a DeprecationWarning that names the sunset; after it, APIStatusError 410.

        Raises NotFoundError, and the errors of `list_orders`.
        """
        pet, sunset = self._run(get_pet(self._shared.session, pet_id))
        warn_of_sunset(sunset, stacklevel=2)
        return pet

    @property
    def rate_limit(self) -> RateLimit | None:
        """Where the limits stood after the last answer that told of them; None before the first."""
        return self._shared.session.rate_limit

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shared.target.base_url}>"

    def _run(self, steps: Steps[T]) -> T:
        exchange = self._exchange(steps)
        try:
            exchange.run()
        finally:
            exchange.close()
        return exchange.result

    def _exchange(self, steps: Steps[T]) -> Exchange[T]:
        session = self._shared.session
        return Exchange(steps, self._http, session.target, session.gate, session.clock)
