"""Header lines and bodies of responses; conditional requests and encodings."""

from functools import lru_cache

from petstore_server.server.response import Response


def lines(*headers: tuple[str, str | bytes | int]) -> bytes:
    """Header lines, from lower-case names and values."""
    return b"".join(
        [
            b"%s: %s\r\n" % (name.encode(), value if isinstance(value, bytes) else str(value).encode())
            for name, value in headers
        ]
    )


def content(body: bytes, content_type: str, headers: bytes = b"", status: int = 200) -> Response:
    """A response whose whole body is at hand. `headers` are more header lines."""
    described = b"content-type: %s\r\ncontent-length: %d\r\n" % (content_type.encode(), len(body))
    return Response(status, headers + described, (body,), len(body))


def matches(if_none_match: bytes | None, etag: bytes) -> bool:
    """Whether If-None-Match contains the ETag, by weak comparison (RFC 9110 section 13.1.2)."""
    if if_none_match is None:
        return False
    if if_none_match == etag:
        return True
    candidates = [candidate.strip() for candidate in if_none_match.split(b",")]
    return candidates == [b"*"] or etag in [candidate.removeprefix(b"W/") for candidate in candidates]


_LONGEST = 256  # bytes of Accept-Encoding that are kept in memory; without it, the plain form is right


def accepts_gzip(accept_encoding: bytes | None) -> bool:
    """Whether gzip is acceptable, and at least as welcome as the plain form (RFC 9110 section 12.5.3)."""
    if accept_encoding is None or len(accept_encoding) > _LONGEST:
        return False
    return _accepts_gzip(accept_encoding)


@lru_cache(maxsize=256)
def _accepts_gzip(accept_encoding: bytes) -> bool:
    weights: dict[str, float] = {}
    for element in accept_encoding.decode("latin-1").lower().split(","):
        coding, _, weight = element.partition(";")
        weights[coding.strip()] = _quality(weight)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _quality(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    if not name.strip():
        return 1.0
    try:
        return min(1.0, max(0.0, float(value.strip()))) if name.strip() == "q" else 0.0
    except ValueError:
        return 0.0
