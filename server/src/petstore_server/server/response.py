"""What the server writes: a status, header lines and a body. The connection adds the rest."""

from collections.abc import Sequence
from typing import NamedTuple


class Response(NamedTuple):
    """A response, which may be the same for many requests.

    `headers` are header lines as they are sent, each ending in CRLF; Content-Length is among them unless the status is
    204 or 304. `chunks` are the parts of the body, `length` bytes in all; they are not sent in response to HEAD.
    """

    status: int
    headers: bytes = b""
    chunks: Sequence[bytes] = ()
    length: int = 0


Answer = tuple[Response, bytes]
"""A response, and the header lines that are added to it for this one request."""
