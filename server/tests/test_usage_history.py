"""The usage history: counted in memory, added to the store by every process, summed into days, and reported."""

import asyncio
import random
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Account, Limits, Plan
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import DEFAULT_SCOPES, Principal
from petstore_server.domain.orders import Order
from petstore_server.domain.usage import (
    DEPRECATED,
    NO_ACTIVITY,
    Activity,
    Granularity,
    KeylessCounts,
    Usage,
    UsageCounts,
    uses_of,
)
from petstore_server.domain.windows import AccountDecision, Count, evaluate_account, evaluate_address, evaluate_ban
from petstore_server.limits.usage_recorder import UsageRecorder
from petstore_server.operations.usage import AccountSort, page_of_accounts, report_usage, top_accounts, with_usage
from petstore_server.runtime.background import compact_history
from petstore_server.settings import read_settings
from petstore_server.store import Store
from testing.documents import SOURCE, read_yaml
from testing.service import Service, bearer
from testing.stores import BY, Stores, add_key, successor
from testing.subprocesses import PATIENCE

HOUR, DAY = 3600, 86_400
FIRST = 20_000 * DAY
"""The start of a day, in Unix seconds."""

LIMITS = Limits(60, 1000)
PRINCIPAL = Principal("key_a", 1, "acme", Plan.FREE, LIMITS, DEFAULT_SCOPES)
ALL_TIME = 0, 1 << 40


def admitted(now: float) -> AccountDecision:
    return evaluate_account(True, Count(int(now), 1), Count(int(now), 1), LIMITS, now)


def record(recorder: UsageRecorder, now: float, **counts: int) -> None:
    """Record so many decisions of each kind for account 1."""
    minute, day, full = Count(int(now), 60), Count(int(now), 1000), Count(int(now), 1)
    decisions = {
        "admitted": evaluate_account(True, full, full, LIMITS, now),
        "refused_minute": evaluate_account(False, minute, full, LIMITS, now),
        "refused_day": evaluate_account(False, full, day, LIMITS, now),
        "refused_banned": evaluate_ban(Ban("key_a", int(now), int(now) + 120, 1), full, full, LIMITS, now),
    }
    for kind, number in counts.items():
        for _ in range(number):
            recorder.decided(PRINCIPAL, "listOrders", decisions[kind])


class TestRecorder:
    def test_each_kind_of_decision_is_counted_in_the_hour_in_which_it_was_made(self) -> None:
        recorder = UsageRecorder()
        record(recorder, FIRST + HOUR - 0.1, admitted=3, refused_minute=2, refused_day=1)
        record(recorder, FIRST + HOUR, admitted=1, refused_banned=4)
        for number in range(5):
            recorder.decided(None, "none", evaluate_address(number < 3, Count(FIRST, 1), float(FIRST)))
        taken = recorder.take()
        assert {
            (1, FIRST, "listOrders"): UsageCounts(admitted=3, refused_minute=2, refused_day=1),
            (1, FIRST + HOUR, "listOrders"): UsageCounts(admitted=1, refused_banned=4),
        } == taken.accounts
        assert {FIRST: KeylessCounts(refused_key=3, refused_address=2)} == taken.keyless
        assert {"key_a": FIRST + HOUR} == taken.keys
        assert NO_ACTIVITY == recorder.take()

    def test_what_an_account_uses_and_its_key_are_recorded_once_an_hour_until_they_are_saved(self) -> None:
        recorder = UsageRecorder()
        record(recorder, FIRST + HOUR, admitted=1)
        recorder.decided(PRINCIPAL, "none", admitted(FIRST + HOUR))
        taken = recorder.take()
        assert {(1, "listOrders"): FIRST + HOUR, (1, "v1.*"): FIRST + HOUR} == taken.uses
        assert {"key_a": FIRST + HOUR} == taken.keys
        recorder.put_back(taken)
        assert taken == recorder.take()
        for now in (FIRST + HOUR, FIRST + 2 * HOUR - 1):
            record(recorder, now, admitted=1)
        again = recorder.take()
        assert ({}, {}) == (again.uses, again.keys)
        recorder.forget_saved()
        record(recorder, FIRST + HOUR, admitted=1)
        again = recorder.take()
        assert (taken.uses, taken.keys) == (again.uses, again.keys)
        for now in (FIRST + HOUR, FIRST):  # the clock was set back
            recorder.decided(PRINCIPAL, "listOrders", admitted(now))
            recorder.decided(PRINCIPAL, "getPet", admitted(now))
        assert {(1, "getPet"): FIRST + HOUR} == recorder.take().uses
        record(recorder, FIRST + 2 * HOUR, refused_minute=1)
        later = recorder.take()
        assert {(1, "listOrders"): FIRST + 2 * HOUR, (1, "v1.*"): FIRST + 2 * HOUR} == later.uses
        assert {"key_a": FIRST + 2 * HOUR} == later.keys

    def test_each_response_is_counted_in_its_class_also_after_the_counts_of_its_request_were_taken(self) -> None:
        classes = {
            "succeeded": [200, 201, 204],
            "unchanged": [304],
            "forbidden": [403],
            "not_found": [404],
            "conflict": [409],
            "gone": [410],
            "invalid": [400, 405, 413, 414, 415, 422, 431],
            "failed": [500, 501, 503, 599],
        }
        for field, statuses in classes.items():
            recorder = UsageRecorder()
            record(recorder, FIRST, admitted=1)
            assert {(1, FIRST, "listOrders"): UsageCounts(1)} == recorder.take().accounts
            for status in statuses:
                recorder.responded(PRINCIPAL, "getPet", status)
            assert {(1, FIRST, "getPet"): UsageCounts(**{field: len(statuses)})} == recorder.take().accounts

    def test_orders_count_as_cancelled_by_the_operation_not_by_the_status(self) -> None:
        recorder = UsageRecorder()
        for status in (204, 200, 404, 409):
            recorder.responded(PRINCIPAL, "cancelOrder", status, cancelled=status < 300)
            recorder.responded(PRINCIPAL, "v2.placeOrder", status)
        counts = recorder.take().accounts
        assert UsageCounts(cancelled=2, not_found=1, conflict=1) == next(iter(counts.values()))
        assert UsageCounts(succeeded=2, not_found=1, conflict=1) == list(counts.values())[1]

    def test_what_is_put_back_is_added_hour_by_hour_and_a_key_keeps_its_latest_hour(self) -> None:
        recorder = UsageRecorder()

        def count_both_in(hour: int) -> None:
            record(recorder, hour, admitted=1)
            recorder.decided(None, "none", evaluate_address(True, Count(hour, 1), float(hour)))

        count_both_in(FIRST)
        taken = recorder.take()
        for hour in (FIRST + HOUR, FIRST, FIRST + HOUR):  # the clock was set back
            count_both_in(hour)
        recorder.put_back(taken)
        expected = [(FIRST, UsageCounts(admitted=2)), (FIRST + HOUR, UsageCounts(admitted=2))]
        assert (expected, []) == (sorted(recorder.pending(1)), recorder.pending(2))
        again = recorder.take()
        assert {FIRST: KeylessCounts(2), FIRST + HOUR: KeylessCounts(2)} == again.keyless
        assert [2, 2] == [again.accounts[1, hour, "listOrders"].admitted for hour in (FIRST, FIRST + HOUR)]
        assert {"key_a": FIRST + HOUR} == again.keys


def activity(account: int, start: int, admitted: int = 1, operation: str = "listOrders", **more: int) -> Activity:
    """What a process that has just started counted."""
    recorder = UsageRecorder()
    recorder.put_back(Activity({(account, start, operation): UsageCounts(admitted, **more)}, {}, {}))
    return recorder.take()


async def test_every_process_adds_what_it_counted(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as other:
        account = (await one.accounts.create("zoo", Plan.FREE, LIMITS, BY)).id
        saving = [each.usage.save({}, [], activity(account, FIRST, 3, cancelled=1)) for each in [one, other] * 20]
        await asyncio.gather(*saving)
        assert {FIRST: UsageCounts(120, cancelled=40)} == await one.usage.counts(account, *ALL_TIME, Granularity.HOUR)


async def test_postgresql_saves_all_rows_of_a_table_with_one_statement(postgres_store: Store) -> None:
    ids = [(await postgres_store.accounts.create(name, Plan.FREE, LIMITS, BY)).id for name in ("one", "two", "three")]
    await postgres_store.usage.save({}, [], Activity({(each, FIRST, "getPet"): UsageCounts(1) for each in ids}, {}, {}))
    statements = "SELECT count(*), count(DISTINCT cmin::text) FROM petstore.usage_history"
    assert [(3, 1)] == await postgres_store.engine.query(statements)


async def test_rows_of_a_period_by_hour_and_by_day_of_one_account_and_of_all(store: Store) -> None:
    ids = [(await store.accounts.create(name, Plan.FREE, LIMITS, BY)).id for name in ("one", "two")]
    for start in (FIRST, FIRST + 23 * HOUR, FIRST + DAY):
        await store.usage.save({}, [], activity(ids[0], start, 2, refused_day=1))
        await store.usage.save({}, [], activity(ids[1], start, 5))
    hours = await store.usage.counts(ids[0], FIRST, FIRST + DAY, Granularity.HOUR)
    found = [(start, counts.admitted, counts.refused) for start, counts in hours.items()]
    assert [(FIRST, 2, 1), (FIRST + 23 * HOUR, 2, 1)] == found
    days = await store.usage.counts(ids[0], *ALL_TIME, Granularity.DAY)
    assert [(FIRST, 4), (FIRST + DAY, 2)] == [(start, counts.admitted) for start, counts in days.items()]
    together = await store.usage.counts(None, *ALL_TIME, Granularity.DAY)
    assert [(FIRST, 14), (FIRST + DAY, 7)] == [(start, counts.admitted) for start, counts in together.items()]
    totals = await store.usage.totals(FIRST, FIRST + DAY)
    assert {ids[0]: UsageCounts(4, refused_day=2), ids[1]: UsageCounts(10)} == totals


async def test_reports_on_all_accounts_and_keys_may_take_long_to_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.engine, "query", query := AsyncMock(return_value=[]))
    period = 0, 1, Granularity.HOUR
    found = store.usage.counts(None, *period), store.usage.keyless_history(*period), store.usage.totals(0, 1)
    for read in (*found, store.usage.operations(None, 0, 1), store.keys.list()):
        await read
    assert [{"short": False}] * 5 == [each.kwargs for each in query.await_args_list]


async def test_what_an_account_uses_has_the_last_hour_also_when_a_process_is_late(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as other:
        ids = [(await one.accounts.create(name, Plan.FREE, LIMITS, BY)).id for name in ("one", "two")]
        uses = [(one, 2, "getPet"), (other, 1, "getPet"), (other, 3, "v2.getUsage"), (one, 1, "listOrders")]
        for store, hour, operation in (*uses, (one, 4, "none")):
            await store.usage.save({}, [], activity(ids[0], FIRST + hour * HOUR, operation=operation))
        await one.usage.save({}, [], activity(ids[1], FIRST, 0, "listOrders", refused_banned=1))
        hours = {"getPet": 2, "listOrders": 1, "v1.*": 2, "v2.*": 3, "v2.getUsage": 3}
        assert {used: FIRST + hour * HOUR for used, hour in hours.items()} == await other.usage.last_used(ids[0])
        assert {"listOrders": FIRST, "v1.*": FIRST} == await other.usage.last_used(ids[1])
        assert {"getPet": 1, "listOrders": 2, "v1.*": 2, "v2.*": 1, "v2.getUsage": 1} == await one.usage.users(FIRST)
        assert {"v2.*": 1, "v2.getUsage": 1} == await one.usage.users(FIRST + 2.5 * HOUR)


async def test_what_was_used_last_is_right_again_once_a_clock_that_was_ahead_is_set_back(store: Store) -> None:
    key = await add_key(store)
    [account] = await store.accounts.list()
    recorder, caller = UsageRecorder(), replace(PRINCIPAL, key_id=key.id, account_id=account.id)
    for hour in (FIRST + 365 * DAY, FIRST):
        recorder.decided(caller, "getPet", admitted(hour))
        await store.usage.save({}, [], recorder.take())
    assert {"getPet": FIRST, "v1.*": FIRST} == await store.usage.last_used(account.id)
    assert FIRST == (await store.keys.find(key.id)).last_used_at


async def test_the_deprecated_operations_are_those_of_the_contracts() -> None:
    found = set()
    for version, name in ("v1", "openapi.yaml"), ("v2", "openapi-v2.yaml"):
        contract = read_yaml(SOURCE / "api" / name)
        for methods in contract["paths"].values():
            for operation in methods.values():
                if isinstance(operation, dict) and operation.get("deprecated"):
                    found.add(operation["operationId"])
                    assert (operation["operationId"], f"{version}.*") == uses_of(operation["operationId"])
    assert set(DEPRECATED) == found


async def test_a_key_shows_the_hour_in_which_it_was_last_used_and_its_successor_does_not(each_backend: Stores) -> None:
    async with each_backend.opened() as one, each_backend.opened() as other:
        key = await add_key(one)
        assert (await one.keys.find(key.id)).last_used_at is None
        for store, hour in ((one, FIRST + HOUR), (other, FIRST)):  # a process that is late
            await store.usage.save({}, [], Activity({}, {}, {key.id: hour}))
        assert FIRST + HOUR == (await one.keys.find(key.id)).last_used_at
        assert [FIRST + HOUR] == [each.last_used_at for each in await one.keys.list()]
        _, new = await one.keys.rotate(key.id, successor("two"), 2_000_000_000.0, BY)
        assert (await one.keys.find(new.id)).last_used_at is None


async def test_old_hours_become_days_with_the_same_sums_whichever_process_sums_them(
    each_backend: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petstore_server.runtime.background._ROUND_MAX_SECONDS", PATIENCE)
    source = random.Random(3)
    settings = read_settings({"PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "2", "PETSTORE_USAGE_DAILY_RETENTION_DAYS": "5"})
    async with each_backend.opened() as one, each_backend.opened() as other:
        account = (await one.accounts.create("zoo", Plan.FREE, LIMITS, BY)).id
        for hour in range(0, 8 * 24, 6):
            counts = UsageCounts(*[source.randrange(9) for _ in UsageCounts._fields])
            start, operation = FIRST + hour * HOUR, source.choice(("listOrders", "getPet", "none"))
            counted = Activity({(account, start, operation): counts}, {start: KeylessCounts(1, 2)}, {})
            await one.usage.save({}, [], counted)
        before = list((await one.usage.counts(account, *ALL_TIME, Granularity.DAY)).items())
        keyless = list((await one.usage.keyless_history(*ALL_TIME, Granularity.DAY)).items())
        operations = await one.usage.operations(account, FIRST + 2 * DAY, FIRST + 9 * DAY)
        assert await one.usage.compact(FIRST + 5 * DAY, FIRST)  # an hour at a time
        assert FIRST + 6 * HOUR == next(iter(await one.usage.counts(account, *ALL_TIME, Granularity.HOUR)))
        now = FIRST + 7 * DAY + 12 * HOUR  # hours of the last two days stay, and days of the last five
        await asyncio.gather(*[compact_history(each.usage, settings, now) for each in (one, other)])
        assert before[2:] == list((await one.usage.counts(account, *ALL_TIME, Granularity.DAY)).items())
        assert keyless[2:] == list((await one.usage.keyless_history(*ALL_TIME, Granularity.DAY)).items())
        assert operations == await one.usage.operations(account, *ALL_TIME)
        hours = await one.usage.counts(account, *ALL_TIME, Granularity.HOUR)
        assert FIRST + 5 * DAY == next(iter(hours))
        # A process that saves an old hour late adds to its day.
        await other.usage.save({}, [], activity(account, FIRST + 3 * DAY, 100))
        await compact_history(one.usage, settings, now)
        after = await one.usage.counts(account, *ALL_TIME, Granularity.DAY)
        start, counts = before[3]
        assert counts.admitted + 100 == after[start].admitted


def accounts_with(used: dict[str, int]) -> tuple[list[Account], dict[int, Usage]]:
    """Accounts by the requests that each made today, on the least plan that allows these, and their usage."""
    accounts = []
    for number, (name, day_used) in enumerate(used.items(), 1):
        plan = Plan.FREE if day_used <= 1000 else Plan.PRO
        accounts.append(Account(number, name, plan, PLAN_LIMITS[plan], BY.at))
    usages = {account.id: Usage(Count(FIRST, 0), Count(FIRST, used[account.name])) for account in accounts}
    return accounts, usages


def test_accounts_rank_by_their_share_of_a_limit_which_is_at_most_all_of_it() -> None:
    accounts, used = accounts_with({"busy": 5000, "full": 900, "idle": 0})
    used[1] = used[1]._replace(minute=Count(FIRST, 300))  # the other account has used its minute
    rows = with_usage(accounts, used, {}, FIRST + 1)
    assert [0.9, 0.5] == [entry.day_share for entry in top_accounts(rows, AccountSort.DAY_SHARE, 10)]
    ranked = page_of_accounts(rows, lambda _: True, AccountSort.DAY_SHARE, 1, descending=True).items
    assert ["full", "busy", "idle"] == [row.account.name for row in ranked]
    over = rows[1]._replace(minute=61, day=1001)  # of a larger plan, before it was changed
    assert (1.0, 1.0) == (over.minute_share, over.day_share)
    unknown = with_usage(accounts, None, None, FIRST)
    for measure in set(AccountSort) - {AccountSort.NAME, AccountSort.CREATED}:
        assert [] == top_accounts(unknown, measure, 10), measure


@pytest.mark.parametrize(
    ("by", "descending", "expected"),
    [
        (AccountSort.DAY_SHARE, True, "dcbae"),
        (AccountSort.DAY_SHARE, False, "aebdc"),
        (AccountSort.REFUSED, True, "dcbae"),
        (AccountSort.NAME, True, "edcba"),
    ],
)
def test_of_accounts_with_the_same_value_the_one_that_used_more_comes_first(
    by: AccountSort, descending: bool, expected: str
) -> None:
    rows = with_usage(*accounts_with({"a": 0, "b": 900, "c": 1000, "d": 10_000, "e": 0}), {}, FIRST + 1)
    page = page_of_accounts(rows, lambda _: True, by, 1, descending=descending)
    assert expected == "".join(row.account.name for row in page.items)
    assert ["d", "c", "b"] == [row.account.name for row in top_accounts(rows, AccountSort.DAY_SHARE, 5)]


async def test_a_report_begins_with_the_whole_hour_or_day_of_its_start(store: Store) -> None:
    account = (await store.accounts.create("zoo", Plan.FREE, LIMITS, BY)).id
    await store.usage.save({}, [], activity(account, FIRST, 7))
    late = FIRST + 1800
    assert 7 == (await report_usage(store, "zoo", late, late + 1, Granularity.HOUR)).rows[FIRST].admitted
    assert 7 == (await report_usage(store, "zoo", late, late + 1, Granularity.DAY)).rows[FIRST].admitted
    assert {} == (await report_usage(store, "zoo", late + HOUR, late + 2 * HOUR, Granularity.HOUR)).rows
    whole = await report_usage(store, None, late, late + 1, Granularity.HOUR)
    assert (7, {}) == (whole.rows[FIRST].admitted, whole.keyless)


OFF = {"PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "0", "PETSTORE_USAGE_DAILY_RETENTION_DAYS": "0"}


@pytest.mark.settings(**OFF)
async def test_without_a_history_nothing_is_recorded_and_limits_still_count(service: Service) -> None:
    await service.orders(Order(1))
    key, key_id = await service.key_and_id()
    for _ in range(61):
        response = await service.client.delete("/v1/store/orders/1", headers=bearer(key))
    assert 429 == response.status_code
    await service.client.get("/v1/store/orders")
    usage = await service.client.get("/v2/usage", headers=bearer(await service.key()))
    assert [] == usage.json()["history"]
    await service.background_round()
    store = service.backend.store
    assert {} == await store.usage.counts(None, *ALL_TIME, Granularity.HOUR)
    assert {} == await store.usage.keyless_history(*ALL_TIME, Granularity.HOUR)
    assert None is (await store.keys.find(key_id)).last_used_at


@pytest.mark.parametrize(("settings", "days"), [(OFF, []), ({"PETSTORE_USAGE_HOURLY_RETENTION_DAYS": "0"}, [FIRST])])
async def test_hours_that_are_kept_for_no_days_end_with_their_day(
    settings: dict[str, str], days: list[int], store: Store
) -> None:
    account_id = (await store.accounts.create("acme", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)).id
    today = FIRST + DAY
    for start in (FIRST + HOUR, today):
        await store.usage.save({}, [], activity(account_id, start))
    await compact_history(store.usage, read_settings(settings), today + 2 * HOUR)
    hours = await store.usage.counts(account_id, FIRST, today + DAY, Granularity.HOUR)
    assert [today] == list(hours)
    found = await store.usage.counts(account_id, FIRST, today + DAY, Granularity.DAY)
    assert [*days, today] == list(found)
