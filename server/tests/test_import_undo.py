"""Undoing an import: what is unchanged and pending is taken back, the rest is reported; on every engine."""

import asyncio
import io
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore_server.domain.errors import ImportNotFound
from petstore_server.domain.imports import Undo, id_ranges
from petstore_server.domain.orders import CANCEL, COMPLETE, Import, Order, Status
from petstore_server.domain.search import Filters, Query, Sort
from petstore_server.formats.kinds import ReadOptions
from petstore_server.formats.reading import Source
from petstore_server.formats.rejects import Rejects
from petstore_server.operations.imports import ORDERS, FileImport
from petstore_server.operations.undo import undo_import
from petstore_server.ports import Actor, Store
from support.command_line import CommandLine
from support.open_stores import BY, Stores, body, log, records_of

DATE = "2026-11-01T10:00:00Z"


async def orders_in(store: Store) -> list[Order]:
    return [order async for batch in store.orders.scan() for order in batch]


async def undone(store: Store, import_id: str, *, dry_run: bool = False) -> dict[Undo, int | Sequence[int]]:
    """How many orders were taken back, and which were kept, by outcome."""
    report = await undo_import(store, import_id, BY, dry_run=dry_run)
    outcomes: dict[Undo, int | Sequence[int]] = {**report.taken_back, **report.kept}
    return {outcome: found for outcome, found in outcomes.items() if found}


@pytest.mark.anyio
async def test_created_orders_are_removed_and_replaced_ones_restored(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        before = [Order(1, 7, 2, DATE, False), Order(2), Order(3, status=Status.SHIPPED)]
        await store.orders.import_batch(before, "import-1", BY)
        listed = await body(store)
        mistaken = [Order(1, 8), Order(2), Order(4, 1), Order(5), Order(-9)]
        await store.orders.import_batch(mistaken, "import-2", BY)
        assert listed != await body(store)
        expected = {Undo.REMOVED: 3, Undo.RESTORED: 1}
        assert expected == await undone(store, "import-2", dry_run=True)
        assert expected == await undone(store, "import-2")
        assert (before, listed) == (await orders_in(store), await body(store))
        page = await store.search.page(Query(Filters(), Sort()))
        assert [order.record() for order in before] == [found.record for found in page.orders]
        entry = (await log(store))[-1]
        assert ("orders.import-undo", "import-2", BY.name) == (entry.action, entry.subject, entry.actor)
        assert {-9, 4, 5, 1} == {order["id"] for order in entry.before["orders"]}
        assert {"removed": 3, "restored": 1, "orders": [before[0].fields()]} == entry.after


@pytest.mark.anyio
async def test_what_has_changed_or_is_final_is_kept_and_reported(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        imported = [Order(1), Order(2), Order(3, status=Status.SHIPPED), Order(4, status=Status.SHIPPED), Order(5)]
        await store.orders.import_batch([Order(5, 1)], "import-1", BY)
        await store.orders.import_batch(imported, "import-2", BY)
        await store.orders.change(1, CANCEL, BY)
        await store.orders.change(3, COMPLETE, BY)
        await store.orders.import_batch([Order(5, 2)], "import-3", BY)
        assert {Undo.REMOVED: 1, Undo.CHANGED: [1, 3, 5], Undo.NOT_PENDING: [4]} == await undone(store, "import-2")
        assert [1, 3, 4, 5] == [order.id for order in await orders_in(store)]
        entries = len(await log(store))
        assert {Undo.MISSING: [2], Undo.CHANGED: [1, 3, 5], Undo.NOT_PENDING: [4]} == await undone(store, "import-2")
        assert entries == len(await log(store))


@pytest.mark.anyio
async def test_an_order_that_was_changed_back_is_as_the_import_left_it(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1)], "import-1", BY)
        await store.orders.import_batch([Order(1, 2)], "import-2", BY)
        assert {Undo.CHANGED: [1]} == await undone(store, "import-1")
        assert {Undo.RESTORED: 1} == await undone(store, "import-2")
        assert {Undo.REMOVED: 1} == await undone(store, "import-1")
        assert [] == await orders_in(store)


@pytest.mark.anyio
async def test_batches_of_one_import_are_undone_in_reverse(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        lines = "".join(f'{{"id":{number}}}\n' for number in range(9000)) + '{"id":3,"quantity":4}\n'
        source = Source(io.BytesIO(lines.encode()), "-", None)
        run = FileImport(ORDERS, source, ReadOptions(), Rejects())
        await run.run(store, BY)
        expected = {Undo.REMOVED: 9000}
        assert expected == await undone(store, run.import_id, dry_run=True)
        assert 9000 == len(await orders_in(store))
        assert expected == await undone(store, run.import_id)
        assert (b"[]", []) == (await body(store), await orders_in(store))


class Held:
    """The orders of a store, whose imports wait."""

    def __init__(self, store: Store) -> None:
        self._orders = store.orders
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        return await self._orders.find_many(ids)

    async def import_batch(self, orders: Sequence[Order], import_id: str, actor: Actor, /) -> list[Import]:
        self.begun.set()
        await self.may_go_on.wait()
        return await self._orders.import_batch(orders, import_id, actor)


@pytest.mark.anyio
@pytest.mark.parametrize("undoes", [False, True])
async def test_an_import_during_which_the_history_of_the_store_changed_says_so(
    each_backend: Stores, undoes: bool
) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1)], "import-1", BY)
        held = Held(store)
        subject = ORDERS._replace(records=lambda _: held)
        run = FileImport(subject, Source(io.BytesIO(b'{"id":2}'), "-", None), ReadOptions(), Rejects())
        running = asyncio.create_task(run.run(store, BY))
        await held.begun.wait()
        if undoes:
            await undo_import(store, "import-1", BY)
        held.may_go_on.set()
        await running
        assert undoes is run.history_changed


@pytest.mark.anyio
async def test_the_memory_of_an_undo_does_not_grow_with_the_orders_created(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        for start in range(0, 30_000, 5000):
            await store.orders.import_batch([Order(number) for number in range(start, start + 5000)], "import-1", BY)
        tracemalloc.start()
        assert {Undo.REMOVED: 30_000} == await undone(store, "import-1", dry_run=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4_000_000, "30,000 orders take more than 6 MB"


@pytest.mark.anyio
async def test_every_process_shows_that_orders_were_removed(each_backend: Stores) -> None:
    async with each_backend.opened() as store, each_backend.opened() as other:
        await store.orders.import_batch([Order(1), Order(2)], "import-1", BY)
        await store.orders.import_batch([Order(3)], "import-2", BY)
        held = await other.orders.snapshot()
        await undone(store, "import-2")
        await store.orders.import_batch([Order(4)], "import-3", BY)
        assert not other.orders.is_current(held)
        assert b',{"id":1},{"id":2},{"id":4}' == records_of(await other.orders.snapshot(held))


@pytest.mark.anyio
async def test_an_unknown_import_is_not_found(each_backend: Stores) -> None:
    async with each_backend.opened() as store:
        await store.orders.import_batch([Order(1)], "import-1", BY)
        with pytest.raises(ImportNotFound, match="import-2"):
            await undo_import(store, "import-2", BY)


@given(st.sets(st.integers(-50, 50) | st.integers(-(2**63), 2**63 - 1)))
def test_ranges_contain_exactly_the_identifiers(ids: set[int]) -> None:
    ranges = id_ranges(ids)
    assert sorted(ids) == [order_id for first, last in ranges for order_id in range(first, last + 1)]
    assert all(one[1] + 1 < following[0] for one, following in pairwise(ranges))


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "store.db")


def imported(cli: CommandLine, text: str) -> str:
    return str(cli.must("orders", "import", "-", "--json", stdin=text).json()["import"])


def test_the_command_reports_what_was_undone_and_what_was_not(cli: CommandLine) -> None:
    import_id = imported(cli, "".join(f'{{"id":{number}}}\n' for number in range(1, 16)))
    cli.must("orders", "cancel", *map(str, range(1, 13)))
    dry = cli("orders", "import-undo", import_id, "--dry-run")
    assert 3 == dry.code
    assert "12 orders changed since the import: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more\n" in dry.err
    assert "Dry run, nothing was changed: 3 removed, 0 restored, 12 kept.\n" in dry.err
    done = cli("orders", "import-undo", import_id, "--yes", "--json")
    kept = {"changed": list(range(1, 13)), "not_pending": [], "missing": []}
    assert (3, {"import": import_id, "removed": 3, "restored": 0, "kept": kept}) == (done.code, done.json())
    assert 12 == len(cli.must("orders", "export", "-").out.splitlines())


def test_an_undo_needs_a_confirmation(cli: CommandLine) -> None:
    import_id = imported(cli, '{"id":1}')
    done = cli("orders", "import-undo", import_id, stdin="y\n")
    assert 2 == done.code
    assert "--yes" in done.err
    assert 1 == len(cli.must("orders", "export", "-").out.splitlines())
    assert (
        f"{import_id} undone: 1 removed, 0 restored, 0 kept.\n"
        == cli.must("orders", "import-undo", import_id, "--yes").err
    )


def test_an_import_that_does_not_exist_is_exit_code_5(cli: CommandLine) -> None:
    imported(cli, '{"id":1}')
    done = cli("orders", "import-undo", "import-0", "--yes", "--json")
    assert (5, "import_not_found") == (done.code, done.error()["code"])
