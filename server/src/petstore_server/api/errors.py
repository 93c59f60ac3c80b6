"""From errors to responses: the one table of statuses, the errors of the interface itself, and the Error body (D3).

Errors propagate unchanged to the gate, which uses this table to turn them into responses.
"""

import msgspec

from petstore_server.api.representation import json_response
from petstore_server.domain import errors as domain
from petstore_server.domain.errors import DomainError
from petstore_server.server import messages as server
from petstore_server.server.messages import RequestError, Response


class RouteNotFound(DomainError):
    code = "not_found"
    message = "Nothing is served under this path; /{}.json lists the paths that exist."

    def __init__(self, version: str = "v1") -> None:
        super().__init__("openapi" if version == "v1" else f"openapi-{version}")


class MethodNotAllowed(DomainError):
    """The value lists all methods of the target, as the Allow header does (RFC 9110 section 15.5.6)."""

    code = "method_not_allowed"
    message = "This path does not support the request's method; use {}."


class Gone(DomainError):
    code = "gone"
    message = "This operation was withdrawn at its sunset date; /docs describes the current operations."


class RateLimitExceeded(DomainError):
    """The value is that of Retry-After in seconds; there is none where the limit headers carry it."""

    code = "rate_limit_exceeded"
    message = "Rate limit exceeded; wait the number of seconds in Retry-After, then back off exponentially."


class ApiKeyBanned(DomainError):
    code = "api_key_banned"
    message = "This API key is banned for repeated requests after 429; wait the number of seconds in Retry-After."


class InvalidParameter(DomainError):
    """A parameter of the query, or a header that is one, is malformed, unknown or repeated."""

    code = "invalid_parameter"


class InvalidBody(DomainError):
    """The body is malformed, or one of its fields is."""

    code = "invalid_body"


class IdempotencyKeyMissing(DomainError):
    code = "idempotency_key_missing"
    message = "Send an Idempotency-Key header: a new random text for each order, the same when you repeat the request."


class UnsupportedMediaType(DomainError):
    code = "unsupported_media_type"
    message = "Send the body as JSON in UTF-8, uncompressed, with 'Content-Type: application/json'."


class WebhooksDisabled(DomainError):
    """PETSTORE_WEBHOOK_SECRET is not set. Only an operator can change that: programs must not retry."""

    code = "webhooks_disabled"
    message = "This store has not turned webhooks on; ask the store."


class Overloaded(DomainError):
    """More requests are being answered at the same time than the process, or a share of it for one account, allows."""

    code = "service_unavailable"
    message = "Too many requests at the same time; retry after the seconds in Retry-After, with fewer connections."


class InternalError(DomainError):
    code = "internal_error"
    message = "Internal error; retry later, and quote the X-Request-Id when you report it."


_ERRORS: dict[int, tuple[type[DomainError | RequestError], ...]] = {
    400: (
        server.BadRequest,
        InvalidParameter,
        domain.InvalidCursor,
        domain.InvalidToken,
        InvalidBody,
        IdempotencyKeyMissing,
    ),
    401: (domain.MissingApiKey, domain.InvalidApiKey),
    403: (domain.InsufficientScope, WebhooksDisabled),
    404: (domain.InvalidOrderId, domain.OrderNotFound, domain.PetNotFound, domain.WebhookNotFound, RouteNotFound),
    405: (MethodNotAllowed,),
    409: (
        domain.OrderAlreadyShipped,
        domain.OrderAlreadyCancelled,
        domain.OrderNotShipped,
        domain.OrderAlreadyComplete,
        domain.AccountMismatch,
        domain.IdentifierReserved,
        domain.IdempotencyKeyInUse,
        domain.ReferenceInUse,
        domain.TooManyWebhooks,
        domain.WebhookEnded,
    ),
    410: (Gone, domain.ChangesReset),
    412: (domain.PreconditionFailed,),
    413: (server.PayloadTooLarge,),
    414: (server.UriTooLong,),
    415: (UnsupportedMediaType,),
    422: (domain.IdempotencyKeyReused,),
    429: (RateLimitExceeded, ApiKeyBanned),
    431: (server.HeadersTooLarge,),
    500: (InternalError, domain.NoIdentifierLeft),
    501: (server.UnsupportedTransferCoding,),
    503: (
        domain.ServiceUnavailable,
        domain.Unreachable,
        domain.WebhookSecretChanged,
        Overloaded,
        server.TooManyConnections,
    ),
}
STATUS = {error: status for status, errors in _ERRORS.items() for error in errors}
"""Every error that an API client can get. Any other exception is a defect and becomes InternalError."""

_NO_STORE = b"Cache-Control: no-store\r\n"  # 404, 405 and 410 are cacheable by default


def error_response(failure: DomainError | RequestError, *, of_order: bool = False) -> Response:
    """The response to an error in the table: its status, the Error body, and the headers of its kind.

    `of_order`: the path is that of an order, so references to others are relative to it.
    """
    status = STATUS[type(failure)]
    body = msgspec.json.encode({"code": failure.code, "message": failure.message, "status": status})  # spec S2.3
    lines = _NO_STORE + _headers(failure, b"" if of_order else b"orders/")
    return json_response(body, lines, status)


def error_fields(failure: DomainError) -> dict[str, object]:
    """The outcome of an operation of a batch that failed with an error in the table."""
    fields = {"status": STATUS[type(failure)], "code": failure.code, "message": failure.message}
    return fields | ({"orderId": failure.values[0]} if isinstance(failure, domain.ReferenceInUse) else {})


def _headers(failure: DomainError | RequestError, orders: bytes) -> bytes:
    match failure:
        case domain.MissingApiKey():
            return b'WWW-Authenticate: Bearer realm="orders"\r\n'
        case domain.InvalidApiKey():
            return b'WWW-Authenticate: Bearer realm="orders", error="invalid_token"\r\n'
        case domain.InsufficientScope(values=(scope,)):
            challenge = f'Bearer realm="orders", error="insufficient_scope", scope="{scope}"'
            return f"WWW-Authenticate: {challenge}\r\n".encode()
        case MethodNotAllowed(values=(allow,)):
            return f"Allow: {allow}\r\n".encode()
        case RateLimitExceeded(values=(int(seconds),)):
            return b"Retry-After: %d\r\n" % seconds
        case domain.ReferenceInUse(values=(int(order_id),)):
            return b"Location: %s%d\r\n" % (orders, order_id)
        case domain.ServiceUnavailable() | domain.IdempotencyKeyInUse() | server.TooManyConnections() | Overloaded():
            return b"Retry-After: 1\r\n"
    return b""
