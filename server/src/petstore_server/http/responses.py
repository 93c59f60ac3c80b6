"""What a handler gives to the gate: a status, headers and a body. The gate adds the rest and sends it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]


class Response(NamedTuple):
    """An answer before the gate has dressed it.

    `headers` are lower-case pairs, a list of the answer's own, without Content-Length: the gate writes that from
    `length` (bytes), but not on 204 and 304. `chunks` follow one another and add up to `length`; HEAD sends none.
    """

    status: int
    headers: Headers
    chunks: Sequence[bytes] = ()
    length: int = 0


def content(body: bytes, content_type: bytes, headers: Headers | None = None, status: int = 200) -> Response:
    """An answer whose body is at hand as a whole."""
    return Response(status, [(b"content-type", content_type), *(headers or [])], (body,), len(body))


def matches(if_none_match: bytes | None, etag: bytes) -> bool:
    """Whether If-None-Match names the ETag, compared weakly as it must be (RFC 9110 §13.1.2)."""
    if if_none_match is None:
        return False
    if if_none_match == etag:
        return True
    candidates = [candidate.strip() for candidate in if_none_match.split(b",")]
    return candidates == [b"*"] or etag in [candidate.removeprefix(b"W/") for candidate in candidates]


def accepts_gzip(accept_encoding: bytes | None) -> bool:
    """Whether gzip is acceptable, and no less so than the plain form (RFC 9110 §12.5.3)."""
    if accept_encoding is None:
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
