"""The console while something is down or slow: pages show what they have, and say what is missing and why."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from prometheus_client.core import CounterMetricFamily

from petstore_server.console import sources
from petstore_server.console.rendering import minutes
from petstore_server.console.sources import SLOW, Cached, Reading
from petstore_server.console.visit import Visit
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import Order
from petstore_server.domain.sessions import SESSION_LIFETIME
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.domain.usage import Activity, KeylessCounts, ResponseCounts, Usage, UsageCounts
from petstore_server.domain.windows import Count
from petstore_server.operations.health import CheckResult
from testing.console import START, Browser, Console
from testing.stores import BY, add_key

PAGES = ["/", "/accounts", "/accounts/zoo", "/bans", "/orders", "/orders/7", "/imports", "/audit"]
SAYS_THAT_IT_IS_MISSING = [SLOW, "Last backup: not known", "than can be counted quickly"]
MANY_PAGES = [
    *(*PAGES, "/?period=week", "/orders?complete=false", "/keys/key_one", "/keys/key_one/revoke"),
    "/audit?subject=zoo",
]


def replace_queries(console: Console, perform: Callable[..., Awaitable[Any]]) -> None:
    """Let the store's engine perform this instead of every query."""
    for name in ("query", "read"):
        setattr(console.store.engine, name, perform)


@pytest.fixture(name="browser")
async def _browser(console: Console) -> Browser:
    """A store with an account and an order, and an operator who has seen it."""
    await add_key(console.store)
    await console.store.orders.import_batch([Order(7)], "import-7", BY)
    return await console.browser.sign_in()


fail = AsyncMock(side_effect=ServiceUnavailable("the disk is full"))


@pytest.mark.settings(PETSTORE_REDIS_URL="redis://me:secret@127.0.0.1:1/0")
async def test_pages_and_actions_work_while_redis_is_down(browser: Browser) -> None:
    for path in PAGES:
        page = await browser.get(path)
        if path in ("/", "/accounts", "/accounts/zoo"):
            assert "Not known. The usage cannot be read from Redis at redis://127.0.0.1:1/0 (" in page, path
            assert "Check PETSTORE_REDIS_URL, and that Redis runs." in page
        assert "secret" not in page
    assert "not known" in await browser.get("/accounts")
    assert "No account has used any" not in await browser.get("/")
    await browser.get("/accounts/zoo")
    fields = {"plan": "pro", "seen": browser.hidden("seen")}
    assert "zoo is on the plan pro now" in await browser.submit("/accounts/zoo/plan", fields)
    assert "pso_live_" in await browser.submit("/accounts/zoo/keys", {"scope": ["orders:read"]})
    await browser.get("/orders/7")
    assert "Shipped 1 order." in await browser.submit("/orders/ship", {"order": "7", "back": "/7"})


@pytest.mark.parametrize("path", MANY_PAGES)
async def test_a_page_shows_what_it_has_whichever_of_its_sources_does_not_respond(
    console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    reads = silent = 0

    def or_silence(read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def reading(source: Visit | Cached[Any], *work: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads != silent:
                return await read(source, *work)
            if work:  # a coroutine that nothing will await
                work[0].close()
            return Reading(problem=SLOW)

        return reading

    monkeypatch.setattr(Visit, "read", or_silence(Visit.read))
    monkeypatch.setattr(Cached, "get", or_silence(Cached.get))
    while reads >= silent:
        reads, silent = 0, silent + 1
        response = await browser.http.get(f"/console{path}")
        assert response.status_code in (200, 503), (path, silent)
        assert reads < silent or any(text in response.text for text in SAYS_THAT_IT_IS_MISSING), (path, silent)
    assert silent > 1


async def test_the_overview_is_there_while_the_store_is_down_and_says_since_when(
    console: Console, browser: Browser
) -> None:
    console.clock.now += 10
    console.service.ready, console.service.detail = False, {"status": "unavailable", "reason": "the disk is full"}
    replace_queries(console, fail)
    overview = await browser.get("/")
    assert "Not ready since 07:33 (0 s) The disk is full. · checked 0 s ago" in overview
    checks = overview.count("This was not checked: The disk is full")  # none, if they have not ended yet
    assert 1 == overview.count("The disk is full") - checks
    assert overview.count("Not known.") >= 4
    assert "The disk is full. Try again shortly." in await browser.get("/accounts", 503)
    stranger = console.another_browser()
    stranger.http.cookies.set("petstore_session_8081", "invented", domain="127.0.0.1", path="/console")
    assert "Overview" not in await stranger.get("/", 503)
    del console.store.engine.query, console.store.engine.read  # it is back
    console.service.ready, console.service.detail = True, {"status": "ok"}
    assert "Ready · checked 0 s ago" in await browser.get("/orders")


async def test_a_session_that_ended_is_over_while_the_store_is_down(
    console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookies = dict(browser.http.cookies)
    await browser.submit("/sign-out")
    lasting = await console.another_browser().sign_in()
    console.clock.now += SESSION_LIFETIME - 1
    replace_queries(console, fail)
    browser.http.cookies.update(cookies)
    assert "Overview" not in await browser.get("/", 503)
    assert "Overview" in await lasting.get("/")
    console.sources._sessions["other"] = console.sources._sessions[lasting.http.cookies["petstore_session_8081"]]
    monkeypatch.setattr(sources, "_MAX_SESSIONS", 1)
    for _ in range(3):
        assert "Overview" in await lasting.get("/"), "only the session that was used longest ago is forgotten"
    assert 1 == len(console.sources._sessions)
    console.clock.now += 1
    assert "Overview" not in await lasting.get("/", 503)


async def test_a_session_that_this_process_does_not_know_is_valid_while_the_store_takes_no_changes(
    console: Console, browser: Browser
) -> None:
    console.sources._sessions.clear()
    console.clock.now += SESSION_LIFETIME - 1
    await console.store.engine.damage.save("seen")
    assert "Overview" in await browser.get("/")


async def test_nothing_is_called_healthy_before_the_checks_have_ended(console: Console, browser: Browser) -> None:
    allowed = asyncio.Event()

    async def examine() -> list[CheckResult]:
        await allowed.wait()
        return [CheckResult("settings", "ok", "All settings are valid at 2026-11-23T05:00:00Z.")]

    monitor = console.sources.monitor
    await console.check()
    monitor._examine, monitor.checks, monitor._examined_at = examine, None, -60
    overview = await browser.get("/")
    assert "Ready; the checks have not ended yet" in overview
    assert "healthy" not in overview.lower()
    allowed.set()
    await asyncio.sleep(0.05)
    overview = await browser.get("/")
    assert "Everything is healthy" in overview
    assert "valid at 2026-11-23 05:00:00." in overview


async def test_a_page_with_a_defect_says_so_and_the_log_has_the_error(
    console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console.store.search, "find", AsyncMock(side_effect=RuntimeError("a defect")))
    assert "This page has failed The log of the server has the details." in await browser.get("/orders/7", 500)
    assert [("console page failed", True)] == [(each.message, bool(each.exc_info)) for each in caplog.records]


async def test_requests_before_the_server_started_are_not_shown_as_none(console: Console, browser: Browser) -> None:
    console.clock.now += 1800
    since = f"Counted since {minutes(START)[11:]} , when this server started; nothing is known of the time before."
    assert since in await browser.get("/")


@pytest.mark.settings(PETSTORE_USAGE_DAILY_RETENTION_DAYS="0", PETSTORE_USAGE_HOURLY_RETENTION_DAYS="0")
async def test_a_history_that_is_off_is_not_shown_as_no_requests(browser: Browser) -> None:
    reason = "No history is kept, because PETSTORE_USAGE_DAILY_RETENTION_DAYS is 0."
    for path in ("/", "/?period=week", "/accounts/zoo"):
        page = await browser.get(path)
        assert reason in page
        assert "No account was refused" not in page
        assert "No requests in this period" not in page or path == "/"
    assert re.search("not known", await browser.get("/accounts"))


async def test_the_overview_shows_the_accounts_closest_to_a_limit_and_refused_most(
    console: Console, browser: Browser
) -> None:
    now, ids = int(START), list[int]()
    for number in range(1, 7):
        await add_key(console.store, f"shop{number}", f"shop {number}")
        ids.append((await console.store.accounts.find(f"shop {number}")).id)
    refused = {(shop, LAST_HOUR, "listOrders"): UsageCounts(refused_day=at) for at, shop in enumerate(ids, 1)}
    used = {shop: Usage(Count(now, at), Count(now, at)) for at, shop in enumerate(ids, 1)}
    await console.store.usage.save(used, [], Activity(refused, {}, {}))
    await browser.get("/")
    found = re.findall(r'<th scope="row"><a href="/console/accounts/shop%20(\d)', browser.page)
    assert ["6", "5", "4", "3", "2"] * 2 == found


async def test_a_conflict_is_explained_without_changes_that_cannot_be_read(console: Console, browser: Browser) -> None:
    with patch.object(console.store.audit, "page", fail):
        page = await browser.submit("/keys/key_one/unban", status=409)
    assert "Nothing was changed" in page
    assert "The last changes" not in page


LAST_HOUR = int(START) // HOUR * HOUR


@pytest.fixture(name="week")
async def _week(console: Console, browser: Browser) -> None:
    """The account zoo has had requests three days ago, and more of them in the hour of the test's time."""
    account = (await console.store.accounts.find("zoo")).id
    old = LAST_HOUR - 3 * DAY
    counts = {
        (account, LAST_HOUR, "listOrders"): UsageCounts(1000, 20, 3, 0, 5, failed=4),
        (account, old, "getPet"): UsageCounts(admitted=7000),
    }
    await console.store.usage.save({}, [], Activity(counts, {LAST_HOUR: KeylessCounts(refused_key=9)}, {}))
    served = {0.001: 900, 0.01: 95, 0.25: 4, float("inf"): 1}
    await console.store.responses.add({old: ResponseCounts(0, {0.001: 7000}), LAST_HOUR: ResponseCounts(7, served)})


async def test_the_overview_shows_the_last_day_and_week(week: None, browser: Browser) -> None:
    day = await browser.get("/?period=day")
    assert "Admitted 1,000 Refused by the minute 20 Refused by the day 3 Refused while banned 0" in day
    assert "Without a valid key 9 Cancelled orders 5 Failed 7 50% within 1 ms 95% within 10 ms 99% within 10 ms" in day
    once = "each request is shown once, three of which failed before they were admitted"
    assert f"{minutes(LAST_HOUR)} 996 23 9 7 " in day, once
    week_page = await browser.get("/?period=week")
    assert "Admitted 8,000" in week_page
    assert "Failed 7 50% within 1 ms 95% within 1 ms 99% within 10 ms" in week_page
    assert 2 == browser.page.count('<th scope="row"><time'), "hours with requests"


@pytest.mark.parametrize("seconds", [1599, 1600])  # the last second of an hour, and the first one
@pytest.mark.parametrize(("period", "bars"), [("day", "25"), ("week", "169")])
async def test_the_chart_of_a_period_has_a_bar_for_each_hour_that_has_begun(
    period: str, bars: str, seconds: int, week: None, console: Console, browser: Browser
) -> None:
    console.clock.now = START + seconds
    await browser.get(f"/?period={period}")
    assert [bars] == re.findall(r'viewBox="0 0 (\d+) ', browser.page)


async def test_the_overview_shows_the_last_hour_with_its_errors(console: Console, browser: Browser) -> None:
    requests = CounterMetricFamily("petstore_requests", "", labels=["operation", "status"])
    requests.add_metric(["listOrders", "200"], 41)
    requests.add_metric(["v2.placeOrder", "422"], 1234)
    console.service.families = [requests]
    page = await browser.get("/?period=hour")
    assert "Answered 41" in page
    assert f"<title>{minutes(START - 59 * 60)}: not known</title>" in browser.page
    assert "Errors by operation in the last hour Operation Status Responses v2.placeOrder 422 1,234" in page
    assert 'viewBox="0 0 60 ' in browser.page
