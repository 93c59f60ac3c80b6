"""Client of the Pet Store Orders API: `Client` blocks, `AsyncClient` is awaited. See /docs/client on the API's host."""

import importlib
import typing

from petstore_client._version import __version__

if typing.TYPE_CHECKING:
    from petstore_client._async_client import AsyncClient
    from petstore_client._client import Client
    from petstore_client._limits import RateLimit, RateWindow
    from petstore_client._options import CallOptions
    from petstore_client._types import Clock, Order, Pet, RateLimitEvent, ResponseEvent, RetryEvent
    from petstore_client._versions import V2, AsyncV2
    from petstore_client.errors import (
        APIConnectionError,
        APIStatusError,
        APITimeoutError,
        AuthenticationError,
        ChangesResetError,
        ConfigurationError,
        ConflictError,
        ErrorCode,
        InvalidResponseError,
        KeyBannedError,
        NotFoundError,
        PermissionDeniedError,
        PetstoreError,
        PreconditionFailedError,
        RateLimitError,
        ServerError,
        idempotency_key_of,
    )
else:
    _PUBLIC_MODULES = "errors", "testing", "v2"
    _MODULES = "errors", "_limits", "_types", "_options", "_client", "_async_client"  # with the names; each loads more

    def __getattr__(name: str) -> object:
        """Load each name when it is first used: blocking programs need no asyncio, and `--help` no HTTP.

        The command begins before much is loaded, so that it handles Ctrl-C.
        """
        if name in _PUBLIC_MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        modules = (importlib.import_module(f"{__name__}.{module}") for module in _MODULES)
        return globals().setdefault(name, next(getattr(each, name) for each in modules if hasattr(each, name)))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_PUBLIC_MODULES})


__all__ = [
    "V2", "APIConnectionError", "APIStatusError", "APITimeoutError", "AsyncClient", "AsyncV2", "AuthenticationError",
    "CallOptions", "ChangesResetError", "Client", "Clock", "ConfigurationError", "ConflictError", "ErrorCode",
    "InvalidResponseError", "KeyBannedError", "NotFoundError", "Order", "PermissionDeniedError", "Pet", "PetstoreError",
    "PreconditionFailedError", "RateLimit", "RateLimitError", "RateLimitEvent", "RateWindow", "ResponseEvent",
    "RetryEvent", "ServerError", "__version__", "idempotency_key_of",
]  # fmt: skip
