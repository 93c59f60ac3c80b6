"""The requests that the server refuses by itself, and the bounds on a request."""

MAX_TARGET = 8 * 1024
MAX_HEADERS = 32 * 1024
MAX_BODY = 64 * 1024
"""Bytes of a request; anything larger is 414, 431 or 413 (D3)."""

MAX_HEADER_LINES = 100
"""Header lines of a request; more are 431 (D3)."""


class RequestError(Exception):
    """A request or a connection that is refused; `code` is for programs, `message` is a whole sentence for people."""

    code = ""
    message = ""

    def __init__(self, message: str = "") -> None:
        self.message = message or self.message
        super().__init__(self.message)


class BadRequest(RequestError):
    """An HTTP/1.1 request must have exactly one Host header, and its value must be one (RFC 9112 section 3.2)."""

    code = "bad_request"
    message = "Send exactly one Host header, a host name or an address, with each request."


class UnsupportedTransferCoding(RequestError):
    """The body has a transfer coding besides chunked (RFC 9112 section 6.1).

    The set of codes in v1 is closed, so this condition shares the code of other requests that must be changed.
    """

    code = "bad_request"
    message = "Transfer-Encoding must be 'chunked', without other codings; or send Content-Length instead."


class UriTooLong(RequestError):
    code = "uri_too_long"
    message = f"The request target exceeds {MAX_TARGET // 1024} KiB; shorten it."


class HeadersTooLarge(RequestError):
    code = "headers_too_large"
    message = (
        f"The request headers exceed {MAX_HEADERS // 1024} KiB or {MAX_HEADER_LINES} lines; send fewer or shorter ones."
    )


class PayloadTooLarge(RequestError):
    code = "payload_too_large"
    message = f"The request body exceeds {MAX_BODY // 1024} KiB; send a smaller one, or none where none is needed."


class TooManyConnections(RequestError):
    """As many connections as allowed are open."""

    code = "service_unavailable"
    message = "The service is temporarily unavailable; retry after the seconds in Retry-After."
