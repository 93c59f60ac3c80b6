"""The list of all orders as bytes, in pieces of which a change renews only its own (D8). Any engine can fill it.

Where a piece begins is decided by the identifiers alone, never by history: two hosts with the same orders cut the
same pieces, and so give the same ETag to the same bytes. A piece holds about 1,024 orders.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from isal import isal_zlib

from petstore_server.domain.orders import INT64_MAX, INT64_MIN
from petstore_server.ports import Body

_FOLDED = "((((id & 4294967295) * 668265263) + (((id >> 32) & 4294967295) * 374761393)) % 2147483629)"
STARTS_PIECE = f"((({_FOLDED} * {_FOLDED}) % 2147483587) & 1023) = 0"
"""SQL for `starts_piece`. Every product stays below 2^63, so no engine overflows."""

JOINED_BYTES = 1 << 20
"""Bodies up to this size are joined into one chunk: one write is faster than many."""

_GZIP_LEVEL = 1  # of isal: level 2 is a tenth slower here and saves little
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # RFC 1952: deflate, no name, no time, fastest, unknown system


def starts_piece(order_id: int) -> bool:
    """Whether a piece begins with this order: one of 1,024 does, wherever the identifiers lie."""
    low, high = order_id & 0xFFFFFFFF, (order_id >> 32) & 0xFFFFFFFF
    folded = (low * 668265263 + high * 374761393) % 2147483629
    return folded * folded % 2147483587 & 1023 == 0  # squared, so that evenly spaced identifiers spread as well


class Version(NamedTuple):
    """What the list was read from: the store's history, and the number of the newest change that shows in the list."""

    epoch: str
    revision: int

    def covers(self, other: "Version") -> bool:
        """Whether a list of this version shows everything that one of the other does."""
        return self.epoch == other.epoch and self.revision >= other.revision


class Range(NamedTuple):
    """Identifiers from `first` to `last`, both included."""

    first: int
    last: int


class Piece:
    """The records of one range as the list shows them, each after its `,` (or, at the very start, `[`)."""

    __slots__ = ("_deflated", "data", "digest")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.digest = sha256(data).digest()
        self._deflated: tuple[bytes, int] | None = None

    def deflated(self) -> tuple[bytes, int]:
        """The piece as deflate blocks that refer to nothing before them, and its CRC-32; made once."""
        if self._deflated is None:
            compressor = isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, -15)
            blocks = compressor.compress(self.data) + compressor.flush(isal_zlib.Z_FULL_FLUSH)
            self._deflated = blocks, isal_zlib.crc32(self.data)
        return self._deflated


class EncodedList:
    """A snapshot of the list, whole and encoded. Implements `ports.Snapshot`."""

    def __init__(self, version: Version, pieces: dict[Range, Piece], ranges: list[Range], executor: Executor) -> None:
        self.version = version
        self.pieces = pieces  # ascending; ranges without orders have none
        self.ranges = ranges
        self._executor = executor
        self._closing = b"]" if pieces else b"[]"
        self._gzip: asyncio.Future[Body] | None = None
        self.plain = self._plain()

    async def gzip(self) -> Body:
        """The list as one gzip member. The first caller has it made in a worker thread, the others wait for it."""
        if self._gzip is None:
            self._gzip = asyncio.get_running_loop().run_in_executor(self._executor, self._compress)
        return await asyncio.shield(self._gzip)

    def _plain(self) -> Body:
        digests = b"".join(piece.digest for piece in self.pieces.values())
        etag = sha256(digests + sha256(self._closing).digest()).hexdigest()[:32]
        return _body(f'"{etag}"', [*(piece.data for piece in self.pieces.values()), self._closing])

    def _compress(self) -> Body:
        """Pieces end on a whole byte and stand alone, so they follow one another in one member (RFC 1951, 1952)."""
        chunks, crc = [_GZIP_HEAD], 0
        for piece in self.pieces.values():
            blocks, piece_crc = piece.deflated()
            chunks.append(blocks)
            crc = isal_zlib.crc32_combine(crc, piece_crc, len(piece.data))
        compressor = isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, -15)
        chunks.append(compressor.compress(self._closing) + compressor.flush())
        crc = isal_zlib.crc32(self._closing, crc)
        chunks.append(crc.to_bytes(4, "little") + (self.plain.length & 0xFFFFFFFF).to_bytes(4, "little"))
        return _body(self.plain.etag.decode()[:-1] + '-gzip"', chunks)


def _body(etag: str, chunks: Sequence[bytes]) -> Body:
    length = sum(map(len, chunks))
    return Body(etag.encode(), length, [b"".join(chunks)] if length <= JOINED_BYTES else chunks)


def cut(starts: Iterable[int]) -> list[Range]:
    """The ranges that pieces hold, given the identifiers with which one begins; together all of int64."""
    edges = [INT64_MIN, *(start for start in starts if start != INT64_MIN), INT64_MAX + 1]
    return [Range(first, following - 1) for first, following in pairwise(edges)]


def cut_again(held: EncodedList, changed: Sequence[int]) -> tuple[list[Range], set[Range]]:
    """The ranges after orders changed or came, and those of them in which the list is no longer the held one."""
    starts = {held_range.first for held_range in held.ranges}
    new_starts = {order_id for order_id in changed if starts_piece(order_id)} - starts
    ranges = cut(sorted(starts | new_starts)) if new_starts else held.ranges
    firsts = [one.first for one in ranges]
    stale = {ranges[bisect_right(firsts, order_id) - 1] for order_id in changed}
    if new_starts:
        stale.update(set(ranges).difference(held.ranges))
    return ranges, stale


class Assembly:
    """Puts a list together, range by range in ascending order, keeping the held list's pieces where they are equal."""

    def __init__(self, held: EncodedList | None) -> None:
        self._held = held.pieces if held else {}
        self._pieces: dict[Range, Piece] = {}
        self._ranges: list[Range] = []

    def keep(self, one: Range) -> None:
        """Take over what the held list has of the range."""
        self._ranges.append(one)
        piece = self._held.get(one)
        if piece is not None:
            if piece.data[:1] != self._opening():
                piece = Piece(self._opening() + piece.data[1:])
            self._pieces[one] = piece

    def add(self, one: Range, records: str | None) -> None:
        """Take the records of the range, separated by commas; None where it has none."""
        self._ranges.append(one)
        if records is not None:
            piece, held = Piece(self._opening() + records.encode()), self._held.get(one)
            self._pieces[one] = held if held is not None and held.digest == piece.digest else piece

    def finish(self, version: Version, executor: Executor) -> EncodedList:
        return EncodedList(version, self._pieces, self._ranges, executor)

    def _opening(self) -> bytes:
        return b"," if self._pieces else b"["


class ListKeeper:
    """Holds the newest list that was read, and reads it again when it is out of date: once for all who wait."""

    def __init__(self, read: Callable[[EncodedList | None], Awaitable[EncodedList]]) -> None:
        """`read` reads the list as it is now; it is given the held one, whose pieces it may keep."""
        self._read = read
        self._held: EncodedList | None = None
        self._reading: asyncio.Task[EncodedList] | None = None

    async def at_least(self, version: Version) -> EncodedList:
        """A list that shows at least what `version`, read from the store just before, does.

        A reading under way may have begun before that version was there. Where its result falls short, the next
        one began later than this call, so nobody waits for more than two.
        """
        if self._held is not None and self._held.version == version:
            return self._held
        if self._reading is not None:
            found = await asyncio.shield(self._reading)
            if found.version.covers(version):
                return found
        if self._reading is None:
            self._reading = asyncio.create_task(self._renew())
            self._reading.add_done_callback(_retrieve)
        return await asyncio.shield(self._reading)

    async def _renew(self) -> EncodedList:
        try:
            self._held = await self._read(self._held)
            return self._held
        finally:
            self._reading = None


def _retrieve(task: asyncio.Task[EncodedList]) -> None:
    """Take note of a failure even if every caller has gone away: asyncio would log it as forgotten."""
    if not task.cancelled():
        task.exception()
