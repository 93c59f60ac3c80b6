"""The options of a client, checked here only. `Client` documents them."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Generic, TypedDict, TypeVar

import httpx2

from petstore_client._types import Clock, OnRateLimit, OnResponse, OnRetry, Secret
from petstore_client.errors import ConfigurationError

TransportT = TypeVar("TransportT")
HttpT = TypeVar("HttpT", bound=httpx2.Client | httpx2.AsyncClient)
Timeout = float | httpx2.Timeout | None

MIN_TIMEOUT, MAX_TIMEOUT = 0.001, 86_400.0  # seconds; sockets and operating systems reject others
_LONGEST = 2e6  # seconds that a socket can wait: poll() takes less than 2^31 milliseconds

_OWN_HEADERS = re.compile(
    "accept|accept-encoding|authorization|connection|content-length|content-type|host|idempotency-key|if-match|"
    "if-none-match|te|transfer-encoding|upgrade|user-agent|x-request-id",
    re.IGNORECASE,
)
_NUMBERS: tuple[tuple[str, Any, str], ...] = (
    ("max_retries", int, "whole number"),
    ("max_wait", int | float, "number"),
    ("retry_timeout", int | float, "number"),
)
_REQUEST_ID = re.compile(r"(?!.*pso_)[!-~]{1,128}", re.ASCII)  # the service replaces others
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[!-~]([ \t!-~]*[!-~])?", re.ASCII)
_PRODUCT = re.compile(rf"{_TOKEN.pattern}(/{_TOKEN.pattern})?( {_TOKEN.pattern}(/{_TOKEN.pattern})?)*", re.ASCII)


@dataclass(frozen=True, repr=False)
class Options(Generic[HttpT, TransportT]):
    """The options of a client. Raises ConfigurationError if one is invalid."""

    base_url: str | None
    api_key: Secret | None
    timeout: Timeout
    max_retries: int
    max_wait: float
    transport: TransportT | None
    http_client: HttpT | None
    deadline: float | None
    retry_timeout: float
    conditional: bool
    headers: Mapping[str, str] | None
    app_name: str | None
    on_retry: OnRetry
    on_rate_limit: OnRateLimit
    on_response: OnResponse
    clock: Clock
    jitter: Callable[[], float]
    request_id: str | None = None

    def __post_init__(self) -> None:
        for name, kind, what in _NUMBERS:
            value = getattr(self, name)
            if not isinstance(value, kind) or not _is_number(value):
                raise ConfigurationError(f"{name} must be a {what} of 0 or more, not {value!r}.")
        if self.deadline is not None and not (_is_number(self.deadline) and 0 < self.deadline < float("inf")):
            raise ConfigurationError(f"deadline must be a positive number of seconds or None, not {self.deadline!r}.")
        _check_timeout(self.timeout)
        if self.transport is not None and self.http_client is not None:
            raise ConfigurationError("Pass either transport or http_client, not both.")
        _check_headers({} if self.headers is None else self.headers)
        if not _PRODUCT.fullmatch("none" if self.app_name is None else str(self.app_name)):
            raise ConfigurationError(f"app_name must look like 'acme-sync' or 'acme-sync/1.4', not {self.app_name!r}.")
        if not _REQUEST_ID.fullmatch("none" if self.request_id is None else str(self.request_id)):
            raise ConfigurationError("request_id must be 1 to 128 visible ASCII characters, without spaces and 'pso_'.")
        for name in ("on_retry", "on_rate_limit", "on_response"):
            _check_hook(name, getattr(self, name))

    @property
    def read_timeout(self) -> float | None:
        """Seconds to wait for each part of a response, or None."""
        return self.timeout.read if isinstance(self.timeout, httpx2.Timeout) else self.timeout

    def timeout_within(self, seconds: float, hold: float) -> httpx2.Timeout:
        """The timeouts of a request that has this many seconds left, and that the server may hold for `hold`."""
        given = httpx2.Timeout(self.timeout).as_dict()
        given["read"] = None if given["read"] is None else given["read"] + min(hold, MAX_TIMEOUT)
        return httpx2.Timeout(**{name: bounded(each, seconds) for name, each in given.items()})


def bounded(timeout: float | None, left: float) -> float | None:
    """A timeout of a call that has `left` seconds left; both may be infinite, a timeout as None."""
    if timeout is None:
        return min(max(left, MIN_TIMEOUT), _LONGEST) if isfinite(left) else None
    return min(timeout, max(left, MIN_TIMEOUT))


class InMemory:
    """Marks a transport without connections, which a forked child can use as well."""


class CallOptions(TypedDict, total=False):
    """The options that `with_options` can change, with the meaning that they have for `Client`.

    `request_id` is the X-Request-Id of all requests: 1 to 128 visible ASCII characters without `pso_`; None: one each.
    """

    timeout: Timeout
    max_retries: int
    max_wait: float
    deadline: float | None
    retry_timeout: float
    conditional: bool
    headers: Mapping[str, str] | None
    on_retry: OnRetry
    on_rate_limit: OnRateLimit
    on_response: OnResponse
    request_id: str | None


substitutes: list[Callable[[Options[Any, Any]], Options[Any, Any]]] = []
"""The last of these functions changes the options of all clients that are made, for tests."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _check_timeout(timeout: Timeout) -> None:
    for seconds in timeout.as_dict().values() if isinstance(timeout, httpx2.Timeout) else [timeout]:
        if seconds is not None and not (_is_number(seconds) and 0 < seconds <= MAX_TIMEOUT):
            what = f"more than 0 and at most {MAX_TIMEOUT:.0f} seconds, an httpx2.Timeout (this client uses httpx2,"
            raise ConfigurationError(f"timeout must be {what} not httpx), or None for no limit, not {timeout!r}.")


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers must be a mapping of names to values, not a {type(headers).__name__}.")
    for name, value in headers.items():
        if not (isinstance(name, str) and _TOKEN.fullmatch(name)) or _OWN_HEADERS.fullmatch(name):
            hint = " Pass request_id to with_options()." if str(name).lower() == "x-request-id" else ""
            what = f"{name!r}, which is not valid, or which the client sets itself"
            raise ConfigurationError(f"headers contains {what}.{hint}")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ConfigurationError(f"The value of {name} in headers is not valid: it must be visible ASCII text.")


def _check_hook(name: str, hook: object) -> None:
    if hook is None:
        return
    if not callable(hook):
        raise ConfigurationError(f"{name} must be a function, not {hook!r}.")
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
        raise ConfigurationError(f"{name} must be a plain function; nothing would await an asynchronous one.")
