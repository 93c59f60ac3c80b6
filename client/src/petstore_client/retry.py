"""When a failed attempt is repeated: full jitter, bounded attempts and time, and a budget for each client."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from petstore_client.errors import (
    APIConnectionError,
    ConfigurationError,
    InvalidResponseError,
    PetstoreError,
    ServerError,
)

FIRST_BACKOFF = 0.5
"""Seconds, at most, before the first retry of a failure; each further one doubles."""

LONGEST_BACKOFF = 20.0
RETRIED_STATUSES = frozenset({500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The bounds that a client was given.

    `max_retries` counts 429s, too. `max_wait` is the longest single wait, in seconds, that a limit may impose;
    `retry_timeout` bounds, in seconds, what one call spends on failing attempts and on backing off from them.
    """

    max_retries: int = 4
    max_wait: float = 75.0
    retry_timeout: float = 120.0

    def __post_init__(self) -> None:
        for name in ("max_retries", "max_wait", "retry_timeout"):
            check_number(name, getattr(self, name))


def check_number(name: str, value: object) -> None:
    """Raise ConfigurationError unless an argument is a number of 0 or more."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigurationError(f"{name} must be a number of 0 or more; it is {value!r}.")


@dataclass(eq=False)
class RetryBudget:
    """Retries that a client may spend on failures, so that a server that fails for all is not hammered.

    A retry takes one token; a success gives back a tenth, and so do ten seconds, up to `size`.
    """

    size: float
    _tokens: float = field(init=False)
    _counted_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._tokens = self.size

    def take(self, now: float) -> bool:
        """Spend a token, if there is one; `now` is in monotonic seconds."""
        with self._lock:
            if self._counted_at is not None:
                self._tokens = min(self.size, self._tokens + max(0.0, now - self._counted_at) / 100)
            self._counted_at = now
            if self._tokens < 1 - 1e-9:  # ten tenths make a token, whatever floats say
                return False
            self._tokens -= 1
            return True

    def succeeded(self) -> None:
        """A request was answered as it should be."""
        with self._lock:
            self._tokens = min(self.size, self._tokens + 0.1)


def is_transient(error: PetstoreError) -> bool:
    """Whether the same request may fare better soon. 401, 403, 404 and 409 never do."""
    if isinstance(error, ServerError):
        return error.status in RETRIED_STATUSES
    if isinstance(error, InvalidResponseError):
        return error.truncated
    return isinstance(error, APIConnectionError)


def leaves_doubt(error: PetstoreError) -> bool:
    """Whether the request may have been carried out although no answer to it came."""
    if isinstance(error, APIConnectionError):
        return error.sent
    if isinstance(error, InvalidResponseError):
        return error.status is not None and error.status < 300
    return isinstance(error, ServerError)


def backoff(attempt: int, jitter: Callable[[], float]) -> float:
    """Seconds to wait after the failed attempt with this number, counted from 1: full jitter under a doubling bound."""
    return jitter() * min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(attempt - 1, 16))
