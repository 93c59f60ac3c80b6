"""An import as a whole: what becomes of orders that exist, and of an import that is followed or cut off."""

import asyncio
import io
import json
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any, cast

import pytest

from petstore_server.cli.importing import phrased, scratch_store
from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.imports import ImportOutcome
from petstore_server.domain.orders import Order, Status, ship_on
from petstore_server.domain.pets import Pet
from petstore_server.domain.placements import Placement
from petstore_server.domain.transitions import Transition
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.engines.sqlite.serial import SerialEngine
from petstore_server.imports import files, running
from petstore_server.imports.files import Source
from petstore_server.imports.kinds import ORDERS, PETS
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.reading import _on_thread, read_ahead
from petstore_server.imports.rejects import Rejects
from petstore_server.imports.running import FileImport
from petstore_server.runtime.opening import sqlite_path
from petstore_server.store import Store
from testing.cli import CommandLine
from testing.damage import execute
from testing.import_files import dry_run, imported
from testing.stores import BY, Stores, all_orders
from testing.subprocesses import PATIENCE

pytestmark = pytest.mark.anyio


async def ended(batches: AsyncIterator[None]) -> None:
    """Run an import to its end."""
    async for _ in batches:
        pass


@pytest.mark.parametrize("meanwhile", ["nothing", "restore", "cancel"])
async def test_an_import_says_that_the_store_was_restored_and_counts_what_is_stored_while_it_is_cancelled(
    tmp_path: Path, file_store: Stores, meanwhile: str
) -> None:
    async with file_store.opened() as store:
        backup(sqlite_path(file_store.url), tmp_path / "backup")
        begun, may_go_on = asyncio.Event(), asyncio.Event()

        async def import_batch(*given: Any, **more: Any) -> list[ImportOutcome]:
            begun.set()
            await may_go_on.wait()
            return await store.orders.import_batch(*given, **more)

        kind = replace(ORDERS, part=lambda _: SimpleNamespace(import_batch=import_batch))
        run = FileImport(kind, Source(io.BytesIO(b'{"id":2}'), "-", None), ReadOptions(), Rejects())
        running = asyncio.create_task(ended(run.run(store, lambda: BY)))
        await begun.wait()
        if meanwhile == "restore":
            restore(sqlite_path(file_store.url), tmp_path / "backup", BY)
        if meanwhile == "cancel":
            running.cancel()
            await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.wait({running})
        assert (meanwhile == "restore", meanwhile == "cancel") == (run.history_changed, running.cancelled())
        assert 1 == run.imported


DATE = "2026-11-01T10:00:00Z"


async def test_a_csv_without_some_columns_leaves_these_fields_as_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", 2)  # later batches meet orders of earlier ones, in a dry run too
    shipped = Order(3, 9, 1, DATE, True, Status.SHIPPED)
    await store.orders.import_batch([Order(1, 7, 2, DATE, False), Order(2, 8, 2, DATE), shipped], "import-1", BY)
    content = "id,quantity,petId\n1,5,\n2,2,8\n3,2,9\n4,1,\n4,6,\n1,5,\n"
    expected = {"created": 1, "unchanged": 2, "replaced": 1, "rejected": 2}
    assert [expected] * 2 == [(await import_(store, content)).counts for import_ in (dry_run, imported)]
    found = await all_orders(store)
    assert [Order(1, None, 5, DATE, False), Order(2, 8, 2, DATE), shipped, Order(4, None, 1)] == found


async def test_fields_without_a_column_keep_what_they_get_while_the_import_waits_for_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.orders.import_batch([Order(1, 7, 2, DATE, reference="A"), Order(2, 8, 2)], "import-1", BY)
    await store.pets.import_batch([Pet(1, "Rex", "dog")], "import-2", BY)
    import_orders, import_pets = store.orders.import_batch, store.pets.import_batch

    async def orders_after_a_change(*given: Any, **more: Any) -> list[ImportOutcome]:
        meanwhile = Transition[Order]("order.update", lambda order: order._replace(quantity=9, reference=None))
        await store.orders.change(1, meanwhile, BY)
        return await import_orders(*given, **more)

    async def pets_after_another_import(*given: Any, **more: Any) -> list[ImportOutcome]:
        await import_pets([Pet(1, "Rex", "cat")], "import-3", BY)
        return await import_pets(*given, **more)

    monkeypatch.setattr(store.orders, "import_batch", orders_after_a_change)
    monkeypatch.setattr(store.pets, "import_batch", pets_after_another_import)
    assert 2 == (await imported(store, "id,petId,shipDate\n1,6,\n2,8,\n")).imported
    assert [Order(1, 6, 9), Order(2, 8, 2)] == await all_orders(store)
    source = Source(io.BytesIO(b"id,name\n1,Max\n"), "-", None)
    await ended(FileImport(PETS, source, ReadOptions(), Rejects()).run(store, lambda: BY))
    assert Pet(1, "Max", "cat") == await store.pets.find(1)


async def test_a_reference_that_only_1_0_took_stays_where_a_file_has_no_column_for_it(store: Store) -> None:
    reference = "A\u200bB"
    await store.orders.import_batch([Order(1, 7, 2, reference=reference)], "import-1", BY)
    assert {"created": 0, "unchanged": 0, "replaced": 1, "rejected": 0} == (
        await imported(store, "id,petId\n1,6\n")
    ).counts
    assert [Order(1, 6, 2, reference=reference)] == await all_orders(store)


async def test_a_file_is_read_on_a_thread_that_does_not_keep_the_process_from_ending() -> None:
    threads: list[threading.Thread] = []

    def items() -> Iterator[int]:
        for number in range(2):
            threads.append(threading.current_thread())
            yield number

    assert [0, 1] == [item async for item in read_ahead(items())]
    assert {("petstore-read-ahead", True)} == {(thread.name, thread.daemon) for thread in threads}


async def test_a_json_record_replaces_all_fields(store: Store) -> None:
    await store.orders.import_batch([Order(1, 7, 2, DATE, False)], "import-1", BY)
    await imported(store, '{"id":1,"quantity":5}')
    assert Order(1, None, 5) == await store.orders.find(1)


async def add_owners(store: Store) -> None:
    """Accounts acme and globex, with orders."""
    for name in ("acme", "globex"):
        await store.accounts.create(name, Plan.FREE, Limits(60, 1000), BY)
    orders = [
        Order(1, 1, reference="A", account="acme"),
        Order(2, 1, reference="B", account="acme"),
        Order(3, 1, reference="C", account="acme"),
        Order(4, 1, reference="A", account="globex"),
        Order(5, 1, reference="A"),
        Order(6, 1, None, DATE, status=Status.SHIPPED, reference="D"),
        Order(7, 1, status=Status.CANCELLED),
    ]
    await store.orders.import_batch(orders, "import-1", BY)


HEADER = "id,petId,shipDate,status,reference,account\n"
OWNERS = [
    (
        (
            "1,1,,,A,\n2,1,,,B,acme\n3,2,,,B,\n4,2,,,B,globex\n5,1,,,A,acme\n6,1,2026-11-01T10:00:00Z,shipped,D,acme\n"
            "7,1,,cancelled,,missing\n8,1,,,D,acme\n9,1,,,A,globex\n"
        ),
        {"created": 1, "unchanged": 2, "replaced": 3, "rejected": 3},
        {
            6: "Order 1 of acme already has the reference A",
            8: "There is no account 'missing'",
            9: "Order 6 of acme already has the reference D",
        },
    ),
    (
        "1,2,,,A,\n3,2,,,B,globex\n5,1,,,A,\n7,1,,cancelled,,globex\n8,1,,,A,globex\n9,1,,,A,\n10,1,,,pso_live_x,\n",
        {"created": 0, "unchanged": 2, "replaced": 2, "rejected": 3},
        {
            3: "Order 3 belongs to acme, and an owner never changes",
            6: "Order 9 of globex already has the reference A",
            8: "reference 'pso_live_x' is not 1 to 64 printable characters, none invisible, without a space at "
            "either end, and not an API key.",
        },
    ),
]


async def test_a_dry_run_without_room_names_the_directory_for_temporary_files() -> None:
    async def fill() -> None:
        async with scratch_store() as scratch:
            cast("SerialEngine", scratch.engine)._writing.execute("PRAGMA max_page_count = 1")  # it cannot grow
            await scratch.orders.import_batch([Order(number) for number in range(2_000)], "import:1", BY)

    with pytest.raises(OSError, match="No space left on device") as caught:
        await fill()
    assert gettempdir() == caught.value.filename


@pytest.mark.parametrize("rows", [1, 3, 1000])
async def test_owners_are_set_once_and_references_used_once_in_a_dry_run_too(
    each_backend: Stores, store: Store, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_ROWS", rows)
    await add_owners(store)
    execute(each_backend, "UPDATE petstore.orders SET reference = 'B' WHERE id = 3")  # as 1.0 could leave it
    for text, counts, expected in OWNERS:
        before = await all_orders(store)
        async with scratch_store() as scratch:
            for given in (scratch, None):
                assert before == await all_orders(store)
                written = io.StringIO()
                content = io.BytesIO((HEADER + text).encode())
                rejected = Rejects(written, phrase=phrased)
                run = FileImport(ORDERS, Source(content, "-", None), ReadOptions(), rejected)
                await ended(run.run(store, lambda: BY, given))
                assert counts == run.counts
                rejects = [json.loads(line) for line in written.getvalue().splitlines()]
                assert expected == {each["line"]: each["reason"].partition(";")[0] for each in rejects}
    found = {order.id: (order.account, order.reference) for order in await all_orders(store)}
    acme = {1: ("acme", "A"), 2: ("acme", "B"), 3: ("acme", "B"), 6: ("acme", "D")}
    globex = {4: ("globex", "B"), 7: ("globex", None), 9: ("globex", "A")}
    assert {**acme, **globex, 5: (None, "A")} == found


@pytest.mark.parametrize("seed", range(8))
async def test_an_import_in_any_blocks_is_the_same_and_a_dry_run_foresees_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    numbers, rows = random.Random(seed), []
    for _ in range(80):
        cells = [numbers.randint(1, 12), numbers.choice([1, 1, 2]), numbers.choice(["", "shipped", "cancelled"])]
        cells += [numbers.choice(["", *"ABCD"]), numbers.choice(["", "", "acme", "globex", "missing"])]
        rows.append(",".join(map(str, cells)))
    content, outcomes = "\n".join(["id,petId,status,reference,account", *rows]), []
    await add_owners(store)
    for size in (1, 7, 1000):
        monkeypatch.setattr(files, "BLOCK_ROWS", size)
        outcomes.append((await dry_run(store, content)).counts)
    outcomes.append((await imported(store, content)).counts)
    assert [outcomes[-1]] * 4 == outcomes
    assert outcomes[-1]["rejected"]
    assert outcomes[-1]["replaced"]


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("replace_placed", [False, True])
async def test_an_order_that_was_placed_is_replaced_only_on_request(
    store: Store, replace_placed: bool, dry: bool
) -> None:
    await store.orders.import_batch([Order(1)], "import-1", BY)
    await store.orders.place(Placement(1, "a", 1, 1, None), BY)
    import_, options = dry_run if dry else imported, ReadOptions(replace_placed=replace_placed)
    run = await import_(store, '{"id":1,"petId":3}\n\n{"id":2,"petId":5}\n', options=options)
    expected = {"created": 0, "unchanged": 0, "replaced": 2 if replace_placed else 1}
    assert {**expected, "rejected": not replace_placed} == run.counts
    found = r"line 3: .*placed over the API.*--replace-placed"
    assert replace_placed != bool(re.match(found, "".join(run.rejects.summary())))
    second = Order(2, 5) if replace_placed and not dry else Order(2, 1, 1)
    assert [Order(1, None if dry else 3), second] == await all_orders(store)


SHIPPED = Order(1, 5, 2, "2026-12-01T10:00:00Z", False, Status.SHIPPED, "PO-1")
CORRECT = ReadOptions("csv", correct_shipped=True)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("1,6,3,2026-12-01T10:00:00Z,true,shipped,PO-1", SHIPPED._replace(pet_id=6, quantity=3, complete=True)),
        ("1,5,9,2026-12-01T10:00:00Z,false,shipped,", SHIPPED._replace(quantity=9)),
        ("1,5,2,2026-12-01T10:00:00Z,false,shipped,", SHIPPED),
        ("1,5,9,2026-12-01T10:00:00Z,false,shipped,PO-2", None),
        ("1,5,2,2026-12-01T10:00:00Z,false,pending,PO-1", None),
        ("1,5,2,2026-12-01T10:00:00Z,false,cancelled,PO-1", None),
    ],
)
async def test_a_row_corrects_a_shipped_order_but_neither_its_status_nor_its_reference(
    store: Store, row: str, expected: Order | None
) -> None:
    await store.orders.import_batch([SHIPPED], "import-1", BY)
    run = await imported(store, f"id,petId,quantity,shipDate,complete,status,reference\n{row}", options=CORRECT)
    outcome = "rejected" if expected is None else "unchanged" if expected == SHIPPED else "replaced"
    assert 1 == run.counts[outcome]
    found = await store.orders.find(1)
    assert (expected or SHIPPED) == found
    batches = [entry async for entry in store.imports.batches(run.import_id)]
    assert (outcome == "replaced") == bool(batches), "a correction is audited with both states, like any change"


async def test_a_file_of_numbers_and_accounts_names_owners_and_changes_nothing_else(store: Store) -> None:
    """Also of orders that have shipped or were cancelled."""
    await store.accounts.create("zoo", Plan.FREE, Limits(1, 1), BY)
    orders = [SHIPPED, Order(2, 7, 1, DATE, True, Status.CANCELLED, "PO-2"), Order(3, 8, 4, DATE, False)]
    await store.orders.import_batch(orders, "import-1", BY)
    owners = "id,account\n1,zoo\n2,zoo\n3,zoo\n4,zoo\n"
    run = await imported(store, owners, options=ReadOptions("csv", update_only=True))
    assert {"replaced": 3, "created": 0, "rejected": 1}.items() <= run.counts.items()
    assert [order._replace(account="zoo") for order in orders] == [await store.orders.find(each.id) for each in orders]


async def test_a_shipped_order_that_was_placed_is_corrected_by_its_account_and_reference_only(store: Store) -> None:
    await store.accounts.create("acme", Plan.FREE, Limits(60, 1000), BY)
    [account] = await store.accounts.list()
    placed = await store.orders.place(Placement(account.id, "a", 5, 2, None, "PO-1"), BY)
    await store.orders.change(placed.order_id, ship_on(DATE), BY)
    for replaced, outcome in ((False, "rejected"), (True, "replaced")):
        content = f"id,quantity,reference,account\n{placed.order_id},7,PO-1,acme\n"
        run = await imported(store, content, options=replace(CORRECT, replace_placed=replaced))
        assert 1 == run.counts[outcome], list(run.rejects.summary())
    other = f"id,quantity\n{placed.order_id},8\n"
    assert 1 == (await imported(store, other, options=replace(CORRECT, replace_placed=True))).counts["rejected"]


async def test_an_import_next_to_placed_orders_takes_none_of_their_identifiers(store: Store) -> None:
    """Identifiers just above the largest: those that were assigned meanwhile are rejected, the rest imported."""
    changes: list[Coroutine[Any, Any, Any]] = []
    for number in range(40):
        changes.append(store.orders.place(Placement(1, f"key {number}", 7, 1, None), BY))
        batch = [Order(order_id, 3) for order_id in range(5 * number, 5 * number + 5)]
        changes.append(store.orders.import_batch(batch, "import-2", BY))
    done = await asyncio.gather(*changes)
    placed, outcomes = done[::2], Counter(chain.from_iterable(done[1::2]))
    assert {ImportOutcome.CREATED, ImportOutcome.PROTECTED} >= outcomes.keys()
    found = await all_orders(store)
    assert sorted(each.order_id for each in placed) == [order.id for order in found if order.pet_id == 7]
    assert outcomes[ImportOutcome.CREATED] + len(placed) == len(found)


def test_programs_get_the_progress_line_by_line(tmp_path: Path) -> None:
    cli, file = CommandLine(tmp_path / "store.db"), tmp_path / "orders.jsonl"
    file.write_text("".join(f'{{"id":{number}}}\n' for number in range(20_000)) + "x\n")
    done = cli("orders", "import", str(file), "--json", "--progress")
    *lines, result = done.json_lines()
    positions = [line.pop("position") for line in lines]
    assert sorted(positions) == positions
    assert positions[-1] == file.stat().st_size
    assert {**lines[-1], "reasons": result["reasons"], "problems": result["problems"]} == result
    assert (3, 20_000, 1) == (done.code, result["created"], result["rejected"])
    done = cli("orders", "import", str(file), "--dry-run", "--json", "--progress")
    assert all(line["dryRun"] and "import" not in line for line in done.json_lines())
    assert 2 == cli("orders", "import", str(file), "--progress").code
    assert 2 == cli("orders", "import", str(tmp_path / "missing"), "--json", "--progress").code


@pytest.mark.parametrize(
    ("options", "first", "commits"),
    [({}, 1_000, 6), ({"at_once": lambda: 1_000}, 1_000, 6), ({"at_once": lambda: 2_500}, 3_000, 2)],
    ids=["by default", "1000", "2500"],
)
async def test_rows_share_transactions_as_the_caller_asks(
    file_store: Stores, options: dict[str, Any], first: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "BEAT_SECONDS", PATIENCE)  # a sign of life would be one more commit
    rows = b"\n".join(b'{"id":%d}' % (number % 5_500) if number % 100 != 50 else b"{" for number in range(6_000))
    async with file_store.opened() as store:
        sizes: list[int] = []
        store.engine.stats.committed = sizes.append
        run = FileImport(ORDERS, Source(io.BytesIO(rows), "-", None), ReadOptions(), Rejects())
        states = [(run.imported, run.position) async for _ in run.run(store, lambda: BY, **options)]
        assert (commits, first * 0.99) == (len(states), states[0][0])
        assert commits + 2 == len(sizes), "the record begins and ends in commits of its own"
        assert states[-1] == (5_940, len(rows))
        assert {"created": 5_445, "unchanged": 495, "replaced": 0, "rejected": 60} == run.counts


async def test_a_thread_whose_caller_has_given_up_ends_without_an_error() -> None:
    input_comes = threading.Event()
    _on_thread(input_comes.wait).cancel()
    await asyncio.sleep(0)
    [thread] = [each for each in threading.enumerate() if each.name == "petstore-read-ahead"]
    input_comes.set()
    await asyncio.to_thread(thread.join, PATIENCE)  # an error in it would fail this test
    assert not thread.is_alive()


async def test_any_name_of_a_file_can_be_recorded_also_after_a_key_in_it_was_hidden(store: Store) -> None:
    source, rejects = Source(io.BytesIO(b'{"id":1}'), "-", None), Rejects()
    run = FileImport(ORDERS, source, ReadOptions(), rejects, "a%00 pso_live_Ab3.csv")
    await ended(run.run(store, lambda: BY))
    assert r"a\x00 pso_live_[hidden]" == (await store.imports.find(run.import_id)).file
