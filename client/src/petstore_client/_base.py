"""What Client and AsyncClient have in common: everything except I/O."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

import httpx2

from petstore_client._admission import Observed, Session, log
from petstore_client._effects import Close, Effects, Emit, Queue, Read, Send, Sleep, T
from petstore_client._environment import checked_environment, proxy_for
from petstore_client._gate import gate_for, generation, process_lock
from petstore_client._http import Reply, Target, read_target, reply_of
from petstore_client._limits import RateLimit
from petstore_client._operations import Listed
from petstore_client._options import CallOptions, HttpT, Options, TransportT, substitute_for
from petstore_client._types import Order, Pet, ResponseEvent
from petstore_client.errors import ConfigurationError, PetstoreError

if TYPE_CHECKING:
    from typing_extensions import deprecated as deprecated
else:

    def deprecated(message: str) -> Callable[[Any], Any]:
        """PEP 702 for Python before 3.13, and without a warning, because the call itself warns with the sunset."""

        def mark(function: Any) -> Any:
            function.__deprecated__ = message
            return function

        return mark


_abandoned: list[object] = []  # connections that belong to the parent process; closing them could disturb it


class Core(Generic[HttpT]):
    """What a client and its `with_options` copies share in one process: connections, gate, and the last list.

    A child process gets new connections and a new gate: with those of the parent it would read the parent's responses.
    """

    def __init__(self, target: Target, options: Options[HttpT, Any], connect: Callable[[], HttpT]) -> None:
        self.target = target
        self.listed: Listed | None = None
        self.closed = False
        self.warned = False
        self.loop: object = None  # the event loop of an AsyncClient
        self._options = options
        self._connect = connect
        self._start()

    def enter(self) -> None:
        """Prepare for a call in this process. Raises PetstoreError if the client is closed."""
        if self.generation != generation():
            with process_lock():
                if self.generation != generation():
                    self._check_forkable()
                    _abandoned.append(self.http)
                    self._start()
        self.check(self.generation)

    def check(self, began: int) -> None:
        """Raise PetstoreError if a call of this generation cannot continue."""
        if began != generation():
            raise PetstoreError("The process was forked during this call, which continues only in the parent process.")
        if self.closed:
            raise PetstoreError("This client is closed; make a new one.")

    def explain(self, error: BaseException) -> BaseException:
        """The exception to raise for one of the HTTP client, which reports its own closing with a RuntimeError."""
        if isinstance(error, RuntimeError) and self.http.is_closed:
            return PetstoreError("This client was closed during the call.")
        return error

    def close(self) -> bool:
        """Mark the client as closed and wake the calls that wait. Return whether to close the connections."""
        self.closed = True
        for wake in list(self._wakers):
            wake()
        return self._options.http_client is None and self.generation == generation()

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call `wake` if the client is closed within the block."""
        self._wakers.add(wake)
        try:
            if self.closed:
                wake()
            yield
        finally:
            self._wakers.discard(wake)

    def _start(self) -> None:
        self.generation = generation()
        self.http = self._connect()
        self.gate = gate_for(self.target.base_url, self.target.key.text, self._options.clock)
        self.loop = None
        self._wakers: set[Callable[[], object]] = set()

    def _check_forkable(self) -> None:
        given = self._options.http_client or self._options.transport
        if isinstance(given, httpx2.Client | httpx2.AsyncClient | httpx2.HTTPTransport | httpx2.AsyncHTTPTransport):
            raise PetstoreError(
                "This client was made before the process was forked, with a transport or http_client whose connections "
                "belong to the parent process; make the client after the fork."
            )


class BaseClient(Generic[HttpT, TransportT]):
    """State and properties of both clients. Raises ConfigurationError."""

    _core: Core[HttpT]
    _options: Options[HttpT, TransportT]
    _observed: Observed

    @property
    def rate_limit(self) -> RateLimit | None:
        """The limits as of the last response that described them; None before the first."""
        return self._observed.rate_limit

    @property
    def last_response(self) -> ResponseEvent | None:
        """The last successful response to this client: its request id, its ETag, the number of attempts.

        Threads and tasks that share a client see the responses of each other; give each a copy (`with_options()`), or
        use `on_response`.
        """
        return self._observed.last_response

    def with_options(self, **changes: Unpack[CallOptions]) -> Self:
        """A copy of this client with some options changed. It shares connections and limits.

        Closing the copy or the original closes both. Raises ConfigurationError if an option is invalid.
        """
        for name in changes.keys() - CallOptions.__annotations__.keys():
            raise TypeError(f"with_options() cannot change {name}; make another client instead.")
        copy = object.__new__(type(self))
        copy._core = self._core
        copy._options = replace(self._options, **changes)
        copy._observed = Observed(self._observed.rate_limit)
        return copy

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.target.base_url}>"

    def __reduce__(self) -> str:
        raise TypeError("A client cannot be copied or pickled; make one in the process that uses it.")

    def _configure(
        self,
        options: Options[HttpT, TransportT],
        http: Callable[..., HttpT],
        kinds: tuple[type[HttpT], type[TransportT]],
    ) -> None:
        """Check the options that depend on the variant of the client, and connect."""
        options = substitute_for(options)
        for name, kind in zip(("http_client", "transport"), kinds, strict=True):
            given = getattr(options, name)
            if given is not None and not isinstance(given, kind):
                raise ConfigurationError(f"{name} of {type(self).__name__} must be an httpx2.{kind.__name__}.")
        target = read_target(options.base_url, options.api_key, os.environ)
        if options.http_client is None and options.transport is None:
            target = replace(target, proxy=proxy_for(target.base_url))
        self._options = replace(options, base_url=target.base_url, api_key=None)
        own = self._options
        self._core = Core(target, own, lambda: _connect(own, http))
        self._observed = Observed()

    def _session(self) -> Session:
        """What a call needs, in this process. Raises PetstoreError if the client cannot make one."""
        core = self._core
        core.enter()
        check = partial(core.check, core.generation)
        return Session(core.target, self._options, core.gate, self._observed, check)

    def _known_list(self) -> Listed | None:
        """The last list, for a conditional request."""
        return self._core.listed if self._options.conditional else None

    def _keep(self, listed: Listed) -> list[Order]:
        """Keep a list for the next request, and return a copy, which the caller may change."""
        if self._options.conditional:
            self._core.listed = listed if listed.etag else None
        return list(listed.orders)

    def _warn_of_sunset(self, found: tuple[Pet, datetime | None]) -> Pet:
        """Warn the caller of `get_pet`, and return the pet. Log it once: programs rarely show DeprecationWarnings."""
        pet, sunset = found
        until = f"works until {sunset.date().isoformat()}" if sunset else "will end; the server did not say when"
        message = f"get_pet is deprecated: GET /pets/{{petId}} {until}."
        if not self._core.warned:
            self._core.warned = True
            log.warning(message)
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        return pet


class BaseDriver(Generic[T, HttpT]):
    """Runs a call or an iteration. Its subclasses, one for each client, perform single effects.

    `outcome` is what the latest effect returned and `error` what it raised; `emitted` are the orders to hand out, and
    `result` is what the call returned.
    """

    result: T

    def __init__(self, effects: Effects[T], core: Core[HttpT], options: Options[HttpT, Any]) -> None:
        self.outcome: object = None
        self.error: BaseException | None = None
        self.emitted: list[Any] | None = None
        self._effects = effects
        self._core = core
        self._clock = options.clock
        self._response: httpx2.Response | None = None

    def resume(self) -> Sleep | Queue | Send | Read | Close | None:
        """The next effect to perform; None if the call has emitted orders or ended. Raises PetstoreError."""
        error, self.error = self.error, None
        try:
            if error is None:
                effect = self._effects.send(self.outcome)
            else:
                effect = self._effects.throw(self._core.explain(error))
        except StopIteration as end:
            self.result, self.emitted = end.value, None
            return None
        if isinstance(effect, Emit):
            self.emitted = effect.orders
            return None
        return effect

    def request(self, effect: Send) -> httpx2.Request:
        """The request to send, with the key."""
        request = self._core.http.build_request(
            effect.method, effect.url, headers=effect.headers, timeout=effect.timeout, content=effect.content
        )
        self._core.target.authorize(request)
        return request

    def received(self, response: httpx2.Response) -> Reply:
        """Keep a response until it is closed, and return its head."""
        self._response, self._generation = response, generation()
        return reply_of(response)

    def to_close(self) -> httpx2.Response | None:
        """The response, if there is one to close. One of the parent process is kept open."""
        response, self._response = self._response, None
        if response is not None and self._generation != generation():
            _abandoned.append(self)  # with the iterator over the body, which closes the response when it is collected
            return None
        return response


def _connect(options: Options[HttpT, Any], http: Callable[..., HttpT]) -> HttpT:
    """The HTTP client: the given one, or a new one that keeps no cookies. Raises ConfigurationError."""
    if options.http_client is not None:
        return options.http_client
    with checked_environment():
        return http(transport=options.transport, cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])))
