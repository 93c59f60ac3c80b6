"""Which failed attempts are repeated, and how long after: full jitter, and a retry budget for each client."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from petstore_client.errors import (
    APIConnectionError,
    ConflictError,
    InvalidResponseError,
    PetstoreError,
    ServerError,
)

FIRST_BACKOFF = 0.5
"""Upper bound of the first backoff, in seconds; it doubles with each attempt."""

LONGEST_BACKOFF = 20.0
RETRIED_STATUSES = frozenset({500, 502, 503, 504})


@dataclass(eq=False)
class RetryBudget:
    """Retries that a client may spend on failures, so that it does not multiply the load of a failing server.

    A retry takes one token. A success returns a tenth of a token, and so do ten seconds, up to `size`.
    """

    size: float
    _tokens: float = field(init=False)
    _counted_at: float | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)  # a destructor may make a call

    def __post_init__(self) -> None:
        self._tokens = self.size

    def take(self, now: float) -> bool:
        """Spend a token and return True if there is one; `now` is in monotonic seconds."""
        with self._lock:
            if self._counted_at is not None:
                self._tokens = min(self.size, self._tokens + max(0.0, now - self._counted_at) / 100)
            self._counted_at = now
            if self._tokens < 1 - 1e-9:  # ten tenths make a token, despite the rounding of floats
                return False
            self._tokens -= 1
            return True

    def succeeded(self) -> None:
        """Count a successful call."""
        with self._lock:
            self._tokens = min(self.size, self._tokens + 0.1)


def is_transient(error: PetstoreError) -> bool:
    """Whether a repetition of the same request may succeed. 4xx are permanent, except a key that is in use just now."""
    if isinstance(error, ServerError):
        return error.status in RETRIED_STATUSES
    if isinstance(error, ConflictError):
        return error.code == "idempotency_key_in_use"
    if isinstance(error, InvalidResponseError):
        return error.truncated
    return isinstance(error, APIConnectionError) and error.retryable


def leaves_doubt(error: PetstoreError) -> bool:
    """Whether the server may have carried the request out although its response was lost."""
    if isinstance(error, APIConnectionError):
        return error.sent
    if isinstance(error, InvalidResponseError):
        return error.status is not None and error.status < 300
    return isinstance(error, ServerError)


def backoff(attempt: int, jitter: Callable[[], float]) -> float:
    """Seconds to wait after the failed attempt with this number (from 1): full jitter below a doubling bound."""
    return jitter() * min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(attempt - 1, 16))
