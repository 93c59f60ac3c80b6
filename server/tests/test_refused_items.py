"""What the store refuses of one caller, such as by what a shop has added to it, fails for that caller only (E2)."""

import asyncio
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan
from petstore_server.domain.bans import Ban, BanPolicy
from petstore_server.domain.errors import ServiceUnavailable, StatementFailed
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal, Scope
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.placements import Placed, Placement
from petstore_server.domain.timestamps import HOUR
from petstore_server.domain.usage import Granularity
from petstore_server.limits.memory import MemoryLimiter
from petstore_server.limits.usage_recorder import UsageRecorder
from petstore_server.operations.webhooks import WebhookService
from petstore_server.runtime import backend as backend_module
from petstore_server.runtime.backend import Backend
from petstore_server.runtime.background import BackgroundTask
from petstore_server.store import AccessVersion, Store
from petstore_server.store.statements import Execute, Work
from petstore_server.telemetry.logs import configure_logging
from petstore_server.webhooks.addresses import Addresses
from testing.cli import CommandLine, Done
from testing.clock import Clock
from testing.console import START, Browser, Console
from testing.damage import Refusal, execute, refuse, set_record
from testing.deployment import Deployment
from testing.service import UNLIMITED, Service, bearer, code
from testing.stores import BY, Stores, add_key, log

BAD = "new.reference = 'bad'"
NUMBER = 150  # items: more than two batches
WRONG = (7, 90)  # those that the store refuses
each_refusal = pytest.mark.parametrize("how", list(Refusal))


async def require_usable(store: Store) -> None:
    assert store.engine.fault() is None
    await store.check()


def kinds(outcomes: Sequence[object]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def expected(kind: type) -> list[type]:
    """Failures of the wrong items only."""
    return [StatementFailed if number in WRONG else kind for number in range(NUMBER)]


async def run_command(stores: Stores, *arguments: str) -> Done:
    """Run a command on the store, away from the loop of the test."""
    cli = CommandLine(Path("unused.db"), make=False)
    return await asyncio.to_thread(cli, *arguments, PETSTORE_DATABASE_URL=stores.url)


def reference(number: int) -> str:
    return "bad" if number in WRONG else f"good-{number}"


@each_refusal
async def test_a_change_that_the_store_refuses_fails_by_itself(
    each_backend: Stores, store: Store, how: Refusal
) -> None:
    await store.orders.import_batch([Order(number, reference=reference(number)) for number in range(NUMBER)], "i", BY)
    refuse(each_backend, "orders", BAD, how)
    changes = (store.orders.change(number, CANCEL, BY, account_id=number % 3) for number in range(NUMBER))
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert expected(Order) == kinds(outcomes)
    await require_usable(store)
    entries = [entry.subject for entry in await log(store) if entry.action == "order.cancel"]
    assert sorted(f"order:{number}" for number in range(NUMBER) if number not in WRONG) == sorted(entries)
    assert Status.PENDING is (await store.orders.find(WRONG[0])).status


@each_refusal
async def test_a_placement_that_the_store_refuses_fails_by_itself(
    each_backend: Stores, store: Store, how: Refusal
) -> None:
    refuse(each_backend, "orders", BAD, how)

    def place(number: int) -> Any:
        return store.orders.place(Placement(number % 3, f"key-{number}", 1, 1, None, reference(number)), BY)

    outcomes = await asyncio.gather(*map(place, range(NUMBER)), return_exceptions=True)
    assert expected(Placed) == kinds(outcomes)
    await require_usable(store)
    placed = [outcome.order_id for outcome in outcomes if isinstance(outcome, Placed)]
    assert [*range(1, NUMBER - len(WRONG) + 1)] == sorted(placed)
    assert isinstance((await asyncio.gather(place(WRONG[0]), return_exceptions=True))[0], StatementFailed)


@each_refusal
async def test_a_refused_change_of_an_account_is_not_to_be_repeated(
    each_backend: Stores, store: Store, how: Refusal
) -> None:
    refuse(each_backend, "accounts", "new.note = 'bad'", how)
    limits = PLAN_LIMITS[Plan.FREE]
    creating = (
        store.accounts.create(f"account {number}", Plan.FREE, limits, BY, note="bad" if number == 2 else "")
        for number in range(5)
    )
    outcomes = await asyncio.gather(*creating, return_exceptions=True)
    assert [2] == [number for number, outcome in enumerate(outcomes) if isinstance(outcome, StatementFailed)]
    assert ["account 0", "account 1", "account 3", "account 4"] == [each.name for each in await store.accounts.list()]
    await require_usable(store)


@each_refusal
async def test_a_row_that_the_store_refuses_is_rejected_and_the_others_are_imported(
    each_backend: Stores, store: Store, how: Refusal, tmp_path: Path
) -> None:
    refuse(each_backend, "orders", BAD, how)
    rows = [f'{{"id":{number},"reference":"{"bad" if number == 1_500 else number}"}}' for number in range(3_000)]
    rows[2] = '{"id":"two"}'
    (file := tmp_path / "orders.jsonl").write_text("\n".join(rows))
    rejected = tmp_path / "rejects"
    done = await run_command(each_backend, "orders", "import", str(file), "--rejects", str(rejected), "--json")
    assert 3 == done.code, done.err
    counts = done.json()
    assert (2_998, 2) == (counts["created"], counts["rejected"])
    assert [] == await store.orders.find_many([2, 1_500])
    rejects = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert [3, 1_501] == [reject["line"] for reject in rejects]
    assert rejects[1]["reason"].startswith("The store refuses this: ")
    assert rows[1_500] == rejects[1]["raw"]
    run = await store.imports.find(counts["import"])
    assert ("finished", 2_998, 2, 2) == (run.state, run.created, run.rejected, run.kept)
    await require_usable(store)


async def test_a_row_whose_order_is_damaged_in_the_store_is_rejected(
    each_backend: Stores, store: Store, tmp_path: Path
) -> None:
    await store.orders.import_batch([Order(number, 1) for number in range(20)], "import:1", BY)
    set_record(each_backend, 5, '{"id":3}')
    (tmp_path / "orders.csv").write_text("id,quantity\n" + "\n".join(f"{number},3" for number in range(25)))
    for options in (["--dry-run"], []):
        done = await run_command(each_backend, "orders", "import", str(tmp_path / "orders.csv"), "--json", *options)
        assert 3 == done.code, done.err
        found = done.json()
        assert (5, 19, 1) == (found["created"], found["replaced"], found["rejected"])
        assert ["line 7: The stored record of order 5 is damaged."] == found["reasons"]


async def test_a_pet_that_the_store_refuses_is_rejected(each_backend: Stores, store: Store, tmp_path: Path) -> None:
    refuse(each_backend, "pets", "new.id = 5", Refusal.STATEMENT)
    (tmp_path / "pets.csv").write_text("id\n" + "\n".join(map(str, range(20))))
    done = await run_command(each_backend, "pets", "import", str(tmp_path / "pets.csv"), "--json")
    assert (3, 19, 1) == (done.code, done.json()["created"], done.json()["rejected"])


async def test_an_import_whose_record_is_refused_fails_as_a_whole(
    each_backend: Stores, store: Store, tmp_path: Path
) -> None:
    refuse(each_backend, "imports", "new.created + new.rejected > 0", Refusal.STATEMENT)
    (tmp_path / "orders.csv").write_text("id\n1\n2\n")
    done = await run_command(each_backend, "orders", "import", str(tmp_path / "orders.csv"))
    assert (1, []) == (done.code, await store.orders.find_many([1, 2]))
    assert "The store refuses this: " in done.err


class Counting:
    """A backend that saves the usage of so many accounts."""

    def __init__(self, store: Store, version: AccessVersion) -> None:
        self.clock = Clock()
        self._limiter, self.activity = MemoryLimiter(BanPolicy(), self.clock), UsageRecorder()
        hooks = WebhookService(store, Addresses(), None)
        self.backend = Backend(store, self._limiter, None, self.activity, version, hooks)

    @classmethod
    async def over(cls, store: Store, accounts: int) -> "Counting":
        for number in range(1, accounts + 1):
            await store.accounts.create(f"account {number}", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
        return cls(store, await store.access_version())

    def use(self, accounts: int) -> None:
        """Count a request of each account."""
        for number in range(1, accounts + 1):
            limits = Limits(1_000, 1_000)
            principal = Principal(f"key_{number}", number, "zoo", Plan.FREE, limits, DEFAULT_SCOPES, None)
            self.activity.decided(principal, "listOrders", self._limiter.decide(principal))


async def test_usage_that_the_store_refuses_of_one_account_does_not_keep_that_of_others(
    each_backend: Stores, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lost, tried again after a while, and logged once in that time."""
    output = io.StringIO()
    configure_logging("info", output)
    counting = await Counting.over(store, 8)
    for table in ("usage", "usage_history", "api_use"):
        refuse(each_backend, table, "new.account_id = 3", Refusal.STATEMENT)
    for _ in range(5):
        counting.use(8)
        await counting.backend.save()
    assert {number: 5 for number in range(1, 9) if number != 3} == {
        account_id: usage.day.used for account_id, usage in (await store.usage.all()).items()
    }
    hour = Granularity.HOUR.start(counting.clock.now)
    for account_id in (1, 3, 8):
        saved = await store.usage.counts(account_id, hour, hour + HOUR, Granularity.HOUR)
        assert ([] if account_id == 3 else [5]) == [counts.admitted for counts in saved.values()]
    assert [] == counting.activity.pending(3)
    await require_usable(store)
    await counting.backend.check()
    [line] = [json.loads(text) for text in output.getvalue().splitlines()]
    assert ("usage not saved", "error", "usage 3") == (line["event"], line["level"], line["first"])
    assert "Traceback" in line["exception"]

    execute(each_backend, "DROP TRIGGER refused" + ("" if each_backend.is_sqlite else " ON petstore.usage_history"))
    monkeypatch.setattr(backend_module, "monotonic", lambda: float("inf"))
    counting.use(8)
    await counting.backend.save()
    [counts] = (await store.usage.counts(3, hour, hour + HOUR, Granularity.HOUR)).values()
    assert 1 == counts.admitted


async def test_an_outage_in_the_middle_of_a_save_keeps_what_is_not_saved(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing counts twice."""
    counting = await Counting.over(store, 4)
    counting.use(4)
    save, calls = store.usage.save, 0

    async def fail_at_first(*counted: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StatementFailed("it is Friday")
        if calls == 3:
            raise ServiceUnavailable("the disk is full")
        await save(*counted)

    monkeypatch.setattr(store.usage, "save", fail_at_first)
    with pytest.raises(ServiceUnavailable):
        await counting.backend.save()
    await counting.backend.save()
    hour = Granularity.HOUR.start(counting.clock.now)
    counted = [await store.usage.counts(number, hour, hour + HOUR, Granularity.HOUR) for number in range(1, 5)]
    assert [1] * 4 == [counts.admitted for found in counted for counts in found.values()]
    assert {1, 2, 3, 4} == set(await store.usage.all())


async def test_a_save_goes_on_in_the_next_round_when_the_store_refuses_much(
    file_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with file_store.opened() as store:
        counting = await Counting.over(store, 1)
        counting.use(1)
        refuse(file_store, "usage", "1", Refusal.STATEMENT)
        with monkeypatch.context() as patch:
            patch.setattr(backend_module, "_SAVING_SECONDS", -1.0)
            await counting.backend.save()
        assert [1] == [counts.admitted for _, counts in counting.activity.pending(1)]
        await counting.backend.save()
        assert [] == counting.activity.pending(1)


async def test_a_background_task_whose_statement_is_refused_does_not_make_the_process_unready() -> None:
    clock = Clock()

    async def work() -> None:
        raise StatementFailed("it is Friday")

    task = BackgroundTask("forget", work, clock=lambda: clock.now)
    task._finished_at = clock.now
    clock.now += 60
    await task._round()
    assert task.stalled() is None


async def test_a_refused_request_is_a_logged_defect_for_its_client_only(
    each_deployment: Deployment, service: Service
) -> None:
    output = io.StringIO()
    configure_logging("warning", output)
    refuse(service.settings.database_url, "orders", BAD, Refusal.STATEMENT)
    keys = [await service.key(await service.account(limits=UNLIMITED), scopes=frozenset(Scope)) for _ in range(4)]

    async def place(number: int) -> Any:
        headers = bearer(keys[number % 4], **{"Idempotency-Key": f"one-{number}"})
        body = {"petId": 1, "quantity": 1, "reference": "bad" if number == 5 else str(number)}
        return await service.client.post("/v2/store/orders", headers=headers, json=body)

    responses = await asyncio.gather(*map(place, range(20)))
    assert [201] * 5 + [500] + [201] * 14 == [response.status_code for response in responses]
    assert (500, "internal_error") == code(responses[5])
    ready, shown = await service.application.readiness()
    assert (True, {"status": "ok"}) == (ready, shown)
    [line] = [json.loads(text) for text in output.getvalue().splitlines()]
    assert ("request failed", "error") == (line["event"], line["level"])
    assert "The store refuses this: " in line["exception"]


async def test_an_operators_change_of_many_orders_names_the_one_that_is_refused(
    each_backend: Stores, console: Console, browser: Browser
) -> None:
    store = console.store
    await store.orders.import_batch([Order(number, reference=reference(number)) for number in range(10)], "i", BY)
    refuse(each_backend, "orders", BAD, Refusal.STATEMENT)
    await browser.get("/orders")
    page = await browser.submit("/orders/ship", {"order": [str(number) for number in range(5, 10)]})
    assert "Shipped 4 orders. Order 7 was not changed. The store refuses this: " in page
    done = await run_command(each_backend, "orders", "cancel", "1", "7", "2")
    assert (1, "order 1: cancelled\norder 2: cancelled\n") == (done.code, done.out)
    assert "The store refuses this: " in done.err


async def test_one_ban_that_cannot_be_lifted_does_not_keep_the_others(
    each_backend: Stores, console: Console, browser: Browser
) -> None:
    store = console.store
    keys = [await add_key(store, str(number), f"account {number}") for number in range(3)]
    await store.usage.save({}, [Ban(key.id, int(START), int(START) + 9_000, 1) for key in keys])
    refuse(each_backend, "audit", f"new.subject = 'key:{keys[0].id}'", Refusal.STATEMENT)
    await browser.get("/bans")
    page = await browser.submit("/bans", {"key": [key.id for key in keys]})
    assert "Lifted 2 bans" in page
    assert "The store refuses this: " in page


_BY_STATE = {
    ServiceUnavailable: "08006 25006 25P03 28000 40001 40P01 53100 53200 55P03 55000 57014 58030 XX000",
    StatementFailed: "P0001 22021 22P05 23505 23514 42501 42P01 42883 54000 3F000 0A000 38000",
}


@pytest.mark.parametrize(
    ("kind", "state"), [(kind, state) for kind, all_ in _BY_STATE.items() for state in all_.split()]
)
async def test_what_is_the_environments_fault_is_decided_by_sqlstate(
    kind: type[Exception], state: str, postgres_store: Store
) -> None:
    def work() -> Work[None]:
        yield Execute(f"DO $$ BEGIN RAISE EXCEPTION 'so' USING ERRCODE = '{state}'; END $$")

    with pytest.raises(kind):
        await postgres_store.engine.transaction(work)
    assert (kind is ServiceUnavailable) == (postgres_store.engine.fault() is not None)


@pytest.mark.parametrize("missing", ["petstore.gone", "nowhere.gone"])
async def test_a_missing_table_outside_of_functions_is_an_outage(missing: str, postgres_store: Store) -> None:
    with pytest.raises(ServiceUnavailable):
        await postgres_store.engine.query(f"SELECT 1 FROM {missing}")


async def test_what_the_driver_cannot_send_is_the_fault_of_the_value(postgres_store: Store) -> None:
    with pytest.raises(StatementFailed):
        await postgres_store.engine.query("SELECT %s::text", ("\0",))
    assert postgres_store.engine.fault() is None
