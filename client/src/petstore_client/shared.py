"""What the two clients take in common: the checks of their arguments, and what all their calls share."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Literal

from petstore_client.call import Session
from petstore_client.clock import Clock
from petstore_client.errors import ConfigurationError
from petstore_client.events import RateLimitEvent, RetryEvent
from petstore_client.gates import gate_for
from petstore_client.operations import Listed
from petstore_client.records import Order
from petstore_client.retry import RetryBudget, RetryPolicy, check_number
from petstore_client.wire import Target, read_target

Pacing = Literal["minute", "day"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a client was given; the meaning of each stands at `Client`."""

    timeout: float | None
    max_retries: int
    max_wait: float
    retry_timeout: float
    retry_budget: float
    conditional: bool
    pacing: Pacing | None
    on_retry: Callable[[RetryEvent], object] | None
    on_rate_limit: Callable[[RateLimitEvent], object] | None
    clock: Clock
    jitter: Callable[[], float]


class Shared:
    """What Client and AsyncClient have in common: everything but I/O. Raises ConfigurationError."""

    def __init__(self, base_url: str | None, api_key: str | None, options: Options) -> None:
        target = read_target(base_url, api_key, os.environ)
        check_number("retry_budget", options.retry_budget)
        if options.timeout is not None:
            check_number("timeout", options.timeout)
            if options.timeout == 0:
                raise ConfigurationError("timeout must be more than 0 seconds, or None to wait for ever.")
        if options.pacing not in (None, "minute", "day"):
            raise ConfigurationError(f"pacing must be None, 'minute' or 'day'; it is {options.pacing!r}.")
        self.timeout = options.timeout
        self.conditional = options.conditional
        self.listed: Listed | None = None
        self.session = Session(
            target,
            RetryPolicy(options.max_retries, options.max_wait, options.retry_timeout),
            gate_for(target.base_url, target.key.text, options.clock),
            RetryBudget(options.retry_budget),
            options.clock,
            options.jitter,
            options.timeout,
            options.pacing,
            options.on_retry,
            options.on_rate_limit,
        )

    @property
    def target(self) -> Target:
        return self.session.target

    def known_list(self) -> Listed | None:
        """The last list, if the server may be asked whether it has changed."""
        return self.listed if self.conditional else None

    def keep(self, listed: Listed) -> list[Order]:
        """Keep a list for the next time, and copy it for the caller, who may change the copy."""
        if self.conditional:
            self.listed = listed if listed.etag else None
        return list(listed.orders)

    def http_options(self) -> dict[str, Any]:
        """How the HTTP client below is set up: redirects are not followed, and no cookie is kept."""
        return {
            "timeout": self.timeout,
            "follow_redirects": False,
            "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        }


def warn_of_sunset(sunset: datetime | None, stacklevel: int) -> None:
    """Warn the caller of `get_pet`."""
    until = f"is answered until {sunset.date().isoformat()}" if sunset else "will end; the server did not say when"
    warnings.warn(f"get_pet is deprecated: GET /pets/{{petId}} {until}.", DeprecationWarning, stacklevel + 1)
