"""Positions as opaque texts for clients of version 2: cursors of lists, and tokens of changes (D20).

Each is 30 bytes in URL-safe base64. They hold no secret, and a client may read from any position: the digest at the end
only shows that a text was altered or belongs elsewhere.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from struct import Struct

from petstore_server.domain.errors import ChangesReset, InvalidCursor, InvalidToken
from petstore_server.domain.lists import ChangeClock, Position
from petstore_server.domain.orders import INT64_MIN
from petstore_server.domain.timestamps import LAST_SECOND

FIRST = Position(0, INT64_MIN)
"""The position before every change."""

_SIZE = 30
_FORM = re.compile(r"[A-Za-z0-9_-]{40}", re.ASCII)  # no padding, and one text for each content
_CURSOR_VERSION, _CURSOR = 1, Struct(">B?qq")  # version, whether there is a sort value, the value or 0, id
_TOKEN_VERSION, _TOKEN = 2, Struct(">B8sqq")  # version, history, time of the change, id


class Cursors:
    """Writes and reads the cursors of one store, known by its identity and its epoch: a restore ends them.

    A cursor is where the next page of a list starts: the sort value and the id of the last order before it. `query`
    identifies the filters and the sort (`query_digest`).
    """

    def __init__(self, identity: str, epoch: str) -> None:
        self.epoch = epoch
        self._key = blake2b(f"{identity} {epoch}".encode()).digest()  # of the length that BLAKE2 takes

    def encode(self, position: Position, query: bytes) -> str:
        """The cursor for the page after `position`."""
        value, order_id = position
        return _seal(_CURSOR.pack(_CURSOR_VERSION, value is not None, value or 0, order_id), query, self._key)

    def decode(self, text: str, query: bytes) -> Position:
        """The position that `encode` was given for the same query. Raises InvalidCursor."""
        content = _unseal(text, _CURSOR.size, query, self._key)
        if content is None:
            raise InvalidCursor
        _, has_value, value, order_id = _CURSOR.unpack(content)
        return Position(value if has_value else None, order_id)


def token_of(epoch: str, position: Position, owner: int | None = None) -> str:
    """The token for what changes after the position, in the history that `epoch` names, for what the owner sees."""
    return _seal(_TOKEN.pack(_TOKEN_VERSION, _history(epoch, owner), *position))


def position_after(token: str, clock: ChangeClock, owner: int | None = None) -> Position:
    """The position of a token.

    Raises InvalidToken; ChangesReset if it is of another history, after the clock, or for what another account sees.
    One for what an owner sees is not compared with the clock: anybody can write tokens, and would find out when others'
    orders changed.
    """
    content = _unseal(token, _TOKEN.size)
    if content is None or content[0] != _TOKEN_VERSION:
        raise InvalidToken
    _, history, at, order_id = _TOKEN.unpack(content)
    if not 0 <= at < (LAST_SECOND + 1) * 1_000_000:  # the service writes none; no `orders.reset` could name them
        raise InvalidToken
    if history != _history(clock.epoch, owner) or (owner is None and at > clock.at):
        raise ChangesReset
    return Position(at, order_id)


def history_of(epoch: str, owner: int | None) -> str:
    """Name the history of changes that an owner sees: another one after a restore, or for another owner."""
    return epoch if owner is None else f"{epoch} {owner}"  # tokens of release 1.0.0 stay valid


def _history(epoch: str, owner: int | None) -> bytes:
    return blake2b(history_of(epoch, owner).encode(), digest_size=8).digest()


def _seal(content: bytes, bound: bytes = b"", key: bytes = b"") -> str:
    """The text for the content, which only `_unseal` with the same `bound` and `key` accepts."""
    return urlsafe_b64encode(content + _digest(content, bound, key)).decode("ascii")


def _unseal(text: str, size: int, bound: bytes = b"", key: bytes = b"") -> bytes | None:
    """The content of this size; None if the text was not made for it."""
    sealed = urlsafe_b64decode(text) if _FORM.fullmatch(text) else b""
    content = sealed[:size]
    return content if sealed[size:] == _digest(content, bound, key) else None


def _digest(content: bytes, bound: bytes, key: bytes) -> bytes:
    return blake2b(bound + content, digest_size=_SIZE - len(content), key=key).digest()
