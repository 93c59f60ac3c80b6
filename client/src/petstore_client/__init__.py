"""The Pet Store Orders API from Python: `Client` blocks, `AsyncClient` is awaited."""

import logging

from petstore_client._async_client import AsyncClient
from petstore_client._client import Client
from petstore_client._limits import RateLimit, RateWindow
from petstore_client._types import Order, Pet, RateLimitEvent, RetryEvent
from petstore_client._version import __version__
from petstore_client.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConfigurationError,
    ConflictError,
    InvalidResponseError,
    KeyBannedError,
    NotFoundError,
    PermissionDeniedError,
    PetstoreError,
    RateLimitError,
    ServerError,
)

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ConfigurationError",
    "ConflictError",
    "InvalidResponseError",
    "KeyBannedError",
    "NotFoundError",
    "Order",
    "PermissionDeniedError",
    "Pet",
    "PetstoreError",
    "RateLimit",
    "RateLimitError",
    "RateLimitEvent",
    "RateWindow",
    "RetryEvent",
    "ServerError",
    "__version__",
]

logging.getLogger("petstore_client").addHandler(logging.NullHandler())
