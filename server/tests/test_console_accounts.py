"""Accounts and keys in the console: what the pages show, each action and its audit entry, conflicts, bad input."""

import re
from dataclasses import replace
from html import escape
from urllib.parse import quote

import pytest

from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan, edit, suspend
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban
from petstore_server.domain.keys import DEFAULT_SCOPES, Environment, new_key
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.domain.timestamps import DAY, HOUR, format_unix
from petstore_server.domain.usage import Activity, Usage, UsageCounts, uses_of
from petstore_server.domain.windows import Count
from testing.console import START, Browser, Console
from testing.stores import BY, add_key, api_key, log

ADA = "operator:ada"
LAST_HOUR, TODAY = int(START) // HOUR * HOUR, int(START) // DAY * DAY


@pytest.mark.parametrize("details", [{}, {"contact": "ann@acme.example", "note": "calls"}])
async def test_an_account_is_created(details: dict[str, str], console: Console, browser: Browser) -> None:
    page = await browser.get("/accounts?sort=-created")
    assert "There are no accounts yet" in page
    assert "pro (300 per minute, 10,000 per day)" in page
    assert 'value="free" selected' in browser.page
    assert 'value="all" selected' in browser.page
    page = await browser.submit("/accounts", {"name": "acme corp", "plan": "pro", "orders": "own", **details})
    assert "Created the account acme corp on the plan pro; it sees its own orders only." in page
    account = await console.store.accounts.find("acme corp")
    assert (Plan.PRO, PLAN_LIMITS[Plan.PRO], "own") == (account.plan, account.limits, account.orders)
    assert (details.get("contact", ""), details.get("note", "")) == (account.contact, account.note)
    assert [(ADA, "account.create", "account:acme corp")] == await console.actions()
    again = await browser.get("/accounts/acme corp")
    assert "Created the account" not in again.partition("Changes of")[0], "a notice is shown once"
    assert "This account has not used the API." in again
    await browser.submit("/accounts", {"name": "acme corp", "plan": "free", "orders": "all"}, 409)
    assert [("new-name", "The account 'acme corp' exists already; choose another name.")] == browser.problems


async def test_a_notice_that_the_console_did_not_make_is_not_shown(browser: Browser) -> None:
    browser.http.cookies.set("petstore_notice_8081", "WyJvayIsImhlbGxvIl0=.0", domain="127.0.0.1", path="/console")
    assert "hello" not in await browser.get("/")


@pytest.mark.parametrize(
    ("path", "fields", "field", "wrong"),
    [
        ("", {"name": "", "plan": "free"}, "new-name", "is not an account name"),
        ("", {"name": "pso_live_x", "plan": "free"}, "new-name", "This is an API key"),
        ("", {"name": "acme", "plan": "gold"}, "new-plan", "Choose one of free"),
        ("", {"name": "acme", "plan": "free", "contact": "x" * 201}, "new-contact", "A contact is one line of"),
        ("", {"name": "acme", "plan": "pro", "per_minute": "600"}, "new-per_minute", "The plan pro has fixed limits"),
        ("", {"name": "acme", "plan": "enterprise"}, "new-per_minute", "The plan enterprise has no fixed limits"),
        *(
            ("/zoo/plan", {"plan": plan, "per_minute": minute, "per_day": day}, f"plan-{field}", wrong)
            for plan, minute, day, field, wrong in (
                ("pro", "", "600", "per_day", "The plan pro has fixed limits"),
                ("pro", "60", "600", "per_minute", "The plan pro has fixed limits"),
                ("enterprise", "600", "", "per_day", "The plan enterprise has no fixed limits"),
                ("enterprise", "", "600", "per_minute", "The plan enterprise has no fixed limits"),
                ("enterprise", "100", "10", "per_minute", "Limits must satisfy"),
                ("enterprise", "ten", "100", "per_minute", "Give a whole number"),
                ("enterprise", "10", "9" * 19, "per_day", "Give a whole number"),
                ("enterprise", "10", "١٠", "per_day", "Give a whole number"),
            )
        ),
        ("", {"name": "acme", "plan": "free", "orders": ""}, "new-orders", "Choose one of all, own."),
        ("/zoo/orders", {"orders": "mine"}, "orders-orders", "Choose one of all, own."),
        ("/zoo/keys", {"scope": []}, "key-scopes", "Choose at least one."),
        ("/zoo/keys", {"scope": ["orders:read"], "expires": "soon"}, "key-expires", "is not a time"),
        ("/zoo/keys", {"scope": ["orders:read"], "expires": "2001-01-01"}, "key-expires", "cannot expire in the past"),
        ("/zoo/keys", {"scope": ["orders:read"], "note": "x" * 201}, "key-note", "at most 200 characters"),
        ("/zoo/keys", {"scope": ["orders:read"], "note": "pso_live_abc"}, "key-note", "API key"),
        ("/zoo/details", {"note": "x" * 201}, "details-note", "at most 200 characters"),
    ],
)
async def test_wrong_input_is_explained_where_it_is_and_kept(
    path: str, fields: dict[str, object], field: str, wrong: str, zoo: None, console: Console, browser: Browser
) -> None:
    before = await log(console.store)
    await browser.submit(f"/accounts{path}", {"seen": browser.hidden("seen"), "orders": "own", **fields}, 400)
    assert "<title>Error: " in browser.page
    assert [(field, True)] == [(place, wrong in text) for place, text in browser.problems]
    assert re.search(rf'id="{field}"[^>]* autofocus', browser.page)
    typed = [value for value in fields.values() if isinstance(value, str) and value not in ("", "gold", "mine")]
    assert [] == [value for value in typed if f'"{escape(value)}"' not in browser.page]
    assert before == await log(console.store)


@pytest.fixture
async def shops(console: Console) -> None:
    """Sixty accounts, four of which have made requests."""
    for number in range(60):
        by = BY._replace(at=BY.at + number)
        await console.store.accounts.create(f"shop {number:02}", Plan.FREE, Limits(10, 100), by)
    accounts = {account.name: account.id for account in await console.store.accounts.list()}
    now = int(START)
    windows = {"shop 55": Usage(Count(now, 9), Count(now, 20)), "shop 07": Usage(Count(now, 10), Count(now, 10))}
    counts = {"shop 42": UsageCounts(refused_day=1234), "shop 31": UsageCounts(admitted=5)}
    counted = Activity({(accounts[name], LAST_HOUR, "listOrders"): each for name, each in counts.items()}, {}, {})
    await console.store.usage.save({accounts[name]: used for name, used in windows.items()}, [], counted)


@pytest.mark.parametrize(
    ("query", "shown", "missing"),
    [
        ("", ["shop 00", "shop 49", "60 accounts.", "Page 1 of 2", "10 of 10", "1,234"], "shop 50"),
        ("page=2", ["shop 50", "shop 59"], "shop 49"),
        ("page=99999999999999999", ["shop 59"], "shop 49"),
        *((f"page={number}", ["Page 1 of 2"], "shop 50") for number in ("0", "-2", "²", "two")),
        ("sort=unknown", ["Page 1 of 2"], "shop 50"),
        ("search=SHOP+5", ["10 accounts", "shop 59"], "shop 49"),
        ("search=unknown", ["No account has “unknown”"], "shop 00"),
    ],
)
async def test_accounts_are_searched_and_paged(
    query: str, shown: list[str], missing: str, shops: None, browser: Browser
) -> None:
    page = await browser.get(f"/accounts?{query}")
    assert [] == [text for text in shown if text not in page]
    assert missing not in page


@pytest.mark.parametrize(
    ("sort", "expected", "sorting"),
    [
        ("-share", "55 07 00", [("descending", "share")]),
        ("-minute", "07 55 00", [("descending", "minute")]),
        ("-requests", "42 31 55 00", [("descending", "requests")]),  # the third has used most of its day
        ("-refused", "42 55 00", [("descending", "refused")]),
        ("created", "00 01 02", [("ascending", "-created")]),
    ],
)
async def test_accounts_are_sorted(
    sort: str, expected: str, sorting: list[tuple[str, str]], shops: None, browser: Browser
) -> None:
    page = await browser.get(f"/accounts?sort={sort}")
    places = [page.index(f"shop {number}") for number in expected.split()]
    assert sorted(places) == places
    assert sorting == browser.sorting


LISTS = "962 55 by the minute, 7 while banned 600 succeeded, 298 not modified (304), 2 failed (5xx)"


def at(start: int) -> str:
    """How pages show an hour."""
    return f"{format_unix(start)}"[:16].replace("T", " ")


@pytest.fixture
async def used(zoo: None, console: Console) -> None:
    """The account zoo has used the API, also in the hour that begins after the time of the test, and long ago."""
    account = (await console.store.accounts.find("zoo")).id
    counted = {
        (account, LAST_HOUR, "listOrders"): UsageCounts(900, 55, 0, 7, succeeded=600, unchanged=298, failed=2),
        (account, LAST_HOUR, "none"): UsageCounts(3, not_found=2, invalid=1),
        (account, TODAY - HOUR, "getPet"): UsageCounts(12, gone=12),
        (account, LAST_HOUR + HOUR, "v2.getOrder"): UsageCounts(5, succeeded=5),
        (account, TODAY - 29 * DAY, "placeOrder"): UsageCounts(8, succeeded=8),
        (account, TODAY - 29 * DAY - HOUR, "placeOrder"): UsageCounts(9, succeeded=9),
        (account, TODAY - 9 * DAY, "v2.placeOrder"): UsageCounts(4, refused_day=1, succeeded=3, conflict=1),
    }
    places = sorted((start, each) for _, start, each in counted)
    uses = {(account, name): start for start, each in places for name in uses_of(each)}
    windows = {account: Usage(Count(int(START), 7), Count(int(START), 21))}
    await console.store.usage.save(windows, [], Activity(counted, {}, {"key_one": LAST_HOUR}, uses))


async def test_an_account_shows_its_windows_and_the_last_use_of_its_keys(used: None, browser: Browser) -> None:
    page = await browser.get("/accounts/zoo")
    assert "This minute 7 of 60" in page
    assert "This day 21 of 1,000" in page
    assert f"key_one active {at(LAST_HOUR)} 1970-01-01 never" in page
    cells = "".join(f'<td class="num">{count}</td>' for count in (903, 55, 0, 7))
    for time, text in (("2026-10-26T07:00Z", "2026-10-26 07:00"), ("2026-10-26", "2026-10-26")):  # below both charts
        assert f'<time datetime="{time}">{text}</time></th>{cells}</tr>' in browser.page
    assert 'href="/console/accounts?using=getPet"' in browser.page
    assert set(DEFAULT_SCOPES) == set(re.findall(r'name="scope" value="([\w:]+)"[^>]* checked', browser.page))


USES = {
    "": (
        f"listOrders {at(LAST_HOUR)} {LISTS}",
        "not served not recorded 3 none 2 not found (404), 1 invalid (other 4xx)",
        f"v2.placeOrder {at(TODAY - 9 * DAY)} 0 none none",
        f"Version 1 was last used in the hour of {at(LAST_HOUR)}",
        f"Version 2 was last used in the hour of {at(LAST_HOUR + HOUR)}",
    ),
    "yesterday": (f"getPet deprecated {at(TODAY - HOUR)} 12 none 12 gone (410)", f"listOrders {at(LAST_HOUR)} 0 none"),
    "month": (
        "5 1 by the day 3 succeeded, 1 in conflict (409)",
        f"placeOrder {at(TODAY - 29 * DAY)} 8 none 8 succeeded",
        LISTS,
    ),
}
"""What the page of an account says of its use, by the period that was chosen."""


@pytest.mark.parametrize("period", USES)
async def test_an_account_shows_what_it_uses_and_what_it_got(period: str, used: None, browser: Browser) -> None:
    page = await browser.get(f"/accounts/zoo?period={period}")
    assert [] == [shown for shown in USES[period] if shown not in page]


async def test_the_list_shows_who_still_uses_an_operation(used: None, console: Console, browser: Browser) -> None:
    await console.store.accounts.create("globex", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)
    page = await browser.get("/accounts?using=getPet")
    assert "1 account matches." in page
    assert at(TODAY - HOUR) in page
    assert '<option value="getPet" selected>getPet (deprecated)' in browser.page
    assert "Last used (hour)" not in await browser.get("/accounts")
    assert "No account that matches has used placePet." in await browser.get("/accounts?using=placePet")


@pytest.mark.parametrize(("seconds", "requests"), [(1599, 0), (1600, 5)])  # the last second of an hour, and the first
@pytest.mark.parametrize("period", ["", "?period=month"])
async def test_an_hour_is_counted_from_its_first_second_on(
    period: str, seconds: int, requests: int, used: None, console: Console, browser: Browser
) -> None:
    console.clock.now = START + seconds
    assert f"v2.getOrder {at(LAST_HOUR + HOUR)} {requests} none" in await browser.get(f"/accounts/zoo{period}")
    assert ["48", "90"] == re.findall(r'viewBox="0 0 (\d+) ', browser.page)
    totals = (await console.sources.accounts()).totals.required()
    history = (await console.sources.request_history[1].get()).required()
    assert [915 + requests] == [each.admitted for each in totals.values()]
    assert 915 + requests == sum(each.admitted for each in history.usage.rows.values())


async def test_which_orders_an_account_sees_is_changed_unless_it_was_meanwhile(
    zoo: None, console: Console, browser: Browser
) -> None:
    stale = {"orders": "all", "seen": browser.hidden("seen")}
    page = await browser.submit("/accounts/zoo/orders", {**stale, "orders": "own"})
    assert ("ok", ["zoo sees its own orders only now."]) == browser.notice
    assert 'value="own" selected' in browser.page
    assert "Edited the account zoo operator ada · 2026-10-26 07:33:20 (0 s ago) orders all → own" in page
    assert "own" == (await console.store.accounts.find("zoo")).orders
    await browser.submit("/accounts/zoo/orders", stale, 409)
    [(field, text)] = browser.problems
    assert "orders-orders" == field
    assert "The choice is “own” now" in text


async def test_the_plan_is_changed(zoo: None, console: Console, browser: Browser) -> None:
    fields = {"plan": "enterprise", "per_minute": "5,000", "per_day": "1 000 000", "seen": browser.hidden("seen")}
    assert "zoo is on the plan enterprise now" in await browser.submit("/accounts/zoo/plan", fields)
    assert {'"5,000"', '"1,000,000"'} <= set(re.findall(r'name="per_\w+" type="text" value=("[^"]*")', browser.page))
    assert 'value="enterprise" selected' in browser.page
    assert Limits(5000, 1_000_000) == (await console.store.accounts.find("zoo")).limits
    assert (ADA, "account.set_plan", "account:zoo") == (await console.actions())[-1]


async def test_an_account_is_suspended_after_asking_and_resumed(zoo: None, console: Console, browser: Browser) -> None:
    assert "Suspend zoo?" in await browser.get("/accounts/zoo/suspend")
    stale = browser.hidden("seen")
    assert "Suspended zoo" in await browser.submit("/accounts/zoo/suspend", {"seen": stale})
    assert (await console.store.accounts.find("zoo")).suspended_at == START
    seen = browser.hidden("seen")
    for note in "ab":
        await console.store.accounts.change("zoo", edit(None, note), Actor("operator:bob", START))
    page = await browser.submit("/accounts/zoo/suspend", {"seen": stale}, 409)
    assert "The last changes of zoo Edited the account zoo operator bob" in page
    assert 3 == browser.page.count('<p class="by">')
    assert 'href="/console/accounts/zoo">Show <bdi>zoo</bdi>' in browser.page
    assert "Resumed zoo" in await browser.submit("/accounts/zoo/resume", {"seen": seen})
    assert (await console.store.accounts.find("zoo")).suspended_at is None
    taken = [(ADA, "account.suspend", "account:zoo"), (ADA, "account.resume", "account:zoo")]
    assert taken == (await console.actions())[-4::3]


async def test_an_account_that_is_suspended_or_closed_already_is_not_said_to_be_suspended_now(
    zoo: None, console: Console, browser: Browser
) -> None:
    for state in ("suspended", "closed"):
        if state == "suspended":
            await console.store.accounts.change("zoo", suspend(START - 60), BY)
        else:
            await console.store.accounts.close_account("zoo", BY)
        entries = await log(console.store)
        await browser.get("/accounts/zoo/suspend")
        await browser.submit("/accounts/zoo/suspend", {"seen": browser.hidden("seen")})
        assert ("warn", [f"Nothing was changed: zoo was {state} already."]) == browser.notice
        assert entries == await log(console.store)


@pytest.mark.parametrize("signed_in", [True, False])
async def test_an_address_with_a_key_leads_to_the_same_page_without_it(signed_in: bool, console: Console) -> None:
    browser = await console.browser.sign_in() if signed_in else console.browser
    key = new_key(Environment.STAGING, lambda _: 1)
    for text in (key, key[:20], key.removeprefix("pso_test_")):
        for path, name in (("orders", "reference"), ("audit", "actor"), ("bans", "name"), ("accounts", "search")):
            response = await browser.http.get(f"/console/{path}", params={name: f" {text}", "sort": "id"})
            assert (303, f"/console/{path}") == (response.status_code, response.headers["location"])
            assert not [cookie for cookie in browser.http.cookies.values() if text in cookie]
    for name in ("keys", "accounts", "webhooks"):  # nor is a page noted for after the sign-in
        assert key not in await browser.get(f"/{name}/{key}", 404 if signed_in else 401)
        assert not [cookie for cookie in browser.http.cookies.values() if key in cookie]
    if signed_in:
        await browser.http.get("/console/orders", params={"reference": key})
        assert "An API key does not belong in an address" in await browser.get("/orders")


async def test_texts_of_partners_and_operators_cannot_reorder_what_is_around_them(console: Console) -> None:
    """Each is in <bdi>, or is all of an element whose text is not mixed with others."""
    name, text = "\u05d0\u05d1\u05d2 7", "\u05d3\u05d4\u05d5 12"
    by = Actor(f"operator:{text}", START)
    await console.store.accounts.create(name, Plan.FREE, PLAN_LIMITS[Plan.FREE], by, contact=text, note=text)
    await console.store.keys.create(replace(api_key("one", name), note=text), by)
    await console.store.usage.save({}, [Ban("key_one", int(START) - 5, int(START) + 60, 1)])
    orders = [Order(1, reference=text)]
    await console.store.orders.import_batch(orders, "import-1", by, file=f"{text}.csv")
    await console.store.orders.change(1, CANCEL, Actor("key:key_one", START))
    browser = await console.browser.sign_in(text)
    quoted = quote(name)
    for path in (
        *("/", "/accounts", f"/accounts/{quoted}", "/keys/key_one", "/keys/key_one/rotate", "/keys/key_one/revoke"),
        *("/orders/1", "/audit", "/bans", "/imports", "/imports/import-1", "/accounts?search=\u05d9"),
    ):
        await browser.get(path)
        assert re.search("<bdi>[^<]*[\u05d0-\u05ea]", browser.page), path
        others = re.sub(r"<(bdi|title|button)\b.*?</\1>", "", browser.page, flags=re.DOTALL)
        assert [] == re.findall("[^>]*[\u05d0-\u05ea][^<]*", re.sub("<[^>]*>", "<>", others)), path


async def test_hostile_texts_are_escaped_and_control_characters_shown_as_escapes(console: Console) -> None:
    hostile = "\"><script>alert(1)</script>{{ 7*7 }}'"
    await add_key(console.store)
    await console.store.keys.create(replace(api_key("two"), note=hostile), Actor(hostile, START))
    await console.store.keys.create(replace(api_key("three"), note="a\x1b[31mb\u202ec"), BY)
    browser = await console.browser.sign_in("<b>ada</b>")
    for path in ("/", "/accounts/zoo", "/audit", f"/accounts?search={hostile}", f"/audit?subject={hostile}"):
        await browser.get(path)
        assert "<script" not in browser.page
        assert "<b>ada" not in browser.page
        assert "49" not in re.findall(r"script&gt;(\d+)", browser.page)
        assert not {"\x1b", "\u202e"} & set(browser.page)
    assert r"a\x1b[31mb\u202ec" in await browser.get("/accounts/zoo")


async def test_what_does_not_exist_is_not_found(browser: Browser) -> None:
    missing = ("accounts/none", "accounts/none/suspend", "keys/key_none", "keys/key_none/revoke", "orders/8")
    for path in (*missing, "imports/import-none", "imports/import-none/rejects"):
        assert "There is no" in await browser.get(f"/{path}", 404)
    assert "An order identifier is" in await browser.get("/orders/x", 404)


async def test_an_account_is_closed(zoo: None, console: Console, browser: Browser) -> None:
    seen = browser.hidden("seen")
    page = await browser.submit("/accounts/zoo/close")
    assert "Closed zoo, and revoked 1 key." in page
    entries = await log(console.store)
    console.clock.now += 60
    assert "Nothing was changed: zoo was closed already." in await browser.submit("/accounts/zoo/close")
    assert entries == await log(console.store)
    assert "New key" not in page
    assert "closed" == (await console.store.accounts.find("zoo")).state
    assert "1 account matches." in await browser.get("/accounts?state=closed")
    assert "No account matches" in await browser.get("/accounts?state=active")
    assert "No account matches" in await browser.get("/accounts?plan=pro")
    assert "zoo" in await browser.get("/accounts?state=unknown&plan=unknown")
    await browser.submit("/accounts/zoo/suspend", {"seen": seen}, 409)
