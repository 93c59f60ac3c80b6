"""Representations: bodies with an ETag, compressed if the client accepts it, or 304 (RFC 9110; D8)."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from isal import isal_zlib

from petstore_server.server.messages import Response

Headers = Mapping[bytes, bytes]

FOR_ONE_ACCOUNT = b"Cache-Control: private, no-cache\r\nVary: Accept-Encoding, Authorization\r\n"
"""Header lines of what only the account may keep, and asks for again each time."""

_GZIPPED = b"Content-Encoding: gzip\r\n"
_WORTH_COMPRESSING = 1024  # bytes; a shorter body fits one packet anyway

_WEIGHT = re.compile(r"\s*(?:q\s*=\s*([01](?:\.\d*)?|\.\d+)\s*)?", re.ASCII)
_GZIP_WINDOW = 31  # 15, and 16 for gzip's header and checksum
_MAX_ACCEPT_ENCODING = 256  # bytes of Accept-Encoding that are kept in memory; without it, the plain form is right


class Representation(NamedTuple):
    """A body in one encoding: its quoted ETag, the response that carries it, and the 304 in its place."""

    etag: bytes
    whole: Response
    unchanged: Response

    def answer(self, headers: Headers) -> Response:
        """The response to a request with these headers."""
        if_none_match = headers.get(b"if-none-match")
        return self.unchanged if if_none_match and matches(if_none_match, self.etag) else self.whole


def represent(
    digest: str, chunks: Sequence[bytes], content_type: str, headers: bytes, *, zipped: bool = False
) -> Representation:
    """The representation with these chunks, which `digest` identifies. `headers` are more header lines."""
    etag = _etag(digest, zipped)
    headers = b"ETag: %s\r\n%s" % (etag, headers)
    whole = body_response(chunks, content_type, headers + (_GZIPPED if zipped else b""))
    return Representation(etag, whole, Response(304, headers))


def answer(request: Headers, body: bytes, headers: bytes = b"") -> Response:
    """The response with JSON that was made for one request. Equal bytes have the same ETag on every host."""
    zipped = len(body) >= _WORTH_COMPRESSING and accepts_gzip(request)
    etag = _etag(etag_of(body), zipped)
    headers = b"ETag: %s\r\n%s%s" % (etag, FOR_ONE_ACCOUNT, headers)
    if matches(request.get(b"if-none-match"), etag):
        return Response(304, headers)
    if zipped:
        body, headers = gzip(body, 1), headers + _GZIPPED
    return json_response(body, headers)


def etag_of(body: bytes) -> str:
    """The ETag of a body, without the quotes."""
    return sha256(body).hexdigest()[:32]


def uncached(request: Headers, body: bytes, headers: bytes = b"") -> Response:
    """The response with JSON that no cache may keep. `headers` are more header lines."""
    headers = b"Cache-Control: no-store\r\nVary: Accept-Encoding, Authorization\r\n" + headers
    if len(body) >= _WORTH_COMPRESSING and accepts_gzip(request):
        body, headers = gzip(body, 1), headers + _GZIPPED
    return json_response(body, headers)


def json_response(body: bytes, headers: bytes = b"", status: int = 200) -> Response:
    """A response with JSON. `headers` are more header lines."""
    return body_response((body,), "application/json", headers, status)


def body_response(chunks: Sequence[bytes], content_type: str, headers: bytes = b"", status: int = 200) -> Response:
    """A response with a body. `headers` are more header lines."""
    length = sum(map(len, chunks))
    described = b"Content-Type: %s\r\nContent-Length: %d\r\n" % (content_type.encode(), length)
    return Response(status, headers + described, chunks, length)


def gzip(body: bytes, level: int) -> bytes:
    """The body as one gzip member; levels are isal's, from 0 to 3."""
    compressor = isal_zlib.compressobj(level, isal_zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(body) + compressor.flush()


def matches(if_none_match: bytes | None, etag: bytes) -> bool:
    """Whether If-None-Match contains the ETag, by weak comparison (RFC 9110 section 13.1.2).

    The ETag of the plain form and that of the compressed one stand for each other: proxies that compress add `-gzip` to
    an ETag or take it away (D8).
    """
    if if_none_match is None:
        return False
    # No ETag contains a quote or begins like another one. Taking a long list of them apart would need a millisecond.
    _, found, rest = if_none_match.partition(etag[:-1].removesuffix(b"-gzip"))
    return rest[:1] in (b'"', b"-") if found else if_none_match.strip() == b"*"


def accepts_gzip(headers: Headers) -> bool:
    """Whether gzip is acceptable, and at least as welcome as the plain form (RFC 9110 section 12.5.3)."""
    accept_encoding = headers.get(b"accept-encoding")
    return (
        accept_encoding is not None and len(accept_encoding) <= _MAX_ACCEPT_ENCODING and _accepts_gzip(accept_encoding)
    )


@lru_cache(maxsize=256)
def _accepts_gzip(accept_encoding: bytes) -> bool:
    weights: dict[str, float] = {}
    for element in accept_encoding.decode("latin-1").lower().split(","):
        coding, _, parameter = element.partition(";")
        weight = _WEIGHT.fullmatch(parameter)
        weights[coding.strip()] = 0.0 if weight is None else float(weight[1] or 1)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _etag(digest: str, zipped: bool) -> bytes:
    return b'"%s%s"' % (digest.encode(), b"-gzip" if zipped else b"")
