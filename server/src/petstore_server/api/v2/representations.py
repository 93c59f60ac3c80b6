"""A JSON representation with a strong ETag, compressed if the client accepts it; or 304 (RFC 9110; D8, D20)."""

from hashlib import sha256

from isal import isal_zlib

from petstore_server.api.responses import accepts_gzip, content, lines, matches
from petstore_server.server.request import Request
from petstore_server.server.response import Response

_CACHING = lines(("cache-control", "private, no-cache"), ("vary", "Accept-Encoding, Authorization"))
_GZIP = lines(("content-encoding", "gzip"))
_GZIP_WINDOW = 31  # 15, and 16 for gzip's header and checksum

_WORTH_COMPRESSING = 1024
"""Bytes; a shorter body fits one packet anyway."""


def representation(request: Request, body: bytes, headers: bytes = b"") -> Response:
    """200 with the body, or 304 if the client has the same bytes. `headers` are more header lines.

    Equal bytes have the same ETag on every host.
    """
    zipped = len(body) >= _WORTH_COMPRESSING and accepts_gzip(request.headers.get(b"accept-encoding"))
    etag = b'"%s%s"' % (sha256(body).hexdigest()[:32].encode(), b"-gzip" if zipped else b"")
    described = b"etag: %s\r\n%s%s" % (etag, _CACHING, headers)
    if matches(request.headers.get(b"if-none-match"), etag):
        return Response(304, described)
    if zipped:
        body = _compressed(body)
        described += _GZIP
    return content(body, "application/json", described)


def _compressed(body: bytes) -> bytes:
    compressor = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(body) + compressor.flush()
