"""Client of the Pet Store Orders API: `Client` blocks, `AsyncClient` is awaited. See /docs/client on the API's host."""

import importlib
import typing

from petstore_client._version import __version__

if typing.TYPE_CHECKING:
    from petstore_client._async_client import AsyncClient
    from petstore_client._client import Client
    from petstore_client._limits import RateLimit, RateWindow
    from petstore_client._types import Clock, Order, Pet, RateLimitEvent, ResponseEvent, RetryEvent
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
        RateLimitError,
        ServerError,
        idempotency_key_of,
    )
else:
    _MODULES = {"AsyncClient": "_async_client", "Client": "_client"}  # of the names that are not in `errors`
    _MODULES |= dict.fromkeys(("RateLimit", "RateWindow"), "_limits")
    _MODULES |= dict.fromkeys(("Clock", "Order", "Pet", "RateLimitEvent", "ResponseEvent", "RetryEvent"), "_types")
    _MODULES |= {name: name for name in ("errors", "testing", "v2")}

    def __getattr__(name: str) -> object:
        """Load each name when it is first used: blocking programs need no asyncio, and `--help` no HTTP.

        The command begins before much is loaded, so that it handles Ctrl-C.
        """
        if name not in _MODULES and name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
        return globals().setdefault(name, getattr(module, name, module))


__all__ = [
    "APIConnectionError", "APIStatusError", "APITimeoutError", "AsyncClient", "AuthenticationError",
    "ChangesResetError", "Client", "Clock", "ConfigurationError", "ConflictError", "ErrorCode", "InvalidResponseError",
    "KeyBannedError", "NotFoundError", "Order", "PermissionDeniedError", "Pet", "PetstoreError", "RateLimit",
    "RateLimitError", "RateLimitEvent", "RateWindow", "ResponseEvent", "RetryEvent", "ServerError", "__version__",
    "idempotency_key_of",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "errors", "testing", "v2"})
