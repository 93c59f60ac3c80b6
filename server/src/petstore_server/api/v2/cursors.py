"""Cursors: the place in a list where the next page starts, as text (D20).

A cursor is 30 bytes in URL-safe base64: a version, the sort value and id of the page's last order, and a digest that
binds them to the store, the filters and the sort. It contains no secret; the digest only recognises what was altered
or belongs elsewhere.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from struct import Struct

from petstore_server.api.errors import InvalidCursor
from petstore_server.domain.lists import Position

_VERSION = 1
_PLACE = Struct(">B?qq")  # version, whether there is a sort value, the value or 0, id
_DIGEST_SIZE = 12
_FORM = re.compile(r"[A-Za-z0-9_-]{40}", re.ASCII)  # 30 bytes: no padding, and one text for each content


class Cursors:
    """Writes and reads the cursors of one store, known by its identity and its epoch: a restore ends them."""

    def __init__(self, identity: str, epoch: str) -> None:
        self.epoch = epoch
        self._key = blake2b(f"{identity} {epoch}".encode()).digest()  # of the length that BLAKE2 takes

    def encode(self, position: Position, query: bytes) -> str:
        """The cursor for the page after `position`; `query` identifies the filters and the sort (`query_digest`)."""
        value, order_id = position
        place = _PLACE.pack(_VERSION, value is not None, value or 0, order_id)
        return urlsafe_b64encode(place + self._digest(place, query)).decode("ascii")

    def decode(self, text: str, query: bytes) -> Position:
        """The position that `encode` was given for the same query. Raises InvalidCursor."""
        if _FORM.fullmatch(text) is None:
            raise InvalidCursor
        content = urlsafe_b64decode(text)
        place, digest = content[: _PLACE.size], content[_PLACE.size :]
        if digest != self._digest(place, query):
            raise InvalidCursor
        _, has_value, value, order_id = _PLACE.unpack(place)
        return Position(value if has_value else None, order_id)

    def _digest(self, place: bytes, query: bytes) -> bytes:
        return blake2b(query + place, digest_size=_DIGEST_SIZE, key=self._key).digest()
