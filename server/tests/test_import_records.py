"""The records of imports: what became of each run, the rows that it rejected, and the imports of each order."""

import asyncio
import io
import json
import random
import re
import signal
from collections import defaultdict
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen
from typing import Any
from unittest.mock import AsyncMock

import pytest

from petstore_server.domain.audit import Actor, AuditFilters, AuditPage
from petstore_server.domain.errors import ImportNotFound, ServiceUnavailable
from petstore_server.domain.imports import MAX_KEPT_REJECTS, REJECTS_LIFETIME, ImportOutcome, ImportRun, Rejected
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.domain.placements import Placement
from petstore_server.imports import running
from petstore_server.imports.files import Source
from petstore_server.imports.kinds import ORDERS
from petstore_server.imports.options import ReadOptions
from petstore_server.imports.rejects import Rejects
from petstore_server.imports.running import FileImport
from petstore_server.operations.audit import order_entries, read_audit
from petstore_server.store import Store
from petstore_server.store.imports import SILENT_SECONDS
from testing.cli import CommandLine
from testing.damage import execute
from testing.process import PETSTORE, environment
from testing.stores import BY, Stores, log
from testing.subprocesses import PATIENCE

pytestmark = pytest.mark.anyio

KEY = "pso_live_" + "a1B2c3D4" * 5


async def imported(store: Store, content: str, file: str = "shop.jsonl") -> ImportRun:
    """The record of an import of these orders."""
    run = FileImport(ORDERS, Source(io.BytesIO(content.encode()), "-", None), ReadOptions(), Rejects(), file)
    async for _ in run.run(store, lambda: BY):
        pass
    return await store.imports.find(run.import_id)


async def test_a_run_has_one_record_and_one_entry_in_the_audit_log(store: Store) -> None:
    await store.orders.import_batch([Order(1, 1), Order(2, 2)], "import-0", BY)
    rows = "".join(f'{{"id":{number},"petId":2}}\n' for number in range(1, 2_501))
    run = await imported(store, rows + f'{{"id":"many"}}\n{{"id":3,"{KEY}":1}}\nx\n')
    assert ("orders", "shop.jsonl", BY.name, "finished") == (run.kind, run.file, run.actor, run.state)
    assert (2_498, 1, 1, 3) == (run.created, run.replaced, run.unchanged, run.rejected)
    assert run.began_at <= run.seen_at
    assert (3, None) == (run.kept, run.error)
    rejects = [json.loads(each) for each in await store.imports.rejects(run.id)]
    assert [2501, 2502, 2503] == [each["line"] for each in rejects]
    assert [{"line", "column", "reason", "raw"}] * 3 == [each.keys() for each in rejects]
    assert '{"id":"many"}' == rejects[0]["raw"]
    everything = json.dumps(rejects) + repr(run)
    assert "pso_live_[hidden]" in everything
    assert KEY[9:30] not in everything
    assert ["import-0", run.id] == [entry.subject for entry in await log(store)]
    counts = {"created": 2_498, "replaced": 1, "unchanged": 1}
    assert {"file": "shop.jsonl", **counts, "rejected": 3} == (await log(store))[-1].after


async def test_the_record_of_an_import_that_the_store_ended_says_why(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.orders, "import_batch", AsyncMock(side_effect=ServiceUnavailable("the disk is full")))
    with pytest.raises(ServiceUnavailable):
        await imported(store, '{"id":1}\n')
    [run] = (await store.imports.page(10)).imports
    assert ("failed", "The disk is full.") == (run.state, run.error)


async def test_a_file_of_which_nothing_is_imported_leaves_a_record(store: Store) -> None:
    rejected = await imported(store, '{"id":"x"}\n{"id":"y"}\n')
    assert ("finished", 2, 0) == (rejected.state, rejected.rejected, rejected.created)
    assert rejected.reasons[0].startswith("2 rows: ")
    unreadable = FileImport(ORDERS, Source(io.BytesIO(b"PK\x03\x04"), "-", None), ReadOptions(), Rejects())
    with pytest.raises(Exception, match="Excel workbook"):
        [_ async for _ in unreadable.run(store, lambda: BY)]
    assert ("", 0, False) == (unreadable.file, unreadable.position, unreadable.history_changed)
    assert re.fullmatch("import-[0-9a-f]{12}", unreadable.import_id)
    failed = await store.imports.find(unreadable.import_id)
    assert ("failed", 0) == (failed.state, failed.rejected)
    assert (failed.error or "").startswith("The file is an Excel workbook")
    assert [failed.id, rejected.id] == [run.id for run in (await store.imports.page(10)).imports]
    assert [] == await log(store), "nothing was changed"
    with pytest.raises(ImportNotFound):
        await store.imports.find("import-none")


async def test_the_counts_are_those_of_what_was_committed(store: Store) -> None:
    """A batch that fails, after it has counted, leaves neither orders nor counts."""

    def fail(*_: Any) -> Rejected:
        raise KeyError

    await store.orders.import_batch([Order(1)], "import-1", BY)
    with pytest.raises(KeyError):
        await store.orders.import_batch([Order(2), Order(3)], "import-1", BY, rejected=fail)
    assert 1 == (await store.imports.find("import-1")).created
    assert [Order(1)] == await store.orders.find_many([1, 2, 3])


async def test_a_run_that_gives_no_sign_of_life_was_interrupted(
    each_backend: Stores, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = "UPDATE petstore.imports SET seen_at = seen_at - %s"
    await store.imports.set_state("orders", "import-1", BY, "a.csv")
    assert "running" == (await store.imports.find("import-1")).state
    execute(each_backend, silence, int(SILENT_SECONDS) - 3)
    assert "running" == (await store.imports.find("import-1")).state
    execute(each_backend, silence, 4)
    assert "interrupted" == (await store.imports.find("import-1")).state
    assert ["interrupted"] == [run.state for run in (await store.imports.page(5)).imports]
    execute(each_backend, silence, -86_400)  # by a clock that was ahead
    assert "interrupted" == (await store.imports.find("import-1")).state
    monkeypatch.setattr(running, "BEAT_SECONDS", 0.01)
    beating = asyncio.create_task(running._beat(store, "import-1"))
    async with asyncio.timeout(PATIENCE):
        while "running" != (await store.imports.find("import-1")).state:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    beating.cancel()
    await asyncio.wait({beating})


@pytest.mark.parametrize("killed", [False, True])
def test_an_import_whose_progress_is_not_read_ends_and_one_that_was_killed_is_seen_to_be_interrupted(
    cli: CommandLine, killed: bool
) -> None:
    cli.must("orders", "list")
    rows = "".join(f'{{"id":{number}}}\n' for number in range(60_000)).encode()
    command = [str(PETSTORE), "orders", "import", "-", "--name", "slow.jsonl", "--json", "--progress"]
    with Popen(command, env=environment(cli.store), stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(rows)
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"position":')
        [run] = cli.must("imports", "list", "--json").json()
        assert ("running", "slow.jsonl") == (run["state"], run["file"])
        if killed:
            process.kill()
        process.stdout.close()
        with suppress(BrokenPipeError):
            while process.poll() is None:
                process.stdin.write(rows)
                process.stdin.flush()
        assert (-signal.SIGKILL if killed else 141) == process.wait(PATIENCE)
        with suppress(BrokenPipeError):
            process.stdin.close()
    cli.execute(f"UPDATE imports SET seen_at = seen_at - {SILENT_SECONDS + 1}")
    ended = cli.must("imports", "show", run["id"], "--json").json()
    orders = cli.must("orders", "export", "-").json_lines()
    rows_seen = sum(ended[name] for name in ("created", "replaced", "unchanged", "rejected"))  # orders come again
    remedy = f"Stopped after {rows_seen} rows: import the same file again; rows already stored stay unchanged."
    assert remedy in " ".join(cli.must("imports", "show", run["id"]).out.split())
    assert ("interrupted", len(orders)) == (ended["state"], ended["created"])
    assert orders


async def test_every_import_that_changed_an_order_is_found_and_no_other(store: Store) -> None:
    """Scattered orders in 20 imports of several batches, next to orders that were placed and cancelled."""
    chance = random.Random(3)
    touched: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    now: dict[int, Order] = {}
    placed = await store.orders.place(Placement(1, "a", 1, 1, None), BY)
    for number in range(20):
        by, subject = Actor("operator:ada", 2_000.0 + number), f"import-{number}"
        rows = [Order(chance.randrange(-400, 400) * 7, None, chance.randrange(3)) for _ in range(400)]
        rows += [Order(placed.order_id, 1, number)] if number == 15 else []
        outcomes = await store.orders.import_batch(rows, subject, by, replace_placed=number == 15)
        before = dict(now)
        changed = {row.id for row, outcome in zip(rows, outcomes, strict=True) if outcome in CHANGES}
        now |= {row.id: row for row, outcome in zip(rows, outcomes, strict=True) if outcome in CHANGES}
        for order_id in changed:
            states = before.get(order_id), now[order_id]
            touched[order_id].append((subject, *(state and state.quantity for state in states)))
    await store.orders.change(7, CANCEL, BY._replace(at=3_000.0))
    for order_id in [*chance.sample(sorted(now), 40), placed.order_id]:
        page, number = await order_entries(store, order_id, AuditFilters(action="orders.import"))
        found = [
            (entry.subject, (entry.before or {}).get("quantity"), (entry.after or {}).get("quantity"))
            for entry in page.entries[::-1]
        ]
        assert number == len(found)
        if order_id == placed.order_id:
            assert [("import-15", 1, 15)] == found
            continue
        created, *replaced = touched[order_id]
        assert (created[0], None, None) == found[0]
        same = [(subject, *((None, None) if one == other else (one, other))) for subject, one, other in replaced]
        assert same == found[1:], order_id
    page, _ = await order_entries(store, placed.order_id)
    assert ["orders.import", "order.place"] == [entry.action for entry in page.entries]
    page, number = await order_entries(store, 7)
    assert "order.cancel" == page.entries[0].action
    assert number == len(touched[7]) + 1
    assert (AuditPage([], None), 0) == await order_entries(store, 7, AuditFilters(until=0.0))
    first, _ = await order_entries(store, 7, limit=3)
    rest, _ = await order_entries(store, 7, last=first.next)
    assert ([*page.entries], None) == ([*first.entries, *rest.entries], rest.next)
    assert [*page.entries][::-1] == [entry async for entry in read_audit(store, order=7)]


CHANGES = (ImportOutcome.CREATED, ImportOutcome.REPLACED)


async def test_rejected_rows_are_kept_up_to_a_number_and_for_30_days(store: Store) -> None:
    run = await imported(store, "{\n" * (MAX_KEPT_REJECTS + 1_500) + '{"id":1}\n')
    assert (MAX_KEPT_REJECTS + 1_500, MAX_KEPT_REJECTS, 1) == (run.rejected, run.kept, run.created)
    assert MAX_KEPT_REJECTS == len(await store.imports.rejects(run.id))
    await store.imports.forget(run.seen_at - 1, 1_000_000)
    assert MAX_KEPT_REJECTS == (await store.imports.find(run.id)).kept
    await store.imports.forget(run.seen_at + 1, 9_000)
    assert MAX_KEPT_REJECTS - 9_000 == (await store.imports.find(run.id)).kept
    await store.imports.forget(run.seen_at + 1, 9_000)
    assert run._replace(kept=0) == await store.imports.find(run.id)
    assert 30 * 24 * 3600 == REJECTS_LIFETIME


async def test_imports_are_listed_page_by_page(store: Store) -> None:
    for number in range(7):
        actor = BY if number % 2 else Actor("operator:ada", 1.0)
        await store.imports.set_state("orders", f"import-{number}", actor, "a.csv", state="finished")
    found: list[str] = []
    after = None
    while not found or after:
        page = await store.imports.page(3, after)
        found += [run.id for run in page.imports]
        after = page.next
        assert 7 == page.total
    assert [f"import-{number}" for number in reversed(range(7))] == found
    assert None is (await store.imports.page(7)).next
    ours = await store.imports.page(3, None, "operator:ada")
    assert (4, ["import-6", "import-4", "import-2"]) == (ours.total, [run.id for run in ours.imports])


async def test_the_name_of_the_file_may_hold_anything(store: Store) -> None:
    run = await imported(store, '{"id":1}\n', file="x" * 300 + f" {KEY} \udcff.csv")
    assert run.file.endswith(r" pso_live_[hidden] \udcff.csv")
    assert 200 == len(run.file)
    [entry] = await log(store)
    assert {"file": run.file, "created": 1} == entry.after
