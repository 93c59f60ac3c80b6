"""The options of a client: listed, documented and checked here only."""

import functools
import inspect
import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Concatenate, Generic, Literal, ParamSpec, TypeVar, get_origin

from petstore_client._types import SYSTEM_CLOCK, Clock, RateLimitEvent, RetryEvent
from petstore_client.errors import ConfigurationError

TransportT = TypeVar("TransportT")
HttpT = TypeVar("HttpT")
SelfT = TypeVar("SelfT")
OptionsT = TypeVar("OptionsT")
P = ParamSpec("P")

Pacing = Literal["minute", "day"]


@dataclass(frozen=True, repr=False)
class Options(Generic[HttpT, TransportT]):
    """Make a client. Raises ConfigurationError if an argument is invalid.

    base_url: for example `https://api.example.com/v1`; default: PETSTORE_BASE_URL.
    api_key: default: PETSTORE_API_KEY. It never appears in repr(), logs or exceptions.
    timeout: seconds to wait for a connection, and for each further part of a response; None waits forever.
    max_retries: how often a call is repeated after failures of the connection or the server and after 429s.
    max_wait: the longest time in seconds that a call waits, each time, for a limit to reset. If a wait would be
        longer, the call raises RateLimitError.
    transport: an httpx2 transport to send through, such as `httpx2.HTTPTransport(verify=...)`.
    retry_timeout: seconds that a call may spend on failing attempts and on the backoff between them.
    retry_budget: retries of failures that this client may make before successes earn new ones.
    conditional: keep the last list and its ETag, so that an unchanged list is not sent again.
    pacing: "minute" spreads the remaining requests over the minute, "day" over the day as well.
    on_retry, on_rate_limit: called with a RetryEvent or a RateLimitEvent, in the calling thread.
    clock, jitter: a time source, and a source of numbers from 0 to 1; for tests (see `petstore_client.testing`).
    """

    base_url: str | None = None
    _: KW_ONLY
    api_key: str | None = None
    timeout: float | None = 30.0
    max_retries: int = 4
    max_wait: float = 75.0
    transport: TransportT | None = None
    retry_timeout: float = 120.0
    retry_budget: float = 20.0
    conditional: bool = True
    pacing: Pacing | None = None
    on_retry: Callable[[RetryEvent], object] | None = None
    on_rate_limit: Callable[[RateLimitEvent], object] | None = None
    clock: Clock = SYSTEM_CLOCK
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        for name in ("max_retries", "max_wait", "retry_timeout", "retry_budget"):
            _check_number(name, getattr(self, name))
        if self.timeout is not None:
            _check_number("timeout", self.timeout)
            if self.timeout == 0:
                raise ConfigurationError("timeout must be more than 0 seconds, or None to wait forever.")
        if self.pacing not in (None, "minute", "day"):
            raise ConfigurationError(f"pacing must be None, 'minute' or 'day', not {self.pacing!r}.")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigurationError(f"{name} must be a number of 0 or more, not {value!r}.")


def takes(
    options: Callable[P, OptionsT],
) -> Callable[[Callable[[SelfT, OptionsT], None]], Callable[Concatenate[SelfT, P], None]]:
    """Give an `__init__` that takes an Options object the signature of Options itself."""

    def decorate(init: Callable[[SelfT, OptionsT], None]) -> Callable[Concatenate[SelfT, P], None]:
        @functools.wraps(init)
        def __init__(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> None:  # noqa: N807 - it is one
            init(self, options(*args, **kwargs))

        kind = get_origin(options) or options
        signature = inspect.signature(kind)
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        __init__.__doc__ = kind.__doc__
        __init__.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])  # type: ignore[attr-defined]
        return __init__

    return decorate
