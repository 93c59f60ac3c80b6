"""The errors that only version 2 of the interface has (D20)."""

from petstore_server.domain.errors import DomainError


class InvalidParameter(DomainError):
    """A parameter of the query, or a header that is one, is malformed, unknown or repeated."""

    code = "invalid_parameter"


class InvalidCursor(DomainError):
    """The cursor was altered, or belongs to other filters, another sort or another store."""

    code = "invalid_cursor"
    message = (
        "This cursor does not belong to this request; keep the filters and the sort of the page that it came from, or "
        "start again without a cursor."
    )


class InvalidBody(DomainError):
    """The body is malformed, or one of its fields is."""

    code = "invalid_body"


class IdempotencyKeyMissing(DomainError):
    code = "idempotency_key_missing"
    message = "Send an Idempotency-Key header: a new random text for each order, the same when you repeat the request."


class UnsupportedMediaType(DomainError):
    code = "unsupported_media_type"
    message = "Send the body as JSON in UTF-8, uncompressed, with 'Content-Type: application/json'."
