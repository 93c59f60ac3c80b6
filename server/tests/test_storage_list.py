"""The list out of the store: fresh in every process, renewed by pieces, equal to one read anew."""

import asyncio
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petstore_server.domain.errors import OrderConflict, OrderNotFound
from petstore_server.domain.orders import CANCEL, INT64_MAX, INT64_MIN, Order, Status, ship
from petstore_server.ports import Body, Store
from petstore_server.storage.engines import AnyStore
from petstore_server.storage.listing import starts_piece
from petstore_server.storage.sqlite import migrate
from petstore_server.storage.sqlite.orders import _CHANGED, _STARTS, _VERSION
from support.open_stores import BY, Stores, body

SHIP = ship(datetime(2026, 11, 1, tzinfo=UTC))
BEGINNINGS = [order_id for order_id in range(-20_000, 20_000) if starts_piece(order_id)]
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


def flat(content: Body) -> tuple[bytes, int, bytes]:
    return content.etag, content.length, b"".join(content.chunks)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_renewed_list_equals_one_read_anew(stores: Stores, steps: list[tuple[str, list[int]]]) -> None:
    async def run(stores: Stores) -> None:
        async with stores.opened() as store:
            for number, (step, ids) in enumerate(steps):
                await take(store, step, ids, number)
                held = await store.orders.snapshot()
                records = [order.record() async for batch in store.orders.scan() for order in batch]
                assert b"".join(held.plain.chunks) == f"[{','.join(records)}]".encode()
            held = await store.orders.snapshot()
            async with stores.opened() as other:
                anew = await other.orders.snapshot()
                assert flat(held.plain) == flat(anew.plain)
                assert flat(await held.gzip()) == flat(await anew.gzip())
                assert zlib.decompress(b"".join((await held.gzip()).chunks), 31) == b"".join(anew.plain.chunks)

    asyncio.run(run(stores.another()))


def test_a_change_renews_only_its_own_piece(stores: Stores) -> None:
    async def run() -> None:
        async with stores.opened() as store:
            await store.orders.import_batch([Order(number) for number in range(20_000)], "import:1", BY)
            before = await store.orders.snapshot()
            await before.gzip()
            await store.orders.change(10_000, SHIP, BY)
            after = await store.orders.snapshot()
            assert len(after.pieces) > 10
            assert sum(after.pieces[one] is not before.pieces[one] for one in after.ranges if one in after.pieces) == 1

    asyncio.run(run())


def test_the_list_is_ascending_whatever_the_order_of_import(stores: Stores) -> None:
    async def run() -> None:
        async with stores.opened() as store:
            for order_id in (5, INT64_MAX, -3, INT64_MIN):
                await store.orders.import_batch([Order(order_id)], "import:1", BY)
            assert await body(store) == (b'[{"id":-9223372036854775808},{"id":-3},{"id":5},{"id":9223372036854775807}]')

    asyncio.run(run())


def test_a_cancel_changes_no_byte_and_no_etag_and_reads_nothing(stores: Stores) -> None:
    async def run() -> None:
        async with stores.opened() as store:
            await store.orders.import_batch([Order(1, 2), Order(2)], "import:1", BY)
            before = await store.orders.snapshot()
            await store.orders.change(1, CANCEL, BY)
            assert await store.orders.snapshot() is before
            await store.orders.import_batch([Order(2, status=Status.SHIPPED)], "import:2", BY)  # the status alone
            assert await store.orders.snapshot() is before
            assert store.stats.rebuilds == 1

    asyncio.run(run())


def test_the_very_next_list_shows_a_change_made_through_another_store(stores: Stores) -> None:
    async def run(one: AnyStore, other: AnyStore) -> None:
        for number in range(100):
            await one.orders.import_batch([Order(number)], "import:1", BY)
            assert f'{{"id":{number}}}'.encode() in await body(other)
            await other.orders.change(number, SHIP, BY)
            assert f'{{"id":{number},"shipDate":"2026-11-01T00:00:00Z"}}'.encode() in await body(one)

    async def both() -> None:
        async with stores.opened() as one, stores.opened() as other:
            await run(one, other)

    asyncio.run(both())


def test_every_list_under_load_shows_what_was_acknowledged_before_it(stores: Stores) -> None:
    async def run() -> None:
        async with stores.opened() as store, stores.opened() as reader:
            await store.orders.import_batch([Order(number) for number in range(400)], "import:1", BY)
            acknowledged = 0

            async def change() -> None:
                nonlocal acknowledged
                for number in range(400):
                    await store.orders.change(number, SHIP, BY)
                    acknowledged = number + 1

            async def read() -> None:
                while acknowledged < 400:
                    least = acknowledged
                    shown = (await body(reader)).count(b"shipDate")
                    assert shown >= least
                    await asyncio.sleep(0)  # a list that is held is given without a pause

            await asyncio.gather(change(), *(read() for _ in range(8)))
            assert reader.stats.rebuilds < 400 * 2

    asyncio.run(run())


def test_more_changes_than_are_worth_following_are_read_anew(stores: Stores) -> None:
    async def run() -> None:
        async with stores.opened() as store, stores.opened() as reader:
            await store.orders.import_batch([Order(-1)], "import:1", BY)
            assert await body(reader) == b'[{"id":-1}]'
            for start in range(0, 60_000, 6_000):
                await store.orders.import_batch([Order(start + number) for number in range(6_000)], "import:2", BY)
            assert flat((await reader.orders.snapshot()).plain) == flat((await store.orders.snapshot()).plain)
            assert (await body(reader)).count(b"id") == 60_001

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "index"),
    [(_STARTS, "orders_starting_pieces"), (_CHANGED, "orders_by_revision"), (_VERSION, "orders_by_revision")],
)
def test_what_a_renewal_asks_is_answered_by_an_index(tmp_path: Path, query: str, index: str) -> None:
    migrate(tmp_path / "store.db", lambda line: None)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", (1,) * query.count("?")).fetchall()
    assert index in str(plan)
    connection.close()


def test_the_time_of_each_reading_is_told(stores: Stores) -> None:
    async def run() -> None:
        async with stores.opened() as store:
            told: list[float] = []
            store.stats.on_rebuild = told.append
            await store.orders.snapshot()
            await store.orders.snapshot()
            assert len(told) == 1
            assert 0 < told[0] < 5

    asyncio.run(run())
