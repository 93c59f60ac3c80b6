"""The Pet Store Orders API from Python: `Client` blocks, `AsyncClient` is awaited."""

import logging

from petstore_client.async_client import AsyncClient
from petstore_client.client import Client
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
from petstore_client.events import RateLimitEvent, RetryEvent
from petstore_client.limits import RateLimit, RateWindow
from petstore_client.records import Order, Pet
from petstore_client.version import __version__

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
