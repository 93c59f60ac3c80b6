"""The exceptions of the client, subclasses of PetstoreError. They can be pickled, and contain no API key."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from petstore_client.v2 import BatchResult

__all__ = [
    "APIConnectionError", "APIStatusError", "APITimeoutError", "AuthenticationError", "ChangesResetError",
    "ConfigurationError", "ConflictError", "EndedBy", "ErrorCode", "InvalidResponseError", "KeyBannedError",
    "NotFoundError", "PermissionDeniedError", "PetstoreError", "PreconditionFailedError", "RateLimitError",
    "ServerError", "idempotency_key_of",
]  # fmt: skip

ErrorCode = Literal[
    "account_mismatch", "api_key_banned", "bad_request", "changes_reset", "gone", "headers_too_large",
    "idempotency_key_in_use", "idempotency_key_missing", "idempotency_key_reused", "identifier_reserved",
    "insufficient_scope", "internal_error", "invalid_api_key", "invalid_body", "invalid_cursor", "invalid_order_id",
    "invalid_parameter", "method_not_allowed", "missing_api_key", "not_found", "order_already_cancelled",
    "order_already_complete", "order_already_shipped", "order_not_found", "order_not_shipped", "payload_too_large",
    "pet_not_found", "precondition_failed", "rate_limit_exceeded", "reference_in_use", "service_unavailable",
    "too_many_webhooks", "unsupported_media_type", "uri_too_long", "webhook_ended", "webhook_not_found",
    "webhooks_disabled",
]  # fmt: skip
"""The codes of versions 1 and 2 of the API. A later server may send others."""

EndedBy = Literal["max_wait", "deadline", "max_retries", "retry_timeout"]
"""The option of the client that ended a call."""

REASONS: dict[EndedBy, str] = {
    "max_wait": "The necessary wait is longer than max_wait.",
    "deadline": "The deadline leaves no time for another attempt.",
    "max_retries": "max_retries allows no further attempt.",
    "retry_timeout": "retry_timeout leaves no time for another attempt.",
}
_NEVER = datetime.fromtimestamp(0, UTC)


class PetstoreError(Exception):
    """Base class of the exceptions of this client: every failure of a call is one.

    `request_id` is the X-Request-Id under which the server logged the call, or None if nothing was sent.
    `may_have_been_applied` is True if an order or a webhook may have been changed or created by an attempt whose
    response was lost, or an order by another request with the same idempotency key. `idempotency_key` is the key of a
    failed `place_order`: another call with the same arguments and this key does not place a second order. `ended_by`
    names the option that prevented another attempt, or is None. `batch_results` are the known outcomes of a failed
    `batch_orders`, those of its first operations; it is empty for other calls.

    str() escapes characters that could control a terminal or forge a line of a log; `message` is unchanged.
    """

    request_id: str | None = None
    may_have_been_applied: bool = False
    idempotency_key: str | None = None
    ended_by: EndedBy | None = None
    batch_results: "Sequence[BatchResult]" = ()

    def __str__(self) -> str:
        text = self._text()
        return printable(f"{text} {REASONS[self.ended_by]}" if self.ended_by else text)

    def _text(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConfigurationError(PetstoreError, ValueError):
    """The base URL, the key or another argument is invalid; the message says what to change."""


class APIConnectionError(PetstoreError):
    """No complete response arrived.

    `sent` is False if no connection was made, so that the server saw nothing. `retryable` is False if a repetition
    cannot succeed, for example because the certificate of the server is invalid.
    """

    def __init__(self, message: str, sent: bool = True, retryable: bool = True) -> None:
        super().__init__(message, sent, retryable)
        self.message = message
        self.sent = sent
        self.retryable = retryable


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


class APIStatusError(PetstoreError):
    """The API refused the request. `code` is for programs ("" if the response had none), `message` for people.

    `status` is the HTTP status. The type of `code` lists the codes of versions 1 and 2; a later server may send others.
    `retry_after` is the wait in seconds that a 409 or 5xx asked for, or None.
    """

    def __init__(self, code: str, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(code, message, status, retry_after)
        self.code = cast(ErrorCode | Literal[""], code)
        self.message = message
        self.status = status
        self.retry_after = retry_after

    def _text(self) -> str:
        return f"{self.message} ({self.status} {self.code})" if self.code else f"{self.message} ({self.status})"


class AuthenticationError(APIStatusError):
    """401: the key is missing, mistyped, expired, revoked, or belongs to the other environment."""


class PermissionDeniedError(APIStatusError):
    """403: the key does not have the scope that the operation needs, or the store has not turned webhooks on."""


class NotFoundError(APIStatusError):
    """404: the order, pet or webhook does not exist."""


class ConflictError(APIStatusError):
    """409: the order has shipped (`order_already_shipped`) or is already cancelled (`order_already_cancelled`).

    Or an order of the same account has the reference (`reference_in_use`): `order_id` is its identifier, otherwise
    None. Or, after all attempts, another request with the same key is still being processed (`idempotency_key_in_use`).
    The shop's own systems also get `order_not_shipped`, `order_already_complete`, `account_mismatch` (the order belongs
    to an account that the call does not name) and `identifier_reserved` (the service assigns this identifier). Webhooks
    have `too_many_webhooks` and `webhook_ended`.
    """

    order_id: int | None = None


class PreconditionFailedError(APIStatusError):
    """412 `precondition_failed`: the order has changed since the ETag in `if_match`; read it again.

    Or it exists already, and the call was to create it (`create_only`).
    """


class ChangesResetError(APIStatusError):
    """410 `changes_reset`: the store was restored since the token, or the account sees other orders than then.

    Begin again without a token, and with an empty copy.
    """


class RateLimitError(APIStatusError):
    """The limits allow no request before `retry_at`, an aware datetime in UTC by this host's clock; `message` shows it.

    `sent` is False if the client stopped the call before sending it.
    """

    def __init__(
        self, code: str, message: str, status: int = 429, retry_at: datetime = _NEVER, sent: bool = True
    ) -> None:
        super().__init__(code, message, status)
        self.args = code, message, status, retry_at, sent
        self.retry_at = retry_at
        self.sent = sent


class KeyBannedError(RateLimitError):
    """The key is banned until `retry_at` because requests continued after a 429. The client never waits for that."""


class ServerError(APIStatusError):
    """500 and above: a fault of the service or of a proxy in front of it."""


def idempotency_key_of(error: BaseException) -> str | None:
    """The key of the `place_order` that ended with this exception, such as the TimeoutError of `wait_for`, or None."""
    keys = (getattr(each, "idempotency_key", None) for each in causes(error))
    return next((key for key in keys if isinstance(key, str)), None)


def keep_key(error: BaseException, key: str) -> None:
    """Add the idempotency key to an exception that leaves `place_order`, which is the only call that has one."""
    if key:
        error.idempotency_key = key  # type: ignore[attr-defined]
    if key and not isinstance(error, PetstoreError):
        error.add_note(f"The order may have been placed; repeat the call with idempotency_key={key!r} to find out.")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised from or during, at most ten in all."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def printable(text: str) -> str:
    """The text with all control and formatting characters escaped, so that it can be printed on a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
