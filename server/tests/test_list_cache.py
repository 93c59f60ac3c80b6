"""The list as response bodies: ETags, compression, and how often the store is read."""

import asyncio
import gzip
import zlib
from collections.abc import Sequence
from typing import Any, cast

import pytest

from petstore_server.http.list_cache import JOINED_BYTES, EncodedList, ListCache, deflate
from petstore_server.ports import OrderList, Orders, Piece

pytestmark = pytest.mark.anyio


def source(*pieces: str, mark: Any = 1) -> OrderList:
    """A list of pieces; each text is what follows a comma."""
    return OrderList(
        mark, tuple(range(len(pieces))), tuple(Piece(f",{text}".encode() if text else b"") for text in pieces)
    )


def text(encoded: EncodedList) -> bytes:
    return b"".join(encoded.plain.chunks)


class Source:
    """A store's list. Each reading takes the texts at its start, and ends when it is let."""

    def __init__(self, *pieces: str) -> None:
        self.pieces: Sequence[str] = pieces
        self.version = 1
        self.readings = 0
        self.looks = 0
        self.faults: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def put(self, *pieces: str) -> None:
        self.pieces = pieces
        self.version += 1

    def is_current(self, held: OrderList) -> bool:
        self.looks += 1
        return bool(held.mark == self.version)

    async def snapshot(self, held: OrderList | None = None) -> OrderList:
        self.readings += 1
        read = source(*self.pieces, mark=self.version)
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop()
        return read


def cache_of(orders: Source) -> ListCache:
    return ListCache(cast(Orders, orders))


def test_no_orders_are_an_empty_array() -> None:
    assert EncodedList(source()).plain.chunks == [b"[]"]
    assert EncodedList(source("", "")).plain.chunks == [b"[]"]


def test_the_first_piece_that_has_orders_opens_the_array() -> None:
    assert text(EncodedList(source("", '{"id":0}', "", '{"id":10}'))) == b'[{"id":0},{"id":10}]'


async def test_only_the_first_piece_and_those_that_changed_are_compressed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = source("1", "2", "3")
    await EncodedList(before).gzip()
    compressed: list[bytes] = []

    def recorded(data: bytes) -> tuple[bytes, int]:
        compressed.append(data)
        return deflate(data)

    monkeypatch.setattr("petstore_server.http.list_cache.deflate", recorded)
    after = EncodedList(OrderList(2, before.starts, (*before.pieces[:2], Piece(b",9"))))
    assert b"[1,2,9]" == gzip.decompress(b"".join((await after.gzip()).chunks))
    assert [b"[1", b",9"] == compressed


async def test_a_piece_that_is_no_longer_the_first_follows_a_comma() -> None:
    before = source("", "2")
    assert b"[2]" == gzip.decompress(b"".join((await EncodedList(before).gzip()).chunks))
    after = EncodedList(OrderList(2, before.starts, (Piece(b",1"), before.pieces[1])))
    assert b"[1,2]" == text(after) == gzip.decompress(b"".join((await after.gzip()).chunks))
    assert after.plain.etag == EncodedList(source("1", "2")).plain.etag


def test_the_etag_names_the_bytes_and_not_the_history() -> None:
    etags = [EncodedList(one).plain.etag for one in (source("1", mark=1), source("1", mark=2), source("2"), source(""))]
    assert etags[0] == etags[1]
    assert len(set(etags)) == 3
    assert all(etag.startswith(b'"') and etag.endswith(b'"') and len(etag) == 34 for etag in etags)


@pytest.mark.parametrize("size", [0, 10, JOINED_BYTES // 3, JOINED_BYTES])
async def test_gzip_is_one_member_of_the_same_bytes(size: int) -> None:
    texts = [",".join(f'"{k * 7919 % 10007}"' for k in range(start, start + size // 6)) for start in (1, 2, 3)]
    encoded = EncodedList(source("", *texts))
    zipped = await encoded.gzip()
    decoder = zlib.decompressobj(31)
    plain = decoder.decompress(b"".join(zipped.chunks)) + decoder.flush()
    assert plain == text(encoded)
    assert (decoder.eof, decoder.unused_data) == (True, b"")
    assert zipped.length == sum(map(len, zipped.chunks))
    assert zipped.etag == encoded.plain.etag[:-1] + b'-gzip"'


def test_a_body_is_one_chunk_up_to_a_megabyte_and_pieces_beyond() -> None:
    small, large = EncodedList(source("1", "2")), EncodedList(source("1" * JOINED_BYTES, "2"))
    assert len(small.plain.chunks) == 1
    assert [len(chunk) for chunk in large.plain.chunks] == [JOINED_BYTES + 1, 2, 1]


async def test_gzip_is_made_once_for_concurrent_callers() -> None:
    encoded = EncodedList(source("1"))
    bodies = await asyncio.gather(*(encoded.gzip() for _ in range(10)))
    assert all(one is bodies[0] for one in bodies)


async def test_a_current_list_is_returned_without_waiting() -> None:
    orders = Source("1")
    cache = cache_of(orders)
    assert cache.current_now() is None
    held = await cache.current()
    assert cache.current_now() is held
    call = cache.current()
    with pytest.raises(StopIteration) as returned:
        call.send(None)
    assert returned.value.value is held
    orders.put("2")
    assert cache.current_now() is None
    assert text(await cache.current()) == b"[2]"


async def test_callers_of_one_turn_share_one_look_at_the_version() -> None:
    orders = Source("1")
    cache = cache_of(orders)
    await cache.current()
    turn = object()
    before = orders.looks
    assert {cache.current_now(turn) for _ in range(10)} == {cache.current_now(turn)}
    assert orders.looks == before + 1
    cache.current_now(object())
    cache.current_now()
    cache.current_now()
    assert orders.looks == before + 4


async def test_the_next_turn_and_callers_without_a_turn_see_a_change() -> None:
    orders = Source("1")
    cache = cache_of(orders)
    await cache.current()
    turn = object()
    assert cache.current_now(turn) is not None
    orders.put("2")
    assert cache.current_now() is None
    assert cache.current_now(object()) is None
    assert text(await cache.current(object())) == b"[2]"


async def test_concurrent_callers_share_one_reading() -> None:
    orders = Source("1")
    orders.gate.clear()
    cache = cache_of(orders)
    waiting = [asyncio.create_task(cache.current()) for _ in range(50)]
    await asyncio.sleep(0.01)
    orders.gate.set()
    assert len({id(one) for one in await asyncio.gather(*waiting)}) == 1
    assert orders.readings == 1


async def test_a_reading_that_began_before_a_change_does_not_serve_callers_after_it() -> None:
    orders = Source("1")
    orders.gate.clear()
    cache = cache_of(orders)
    early = asyncio.create_task(cache.current())
    await asyncio.sleep(0.01)
    orders.put("2")
    late = [asyncio.create_task(cache.current()) for _ in range(20)]
    await asyncio.sleep(0.01)
    orders.gate.set()
    assert text(await early) == b"[1]"
    assert {text(await one) for one in late} == {b"[2]"}
    assert orders.readings == 2


async def test_a_reading_that_finds_nothing_new_keeps_the_encoded_list() -> None:
    class Unsure(Source):
        """A store that knows only after a query."""

        def is_current(self, held: OrderList) -> bool:
            return False

        async def snapshot(self, held: OrderList | None = None) -> OrderList:
            self.readings += 1
            return source("1") if held is None else OrderList(held.mark + 1, held.starts, held.pieces)

    orders = Unsure()
    cache = cache_of(orders)
    first = await cache.current()
    assert await cache.current() is first
    assert first.source.mark == 2
    assert orders.readings == 2


async def test_a_failed_reading_fails_its_callers_and_the_next_tries_again() -> None:
    orders = Source("1")
    orders.faults.append(OSError("gone"))
    cache = cache_of(orders)
    both = await asyncio.gather(cache.current(), cache.current(), return_exceptions=True)
    assert [type(one) for one in both] == [OSError, OSError]
    assert text(await cache.current()) == b"[1]"


async def test_a_caller_that_is_cancelled_does_not_end_the_reading() -> None:
    orders = Source("1")
    orders.gate.clear()
    cache = cache_of(orders)
    leaves, stays = asyncio.create_task(cache.current()), asyncio.create_task(cache.current())
    await asyncio.sleep(0.01)
    leaves.cancel()
    orders.gate.set()
    assert text(await stays) == b"[1]"
