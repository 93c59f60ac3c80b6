"""The list read from the store: current in every process, renewed by pieces, equal to one read again."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from petstore_server.domain.errors import OrderConflict, OrderNotFound
from petstore_server.domain.orders import CANCEL, INT64_MAX, INT64_MIN, Order, Status, ship
from petstore_server.http.list_cache import ListCache
from petstore_server.ports import Store
from petstore_server.storage.listing import STARTS_PIECE, Range, all_starts, range_of, starts_after, starts_piece
from petstore_server.storage.sqlite import migrate
from petstore_server.storage.sqlite.orders import CHANGED, MARK, STARTS
from support.open_stores import BY, Stores, body, opened, pieces_of, records_of

pytestmark = pytest.mark.anyio

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))
BEGINNINGS = [order_id for order_id in range(-20_000, 20_000) if starts_piece(order_id)]
INT64 = st.integers(INT64_MIN, INT64_MAX)
IDS = st.one_of(
    st.sampled_from(BEGINNINGS),
    st.integers(-20_000, 20_000),
    st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("import"), st.lists(IDS, min_size=1, max_size=30)),
        st.tuples(st.just("ship"), IDS.map(lambda order_id: [order_id])),
        st.tuples(st.just("cancel"), IDS.map(lambda order_id: [order_id])),
    ),
    max_size=8,
)


async def take(store: Store, step: str, ids: list[int], number: int) -> None:
    if step == "import":
        await store.orders.import_batch([Order(order_id, number) for order_id in ids], "import:1", BY)
        return
    with suppress(OrderConflict, OrderNotFound):
        await store.orders.change(ids[0], SHIP if step == "ship" else CANCEL, BY)


@given(INT64)
@example(INT64_MIN)
@example(INT64_MAX)
@example(-1)
@example(0)
def test_sql_and_python_agree_where_a_piece_starts(order_id: int) -> None:
    found = apsw.Connection(":memory:").execute(f"SELECT {STARTS_PIECE} FROM (SELECT ? AS id)", (order_id,)).get
    assert bool(found) == starts_piece(order_id)


@pytest.mark.parametrize("step", [1, 2, 10, 64, 1000, 4096, 2**20, 2**32, 2**40])
def test_pieces_stay_small_however_identifiers_are_spaced(step: int) -> None:
    starts = [place for place in range(100_000) if starts_piece(10**13 + place * step)]
    gaps = [after - before for before, after in zip([0, *starts], [*starts, 100_000], strict=True)]
    assert max(gaps) < 12 * 1024


@given(st.lists(INT64, unique=True).map(sorted))
def test_ranges_cover_all_of_int64_without_gaps(found: list[int]) -> None:
    starts = all_starts(found)
    covered = [range_of(starts, index) for index in range(len(starts))]
    assert (covered[0].first, covered[-1].last) == (INT64_MIN, INT64_MAX)
    assert all(before.last + 1 == after.first for before, after in pairwise(covered))
    assert {one.first for one in covered} == {INT64_MIN, *found}


def test_only_the_piece_of_a_changed_order_is_read_again() -> None:
    starts = all_starts([10, 20, 30])
    assert not starts_piece(25)
    assert starts_after(starts, [25]) == (starts, [2])


def test_an_order_that_starts_a_piece_splits_the_one_before_it() -> None:
    start = next(order_id for order_id in range(100_000) if starts_piece(order_id))
    assert starts_after(all_starts([-5]), [start]) == (all_starts([-5, start]), [1, 2])
    assert range_of(all_starts([-5, start]), 1) == Range(-5, start - 1)


def test_the_lowest_identifier_adds_no_piece() -> None:
    assert all_starts([INT64_MIN, 5]) == (INT64_MIN, 5)
    assert starts_after((INT64_MIN, 5), [INT64_MIN]) == ((INT64_MIN, 5), [0])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_a_renewed_list_equals_one_read_again(each_backend: Stores, steps: list[tuple[str, list[int]]]) -> None:
    async with each_backend.another().opened() as store:
        held = None
        for number, (step, ids) in enumerate(steps):
            await take(store, step, ids, number)
            held = await store.orders.snapshot(held)
            records = [order.record() async for batch in store.orders.scan() for order in batch]
            assert records_of(held) == "".join(f",{record}" for record in records).encode()
        held = await store.orders.snapshot(held)
        again = await store.orders.snapshot()
        assert (again.starts, pieces_of(again)) == (held.starts, pieces_of(held))


async def test_a_change_renews_only_its_own_piece(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(number) for number in range(20_000)], "import:1", BY)
        before = await store.orders.snapshot()
        await store.orders.change(10_000, SHIP, BY)
        after = await store.orders.snapshot(before)
        assert len(after.pieces) > 10
        assert sum(new is not old for new, old in zip(after.pieces, before.pieces, strict=True)) == 1


async def test_the_list_is_ascending_whatever_the_order_of_import(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        for order_id in (5, INT64_MAX, -3, INT64_MIN):
            await store.orders.import_batch([Order(order_id)], "import:1", BY)
        assert await body(store) == (b'[{"id":-9223372036854775808},{"id":-3},{"id":5},{"id":9223372036854775807}]')


async def test_a_cancel_changes_no_piece_and_reads_nothing(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1, 2), Order(2)], "import:1", BY)
        before = await store.orders.snapshot()
        await store.orders.change(1, CANCEL, BY)
        after = await store.orders.snapshot(before)
        assert after.pieces is before.pieces
        await store.orders.import_batch([Order(2, status=Status.SHIPPED)], "import:2", BY)  # only the status differs
        assert (await store.orders.snapshot(after)).pieces is before.pieces
        assert store.stats.rebuilds == 1


async def test_the_next_list_shows_a_change_made_through_another_store(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as other:
        caches = ListCache(one.orders), ListCache(other.orders)
        for number in range(100):
            await one.orders.import_batch([Order(number)], "import:1", BY)
            assert f'{{"id":{number}}}'.encode() in (await caches[1].current()).plain.chunks[0]
            await other.orders.change(number, SHIP, BY)
            shipped = f'{{"id":{number},"shipDate":"2026-11-01T00:00:00Z"}}'
            assert shipped.encode() in (await caches[0].current()).plain.chunks[0]


async def test_every_list_under_load_shows_what_was_acknowledged_before_it(each_backend: Stores) -> None:
    async with each_backend.opened() as store, each_backend.opened() as reader:
        await store.orders.import_batch([Order(number) for number in range(400)], "import:1", BY)
        cache = ListCache(reader.orders)
        acknowledged = 0

        async def change() -> None:
            nonlocal acknowledged
            for number in range(400):
                await store.orders.change(number, SHIP, BY)
                acknowledged = number + 1

        async def read() -> None:
            while acknowledged < 400:
                least = acknowledged
                shown = (await cache.current()).plain.chunks[0].count(b"shipDate")
                assert shown >= least
                await asyncio.sleep(0)  # a list that is current is returned without a pause

        await asyncio.gather(change(), *(read() for _ in range(8)))
        assert reader.stats.rebuilds < 400 * 2


async def test_too_many_changes_to_follow_are_read_with_the_whole_list(each_backend: Stores) -> None:
    async with each_backend.opened() as store, each_backend.opened() as reader:
        await store.orders.import_batch([Order(-1)], "import:1", BY)
        held = await reader.orders.snapshot()
        assert records_of(held) == b',{"id":-1}'
        for start in range(0, 60_000, 6_000):
            await store.orders.import_batch([Order(start + number) for number in range(6_000)], "import:2", BY)
        assert pieces_of(await reader.orders.snapshot(held)) == pieces_of(await store.orders.snapshot())
        assert (await body(reader)).count(b"id") == 60_001


@pytest.mark.parametrize(
    ("query", "index"),
    [(STARTS, "orders_starting_pieces"), (CHANGED, "orders_by_revision"), (MARK, "orders_by_revision")],
)
def test_what_a_renewal_reads_is_found_by_an_index(tmp_path: Path, query: str, index: str) -> None:
    migrate(tmp_path / "store.db", lambda line: None)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", (1,) * query.count("?")).fetchall()
    assert index in str(plan)
    connection.close()


async def test_the_time_of_each_reading_is_reported(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        seconds: list[float] = []
        store.stats.on_rebuild = seconds.append
        held = await store.orders.snapshot()
        await store.orders.snapshot(held)
        assert len(seconds) == 1
        assert 0 < seconds[0] < 5


async def test_sqlite_knows_without_waiting_whether_a_list_is_current(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as one, opened(tmp_path / "store.db") as other:
        held = await one.orders.snapshot()
        assert one.orders.is_current(held)
        await other.orders.import_batch([Order(1)], "import:1", BY)
        assert not one.orders.is_current(held)
        assert one.orders.is_current(await one.orders.snapshot(held))
