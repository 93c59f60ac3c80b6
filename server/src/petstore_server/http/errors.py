"""From errors to answers: the one table of statuses, the errors that only HTTP knows, and the Error body (D3).

Errors climb untouched to the gate; it alone catches them, and asks here what they become.
"""

import msgspec

from petstore_server.domain import errors as domain
from petstore_server.domain.errors import DomainError
from petstore_server.http.responses import Headers, Response, content


class BadRequest(DomainError):
    """Not exactly one Host header came with an HTTP/1.1 request (RFC 9112 §3.2)."""

    code = "bad_request"

    def __init__(self) -> None:
        super().__init__("Send exactly one Host header with each request.")


class UriTooLong(DomainError):
    code = "uri_too_long"

    def __init__(self) -> None:
        super().__init__("The request target is longer than 8 KiB; no operation needs such a long one, so shorten it.")


class HeadersTooLarge(DomainError):
    code = "headers_too_large"

    def __init__(self) -> None:
        super().__init__("The request headers exceed 32 KiB; send fewer or shorter ones.")


class PayloadTooLarge(DomainError):
    code = "payload_too_large"

    def __init__(self) -> None:
        super().__init__("The request body exceeds 64 KiB; no operation needs a body, so send none.")


class RouteNotFound(DomainError):
    code = "not_found"

    def __init__(self) -> None:
        super().__init__("Nothing is served under this path; see /openapi.json for the paths that are.")


class MethodNotAllowed(DomainError):
    """`allow` names all methods of the target, as the Allow header does (RFC 9110 §15.5.6)."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"This path does not take the request's method; use {allow}.")
        self.allow = allow


class Gone(DomainError):
    code = "gone"

    def __init__(self) -> None:
        super().__init__("This operation was withdrawn at its sunset date; see /docs for what is served today.")


class RateLimitExceeded(DomainError):
    code = "rate_limit_exceeded"

    def __init__(self) -> None:
        super().__init__("The rate limit is used up; wait for the seconds in Retry-After, then back off exponentially.")


class ApiKeyBanned(DomainError):
    code = "api_key_banned"

    def __init__(self) -> None:
        super().__init__("This API key is banned for going on after 429s; send nothing for the seconds in Retry-After.")


class InternalError(DomainError):
    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("Something went wrong on our side; retry later and give the X-Request-Id if you report it.")


STATUS: dict[type[DomainError], int] = {
    BadRequest: 400,
    domain.MissingApiKey: 401,
    domain.InvalidApiKey: 401,
    domain.InsufficientScope: 403,
    domain.InvalidOrderId: 404,
    domain.OrderNotFound: 404,
    domain.PetNotFound: 404,
    RouteNotFound: 404,
    MethodNotAllowed: 405,
    domain.OrderAlreadyShipped: 409,
    domain.OrderAlreadyCancelled: 409,
    Gone: 410,
    PayloadTooLarge: 413,
    UriTooLong: 414,
    RateLimitExceeded: 429,
    ApiKeyBanned: 429,
    HeadersTooLarge: 431,
    InternalError: 500,
    domain.ServiceUnavailable: 503,
}
"""Every error that an API client can meet. Anything else is a fault of ours, and becomes InternalError."""


def error_response(error: DomainError) -> Response:
    """The answer to an error of the table: its status, the Error body and the headers that belong to its kind."""
    status = STATUS[type(error)]
    headers = [(b"cache-control", b"no-store"), *_headers(error)]  # 404, 405 and 410 could be cached else
    return content(error_body(error.code, error.message, status), b"application/json", headers, status)


def error_body(code: str, message: str, status: int) -> bytes:
    """The Error record as JSON: exactly its three fields (spec S2.3)."""
    return msgspec.json.encode({"code": code, "message": message, "status": status})


def _headers(error: DomainError) -> Headers:
    match error:
        case domain.MissingApiKey():
            return [(b"www-authenticate", b'Bearer realm="orders"')]
        case domain.InvalidApiKey():
            return [(b"www-authenticate", b'Bearer realm="orders", error="invalid_token"')]
        case domain.InsufficientScope(scope=scope):
            challenge = f'Bearer realm="orders", error="insufficient_scope", scope="{scope}"'
            return [(b"www-authenticate", challenge.encode())]
        case MethodNotAllowed(allow=allow):
            return [(b"allow", allow.encode())]
        case domain.ServiceUnavailable(retry_after=seconds):
            return [(b"retry-after", b"%d" % seconds)]
    return []
