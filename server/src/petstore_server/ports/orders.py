"""Orders: the list, and how they are changed, imported, placed and searched."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from petstore_server.domain.imports import Reversal, Undo
from petstore_server.domain.orders import Import, Order, Status
from petstore_server.domain.placement import Placed, Placement
from petstore_server.domain.search import Page, Query, TrackedOrder
from petstore_server.domain.transitions import Transition
from petstore_server.ports.audit import Actor


class Piece:
    """Records of adjacent orders as JSON, each after a comma, with their SHA-256; both empty without orders.

    `deflated` is kept here by who compresses the list: deflate blocks of the records, and their CRC-32.
    """

    __slots__ = ("data", "deflated", "digest")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.digest = sha256(data).digest() if data else b""
        self.deflated: tuple[bytes, int] | None = None


@dataclass(frozen=True, slots=True)
class OrderList:
    """One snapshot of the list of all orders (D8), in pieces.

    `pieces` are the records of all orders, ascending by id. The piece at an index holds the orders from `starts` at
    that index up to the next. A change renews only its own piece: all others are the same objects in the next snapshot.
    `mark` identifies what was read; only the store can interpret it.
    """

    mark: Any
    starts: tuple[int, ...]
    pieces: tuple[Piece, ...]


class Orders(Protocol):
    def is_current(self, held: OrderList) -> bool:
        """Whether `held` is known, without waiting, to show every acknowledged change. False if that takes a query.

        Takes microseconds.
        """

    async def snapshot(self, held: OrderList | None = None) -> OrderList:
        """Return the list of all orders, never older than any change acknowledged before this call, by any process.

        Pieces that have not changed since `held` are taken from there; if none has, `pieces` is the same object.
        """

    async def change(self, order_id: int, transition: Transition[Order], actor: Actor) -> Order:
        """Apply the transition and return the order after it, once both it and its audit entry are durable.

        Concurrent changes share a commit; each caller gets its own outcome. Raises OrderNotFound, OrderConflict,
        DamagedRecord.
        """

    async def find(self, order_id: int) -> Order:
        """Return the order. Raises OrderNotFound, DamagedRecord."""

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers, in any order."""

    def scan(self, batch_size: int = 1000) -> AsyncGenerator[list[Order]]:
        """Yield all orders of one consistent snapshot, ascending by id, in bounded memory.

        It holds a read transaction until it ends, so a caller that may stop earlier closes it (`aclosing`).
        """

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor) -> list[Import]:
        """Import the orders in one transaction with one audit entry; return the outcome of each.

        Raises DamagedRecord if one of them is stored already and cannot be read.
        """

    async def undo_batch(self, reversals: Sequence[Reversal], import_id: str, actor: Actor) -> list[Undo]:
        """Undo changes that an import made, as `domain.imports.evaluate_undo` allows, in one transaction.

        One audit entry has what was removed and restored. Returns the outcome of each. Raises DamagedRecord.
        """


class OrderSearch(Protocol):
    async def page(self, query: Query) -> Page:
        """One page of orders, never older than any change acknowledged before this call, by any process."""

    async def find(self, order_id: int) -> TrackedOrder:
        """One order, as current as a page. Raises OrderNotFound."""

    async def count_by_status(self) -> Mapping[Status, int]:
        """The number of orders with each status, as of the last update of the search index."""

    async def update_index(self) -> bool:
        """Bring a bounded number of changes into the search index; return whether more are waiting."""


class OrderPlacement(Protocol):
    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order under an identifier larger than all used before; return once it is durable (D20).

        The idempotency key is kept for KEY_LIFETIME with the response, in the same transaction; a repeated request
        gets that response. Nothing is kept of a request that fails. Raises IdempotencyKeyReused, IdempotencyKeyInUse.
        """

    async def forget(self, before: float, limit: int) -> None:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
