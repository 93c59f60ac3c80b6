"""Decoding a list of orders while its bytes arrive, in bounded memory. No I/O.

The bytes are cut after the last `},` and the part before it is decoded as a list. That cut may lie inside a field that
this version does not know; the part before it is then not valid JSON, and the decoder looks for the true boundary. If
it decodes, it is correct: all brackets and quotes in `[` + part + `]` must match, so the cut lay between two orders.
"""

import re
import zlib
from collections.abc import Iterator

import msgspec

from petstore_client._types import UNDECODABLE, Order
from petstore_client.errors import InvalidResponseError

MAX_ORDER_BYTES, MAX_PIECE_BYTES = 1 << 20, 1 << 18
"""Bytes in which an order must end, so that a server cannot fill the memory with one; and to decompress at a time."""

_BLANK = b" \t\r\n"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_decode = msgspec.json.Decoder(list[Order]).decode


class OrdersDecoder:
    """Takes the body in pieces of any size and returns the complete orders."""

    def __init__(self) -> None:
        self._rest = b""
        self._opened = False
        self._count = 0

    def feed(self, piece: bytes) -> list[Order]:
        """The orders that this piece completes. Raises InvalidResponseError."""
        rest = self._rest + piece if self._rest else piece
        if not self._opened:
            rest = rest.lstrip(_BLANK)
            if not rest:
                return []
            if rest[:1] != b"[":
                raise InvalidResponseError("The response is not a list of orders; is the base URL right?", 200)
            self._opened = True
            rest = rest[1:]
        orders, cut = self._complete(rest)
        if not cut and len(rest) > MAX_ORDER_BYTES:
            raise InvalidResponseError(f"After {self._count} orders, a megabyte followed without another one.", 200)
        self._rest = rest[cut + 1 :] if cut else rest
        self._count += len(orders)
        return orders

    def finish(self) -> list[Order]:
        """The last orders, at the end of the body. Raises InvalidResponseError unless the list was closed."""
        rest = self._rest.strip(_BLANK)
        self._rest = b""
        if not self._opened or not rest.endswith(b"]"):
            what = f"The list ended early, after {self._count} orders: it is incomplete. Request it again."
            raise InvalidResponseError(what, 200, True)
        if self._count and rest == b"]":
            raise InvalidResponseError(f"After {self._count} orders, a comma without an order followed.", 200)
        return self._decode(b"[" + rest)

    def _complete(self, rest: bytes) -> tuple[list[Order], int]:
        """The complete orders, and the position where they end."""
        cut = rest.rfind(b"},") + 1
        if cut:
            try:
                return _decode(b"[" + rest[:cut] + b"]"), cut
            except UNDECODABLE:
                pass  # the cut lies within an order, or this is not an order: the true boundary shows which
        elif len(rest) <= MAX_ORDER_BYTES:
            return [], 0
        cut = _boundary(rest)
        return self._decode(b"[" + rest[:cut] + b"]"), cut

    def _decode(self, text: bytes) -> list[Order]:
        try:
            return _decode(text)
        except UNDECODABLE as error:
            message = f"After {self._count} orders, something that is not an order followed: {error}."
            raise InvalidResponseError(message, 200, is_truncation(error)) from None


def is_truncation(error: Exception) -> bool:
    """Whether JSON ended early; msgspec has no exception class for it."""
    return "truncated" in str(error)


def _boundary(rest: bytes) -> int:
    """The end of the last complete element, which is a comma outside of all brackets; 0 if there is none."""
    depth = end = 0
    for match in _TOKEN.finditer(rest):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif token == b"," and depth == 0:
            end = match.start()
        if token == b'"' or depth < 0:  # a string that continues in the next piece, or the end of the list
            break
    return end


class Inflater:
    """Decompresses gzip in pieces of bounded size, and checks that it is complete. Passes on what is not compressed.

    `status` is that of the response. Raises InvalidResponseError for a Content-Encoding that was not requested.
    """

    def __init__(self, encoding: str, status: int = 200) -> None:
        self._status = status
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            what = f"The response is compressed as {encoding[:40]}, which was not requested."
            raise InvalidResponseError(what, status)
        self._plain = encoding in ("", "identity")
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The decompressed content of the piece. Raises InvalidResponseError if it is damaged."""
        if self._plain:
            yield piece
            return
        while piece:
            if self._member.eof:
                self._member, self._begun = zlib.decompressobj(zlib.MAX_WBITS | 16), False
            try:
                text = self._member.decompress(piece, MAX_PIECE_BYTES)
            except zlib.error:
                what = "The compressed response is damaged. Request it again."
                raise InvalidResponseError(what, self._status, True) from None
            self._begun = True
            piece = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if text:
                yield text

    def finish(self) -> None:
        """Check at the end of the body that it was complete. Raises InvalidResponseError."""
        if self._begun and not self._member.eof:
            raise InvalidResponseError("The compressed response ended early. Request it again.", self._status, True)
