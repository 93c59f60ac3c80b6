"""Reading the list of all orders, or of one owner's, in pieces, of which a change renews only its own (D8, D21).

Where a piece begins depends on the identifiers only, not on history: hosts with the same orders have the same pieces,
and so the same ETag for the same bytes. A piece holds about 1,024 orders.
"""

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from weakref import WeakSet

from petstore_server.batching import Batcher, SharedCall
from petstore_server.domain.orders import INT64_MAX, INT64_MIN
from petstore_server.store.engine import Engine, Part, snapshot
from petstore_server.store.statements import LAST_CHANGE, Query, Work

_FOLDED = "((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629)"
STARTS_PIECE = f"((({_FOLDED} * {_FOLDED}) % 2147483587) & 1023) = 0"
"""SQL for `starts_piece`. Every product is below 2^63, so no engine overflows."""

MAX_CHANGED = 50_000  # changed orders beyond which reading the whole list again is as fast

_RECORDS = """
    SELECT coalesce(',' || string_agg(record, ','), '')
    FROM (SELECT record FROM petstore.orders WHERE {} id BETWEEN %s AND %s ORDER BY {}) AS piece
"""
_PIECES_AT_ONCE = 16  # about 1.5 MB: read in milliseconds, so the time limit of a statement holds


_ESCAPED = STARTS_PIECE.replace("%", "%%")  # for a statement with parameters


class _Statements(NamedTuple):
    """The statements that read a list. `mark` selects a history and the last change in it.

    The clock numbers changes, and gives them times, in the order of their commits: a snapshot that shows one change
    shows all before it. Each is sorted as an index is, so that the index is used whatever the statistics of the table.
    """

    mark: str
    changed: str
    starts: str
    records: str


_OF_ALL = _Statements(
    "SELECT {history}, coalesce((SELECT max(revision) FROM petstore.orders), 0) FROM petstore.store WHERE one = 1",
    "SELECT id FROM petstore.orders WHERE revision > %s ORDER BY revision LIMIT %s",
    f"SELECT id FROM petstore.orders WHERE {STARTS_PIECE} ORDER BY id",
    _RECORDS.format("", "id"),
)
# By the time of the change, which has an index, not by the number: a cancel only makes a piece be read again.
_OF_OWNER = _Statements(
    f"SELECT {{history}}, coalesce(({LAST_CHANGE.format('%s')}), 0) FROM petstore.store WHERE one = 1",
    "SELECT id FROM petstore.orders WHERE account_id = ANY(ARRAY[%s]) AND updated_at > %s"
    " ORDER BY account_id, updated_at LIMIT %s",
    f"SELECT id FROM petstore.orders WHERE account_id = ANY(ARRAY[%s]) AND {_ESCAPED} ORDER BY account_id, id",
    _RECORDS.format("account_id = ANY(ARRAY[%s]) AND", "account_id, id"),
)


# For several owners at once; the same values as of each.
_MARKS_OF_OWNERS = f"""
    SELECT wanted.id, {{history}}, coalesce(({LAST_CHANGE.format("wanted.id")}), 0)
    FROM petstore.store, petstore.accounts AS wanted WHERE one = 1 AND wanted.id = ANY(%s::bigint[])
"""


class Mark(NamedTuple):
    """Identifies a list: the store's history, and the last change that the list shows."""

    history: str
    change: int


class Piece:
    """Records of adjacent orders as JSON, each after a comma, with their SHA-256; both empty without orders."""

    __slots__ = ("data", "digest")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.digest = sha256(data).digest() if data else b""


_NO_PIECE = Piece(b"")


@dataclass(frozen=True, slots=True)
class OrderList:
    """One snapshot of a list (D8), in pieces.

    The piece at an index holds the orders from `starts` at that index up to the next, ascending by id. A change renews
    only its own piece: all others are the same objects in the next snapshot.
    """

    mark: Mark
    starts: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def digest(self) -> str:
        """Identifies the list's bytes, 32 hexadecimal digits."""
        return sha256(b"".join([piece.digest for piece in self.pieces])).hexdigest()[:32]

    @property
    def size(self) -> int:
        """The size of the pieces in bytes."""
        return sum([len(piece.data) for piece in self.pieces])


class Listing(Part):
    """The list of all orders of one store, or of those of one owner, of which it keeps the newest copy."""

    def __init__(
        self, engine: Engine, owner: int | None = None, looks: "Batcher[int, Mark | None] | None" = None
    ) -> None:
        super().__init__(engine)
        self._held: OrderList | None = None
        self._statements = _OF_ALL if owner is None else _OF_OWNER
        self._owner = owner
        self._mark = self._query(self._statements.mark.format(history=engine.dialect.history))
        self._newest = SharedCall(self._read_newest)
        self._looks = looks or Batcher(self._marks)  # one for the lists of all owners
        self._of_owners: WeakSet[Listing] = WeakSet()

    def of(self, owner: int) -> "Listing":
        """A new list of one owner's orders, which `close` closes too. Others' orders add nothing to what it costs."""
        listing = Listing(self._engine, owner, self._looks)
        self._of_owners.add(listing)
        return listing

    async def current(self) -> OrderList:
        """Return the list, never older than any change acknowledged before this call, by any process.

        Unless something has changed, it is the same object as before; on SQLite that takes microseconds, and does not
        suspend the caller. Concurrent calls share one look at the store. Raises ServiceUnavailable.
        """
        held = self._held
        if held is not None:
            rows = self._engine.peek(*self._mark[:2])
            if rows is not None and rows[0] == held.mark:
                return held
        return await self._newest()

    def is_newest(self, orders: OrderList) -> bool:
        return orders is self._held

    async def close(self) -> None:
        """Wait for the looks at the store that are under way."""
        for listing in [self, *self._of_owners]:
            await listing._newest.close()  # noqa: SLF001

    async def _read_newest(self) -> OrderList:
        held = self._held
        if held is not None and await self._look() == held.mark:
            return held
        began = time.perf_counter()
        self._held = latest = await self._read(held)
        self._engine.stats.rebuilt(time.perf_counter() - began)
        return latest

    async def _look(self) -> Mark | None:
        """The mark of the list as it is now. Lists of several owners share a look, or each would take a query."""
        if self._owner is not None:
            return await self._looks.submit(self._owner)
        [row] = await self._engine.query(*self._mark[:3])
        return Mark(*row)

    async def _marks(self, owners: Sequence[int]) -> list[Mark | None]:
        """The marks of the owners' lists; None for one that is not an account."""
        sql = _MARKS_OF_OWNERS.format(history=self._engine.dialect.history)
        found = await self._engine.query(sql, (list(owners),), in_order=True)
        marks = {owner: Mark(*mark) for owner, *mark in found}
        return [marks.get(owner) for owner in owners]

    def _query(self, sql: str, *parameters: int) -> Query:
        """A statement of this list. That of an owner reads only an index that begins with it, which has its order."""
        owner = () if self._owner is None else (self._owner,)
        return Query(sql, (*owner, *parameters), in_order=self._owner is not None)

    @snapshot
    def _read(self, held: OrderList | None) -> Work[OrderList]:
        """Read the list as it is now; pieces that did not change since `held` are taken from there."""
        [row] = yield self._mark
        mark = Mark(*row)
        changed: list[int] | None = None
        if held is not None and held.mark.history == mark.history and held.mark.change <= mark.change:
            since = held.mark.change, MAX_CHANGED + 1
            changed = [row[0] for row in (yield self._query(self._statements.changed, *since))]
        if held is None or changed is None or len(changed) > MAX_CHANGED:
            starts = all_starts([row[0] for row in (yield self._query(self._statements.starts))])
            pieces: list[Piece] = [_NO_PIECE] * len(starts)
            stale = list(range(len(starts)))
        else:
            starts, stale = starts_after(held.starts, changed)
            pieces = list(held.pieces)
            if starts is not held.starts:  # rarely: with a million orders, this takes longer than the rest
                known = dict(zip(held.starts, held.pieces, strict=True))
                pieces = [known.get(start, _NO_PIECE) for start in starts]
        for begin in range(0, len(stale), _PIECES_AT_ONCE):
            group = stale[begin : begin + _PIECES_AT_ONCE]
            pieces_read = yield [self._query(self._statements.records, *range_of(starts, index)) for index in group]
            for index, [(records,)] in zip(group, pieces_read, strict=True):
                pieces[index] = Piece(records.encode())
        return OrderList(mark, starts, tuple(pieces))


def starts_piece(order_id: int) -> bool:
    """Whether a piece starts with this order: one of 1,024 does, however the identifiers are distributed."""
    low, high = order_id & 0xFFFFFFFF, (order_id >> 32) & 0xFFFFFFFF
    folded = (low * 668265263 + high * 374761393) % 2147483629
    return folded * folded % 2147483587 & 1023 == 0  # squared, so that evenly spaced identifiers are spread as well


def all_starts(orders: Iterable[int]) -> tuple[int, ...]:
    """The starts of all pieces, given the orders with which one starts; the first piece starts at the lowest int64."""
    return (INT64_MIN, *(start for start in orders if start != INT64_MIN))


def range_of(starts: Sequence[int], index: int) -> tuple[int, int]:
    """The first and the last identifier of the piece at an index; all pieces together cover all of int64."""
    return starts[index], starts[index + 1] - 1 if index + 1 < len(starts) else INT64_MAX


def starts_after(starts: tuple[int, ...], changed: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """Return the starts of all pieces (the same object if none is new), and the indices of those to read again."""
    new = {order_id for order_id in changed if starts_piece(order_id)}
    if new:
        new.difference_update(starts)
    after = tuple(sorted({*starts, *new})) if new else starts
    # An order that starts a piece splits the piece before it.
    touched = {*changed, *(start - 1 for start in new)}
    return after, sorted({bisect_right(after, order_id) - 1 for order_id in touched})
