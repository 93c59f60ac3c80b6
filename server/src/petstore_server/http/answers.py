"""What a handler gives to the gate: a status, headers and a body. The gate adds the rest and sends it."""

from collections.abc import Sequence
from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """An answer before the gate has dressed it.

    `headers` are lower-case pairs without Content-Length, which the gate writes from `length` (bytes) where that is
    not None; 204 and 304 have none. `chunks` follow one another and add up to `length`; HEAD sends none of them.
    """

    status: int
    headers: Headers
    chunks: Sequence[bytes] = ()
    length: int | None = None


def content(body: bytes, content_type: bytes, headers: Headers | None = None, status: int = 200) -> Answer:
    """An answer whose body is at hand as a whole."""
    return Answer(status, [(b"content-type", content_type), *(headers or [])], (body,), len(body))
