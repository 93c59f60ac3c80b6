"""A cache of recent requests, keyed by their bytes: parsing one costs several microseconds."""

import re
from collections import OrderedDict

from petstore_server.server.messages import Head, Request

MAX_REMEMBERED = 2048
"""Requests remembered by their bytes. Each takes some 2 KB of memory, and 6 KB at most."""

MAX_SIZE = 512
"""Bytes of a request that is remembered."""

_MAX_HEADERS_KEPT = 32

_BLANK = b"\r\n\r\n"
_REQUEST_ID = b"x-request-id"
_REQUEST_ID_LINE = re.compile(rb"\r\n[Xx]-[Rr]equest-[Ii]d: ([!-~]{1,128})(?=\r\n[^ \t])")
"""If the rest is known to be a whole head, the line is one of its headers: the line after it does not continue it."""


class RememberedRequests:
    """The heads of recent requests by their bytes, as many clients send the same bytes again and again.

    Only requests without a body and without effect are kept: others seldom repeat. Requests that differ in nothing but
    the value of X-Request-Id share one head.
    """

    def __init__(self) -> None:
        self._heads: OrderedDict[bytes, Head] = OrderedDict()

    def find(self, data: bytes, peer: str | None) -> Request | None:
        """The request that exactly this data is, if that is known."""
        line = _REQUEST_ID_LINE.search(data)
        head = self._heads.get(data if line is None else _without(line, data))
        if head is None:
            return None
        request = Request(head, peer)
        if line is not None:
            if _REQUEST_ID in head.headers:  # in another spelling
                return None
            request.headers = {**head.headers, _REQUEST_ID: line[1]}
        request.complete = True
        return request

    def add(self, data: bytes, request: Request) -> None:
        """Remember a request that has been parsed from exactly this data."""
        if not request.keep_alive or data[:1] == b"\r" or data.find(_BLANK) + 4 != len(data):
            return  # it is more than a head: blank lines before it, a body, trailers
        if request.method not in ("GET", "HEAD") or len(request.headers) > _MAX_HEADERS_KEPT:
            return
        head = request.head
        line = _REQUEST_ID_LINE.search(data)
        if line is not None:
            if request.headers.get(_REQUEST_ID) != line[1]:  # there is another one
                return
            data = _without(line, data)
            head = head._replace(headers={name: value for name, value in head.headers.items() if name != _REQUEST_ID})
        if len(self._heads) >= MAX_REMEMBERED:
            self._heads.popitem(last=False)  # the oldest
        self._heads[data] = head


def _without(line: re.Match[bytes], data: bytes) -> bytes:
    return data[: line.start()] + data[line.end() :]
