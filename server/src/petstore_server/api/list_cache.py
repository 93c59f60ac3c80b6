"""The list of all orders as responses: ETag, gzip, and as little work for each change as possible (D8).

The store delivers the list in pieces, of which a change renews only its own, with the digest of each. When a client
asks for gzip, each piece is compressed once, into deflate blocks that end on a byte boundary and do not refer to
earlier data; the blocks of all pieces make up one gzip member, whose checksum is combined from theirs. Only the first
piece, which opens the array, is compressed again for each list. The ETag is the digest of the pieces' digests, so equal
bytes have the same ETag on every host.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from isal import isal_zlib

from petstore_server.api.representation import FOR_ONE_ACCOUNT, Representation, represent
from petstore_server.batching import SharedCall
from petstore_server.store.listing import Listing, OrderList, Piece

MAX_OWN_BYTES = 64 << 20  # of own lists in memory, of all accounts together; the one that was used last may be larger
JOINED_BYTES = 1 << 20  # bodies up to this size are joined into one chunk: one write is faster than many
_LIST_BYTES = 8192  # of a list, without its bodies: measured as 7 KB
_GZIP_LEVEL = 1  # of isal: level 2 is a tenth slower here and saves little
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # RFC 1952: deflate, no name, no time, fastest, unknown system
_Deflated = dict[Piece, tuple[bytes, int]]  # the blocks and the CRC-32 of each piece


class EncodedList:
    """One snapshot of the list as responses. `plain` is the JSON array."""

    def __init__(self, source: OrderList, before: "EncodedList | None" = None) -> None:
        """Takes less than half a millisecond for a million orders, so it needs no thread.

        Pieces that were compressed for the list `before` are taken from there.
        """
        self.source = source
        self._pieces = [piece for piece in source.pieces if piece.data]
        self._ending = b"]" if self._pieces else b"[]"
        known = {} if before is None else before._deflated  # noqa: SLF001
        self._deflated: _Deflated = {piece: known[piece] for piece in self._pieces if piece in known}
        self.plain = _represent(source.digest, [*self._chunks(), self._ending])
        self._gzip: Representation | None = None
        self._compressed = SharedCall(lambda: asyncio.to_thread(self._compress))

    @property
    def size(self) -> int:
        """The size of the list in memory, in bytes, with both forms."""
        forms = [self.plain] if self._gzip is None else [self.plain, self._gzip]
        copied = sum([len(form.whole.chunks[0]) for form in forms])  # others are pieces or their blocks
        return _LIST_BYTES + self.source.size + sum([len(data) for data, _ in self._deflated.values()]) + copied

    def _chunks(self) -> list[bytes]:
        """The pieces as the body has them: the first one opens the array."""
        chunks = [piece.data for piece in self._pieces]
        chunks[:1] = [b"[" + data[1:] for data in chunks[:1]]
        return chunks

    async def gzip(self) -> Representation:
        """Return the list as one gzip member with its own ETag. Compressed once, on a thread."""
        return self._gzip or await self._compressed()

    def _compress(self) -> Representation:
        if self._gzip is not None:  # callers that came while it was made
            return self._gzip
        chunks, crc = [_GZIP_HEAD], 0
        deflated: _Deflated = {}
        for data, piece in zip(self._chunks(), self._pieces, strict=True):
            if data is not piece.data:  # the first, which opens the array
                blocks, piece_crc = deflate(data)
            else:
                blocks, piece_crc = deflated[piece] = self._deflated.get(piece) or deflate(data)
            chunks.append(blocks)
            crc = isal_zlib.crc32_combine(crc, piece_crc, len(data))
        self._deflated = deflated
        chunks.append(isal_zlib.compress(self._ending, _GZIP_LEVEL, -15))
        crc = isal_zlib.crc32(self._ending, crc)
        chunks.append(crc.to_bytes(4, "little") + (self.plain.whole.length & 0xFFFFFFFF).to_bytes(4, "little"))
        self._gzip = _represent(self.source.digest, chunks, zipped=True)
        return self._gzip


def deflate(data: bytes) -> tuple[bytes, int]:
    """Return the data as deflate blocks, and its CRC-32."""
    compressor = isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush(isal_zlib.Z_FULL_FLUSH), isal_zlib.crc32(data)


def _represent(digest: str, chunks: Sequence[bytes], *, zipped: bool = False) -> Representation:
    joined = [b"".join(chunks)] if sum(map(len, chunks)) <= JOINED_BYTES else chunks
    return represent(digest, joined, "application/json", FOR_ONE_ACCOUNT, zipped=zipped)


class ListCache:
    """Holds the newest list, encoded."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._held: EncodedList | None = None
        self._turn: object = None  # in which the list was last found to be current

    def known(self, turn: object | None) -> EncodedList | None:
        """The list, if `current` has returned it for another request of this turn."""
        return None if turn is None or turn is not self._turn else self._held

    async def current(self, turn: object | None = None) -> EncodedList:
        """Return the list, never older than any change acknowledged before the turn or, without one, before this call.

        The list is then `known` to requests with the same `turn` (`Request.turn`): all of them had been read when the
        turn began, so this look at the store is later than any change acknowledged before one of them was sent. Raises
        ServiceUnavailable.
        """
        latest = await self._listing.current()
        held = self._held  # which another call may have renewed meanwhile
        if held is None or held.source is not latest:
            held = EncodedList(latest, held)
            if self._listing.is_newest(latest):  # else this call was overtaken
                self._held = held
        if held is self._held:
            self._turn = turn
        return held

    @property
    def size(self) -> int:
        """The size of the list in memory, in bytes."""
        return 0 if self._held is None else self._held.size


class OwnLists:
    """Holds the newest lists of accounts that see their own orders only, up to MAX_OWN_BYTES (D21)."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._lists: OrderedDict[int, ListCache] = OrderedDict()  # by owner, the one that was used last at the end
        self._sizes: dict[int, int] = {}
        self._total = 0

    async def form(self, owner: int, turn: object | None = None, *, zipped: bool) -> Representation:
        """The list of the owner's orders, as current as that of `ListCache.current`. Raises ServiceUnavailable."""
        cache = self._lists.get(owner)
        if cache is None:
            cache = self._lists[owner] = ListCache(self._listing.of(owner))
        self._lists.move_to_end(owner)
        latest = cache.known(turn) or await cache.current(turn)
        form = await latest.gzip() if zipped else latest.plain
        if cache is self._lists.get(owner):
            self._note_size(owner, cache.size)
        return form

    def _note_size(self, owner: int, size: int) -> None:
        """Note what a list takes, and forget those that were used longest ago while all together take too much."""
        self._total += size - self._sizes.get(owner, 0)
        self._sizes[owner] = size
        while len(self._lists) > 1 and self._total > MAX_OWN_BYTES:
            oldest, _ = self._lists.popitem(last=False)
            self._total -= self._sizes.pop(oldest, 0)
