"""What may go wrong, as a tree to catch by.

PetstoreError
├── ConfigurationError       the base URL or the key cannot be right; nothing was sent (a ValueError, too)
├── APIConnectionError       no whole answer: refused, broken off, unreachable
│   └── APITimeoutError      the server did not answer in time
├── InvalidResponseError     an answer, but none of this API: HTML, a redirect, a truncated list
└── APIStatusError           the API refused
    ├── AuthenticationError      401
    ├── PermissionDeniedError    403
    ├── NotFoundError            404
    ├── ConflictError            409
    ├── RateLimitError           429, or held back by this client before it came to that
    │   └── KeyBannedError       429 `api_key_banned`
    └── ServerError              500 and above

Every error can be pickled, so that it gets home from a worker process. None holds the API key.
"""

from datetime import UTC, datetime

_NEVER = datetime.fromtimestamp(0, UTC)


class PetstoreError(Exception):
    """Anything that this client raises of itself.

    `request_id` is the X-Request-Id under which the server's log has the call; None where nothing was sent.
    `may_have_been_applied` is True where a cancel failed after an attempt whose answer was lost: the order may have
    been cancelled all the same.
    """

    request_id: str | None = None
    may_have_been_applied: bool = False


class ConfigurationError(PetstoreError, ValueError):
    """The base URL, the key or another argument cannot be right; the message says what to change."""


class APIConnectionError(PetstoreError):
    """No whole answer came. `sent` is False where no connection could be made, so that the server saw nothing."""

    def __init__(self, message: str, sent: bool = True) -> None:
        super().__init__(message, sent)
        self.message = message
        self.sent = sent

    def __str__(self) -> str:
        return self.message


class APITimeoutError(APIConnectionError):
    """The server did not connect, or not answer, within the timeout."""


class InvalidResponseError(PetstoreError):
    """What came is no answer of this API; the message says why and what to look at.

    `status` is the HTTP status. `truncated` is True where the answer began well and broke off.
    """

    def __init__(self, message: str, status: int | None = None, truncated: bool = False) -> None:
        super().__init__(message, status, truncated)
        self.message = message
        self.status = status
        self.truncated = truncated

    def __str__(self) -> str:
        return self.message


class APIStatusError(PetstoreError):
    """The API refused the call. `code` is for programs (empty where the answer had none), `message` for people."""

    def __init__(self, code: str, message: str, status: int, *more: object) -> None:
        super().__init__(code, message, status, *more)
        self.code = code
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.code})" if self.code else f"{self.message} ({self.status})"


class AuthenticationError(APIStatusError):
    """401: the key is missing, mistyped, expired, revoked, or of the other environment."""


class PermissionDeniedError(APIStatusError):
    """403: the key lacks the scope that the operation needs."""


class NotFoundError(APIStatusError):
    """404: there is no such order or pet."""


class ConflictError(APIStatusError):
    """409: the order has shipped (`order_already_shipped`) or was cancelled before (`order_already_cancelled`)."""


class RateLimitError(APIStatusError):
    """The limits allow no request before `retry_at`, an aware datetime in UTC by this host's clock.

    `sent` is False where this client held the call back, so that the server did not see it.
    """

    def __init__(
        self, code: str, message: str, status: int = 429, retry_at: datetime = _NEVER, sent: bool = True
    ) -> None:
        super().__init__(code, message, status, retry_at, sent)
        self.retry_at = retry_at
        self.sent = sent


class KeyBannedError(RateLimitError):
    """The key is banned until `retry_at`, because requests went on after a 429; it is never waited out."""


class ServerError(APIStatusError):
    """500 and above: a fault of the service, or of what stands before it.

    `retry_after` is the wait in seconds that the answer named, or None.
    """

    def __init__(self, code: str, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(code, message, status, retry_after)
        self.retry_after = retry_after
