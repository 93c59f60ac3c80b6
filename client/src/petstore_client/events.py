"""What the hooks of a client are told."""

from datetime import datetime
from typing import NamedTuple

from petstore_client.errors import PetstoreError


class RetryEvent(NamedTuple):
    """An attempt failed and will be repeated after `wait` seconds (after a 429, no sooner than the gate opens).

    `operation` is the operationId, `attempt` the number of the attempt that failed, from 1.
    """

    operation: str
    attempt: int
    wait: float
    error: PetstoreError
    request_id: str


class RateLimitEvent(NamedTuple):
    """A limit holds a call up for `wait` seconds, until `retry_at` (aware, UTC).

    `refused` is True where the server answered 429, False where this client held the call back by itself.
    `waits` is False where the call fails with RateLimitError instead of waiting.
    """

    operation: str
    wait: float
    retry_at: datetime
    refused: bool
    waits: bool
    request_id: str
