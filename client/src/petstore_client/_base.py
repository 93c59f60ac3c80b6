"""What Client and AsyncClient have in common: everything except I/O."""

import os
import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from petstore_client import _types as types
from petstore_client._admission import Observed, Session, log
from petstore_client._core import Core, proxy_variables
from petstore_client._http import read_target
from petstore_client._limits import RateLimit
from petstore_client._operations import Listed
from petstore_client._options import CallOptions, HttpT, Options, Timeout, TransportT, substitutes
from petstore_client.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import deprecated as deprecated  # noqa: PLC0414 - mypy then lets it be imported from here
else:

    def deprecated(message: str) -> Callable[[Any], Any]:
        """PEP 702 for Python before 3.13, and without a warning, because the call itself warns with the sunset."""
        return lambda function: vars(function).update(__deprecated__=message) or function


class BaseClient(Generic[HttpT, TransportT]):
    """What both clients have in common. `_http` and `_transport` are the classes of httpx2 that a variant uses."""

    _http: type[HttpT]
    _transport: type[TransportT]

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: Timeout = 30.0,
        max_retries: int = 4,
        max_wait: float = 75.0,
        transport: TransportT | None = None,
        http_client: HttpT | None = None,
        deadline: float | None = None,
        retry_timeout: float = 120.0,
        conditional: bool = True,
        headers: Mapping[str, str] | None = None,
        app_name: str | None = None,
        on_retry: types.OnRetry = None,
        on_rate_limit: types.OnRateLimit = None,
        on_response: types.OnResponse = None,
        clock: types.Clock = types.SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Make a client. Raises ConfigurationError if an argument is invalid.

        base_url: for example `https://api.example.com/v1`; None means PETSTORE_BASE_URL.
        api_key: None means PETSTORE_API_KEY. It never appears in repr(), logs or exceptions.
        timeout: seconds to wait for a connection, and for each part of a response, or an httpx2.Timeout; None: forever.
            A single record must arrive as a whole in that time.
        max_retries: how often a call is repeated after failures. Waiting for a limit is not a retry. Attempts that
            could not connect are repeated until `retry_timeout`, unless it is 0.
        max_wait: the most seconds that a call waits, each time, for a limit to reset; else it raises RateLimitError.
        transport: an httpx2 transport to send through, such as `httpx2.HTTPTransport(verify=...)`.
        http_client: an httpx2 client to send with, instead of a transport. Closing this client does not close it.
        deadline: seconds that a call may take, with all waits and attempts; for `iter_orders` until the first order.
            A response that comes byte by byte over a connection that `http_client` made for others may take longer.
            A `Client` may also exceed it, and `timeout`, while it looks up the host's name, and because each address of
            the host has the whole time to connect.
        retry_timeout: seconds that a call may spend on failing attempts and on the backoff between them.
        conditional: keep the last list and its ETag, so that an unchanged list is not sent again.
        headers: further headers of every request.
        app_name: the name of your program, such as "acme-sync/1.4", for the User-Agent.
        on_retry, on_rate_limit, on_response: called with a RetryEvent, RateLimitEvent or ResponseEvent.
        clock, jitter: a time source, and a source of numbers from 0 to 1; for tests (see `petstore_client.testing`).
        """
        key = None if api_key is None else types.Secret(api_key)
        del api_key  # so that no traceback with local variables shows it
        options: Options[HttpT, TransportT] = Options(
            base_url, key, timeout, max_retries, max_wait, transport, http_client, deadline, retry_timeout,
            conditional, headers, app_name, on_retry, on_rate_limit, on_response, clock, jitter,
        )  # fmt: skip
        if substitutes:
            options = substitutes[-1](options)
        for name, kind in (("http_client", self._http), ("transport", self._transport)):
            if not isinstance(getattr(options, name), kind | None):
                raise ConfigurationError(f"{name} of {type(self).__name__} must be an httpx2.{kind.__name__}.")
        url = (os.environ.get("PETSTORE_BASE_URL") or None) if options.base_url is None else options.base_url
        target = read_target(url, options.api_key or types.Secret(os.environ.get("PETSTORE_API_KEY") or None))
        if options.http_client is None and options.transport is None:
            target = target._replace(proxy=proxy_variables())
        self._options = replace(options, base_url=target.base_url, api_key=None)
        self._core = Core(target, self._options, self._http)
        self._observed = Observed()

    @property
    def rate_limit(self) -> RateLimit | None:
        """The limits as of the last response that described them; None before the first."""
        return self._observed.rate_limit

    @property
    def last_response(self) -> types.ResponseEvent | None:
        """The last successful response to this client, in any thread or task that shares it; None before the first."""
        return self._observed.last_response

    def with_options(self, **changes: Unpack[CallOptions]) -> Self:
        """A copy of this client with some options changed. It shares connections and limits; closing one closes both.

        Raises ConfigurationError if an option is invalid.
        """
        for name in changes.keys() - CallOptions.__annotations__.keys():
            raise TypeError(f"with_options() cannot change {name}; make another client instead.")
        copy = object.__new__(type(self))
        copy._core = self._core
        copy._options = replace(self._options, **changes)
        copy._observed = Observed(self._observed.rate_limit)
        return copy

    def __repr__(self) -> str:
        core: Core[HttpT] | None = getattr(self, "_core", None)  # a traceback can show one that could not be made
        return f"<{type(self).__name__}{f' {core.target.base_url}' if core else ''}>"

    def __reduce__(self) -> str:
        raise TypeError("A client cannot be copied or pickled; make one in the process that uses it.")

    def _session(self) -> Session:
        """What a call needs, in this process. Raises PetstoreError if the client cannot make one."""
        core = self._core
        core.enter()
        check = partial(core.check, core.generation)
        return Session(core.target, self._options, core.gate, self._observed, check)

    def _known_list(self) -> Listed | None:
        """The last list, for a conditional request."""
        return self._core.listed if self._options.conditional else None

    def _keep(self, listed: Listed) -> list[types.Order]:
        """Keep a list for the next request, and return a copy, which the caller may change."""
        if self._options.conditional:
            self._core.listed = listed if listed.etag else None
        return list(listed.orders)

    def _warn_of_sunset(self, found: tuple[types.Pet, datetime | None]) -> types.Pet:
        """Warn the caller of `get_pet`, and return the pet. Log it once: programs rarely show DeprecationWarnings."""
        pet, sunset = found
        until = f"works until {sunset.date().isoformat()}" if sunset else "will end; the server did not say when"
        message = f"get_pet is deprecated: GET /pets/{{petId}} {until}."
        if not self._core.warned:
            self._core.warned = True
            log.warning(message)
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        return pet
