"""Which failed attempts are repeated, and how long after: full jitter."""

from collections.abc import Callable

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
