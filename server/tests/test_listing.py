"""The pieces of the list: where they begin, what they are made into, and how often the list is read."""

import asyncio
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from petstore_server.domain.orders import INT64_MAX, INT64_MIN
from petstore_server.storage.listing import (
    JOINED_BYTES,
    STARTS_PIECE,
    Assembly,
    EncodedList,
    ListKeeper,
    Range,
    Version,
    cut,
    cut_again,
    starts_piece,
)

INT64 = st.integers(INT64_MIN, INT64_MAX)


@pytest.fixture(name="executor")
def _executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def assembled(records: dict[Range, str | None], executor: ThreadPoolExecutor, revision: int = 1) -> EncodedList:
    assembly = Assembly(None)
    for one, text in records.items():
        assembly.add(one, text)
    return assembly.finish(Version("epoch", revision), executor)


@given(INT64)
@example(INT64_MIN)
@example(INT64_MAX)
@example(-1)
@example(0)
def test_sql_and_python_agree_where_a_piece_begins(order_id: int) -> None:
    found = apsw.Connection(":memory:").execute(f"SELECT {STARTS_PIECE} FROM (SELECT ? AS id)", (order_id,)).get
    assert bool(found) == starts_piece(order_id)


@pytest.mark.parametrize("step", [1, 2, 10, 64, 1000, 4096, 2**20, 2**32, 2**40])
def test_pieces_stay_small_however_identifiers_are_spaced(step: int) -> None:
    starts = [place for place in range(100_000) if starts_piece(10**13 + place * step)]
    gaps = [after - before for before, after in zip([0, *starts], [*starts, 100_000], strict=True)]
    assert max(gaps) < 12 * 1024


@given(st.lists(INT64, unique=True).map(sorted))
def test_ranges_follow_one_another_over_all_of_int64(starts: list[int]) -> None:
    ranges = cut(starts)
    assert (ranges[0].first, ranges[-1].last) == (INT64_MIN, INT64_MAX)
    assert all(before.last + 1 == after.first for before, after in pairwise(ranges))
    assert {one.first for one in ranges} == {INT64_MIN, *starts}


def test_only_the_pieces_of_changed_orders_are_stale(executor: ThreadPoolExecutor) -> None:
    held = assembled(dict.fromkeys(cut([10, 20, 30]), '{"id":0}'), executor)
    assert not starts_piece(25)
    assert cut_again(held, [25]) == (held.ranges, {Range(20, 29)})


def test_an_order_that_begins_a_piece_splits_the_one_it_comes_into(executor: ThreadPoolExecutor) -> None:
    start = next(order_id for order_id in range(100_000) if starts_piece(order_id))
    held = assembled(dict.fromkeys(cut([-5]), '{"id":0}'), executor)
    ranges, stale = cut_again(held, [start])
    assert ranges == cut([-5, start])
    assert stale == {Range(-5, start - 1), Range(start, INT64_MAX)}


def test_no_orders_are_an_empty_array(executor: ThreadPoolExecutor) -> None:
    assert assembled({cut([])[0]: None}, executor).plain.chunks == [b"[]"]


def test_the_first_piece_that_has_orders_opens_the_array(executor: ThreadPoolExecutor) -> None:
    first, second, third = cut([0, 10])
    held = assembled({first: None, second: '{"id":0}', third: '{"id":10}'}, executor)
    assert b"".join(held.plain.chunks) == b'[{"id":0},{"id":10}]'
    assembly = Assembly(held)
    assembly.add(first, '{"id":-1}')
    assembly.keep(second)
    assembly.keep(third)
    after = assembly.finish(Version("epoch", 2), executor)
    assert b"".join(after.plain.chunks) == b'[{"id":-1},{"id":0},{"id":10}]'
    assert after.pieces[third] is held.pieces[third]


def test_an_equal_piece_is_the_held_one_so_that_it_stays_compressed(executor: ThreadPoolExecutor) -> None:
    (one,) = cut([])
    held = assembled({one: '{"id":0}'}, executor)
    assembly = Assembly(held)
    assembly.add(one, '{"id":0}')
    assert assembly.finish(Version("other", 1), executor).pieces[one] is held.pieces[one]


def test_the_etag_names_the_bytes_and_not_the_history(executor: ThreadPoolExecutor) -> None:
    (one,) = cut([])
    lists = [assembled({one: text}, executor, number).plain.etag for number, text in enumerate(("1", "1", "2", None))]
    assert lists[0] == lists[1]
    assert len(set(lists)) == 3
    assert all(etag.startswith(b'"') and etag.endswith(b'"') and len(etag) == 34 for etag in lists)


@pytest.mark.parametrize("size", [0, 10, JOINED_BYTES // 3, JOINED_BYTES])
def test_gzip_is_one_member_of_the_same_bytes(size: int, executor: ThreadPoolExecutor) -> None:
    ranges = cut([0, 10, 20])
    texts = [None, *("".join(f'"{k * 7919 % 10007}"' for k in range(start, start + size // 6)) for start in (1, 2, 3))]
    made = assembled(dict(zip(ranges, texts if size else [None] * 4, strict=True)), executor)
    zipped = asyncio.run(made.gzip())
    decoder = zlib.decompressobj(31)
    plain = decoder.decompress(b"".join(zipped.chunks)) + decoder.flush()
    assert plain == b"".join(made.plain.chunks)
    assert (decoder.eof, decoder.unused_data) == (True, b"")
    assert zipped.length == sum(map(len, zipped.chunks))
    assert zipped.etag == made.plain.etag[:-1] + b'-gzip"'


def test_a_body_is_one_chunk_up_to_a_megabyte_and_pieces_beyond(executor: ThreadPoolExecutor) -> None:
    first, second = cut([0])
    small = assembled({first: "1", second: "2"}, executor)
    large = assembled({first: "1" * JOINED_BYTES, second: "2"}, executor)
    assert len(small.plain.chunks) == 1
    assert [len(chunk) for chunk in large.plain.chunks] == [JOINED_BYTES + 1, 2, 1]


def test_gzip_is_made_once_for_all_who_ask(executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        made = assembled({cut([])[0]: "1"}, executor)
        bodies = await asyncio.gather(*(made.gzip() for _ in range(10)))
        assert all(one is bodies[0] for one in bodies)

    asyncio.run(ask())


class Source:
    """A list to be read: each reading sees the revision at its beginning, and ends when it is let."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.revision = 1
        self.readings = 0
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.executor = executor

    async def read(self, held: EncodedList | None) -> EncodedList:
        self.readings += 1
        revision = self.revision
        self.begun.set()
        await self.gate.wait()
        return assembled({cut([])[0]: str(revision)}, self.executor, revision)

    def version(self) -> Version:
        return Version("epoch", self.revision)


def test_callers_who_wait_share_one_reading(executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        source = Source(executor)
        keeper = ListKeeper(source.read)
        waiting = [asyncio.create_task(keeper.at_least(source.version())) for _ in range(50)]
        await asyncio.sleep(0)
        source.gate.set()
        assert {(await one).version.revision for one in waiting} == {1}
        await keeper.at_least(source.version())
        assert source.readings == 1

    asyncio.run(ask())


def test_a_reading_that_began_too_early_does_not_count(executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        source = Source(executor)
        keeper = ListKeeper(source.read)
        early = asyncio.create_task(keeper.at_least(source.version()))
        await source.begun.wait()
        source.revision = 2
        late = [asyncio.create_task(keeper.at_least(source.version())) for _ in range(20)]
        await asyncio.sleep(0)
        source.gate.set()
        assert (await early).version.revision == 1
        assert {(await one).version.revision for one in late} == {2}
        assert source.readings == 2

    asyncio.run(ask())


def test_under_continuous_change_nobody_waits_for_more_than_two_readings(executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        source = Source(executor)
        source.gate.set()

        async def read(held: EncodedList | None) -> EncodedList:
            reading = await source.read(held)
            source.revision += 1  # changed again before anyone can have it
            await asyncio.sleep(0)
            return reading

        keeper = ListKeeper(read)
        for _ in range(20):
            asked, before = source.version(), source.readings
            assert (await keeper.at_least(asked)).version.covers(asked)
            assert source.readings - before <= 2

    asyncio.run(ask())


@pytest.mark.parametrize("found", [Version("after a restore", 5), Version("epoch", 3)])
def test_another_history_or_an_older_revision_is_read_anew(found: Version, executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        versions = [Version("epoch", 5), found]

        async def read(held: EncodedList | None) -> EncodedList:
            return Assembly(held).finish(versions.pop(0), executor)

        keeper = ListKeeper(read)
        await keeper.at_least(Version("epoch", 5))
        assert (await keeper.at_least(found)).version == found

    asyncio.run(ask())


def test_a_failed_reading_fails_those_who_wait_and_the_next_tries_again(executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        outcomes: list[Exception | EncodedList] = [OSError("gone"), assembled({cut([])[0]: "1"}, executor)]

        async def read(held: EncodedList | None) -> EncodedList:
            await asyncio.sleep(0)
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        keeper = ListKeeper(read)
        version = Version("epoch", 1)
        both = await asyncio.gather(keeper.at_least(version), keeper.at_least(version), return_exceptions=True)
        assert [type(one) for one in both] == [OSError, OSError]
        assert (await keeper.at_least(version)).version == version

    asyncio.run(ask())


def test_a_caller_who_goes_away_does_not_take_the_reading_along(executor: ThreadPoolExecutor) -> None:
    async def ask() -> None:
        source = Source(executor)
        keeper = ListKeeper(source.read)
        leaves = asyncio.create_task(keeper.at_least(source.version()))
        stays = asyncio.create_task(keeper.at_least(source.version()))
        await asyncio.sleep(0)
        leaves.cancel()
        source.gate.set()
        assert (await stays).version == source.version()

    asyncio.run(ask())
