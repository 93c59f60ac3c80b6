"""The list read from the store: current in every process, renewed by pieces, equal to one read again (D8)."""

import asyncio
import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.api.list_cache import EncodedList, ListCache
from petstore_server.domain.orders import CANCEL, INT64_MAX, INT64_MIN, Order, Status, ship
from petstore_server.store import Store
from petstore_server.store.listing import STARTS_PIECE, all_starts, range_of, starts_after, starts_piece
from testing.damage import execute
from testing.stores import BY, Stores, body, opened_at, pieces_of, records_of
from testing.subprocesses import PATIENCE
from testing.watched_engine import watched_listing

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))
BEGINNINGS = [order_id for order_id in range(-20_000, 20_000) if starts_piece(order_id)]
INT64 = st.integers(INT64_MIN, INT64_MAX)
CHANGES = 150
"""Made while eight readers read the list again and again."""


def test_sql_and_python_agree_where_a_piece_starts() -> None:
    chance = random.Random(5)
    ids = [INT64_MIN, INT64_MAX, -1, 0, *(chance.randrange(INT64_MIN, INT64_MAX) for _ in range(30_000))]
    sql = f"SELECT id FROM (SELECT value AS id FROM json_each(?)) WHERE {STARTS_PIECE}"
    found = [order_id for (order_id,) in apsw.Connection(":memory:").execute(sql, (json.dumps(ids),))]
    assert [order_id for order_id in ids if starts_piece(order_id)] == found
    assert 15 < len(found) < 50


@pytest.mark.parametrize("step", [1, 2, 10, 64, 1000, 4096, 2**20, 2**32, 2**40])
def test_pieces_stay_small_however_identifiers_are_spaced(step: int) -> None:
    starts = [place for place in range(100_000) if starts_piece(10**13 + place * step)]
    gaps = [after - before for before, after in zip([0, *starts], [*starts, 100_000], strict=True)]
    assert max(gaps) < 12 * 1024


@given(st.lists(INT64, unique=True).map(sorted))
def test_ranges_cover_all_of_int64_without_gaps(found: list[int]) -> None:
    starts = all_starts(found)
    covered = [range_of(starts, index) for index in range(len(starts))]
    assert (covered[0][0], covered[-1][1]) == (INT64_MIN, INT64_MAX)
    assert all(last + 1 == first for (_, last), (first, _) in pairwise(covered))
    assert {INT64_MIN, *found} == {first for first, _ in covered}


def test_an_order_that_starts_a_piece_splits_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petstore_server.store.listing.starts_piece", lambda order_id: True)
    assert ((INT64_MIN, 4, 5), [1, 2]) == starts_after((INT64_MIN, 4), [5])
    assert ((INT64_MIN, 4), [0, 1]) == starts_after((INT64_MIN,), [4])


def test_the_lowest_identifier_adds_no_piece() -> None:
    assert (INT64_MIN, 5) == all_starts([INT64_MIN, 5])
    assert ((INT64_MIN, 5), [0]) == starts_after((INT64_MIN, 5), [INT64_MIN])


async def test_a_change_renews_only_its_own_piece_and_an_order_that_starts_a_piece_its_two_halves(store: Store) -> None:
    new = BEGINNINGS[len(BEGINNINGS) // 2]
    others = [Order(number) for number in range(new - 3_000, new + 3_000) if number != new]
    await store.orders.import_batch(others, "import:1", BY)
    before = await store.listing.current()
    await store.orders.change(new + 1, SHIP, BY)
    changed = await store.listing.current()
    assert len(changed.pieces) > 3
    assert 1 == sum(new is not old for new, old in zip(changed.pieces, before.pieces, strict=True))
    await store.orders.import_batch([Order(new)], "import:2", BY)
    after = await store.listing.current()
    assert len(after.pieces) == len(changed.pieces) + 1
    assert 2 == len({*after.pieces} - {*changed.pieces})


async def test_a_change_of_the_status_only_is_the_same_list_in_every_process(each_backend: Stores) -> None:
    async with each_backend.opened() as store, watched_listing(each_backend.url) as (listing, engine):
        await store.orders.import_batch([Order(1, 2), Order(2)], "import:1", BY)
        before, shown = await listing.current(), EncodedList(await listing.current())
        await store.orders.change(1, CANCEL, BY)
        assert before is await listing.current()
        await store.orders.import_batch([Order(2, status=Status.SHIPPED)], "import:2", BY)
        assert before is await listing.current()
        assert 1 == engine.readings
        async with each_backend.opened() as other:
            again = EncodedList(await other.listing.current())
        assert (shown.plain.whole.chunks, shown.plain.etag) == (again.plain.whole.chunks, again.plain.etag)


async def test_every_list_under_load_shows_what_was_acknowledged_before_it(each_backend: Stores) -> None:
    async with each_backend.opened() as store, each_backend.opened() as reader:
        await store.orders.import_batch([Order(number) for number in range(CHANGES)], "import:1", BY)
        cache = ListCache(reader.listing)
        rebuilds: list[float] = []
        reader.engine.stats.rebuilt = rebuilds.append
        acknowledged = 0

        async def change() -> None:
            nonlocal acknowledged
            for number in range(CHANGES):
                await store.orders.change(number, SHIP, BY)
                acknowledged = number + 1

        async def read() -> None:
            while acknowledged < CHANGES:
                least = acknowledged
                shown = (await cache.current()).plain.whole.chunks[0].count(b"shipDate")
                assert shown >= least
                await asyncio.sleep(0)  # a list that is current is returned without a pause

        await asyncio.gather(change(), *(read() for _ in range(8)))
        assert 0 < len(rebuilds) < CHANGES * 2
        assert all(0 < seconds < PATIENCE for seconds in rebuilds)


async def test_too_many_changes_to_follow_are_read_with_the_whole_list(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petstore_server.store.listing.MAX_CHANGED", 2)
    async with each_backend.opened() as store, each_backend.opened() as reader:
        await store.orders.import_batch([Order(order_id, 1) for order_id in BEGINNINGS[:4]], "import:1", BY)
        await reader.listing.current()
        await store.orders.import_batch([Order(order_id, 2) for order_id in BEGINNINGS[:3]], "import:2", BY)
        assert 3 == (await body(reader)).count(b'"petId":2')  # one in each of three pieces


async def test_a_list_is_read_in_one_snapshot(each_backend: Stores) -> None:
    """What is committed while the pieces are read is not in the list, and the list does not claim to show it."""
    async with each_backend.opened() as store, watched_listing(each_backend.url) as (listing, engine):
        await store.orders.import_batch([Order(number) for number in range(0, 10_000, 2)], "import:1", BY)
        numbers = iter(range(1, 10_000, 2))

        async def change() -> None:
            async with opened_at(each_backend.url) as other:
                await other.orders.import_batch([Order(next(numbers)), Order(9_000, 7)], "import:2", BY)

        def change_elsewhere() -> None:
            """Change the store as another process does, and return when it is done."""
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, change()).result()

        engine.meanwhile = change_elsewhere
        first = await listing.current()
        assert next(numbers) > 5  # changes were made after each statement
        engine.meanwhile = lambda: None
        assert records_of(first) == b"".join(b',{"id":%d}' % number for number in range(0, 10_000, 2))
        assert pieces_of(await listing.current()) == pieces_of(await store.listing.current())
        assert b',{"id":9000,"petId":7}' in records_of(await listing.current())


async def test_what_a_renewal_reads_is_found_by_an_index(each_backend: Stores) -> None:
    explain = "EXPLAIN QUERY PLAN " if each_backend.is_sqlite else "EXPLAIN "
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(number) for number in range(20_000)], "import:1", BY)
        for analyzed in (False, True):
            if analyzed:  # with statistics of all tables, as an operator may collect them
                execute(each_backend, "ANALYZE")
            async with watched_listing(each_backend.url) as (listing, engine):
                await listing.current()
                await store.orders.change(7 + analyzed, SHIP, BY)
                await store.orders.import_batch([Order(-7 - analyzed)], "import:2", BY)
                await listing.current()
                asked = list(engine.statements)
                plans = [str(await engine.query(explain + query.sql, query.parameters)) for query in asked]
            assert len(plans) > 20
            assert not [plan for plan in plans if "Seq Scan on orders" in plan or "SCAN orders'" in plan]
            assert [plan for plan in plans if "orders_starting_pieces" in plan]
            assert [plan for plan in plans if "orders_by_revision" in plan]
