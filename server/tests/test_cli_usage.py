"""`petstore usage`: tables, bars and JSON of the usage history."""

import asyncio
import time
from pathlib import Path

import pytest

from petstore_server.cli import output
from petstore_server.cli import usage as cli_usage
from petstore_server.domain.timestamps import format_unix
from petstore_server.domain.usage import Activity, Granularity, KeylessCounts, Usage, UsageCounts, uses_of
from petstore_server.domain.windows import Count
from testing.cli import CommandLine
from testing.stores import opened

HOUR = Granularity.HOUR.start(time.time())


@pytest.fixture
def petstore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setattr(time, "time", lambda: HOUR + 1800.0)  # no hour and no day begins while a test runs
    command = CommandLine(tmp_path / "store.db")
    for name, plan in (("acme", "free"), ("globex", "pro")):
        command.must("accounts", "create", name, "--plan", plan)
    return command


def save(
    petstore: CommandLine,
    account: str,
    counts: UsageCounts,
    start: int = HOUR,
    day_used: int = 0,
    operation: str = "listOrders",
) -> None:
    async def run() -> None:
        async with opened(petstore.store) as store:
            account_id = (await store.accounts.find(account)).id
            usage = {account_id: Usage(Count(HOUR, 0), Count(HOUR, day_used))}
            keyless = {start: KeylessCounts(2, 1)}
            uses = {(account_id, used): start for used in uses_of(operation)}
            await store.usage.save(usage, [], Activity({(account_id, start, operation): counts}, keyless, {}, uses))

    asyncio.run(run())


def test_the_usage_of_an_account_by_hour(petstore: CommandLine) -> None:
    save(petstore, "acme", UsageCounts(60, 5, 4, 3, 2))
    header, row = petstore.must("usage", "acme").out.splitlines()
    assert ["HOUR", "ADMITTED", "REFUSED", "BY", "MINUTE", "BY", "DAY", "BANNED", "CANCELLED"] == header.split()
    assert [f"{format_unix(HOUR)}"[:16] + "Z", "60", "12", "5", "4", "3", "2"] == row.split()
    counts = {"refused": 12, "refusedMinute": 5, "refusedDay": 4, "refusedBanned": 3, "cancelled": 2}
    history = [{"start": format_unix(HOUR), "admitted": 60, **counts}]
    assert {"account": "acme", "by": "hour", "history": history} == petstore.must("usage", "acme", "--json").json()


def test_the_usage_of_the_service_includes_requests_without_a_key(petstore: CommandLine) -> None:
    save(petstore, "acme", UsageCounts(60))
    save(petstore, "globex", UsageCounts(40, 1))
    header, row = petstore.must("usage").out.splitlines()
    assert header.endswith("WITHOUT KEY")
    assert ["100", "1", "1", "0", "0", "0", "6"] == row.split()[1:]
    listed = petstore.must("usage", "--json").json()
    assert [{"start": format_unix(HOUR), "refusedKey": 4, "refusedAddress": 2}] == listed["withoutKey"]


def test_a_long_period_is_shown_by_day_unless_asked_for(petstore: CommandLine) -> None:
    save(petstore, "acme", UsageCounts(60), start=HOUR - 5 * 86_400)
    assert [] == petstore.must("usage", "acme", "--json").json()["history"]
    assert "day" == petstore.must("usage", "acme", "--since", "7d", "--json").json()["by"]
    by_hour = petstore.must("usage", "acme", "--since", "7d", "--by", "hour", "--json").json()
    assert [60] == [row["admitted"] for row in by_hour["history"]]


def test_the_usage_by_operation_has_the_responses_by_class(petstore: CommandLine) -> None:
    save(petstore, "acme", UsageCounts(60, 5, 4, 3, succeeded=9, unchanged=50, failed=1))
    save(petstore, "acme", UsageCounts(7, cancelled=2, conflict=5), operation="cancelOrder")
    save(petstore, "globex", UsageCounts(1, cancelled=1), operation="cancelOrder")
    header, cancels, lists = petstore.must("usage", "acme", "--by", "operation").out.splitlines()
    assert header.startswith(
        "OPERATION    ADMITTED  REFUSED  BY MINUTE  BY DAY  BANNED  CANCELLED  SUCCEEDED  UNCHANGED"
    )
    assert "cancelOrder 7 - - - - 2 - - - - 5 - - -" == " ".join(cancels.split())
    assert "listOrders 60 12 5 4 3 - 9 50 - - - - - 1" == " ".join(lists.split())
    shown = petstore.must("usage", "acme", "--by", "operation", "--json").json()
    assert ("acme", "operation") == (shown["account"], shown["by"])
    names = ["admitted", "refused", "refusedMinute", "refusedDay", "refusedBanned", "cancelled", "succeeded"]
    names += ["unchanged", "forbidden", "notFound", "conflict", "gone", "invalid", "failed"]
    assert {
        "cancelOrder": dict(zip(names, (7, 0, 0, 0, 0, 2, 0, 0, 0, 0, 5, 0, 0, 0), strict=True)),
        "listOrders": dict(zip(names, (60, 12, 5, 4, 3, 0, 9, 50, 0, 0, 0, 0, 0, 1), strict=True)),
    } == {row.pop("operation"): row for row in shown["operations"]}
    of_all = petstore.must("usage", "--by", "operation", "--json").json()
    assert (None, [8, 60]) == (of_all["account"], [row["admitted"] for row in of_all["operations"]])
    assert "No requests" in petstore.must("usage", "globex", "--by", "operation", "--until", "1h").out


def test_a_period_ends_before_the_time_that_was_given(petstore: CommandLine) -> None:
    for hours in range(5):
        save(petstore, "acme", UsageCounts(1 << hours), start=HOUR - hours * 3600)

    def admitted(*options: str) -> int:
        shown = petstore.must("usage", "acme", "--json", *options).json()
        return sum(row["admitted"] for row in shown.get("history") or shown["operations"])

    petstore("usage", "acme", "--since", "1h", "--until", "2h").fails(2, "ends before it starts")
    begins, ends = str(format_unix(HOUR - 3 * 3600)), str(format_unix(HOUR - 3600))
    for by in ("hour", "operation"):
        assert 31 == admitted("--by", by)
        assert 12 == admitted("--by", by, "--since", begins, "--until", ends)
        assert 14 == admitted("--by", by, "--since", begins, "--until", str(format_unix(HOUR - 3599)))


def test_top_accounts_by_each_order(petstore: CommandLine) -> None:
    save(petstore, "acme", UsageCounts(60, 460), day_used=900)
    save(petstore, "globex", UsageCounts(500), day_used=500)

    def order(*options: str) -> list[str]:
        return [entry["account"] for entry in petstore.must("usage", "top", "--json", *options).json()]

    assert ["globex", "acme"] == order()
    assert ["acme"] == order("--by", "refused")
    assert ["acme", "globex"] == order("--by", "requests") == order("--by", "share")
    assert ["acme"] == order("--by", "share", "--limit", "1")
    assert "90.0%" in petstore.must("usage", "top", "--by", "share").out


def test_an_account_shows_what_it_uses_of_the_api_and_when_it_last_did(petstore: CommandLine) -> None:
    assert [] == petstore.must("accounts", "show", "acme", "--json").json()["uses"]
    assert "No use of the API is recorded." in petstore.must("accounts", "show", "acme").out
    for operation, hours in (("listOrders", 0), ("getPet", 2), ("v2.getUsage", 30)):
        save(petstore, "acme", UsageCounts(refused_banned=1), HOUR - hours * 3600, operation=operation)

    def last(hours: int, end: str = "Z") -> str:
        return f"{format_unix(HOUR - hours * 3600)}"[:16] + end

    assert [
        {"operation": "getPet", "deprecated": True, "lastUsedAt": last(2, ":00Z")},
        {"operation": "listOrders", "deprecated": False, "lastUsedAt": last(0, ":00Z")},
        {"operation": "v1.*", "deprecated": False, "lastUsedAt": last(0, ":00Z")},
        {"operation": "v2.*", "deprecated": False, "lastUsedAt": last(30, ":00Z")},
        {"operation": "v2.getUsage", "deprecated": False, "lastUsedAt": last(30, ":00Z")},
    ] == petstore.must("accounts", "show", "acme", "--json").json()["uses"]
    page = petstore.must("accounts", "show", "acme").out
    assert ["getPet", last(2), "deprecated"] in [line.split() for line in page.splitlines()]
    assert ["v2.*", last(30), "-"] in [line.split() for line in page.splitlines()]


def test_an_account_named_like_a_command_can_be_shown(petstore: CommandLine) -> None:
    petstore.must("accounts", "create", "top", "--plan", "free")
    save(petstore, "top", UsageCounts(7))
    assert [7] == [row["admitted"] for row in petstore.must("usage", "show", "top", "--json").json()["history"]]


@pytest.mark.parametrize("account", ["acme", None])
@pytest.mark.parametrize(("columns", "has_reasons"), [(80, False), (120, True), (60, False)])
def test_a_terminal_shows_a_bar_for_each_period(
    petstore: CommandLine, monkeypatch: pytest.MonkeyPatch, account: str | None, columns: int, has_reasons: bool
) -> None:
    save(petstore, "acme", UsageCounts(60, 20, 0, 0, 2), HOUR - 3600)
    save(petstore, "acme", UsageCounts(20, 0, 0, 0, 0))
    for module in (cli_usage, output):
        monkeypatch.setattr(module, "terminal_width", lambda: columns)
    header, first, second = petstore.must("usage", *([account] if account else [])).out.splitlines()
    assert has_reasons == ("BANNED" in header)
    assert max(map(len, (header, first, second))) <= columns
    room = first.count("█") + first.count("░")
    if columns == 60 and account is None:
        assert 0 == room  # the table needs all of it
        return
    assert 10 <= room <= 30
    assert (round(room * 0.75), round(room * 0.25)) == (first.count("█"), second.count("█"))


def test_the_accounts_that_have_used_an_operation_are_listed_with_the_hour_of_their_last_use(
    petstore: CommandLine,
) -> None:
    save(petstore, "acme", UsageCounts(1), HOUR - 7200, operation="getPet")
    save(petstore, "globex", UsageCounts(1), HOUR, operation="v2.getUsage")
    [header, row] = petstore.must("accounts", "list", "--using", "getPet").out.splitlines()
    assert header.endswith("LAST USED")
    assert ("acme", f"{format_unix(HOUR - 7200)}"[:16] + "Z") == (row.split()[0], row.split()[-1])
    [found] = petstore.must("accounts", "list", "--using", "getPet", "--json").json()
    assert ("acme", format_unix(HOUR - 7200)) == (found["name"], found["lastUsedAt"])
    assert "lastUsedAt" not in petstore.must("accounts", "list", "--json").json()[0]
    for used, name in (("v1.*", "acme"), ("v2.*", "globex")):
        assert [name] == [each["name"] for each in petstore.must("accounts", "list", "--using", used, "--json").json()]
    missing = petstore.must("accounts", "list", "--using", "getpet")
    assert "No account has used getpet. Operations that were used: getPet, v1.*, v2.*, v2.getUsage." in missing.err
    assert [] == petstore.must("accounts", "list", "--using", "getpet", "--json").json()
