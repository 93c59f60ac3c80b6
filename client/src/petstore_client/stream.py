"""A list of orders decoded as its bytes arrive, in memory that does not grow with the list. No I/O.

The bytes are cut behind the last `},` and what stands before is decoded as a list of its own. That cut may fall into
a field that this version does not know; the text before it then is no JSON, and the true boundary is looked for. What
does decode is whole: in `[` + text + `]` all brackets and quotes must match, so the cut lay between two orders.
"""

import re
import zlib
from collections.abc import Iterator

import msgspec

from petstore_client.errors import InvalidResponseError
from petstore_client.records import Order

LONGEST_ORDER = 1 << 20
"""Bytes in which an order must end; without a bound a server could fill the memory with one."""

LONGEST_PIECE = 1 << 18
"""Bytes that are decompressed at a time."""

_BLANK = b" \t\r\n"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_decode = msgspec.json.Decoder(list[Order]).decode


class OrdersDecoder:
    """Takes the body in pieces of any size and gives the orders that are whole."""

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
                raise InvalidResponseError("The answer is no list of orders; is the base URL right?", 200)
            self._opened = True
            rest = rest[1:]
        orders, cut = self._whole(rest)
        if not cut and len(rest) > LONGEST_ORDER:
            raise InvalidResponseError(f"After {self._count} orders came no further one within a megabyte.", 200)
        self._rest = rest[cut + 1 :] if cut else rest
        self._count += len(orders)
        return orders

    def finish(self) -> list[Order]:
        """The last orders, at the end of the body. Raises InvalidResponseError unless the list was closed."""
        rest = self._rest.strip(_BLANK)
        self._rest = b""
        if not self._opened or not rest.endswith(b"]"):
            raise InvalidResponseError(
                f"The list broke off after {self._count} orders: it is incomplete. Ask for it again.", 200, True
            )
        if self._count and rest == b"]":
            raise InvalidResponseError(f"After {self._count} orders came a comma and no order.", 200)
        return self._decode(b"[" + rest)

    def _whole(self, rest: bytes) -> tuple[list[Order], int]:
        """The orders that are whole, and where they end."""
        cut = rest.rfind(b"},") + 1
        if cut:
            try:
                return _decode(b"[" + rest[:cut] + b"]"), cut
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # the cut lay within an order, or this is none: the true boundary tells
        elif len(rest) <= LONGEST_ORDER:
            return [], 0
        cut = _boundary(rest)
        return self._decode(b"[" + rest[:cut] + b"]"), cut

    def _decode(self, text: bytes) -> list[Order]:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            truncated = "truncated" in str(error)  # as msgspec puts it; it has no class of its own for that
            raise InvalidResponseError(
                f"After {self._count} orders came something that is no order: {error}.", 200, truncated
            ) from None


def _boundary(rest: bytes) -> int:
    """Where the last whole element ends, which is where a comma stands outside of all brackets; 0 if nowhere."""
    depth = end = 0
    for match in _TOKEN.finditer(rest):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif token == b"," and depth == 0:
            end = match.start()
        if token == b'"' or depth < 0:  # a text that goes on in the next piece, or the end of the list
            break
    return end


class Inflater:
    """Undoes gzip, in pieces of bounded size, and tells whether all of it came."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What the piece holds. Raises InvalidResponseError where it is damaged."""
        while piece:
            if self._member.eof:
                self._member, self._begun = zlib.decompressobj(zlib.MAX_WBITS | 16), False
            try:
                text = self._member.decompress(piece, LONGEST_PIECE)
            except zlib.error:
                raise InvalidResponseError("The compressed answer is damaged. Ask for it again.", 200, True) from None
            self._begun = True
            piece = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if text:
                yield text

    def finish(self) -> Iterator[bytes]:
        """What was held back, at the end of the body. Raises InvalidResponseError unless that was reached."""
        while self._begun and not self._member.eof:
            text = self._member.decompress(self._member.unconsumed_tail, LONGEST_PIECE)
            if not text:
                raise InvalidResponseError("The compressed answer broke off. Ask for it again.", 200, True)
            yield text


class Plain:
    """Takes an answer that is not compressed as it is."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if piece:
            yield piece

    def finish(self) -> Iterator[bytes]:
        return iter(())


def reader(encoding: str) -> Inflater | Plain:
    """What undoes this Content-Encoding. Raises InvalidResponseError for one that was not asked for."""
    if encoding in ("", "identity"):
        return Plain()
    if encoding in ("gzip", "x-gzip"):
        return Inflater()
    raise InvalidResponseError(f"The answer is compressed as {encoding[:40]}, for which it was not asked.", 200)
