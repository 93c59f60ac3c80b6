"""What keeps the store and the limiter of one process in step; background tasks, which no error ends (D9, D12)."""

import asyncio
import io
import json
import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import AsyncMock, Mock, call, patch

import pytest

from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import unban
from petstore_server.domain.orders import Order
from petstore_server.domain.timestamps import DAY
from petstore_server.domain.usage import Activity, Granularity, UsageCounts
from petstore_server.runtime import background, health, opening
from petstore_server.runtime.background import STALLED_SECONDS, BackgroundTask, compact_history, run_tasks
from petstore_server.runtime.health import host_identity
from petstore_server.runtime.opening import read_counters, shared_maximum, sqlite_path
from petstore_server.settings import SettingsError, read_settings
from petstore_server.telemetry.logs import configure_logging
from testing.cli import CommandLine
from testing.clock import Clock
from testing.deployment import Deployment
from testing.partners import ORDERS as V2
from testing.partners import partner, set_orders
from testing.redis_engine import shared_redis
from testing.service import Service, bearer, running
from testing.subprocesses import until

ORDERS = "/v1/store/orders"
STRICT = {"PETSTORE_BAN_STRIKES": "1", "PETSTORE_BAN_GRACE_SECONDS": "0"}


def entries(log: io.StringIO, event: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in log.getvalue().splitlines()]
    return [entry for entry in found if entry["event"] == event]


async def ban(service: Service) -> tuple[str, str]:
    """Send requests until the key is banned; return the key and its id."""
    key, key_id = await service.key_and_id()
    for _ in range(62):
        response = await service.client.get(ORDERS, headers=bearer(key))
    assert "api_key_banned" == response.json()["code"]
    return key, key_id


async def save_cancelled(service: Service) -> None:
    """Save what was counted, and cancel that while it is on its way to the store."""
    saving = asyncio.create_task(service.backend.save())
    for _ in range(3):
        await asyncio.sleep(0)
    assert [] == service.backend.activity.pending(1)
    saving.cancel()
    with suppress(asyncio.CancelledError):
        await saving


async def run(service: Service, *arguments: str) -> None:
    """Run a command on the store of a service."""
    await asyncio.to_thread(CommandLine(sqlite_path(service.settings.database_url)).must, *arguments)


async def test_usage_that_is_counted_locally_while_redis_is_away_is_not_saved(deployment: Deployment) -> None:
    async with running(deployment, PETSTORE_REDIS_URL=shared_redis().empty()) as service:
        assert service.backend.shared is not None
        await service.backend.shared.counters.close()
        for _ in range(2):  # the first one finds it
            status, shown = await service.application.readiness()
            reason = f"each process counts limits by itself: {service.backend.shared.fault}"
            assert (True, {"status": "degraded", "reason": reason}) == (status, shown)
        response = await service.client.get(ORDERS, headers=bearer(await service.key()))
        assert (200, 1) == (response.status_code, service.backend.shared.local_decisions)
        await service.backend.save()
        assert {} == await service.backend.store.usage.all()


async def test_settings_that_cannot_be_served_are_reported_in_one_sentence(deployment: Deployment) -> None:
    url = shared_redis().url.replace("//", "//unknown:wrong@")
    for settings, reported in (
        ({"PETSTORE_REDIS_URL": url}, r"PETSTORE_REDIS_URL names a Redis that cannot be used: [^.]+\."),
        ({"PETSTORE_WORKERS": "2"}, "More than one worker needs Redis .*"),
    ):
        with pytest.raises(SettingsError, match=f"^{reported}$"):
            async with running(deployment, **settings):
                pass


@pytest.mark.settings(**STRICT)
async def test_a_ban_is_logged_once_with_the_names_that_commands_show_though_its_save_was_cancelled(
    each_deployment: Deployment, service: Service
) -> None:
    log = io.StringIO()
    configure_logging("info", log)
    _, key_id = await ban(service)
    await save_cancelled(service)
    await service.backend.save()
    [entry] = entries(log, "key banned")
    assert ("warning", 1) == (entry["level"], entry["ban_level"])
    assert (key_id, "account 1", 120) == (entry["key"], entry["account"], entry["ban_seconds"])
    assert 1 == entry["strikes"]


@pytest.mark.settings(**STRICT)
async def test_a_ban_that_is_saved_while_the_bans_are_read_stays(
    each_deployment: Deployment, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = await ban(service)
    read = service.backend.store.usage.bans

    async def saved_meanwhile() -> Sequence[Ban]:
        found = await read()
        await service.backend.save()
        return found

    monkeypatch.setattr(service.backend.store.usage, "bans", saved_meanwhile)
    await service.backend.watch_access(lambda _: None)
    service.clock.now += 61  # the minute has ended, the ban has not
    assert "api_key_banned" == (await service.client.get(ORDERS, headers=bearer(key))).json()["code"]


@pytest.mark.settings(**STRICT)
async def test_a_ban_is_lifted_although_usage_is_saved_while_the_bans_are_read(
    each_deployment: Deployment, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are done four times a second, so on a busy service each read may meet a save."""
    key, key_id = await ban(service)
    await service.backend.save()
    await service.background_round()
    await service.backend.store.keys.change(key_id, unban(service.clock.now), service.actor)
    read = service.backend.store.usage.bans

    async def used_meanwhile() -> Sequence[Ban]:
        found = await read()
        assert "api_key_banned" == (await service.client.get(ORDERS, headers=bearer(key))).json()["code"]
        await service.backend.save()
        return found

    monkeypatch.setattr(service.backend.store.usage, "bans", used_meanwhile)
    await service.backend.watch_access(lambda _: None)
    service.clock.now += 61  # the minute has ended, the ban would not have
    assert 200 == (await service.client.get(ORDERS, headers=bearer(key))).status_code


async def test_what_an_account_sees_changes_while_the_bans_cannot_be_read(
    each_deployment: Deployment, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await partner(service, VisibleOrders.ALL)
    await service.orders(Order(1))
    assert 200 == (await client.get(f"{V2}/1")).status_code
    await set_orders(service, client.account, VisibleOrders.OWN)
    monkeypatch.setattr(service.backend.store.usage, "bans", AsyncMock(side_effect=ServiceUnavailable("busy")))
    with pytest.raises(ServiceUnavailable):
        await service.background_round()
    assert 404 == (await client.get(f"{V2}/1")).status_code


async def test_counts_are_saved_once_when_a_save_is_cancelled(each_deployment: Deployment, service: Service) -> None:
    key = await service.key()
    for _ in range(5):
        await service.client.get(ORDERS, headers=bearer(key))
    await save_cancelled(service)
    await service.backend.save()
    end = int(service.clock.now) + 1
    [counts] = (await service.backend.usage_counts(1, 0, end, Granularity.HOUR)).values()
    assert 5 == counts.admitted


async def test_the_history_is_complete_while_counts_are_saved(each_deployment: Deployment, service: Service) -> None:
    key = await service.key()
    for number in range(1, 20):
        saving = asyncio.create_task(service.backend.save())
        response = await service.client.get("/v2/usage", headers=bearer(key))
        assert number == response.json()["history"][0]["admitted"]
        await saving


async def test_the_background_tasks_of_a_process_delete_what_is_old(
    each_deployment: Deployment, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = service.backend.store
    parts = store.orders, store.imports
    forgets = [AsyncMock(wraps=part.forget) for part in parts]
    for part, forget in zip(parts, forgets, strict=True):
        monkeypatch.setattr(part, "forget", forget)
    await service.client.get(ORDERS, headers=bearer(await service.key()))
    await service.backend.save()
    service.clock.now += 2000 * DAY
    for task in service.application.background:
        await task.work()
    kept = service.clock.now - DAY, service.clock.now - 30 * DAY
    assert [[call(time, background._MAX_FORGOTTEN)] for time in kept] == [forget.mock_calls for forget in forgets]
    assert {} == await service.backend.usage_counts(1, 0, int(service.clock.now), Granularity.DAY)


async def test_the_usage_history_is_compacted_step_by_step_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings({"PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "2", "PETSTORE_USAGE_DAILY_RETENTION_DAYS": "5"})
    monkeypatch.setattr(asyncio, "sleep", pause := AsyncMock())
    monkeypatch.setattr(background, "monotonic", Mock(side_effect=[0.0, 1.0, 2.0, 9.0, 13.9, 14.0]))
    usage = AsyncMock(**{"compact.side_effect": [True, True, False, True, True, True]})
    for _ in range(2):
        await compact_history(usage, settings, 9 * DAY + 1)
    assert [call.compact(7 * DAY, 4 * DAY)] * 5 == usage.mock_calls
    assert [call(background._COMPACT_GAP_SECONDS)] * 3 == pause.mock_calls


@pytest.mark.settings(**STRICT)
async def test_many_counts_are_saved_in_parts_and_a_part_that_failed_is_saved_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ban(service)
    service.backend.activity.max_taken = 2
    service.backend.activity.put_back(Activity({(0, hour, "getPet"): UsageCounts(1) for hour in range(4)}, {}, {}))
    save = AsyncMock(side_effect=[None, ServiceUnavailable("it took too long"), None, None])
    monkeypatch.setattr(service.backend.store.usage, "save", save)
    with pytest.raises(ServiceUnavailable):
        await service.backend.save()
    await service.backend.save()
    parts = [(len(bans), len(activity.accounts)) for _, bans, activity in (each.args for each in save.await_args_list)]
    assert [(1, 2), (0, 2), (0, 2), (0, 1)] == parts
    saved = [place for number in (0, 2, 3) for place in save.await_args_list[number].args[2].accounts]
    assert {"getPet": 4, "listOrders": 1} == Counter(operation for _, _, operation in set(saved))


async def test_a_use_in_the_hour_of_a_restore_is_saved_again(service: Service, tmp_path: Path) -> None:
    key, key_id = await service.key_and_id()
    await run(service, "db", "backup", str(tmp_path / "backup.db"))
    store = service.backend.store

    async def use() -> tuple[list[str], bool]:
        assert 200 == (await service.client.get(ORDERS, headers=bearer(key))).status_code
        await service.background_round()
        return [*await store.usage.last_used(1)], (await store.keys.find(key_id)).last_used_at is not None

    assert (["listOrders", "v1.*"], True) == await use()
    await run(service, "db", "restore", str(tmp_path / "backup.db"), "--yes")
    assert {} == await store.usage.last_used(1)
    await service.background_round()
    assert (["listOrders", "v1.*"], True) == await use()


async def test_a_restore_is_logged_once_while_the_bans_cannot_be_read(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = io.StringIO()
    configure_logging("info", log)
    key = await service.key()
    await run(service, "db", "backup", str(tmp_path / "backup.db"))
    await service.background_round()
    assert [] == entries(log, "store has another history")
    await run(service, "db", "restore", str(tmp_path / "backup.db"), "--yes")

    unreadable = AsyncMock(side_effect=ServiceUnavailable("the disk is gone"))
    confirmed: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(service.backend.store.usage, "bans", unreadable)
        for _ in range(3):
            with pytest.raises(ServiceUnavailable):
                await service.backend.watch_access(confirmed.append)
    for _ in range(2):
        await service.backend.watch_access(confirmed.append)
    assert 200 == (await service.client.get(ORDERS, headers=bearer(key))).status_code
    assert [True, True, True, True, False] == confirmed
    assert ["warning"] == [entry["level"] for entry in entries(log, "store has another history")]


def test_a_host_that_shares_its_store_is_known_by_its_name_and_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def identity(url: str) -> str:
        return host_identity(read_settings({"PETSTORE_DATABASE_URL": url})).removeprefix(socket.gethostname())

    own = {"db2.example": "10.0.0.7", "2001:db8::5": "2001:db8::7", "192.0.2.1": "10.0.0.8"}
    monkeypatch.setattr(health, "_own_address", own.get)
    assert ":8081" == identity("sqlite:///orders.db")
    assert ":8081 at 10.0.0.7" == identity("postgresql://me:p%40ss@db1.example:5432,db2.example:5433/petstore")
    assert ":8081 at 2001:db8::7" == identity("postgresql://me@[2001:db8::5]:5432/petstore")
    assert ":8081 at 10.0.0.8" == identity("postgresql://me@localhost/petstore"), "as other networks see it"
    own.clear()
    assert ":8081" == identity("postgresql:///petstore?host=/run/postgresql")


def test_an_address_of_this_machine_is_not_loopback() -> None:
    assert [None, None] == [health._own_address(host) for host in ("127.0.0.1", "no-such-host.invalid")]


async def test_commands_learn_the_largest_number_through_redis_and_ask_an_unreachable_one_once() -> None:
    settings = read_settings({"PETSTORE_REDIS_URL": shared_redis().empty()})
    assert [3, 3, 4] == [await shared_maximum(settings, "test:timeline", number) for number in (3, 2, 4)]
    assert 2 == await shared_maximum(read_settings({}), "test:timeline", 2)
    unreachable = read_settings({"PETSTORE_REDIS_URL": "redis://127.0.0.1:1/0"})
    with (
        patch.dict(opening._unresponsive_until, clear=True),
        patch.object(opening, "read_counters", wraps=read_counters) as connect,
    ):
        assert [2, 1] == [await shared_maximum(unreachable, "test:timeline", number) for number in (2, 1)]
    assert 1 == connect.call_count


def work_with(*errors: Exception | None) -> AsyncMock:
    """Work that raises the given errors, one for each round but for None, and then succeeds."""
    return AsyncMock(side_effect=chain(errors, repeat(None)))


async def run_until(tasks: list[BackgroundTask], truth: Callable[[], bool]) -> None:
    running = asyncio.create_task(run_tasks(tasks))
    await until(truth)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_error_is_logged_and_the_work_is_tried_again_later_each_time_until_a_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = work_with(OSError("broken pipe"), RuntimeError("a defect"), ValueError("another"), None, OSError("again"))
    other = work_with()
    tasks = [BackgroundTask("fails", failing, 0.001), BackgroundTask("other", other, 0.001)]
    await run_until(tasks, lambda: failing.call_count >= 6 and other.call_count >= 6)
    logged = [each.__dict__ for each in caplog.records]
    found = [(each["levelname"], each["msg"], each["task"], each["retry_in_seconds"]) for each in logged]
    pauses = (0.002, 0.004, 0.008, 0.002)
    assert [("ERROR", "background task failed", "fails", pause) for pause in pauses] == found
    assert all(each["exc_info"] for each in logged)


async def test_the_pauses_grow_to_five_seconds_and_are_never_shorter_than_the_usual_one() -> None:
    for pause, expected in ((0.5, [1.0, 2.0, 4.0, 5.0, 5.0]), (60.0, [60.0, 60.0])):
        task = BackgroundTask("fails", work_with(*[OSError("broken pipe")] * 5), pause)
        assert expected == [await task._round() for _ in expected]


async def test_an_unusable_store_is_logged_once_when_it_begins_and_once_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "petstore_server")
    work = work_with(*[ServiceUnavailable("the disk is full")] * 2, ServiceUnavailable("it is locked"))
    await run_until([BackgroundTask("save usage", work, 0.001)], lambda: work.call_count >= 6)
    assert [
        ("ERROR", "store unusable", "save usage", "the disk is full"),
        ("INFO", "store usable again", "save usage", "it is locked"),
    ] == [(each.levelname, each.msg, each.__dict__["task"], each.__dict__["reason"]) for each in caplog.records]


@pytest.mark.parametrize(("fails", "state"), [(False, "has not finished"), (True, "fails")])
async def test_work_that_hangs_or_always_fails_is_reported_as_stalled_until_it_finishes(
    fails: bool, state: str
) -> None:
    clock, gate, rounds = Clock(100.0), asyncio.Event(), list[None]()

    async def work() -> None:
        rounds.append(None)
        if not gate.is_set() and fails:
            raise RuntimeError("a defect")
        await gate.wait()

    task = BackgroundTask("watch access", work, 0.001, clock)
    assert task.stalled() is None
    running = asyncio.create_task(task.run())
    await until(lambda: bool(rounds))
    clock.now += STALLED_SECONDS
    assert task.stalled() is None
    clock.now += 0.001
    assert task.stalled() == f"the background task 'watch access' {state} for 10 seconds; the log says more"
    gate.set()
    await until(lambda: task.stalled() is None)
    running.cancel()
