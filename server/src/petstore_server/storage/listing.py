"""Reading the list of all orders in pieces, of which a change renews only its own (D8). The same for every engine.

Where a piece begins depends on the identifiers only, not on history: hosts with the same orders have the same pieces,
and so the same ETag for the same bytes. A piece holds about 1,024 orders.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from petstore_server.domain.orders import INT64_MAX, INT64_MIN
from petstore_server.ports import OrderList, Piece
from petstore_server.storage.statements import Work

_FOLDED = "((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629)"
STARTS_PIECE = f"((({_FOLDED} * {_FOLDED}) % 2147483587) & 1023) = 0"
"""SQL for `starts_piece`. Every product is below 2^63, so no engine overflows."""

CHANGED_LIMIT = 50_000
"""Changed orders beyond which reading the whole list again is as fast."""

_PIECES_AT_ONCE = 16  # about 1.5 MB: read in milliseconds, so the time limit of a statement holds
_NO_PIECE = Piece(b"")


class Range(NamedTuple):
    """Identifiers from `first` to `last`, both included."""

    first: int
    last: int


class ListReader(Protocol):
    """What an engine supplies: reads of one snapshot.

    A mark identifies a snapshot of the list. Equal marks mean equal lists; the marks themselves are the engine's.
    """

    def mark(self) -> Work[Any]:
        """Read the mark of the present snapshot."""

    def changed_since(self, mark: Any, now: Any, limit: int) -> Work[list[int] | None]:
        """Read which orders changed in the list since `mark`, at most `limit`; None if that is unknown."""

    def piece_starts(self) -> Work[list[int]]:
        """Read the identifiers of the orders with which a piece starts, ascending."""

    def records(self, ranges: Sequence[Range]) -> Work[list[bytes]]:
        """Read the records of each range, ascending by id, each after a comma; empty bytes for an empty range."""


def starts_piece(order_id: int) -> bool:
    """Whether a piece starts with this order: one of 1,024 does, however the identifiers are distributed."""
    low, high = order_id & 0xFFFFFFFF, (order_id >> 32) & 0xFFFFFFFF
    folded = (low * 668265263 + high * 374761393) % 2147483629
    return folded * folded % 2147483587 & 1023 == 0  # squared, so that evenly spaced identifiers are spread as well


def read_list(reader: ListReader, held: OrderList | None) -> Work[OrderList]:
    """Read the list as it is now; pieces that did not change since `held` are taken from there."""
    mark = yield from reader.mark()
    if held is not None and held.mark == mark:
        return held
    changed: list[int] | None = None
    if held is not None:
        changed = yield from reader.changed_since(held.mark, mark, CHANGED_LIMIT + 1)
    if held is None or changed is None or len(changed) > CHANGED_LIMIT:
        starts = all_starts((yield from reader.piece_starts()))
        pieces: list[Piece] = [_NO_PIECE] * len(starts)
        stale = list(range(len(starts)))
    else:
        starts, stale = starts_after(held.starts, changed)
        pieces = _pieces_of(held, starts)
    for begin in range(0, len(stale), _PIECES_AT_ONCE):
        group = stale[begin : begin + _PIECES_AT_ONCE]
        found = yield from reader.records([range_of(starts, index) for index in group])
        for index, records in zip(group, found, strict=True):
            pieces[index] = Piece(records)
    return OrderList(mark, starts, tuple(pieces))


def all_starts(found: Iterable[int]) -> tuple[int, ...]:
    """The starts of all pieces, given the orders with which one starts; the first piece starts at the lowest int64."""
    return (INT64_MIN, *(start for start in found if start != INT64_MIN))


def range_of(starts: Sequence[int], index: int) -> Range:
    """The range of the piece at an index; all together cover all of int64."""
    return Range(starts[index], starts[index + 1] - 1 if index + 1 < len(starts) else INT64_MAX)


def starts_after(starts: tuple[int, ...], changed: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """Return the starts of all pieces after orders changed or came, and the indices of those to read again.

    If no piece has come, the starts are the same object.
    """
    new = {order_id for order_id in changed if starts_piece(order_id)}
    if new:
        new.difference_update(starts)
    after = tuple(sorted({*starts, *new})) if new else starts
    # An order that starts a piece splits the piece before it.
    touched = {*changed, *(start - 1 for start in new)}
    return after, sorted({bisect_right(after, order_id) - 1 for order_id in touched})


def _pieces_of(held: OrderList, starts: tuple[int, ...]) -> list[Piece]:
    """The pieces of a list for these starts, which contain its own."""
    if starts is held.starts:  # nearly always: with a million orders, the search below takes longer than the rest
        return list(held.pieces)
    known = dict(zip(held.starts, held.pieces, strict=True))
    return [known.get(start, _NO_PIECE) for start in starts]
