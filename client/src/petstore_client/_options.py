"""The options of a client: listed, documented and checked here only."""

import functools
import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar, get_origin

import httpx2

from petstore_client._types import SYSTEM_CLOCK, Clock, RateLimitEvent, ResponseEvent, RetryEvent
from petstore_client.errors import ConfigurationError

TransportT = TypeVar("TransportT")
HttpT = TypeVar("HttpT", bound=httpx2.Client | httpx2.AsyncClient)
SelfT = TypeVar("SelfT")
OptionsT = TypeVar("OptionsT")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")

Timeout = float | httpx2.Timeout | None

LONGEST_TIMEOUT = 86_400.0
"""Seconds. Operating systems reject much longer timeouts."""

SHORTEST_TIMEOUT = 0.001
"""Seconds. Sockets reject a timeout below 0, and 0 does not wait at all."""

_OWN_HEADERS = re.compile(
    "accept|accept-encoding|authorization|connection|content-length|content-type|host|idempotency-key|if-none-match|te|"
    "transfer-encoding|upgrade|user-agent|x-request-id",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[!-~]([ \t!-~]*[!-~])?", re.ASCII)
_PRODUCT = re.compile(rf"{_TOKEN.pattern}(/{_TOKEN.pattern})?( {_TOKEN.pattern}(/{_TOKEN.pattern})?)*", re.ASCII)


@dataclass(frozen=True, repr=False)
class Options(Generic[HttpT, TransportT]):
    """Make a client. Raises ConfigurationError if an argument is invalid.

    base_url: for example `https://api.example.com/v1`; None means PETSTORE_BASE_URL.
    api_key: None means PETSTORE_API_KEY. It never appears in repr(), logs or exceptions.
    timeout: seconds to wait for a connection, and for each further part of a response; at most a day. None waits
        forever. `httpx2.Timeout(30, connect=5)` sets them separately.
    max_retries: how often a call is repeated after failures of the connection or the server. Waiting for a limit is
        not a retry, also after a 429.
    max_wait: the longest time in seconds that a call waits, each time, for a limit to reset. If a wait would be
        longer, the call raises RateLimitError.
    transport: an httpx2 transport to send through, such as `httpx2.HTTPTransport(verify=...)`.
    http_client: an httpx2 client to send with, instead of a transport. Closing this client does not close it.
    deadline: seconds that a whole call may take, with all its waits and attempts; None sets no bound. For
        `iter_orders` it applies until the first order.
    retry_timeout: seconds that a call may spend on failing attempts and on the backoff between them.
    conditional: keep the last list and its ETag, so that an unchanged list is not sent again.
    headers: further headers of every request.
    app_name: the name of your program, such as "acme-sync/1.4", for the User-Agent.
    on_retry, on_rate_limit, on_response: functions that are called with a RetryEvent, RateLimitEvent or ResponseEvent,
        in the calling thread.
    clock, jitter: a time source, and a source of numbers from 0 to 1; for tests (see `petstore_client.testing`).
    """

    base_url: str | None = None
    _: KW_ONLY
    api_key: str | None = None
    timeout: Timeout = 30.0
    max_retries: int = 4
    max_wait: float = 75.0
    transport: TransportT | None = None
    http_client: HttpT | None = None
    deadline: float | None = None
    retry_timeout: float = 120.0
    conditional: bool = True
    headers: Mapping[str, str] | None = None
    app_name: str | None = None
    on_retry: Callable[[RetryEvent], object] | None = None
    on_rate_limit: Callable[[RateLimitEvent], object] | None = None
    on_response: Callable[[ResponseEvent], object] | None = None
    clock: Clock = SYSTEM_CLOCK
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        _check_count("max_retries", self.max_retries)
        for name in ("max_wait", "retry_timeout"):
            if not _is_number(getattr(self, name)):
                raise ConfigurationError(f"{name} must be a number of 0 or more, not {getattr(self, name)!r}.")
        if self.deadline is not None and not (_is_number(self.deadline) and 0 < self.deadline < float("inf")):
            raise ConfigurationError(f"deadline must be a positive number of seconds or None, not {self.deadline!r}.")
        _check_timeout(self.timeout)
        if self.transport is not None and self.http_client is not None:
            raise ConfigurationError("Pass either transport or http_client, not both.")
        if self.headers is not None:
            _check_headers(self.headers)
        _check_app_name(self.app_name)
        for name in ("on_retry", "on_rate_limit", "on_response"):
            _check_hook(name, getattr(self, name))

    @property
    def read_timeout(self) -> float | None:
        """Seconds to wait for each part of a response, or None."""
        return self.timeout.read if isinstance(self.timeout, httpx2.Timeout) else self.timeout

    def timeout_within(self, seconds: float) -> httpx2.Timeout:
        """The timeouts of a request that has this many seconds left."""
        left = max(seconds, SHORTEST_TIMEOUT)
        timeouts = httpx2.Timeout(self.timeout).as_dict()
        return httpx2.Timeout(**{name: _least(value, left) for name, value in timeouts.items()})


class CallOptions(TypedDict, total=False):
    """The options that `with_options` can change; they mean the same as in `Options`."""

    timeout: Timeout
    max_retries: int
    max_wait: float
    deadline: float | None
    retry_timeout: float
    conditional: bool
    headers: Mapping[str, str] | None
    on_retry: Callable[[RetryEvent], object] | None
    on_rate_limit: Callable[[RateLimitEvent], object] | None
    on_response: Callable[[ResponseEvent], object] | None


Substitute = Callable[[Options[Any, Any]], Options[Any, Any]]

_substitutes: list[Substitute] = []


@contextmanager
def substituted(substitute: Substitute) -> Iterator[None]:
    """Change the options of all clients that are made within the block, for tests."""
    _substitutes.append(substitute)
    try:
        yield
    finally:
        _substitutes.remove(substitute)


def substitute_for(options: Options[HttpT, TransportT]) -> Options[HttpT, TransportT]:
    """The options that a new client uses."""
    return _substitutes[-1](options) if _substitutes else options


def takes(
    options: Callable[P, OptionsT],
) -> Callable[[Callable[[SelfT, OptionsT], ResultT]], Callable[Concatenate[SelfT, P], ResultT]]:
    """Give a method that takes an object of options the signature and the documentation of their class."""

    def decorate(method: Callable[[SelfT, OptionsT], ResultT]) -> Callable[Concatenate[SelfT, P], ResultT]:
        kind: Any = get_origin(options) or options
        signature = inspect.signature(kind)

        @functools.wraps(method)
        def taking(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
            try:
                given = options(*args, **kwargs)
            except TypeError:
                _check_call(method, signature, args, kwargs)
                raise
            return method(self, given)

        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        described = [method, *(base for base in reversed(kind.__mro__) if "__dataclass_fields__" in vars(base))]
        taking.__doc__ = "\n\n".join(inspect.cleandoc(it.__doc__) for it in described if it.__doc__)
        taking.__signature__ = inspect.signature(method).replace(  # type: ignore[attr-defined]
            parameters=[this, *signature.parameters.values()]
        )
        return taking

    return decorate


def _check_call(
    method: Callable[..., object], signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise a TypeError that names the method if arguments are missing, unknown or too many."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = method.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        names = list(signature.parameters)
        names.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
        raise TypeError(f"{name}(): {error}. Its arguments are: {', '.join(names)}.") from None


def _least(timeout: float | None, seconds: float) -> float | None:
    return min(timeout, seconds) if timeout is not None else seconds if isfinite(seconds) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"{name} must be a whole number of 0 or more, not {value!r}.")


def _check_timeout(timeout: Timeout) -> None:
    given = timeout.as_dict().values() if isinstance(timeout, httpx2.Timeout) else [timeout]
    for seconds in given:
        if seconds is not None and not (_is_number(seconds) and 0 < seconds <= LONGEST_TIMEOUT):
            raise ConfigurationError(
                f"timeout must be more than 0 and at most {LONGEST_TIMEOUT:.0f} seconds, or None to wait forever, "
                f"not {timeout!r}."
            )


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers must be a mapping of names to values, not a {type(headers).__name__}.")
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigurationError(f"headers contains {name!r}, which is not a valid header name.")
        if _OWN_HEADERS.fullmatch(name):
            raise ConfigurationError(f"headers must not contain {name}, which the client sets itself.")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ConfigurationError(f"The value of {name} in headers is not valid: it must be visible ASCII text.")


def _check_app_name(name: object) -> None:
    if name is not None and not (isinstance(name, str) and _PRODUCT.fullmatch(name)):
        raise ConfigurationError(f"app_name must look like 'acme-sync' or 'acme-sync/1.4', not {name!r}.")


def _check_hook(name: str, hook: object) -> None:
    if hook is None:
        return
    if not callable(hook):
        raise ConfigurationError(f"{name} must be a function, not {hook!r}.")
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
        raise ConfigurationError(f"{name} must be a plain function; nothing would await an asynchronous one.")
