"""The exceptions of the client.

PetstoreError
├── ConfigurationError       an argument is invalid; nothing was sent (also a ValueError)
├── APIConnectionError       no complete response: refused, broken or unreachable connection
│   └── APITimeoutError      no response within the timeout
├── InvalidResponseError     a response that does not follow this API: HTML, a redirect, a truncated list
└── APIStatusError           the API refused the request
    ├── AuthenticationError      401
    ├── PermissionDeniedError    403
    ├── NotFoundError            404
    ├── ConflictError            409
    ├── RateLimitError           429, or a call that the client stopped before it was sent
    │   └── KeyBannedError       429 `api_key_banned`
    └── ServerError              500 and above

All exceptions can be pickled, for example to cross a process boundary. None contains the API key.
"""

from datetime import UTC, datetime

_NEVER = datetime.fromtimestamp(0, UTC)


class PetstoreError(Exception):
    """Base class of the exceptions that this client raises.

    `request_id` is the X-Request-Id under which the server logged the call, or None if nothing was sent.
    `may_have_been_applied` is True if a cancel failed after an attempt whose response was lost: the order may have
    been cancelled.
    """

    request_id: str | None = None
    may_have_been_applied: bool = False


class ConfigurationError(PetstoreError, ValueError):
    """The base URL, the key or another argument is invalid; the message says what to change."""


class APIConnectionError(PetstoreError):
    """No complete response arrived. `sent` is False if no connection was made, so that the server saw nothing."""

    def __init__(self, message: str, sent: bool = True) -> None:
        super().__init__(message, sent)
        self.message = message
        self.sent = sent

    def __str__(self) -> str:
        return self.message


class APITimeoutError(APIConnectionError):
    """The connection or the response took longer than the timeout."""


class InvalidResponseError(PetstoreError):
    """The response does not follow this API; the message says why and what to check.

    `status` is the HTTP status. `truncated` is True if the response started correctly and then ended early.
    """

    def __init__(self, message: str, status: int | None = None, truncated: bool = False) -> None:
        super().__init__(message, status, truncated)
        self.message = message
        self.status = status
        self.truncated = truncated

    def __str__(self) -> str:
        return self.message


class APIStatusError(PetstoreError):
    """The API refused the request. `code` is for programs ("" if the response had none), `message` for people."""

    def __init__(self, code: str, message: str, status: int, *more: object) -> None:
        super().__init__(code, message, status, *more)
        self.code = code
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.code})" if self.code else f"{self.message} ({self.status})"


class AuthenticationError(APIStatusError):
    """401: the key is missing, mistyped, expired, revoked, or belongs to the other environment."""


class PermissionDeniedError(APIStatusError):
    """403: the key does not have the scope that the operation needs."""


class NotFoundError(APIStatusError):
    """404: the order or pet does not exist."""


class ConflictError(APIStatusError):
    """409: the order has shipped (`order_already_shipped`) or is already cancelled (`order_already_cancelled`)."""


class RateLimitError(APIStatusError):
    """The limits allow no request before `retry_at`, an aware datetime in UTC by this host's clock.

    `sent` is False if the client stopped the call before sending it.
    """

    def __init__(
        self, code: str, message: str, status: int = 429, retry_at: datetime = _NEVER, sent: bool = True
    ) -> None:
        super().__init__(code, message, status, retry_at, sent)
        self.retry_at = retry_at
        self.sent = sent


class KeyBannedError(RateLimitError):
    """The key is banned until `retry_at` because requests continued after a 429. The client never waits for that."""


class ServerError(APIStatusError):
    """500 and above: a fault of the service or of a proxy in front of it.

    `retry_after` is the wait in seconds that the response asked for, or None.
    """

    def __init__(self, code: str, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(code, message, status, retry_after)
        self.retry_after = retry_after
