"""What an import did with each order, and which of it can be undone."""

import zlib
from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from petstore_server.domain.orders import Order, Status

IMPORT_ACTION = "orders.import"
"""The action of the audit entries of an import of orders, one for each batch."""


class Reversal(NamedTuple):
    """The change of one order by an import, to be undone: `before` is the order before it, None if it created it.

    `checksum` is that of the order as the import left it.
    """

    order_id: int
    checksum: int
    before: Order | None


class Undo(StrEnum):
    """What undoing an import does with an order."""

    REMOVED = "removed"
    RESTORED = "restored"
    MISSING = "missing"
    CHANGED = "changed"
    NOT_PENDING = "not pending"


def evaluate_undo(current: Order | None, reversal: Reversal) -> Undo:
    """An order that is as the import left it, and pending, is removed if the import created it, else restored.

    A shipped order cannot be reversed (spec S3.1), and a cancelled one has been reported as final.
    """
    if current is None:
        return Undo.MISSING
    if checksum(current.record(), current.status) != reversal.checksum:
        return Undo.CHANGED
    if current.status is not Status.PENDING:
        return Undo.NOT_PENDING
    return Undo.REMOVED if reversal.before is None else Undo.RESTORED


def checksum(record: str, status: Status) -> int:
    """A number below 2^32 that distinguishes an order from a changed one: CRC-32 of its record and status."""
    return zlib.crc32((record + status).encode())


def id_ranges(ids: Iterable[int]) -> list[list[int]]:
    """The identifiers as ascending ranges [first, last], both included."""
    ordered = sorted(ids)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:  # the common case
        return [[ordered[0], ordered[-1]]]
    starts = [index for index, (one, following) in enumerate(pairwise(ordered), 1) if following != one + 1]
    edges = [0, *starts, len(ordered)]
    return [[ordered[first], ordered[end - 1]] for first, end in pairwise(edges)] if ordered else []
