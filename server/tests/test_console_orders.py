"""Orders and the audit log in the console: filters, pages, actions and what they report."""

import csv
import io
import json
import re
from codecs import BOM_UTF8
from collections.abc import Coroutine
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

import petstore_server
from petstore_server.console import visit
from petstore_server.console.rendering import actions
from petstore_server.console.sources import Reading, read_within
from petstore_server.domain.accounts import PLAN_LIMITS, Plan, edit
from petstore_server.domain.audit import Actor, AuditFilters
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import CANCEL, COMPLETE, Order, Status, ship
from petstore_server.domain.pets import Pet
from petstore_server.domain.roles import Role
from petstore_server.operations.audit import ACTIONS
from petstore_server.operations.orders import export_orders
from petstore_server.store import audit
from petstore_server.store.audit import page_statement
from testing.console import START, Browser, Console
from testing.stores import BY, Stores, add_key, api_key, log

PACKAGE = Path(petstore_server.__file__).parent
FREE = Plan.FREE, PLAN_LIMITS[Plan.FREE]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long pages would wait for what they read; they wait for it as long as it takes."""
    given = list[float]()

    async def read(work: Coroutine[Any, Any, Any], seconds: float) -> Reading[Any]:
        given.append(seconds)
        return await read_within(work, 60.0)

    monkeypatch.setattr(visit, "read_within", read)
    return given


async def add_orders(console: Console, *orders: Order) -> None:
    await console.store.orders.import_batch(orders, "import-1", BY)


def ids(page: str) -> list[int]:
    """The orders that a list shows."""
    return [int(text) for text in re.findall(r'name="order" value="(-?\d+)"', page)]


async def pages(browser: Browser, path: str, query: str) -> list[str]:
    """A page of a list, and all that come after it."""
    found = []
    while True:
        await browser.get(path + query)
        found.append(browser.page)
        link = re.search(r'rel="next" href="([^"]*)"', browser.page)
        if link is None:
            return found
        query = unescape(link[1])


@pytest.fixture
async def three_orders(console: Console) -> None:
    """Orders with different fields: the second one has an owner."""
    await console.store.accounts.create("Zoo & Co", *FREE, BY)
    await add_orders(
        console,
        Order(1, 7, 2, "2026-11-01T10:00:00Z", False, Status.PENDING, "A & <1>"),
        Order(2, 8, 1, "2026-11-05T10:00:00Z", True, Status.SHIPPED, account="Zoo & Co"),
        Order(3, 7, None, None, None, Status.CANCELLED),
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 2, 3]),
        ("?status=shipped", [2]),
        ("?petId=7", [1, 3]),
        ("?reference=A+%26+%3C1%3E", [1]),
        ("?reference=A", []),
        ("?account=Zoo+%26+Co", [2]),
        ("?account=-", [1, 3]),
        ("?complete=true", [2]),
        ("?complete=false", [1, 3]),
        ("?shipDateFrom=2026-11-02", [2]),
        ("?shipDateTo=2026-11-02", [1]),
        ("?sort=-id", [3, 2, 1]),
        ("?sort=-shipDate", [2, 1, 3]),
    ],
)
async def test_orders_are_filtered_and_sorted(
    query: str, expected: list[int], three_orders: None, browser: Browser
) -> None:
    page = await browser.get(f"/orders{query}")
    assert expected == ids(browser.page)
    assert ("No order matches" in page) == (not expected)


async def test_an_identifier_that_is_typed_leads_to_its_order(browser: Browser) -> None:
    assert "There are no orders yet" in await browser.get("/orders?sort=id")
    found = await browser.http.get("/console/orders?id=2")
    assert (303, "/console/orders/2") == (found.status_code, found.headers["location"])


async def test_the_list_and_the_page_of_an_order_show_its_fields(three_orders: None, browser: Browser) -> None:
    await browser.get("/orders?complete=true")
    buttons, changed = "Select all on this page Ship Complete Cancel", "1970-01-01 00:16:40 (20,752 d ago)"
    columns = "Select Order ▲ Status Account Pet Quantity Ship date Complete Last change"
    row = f"2 shipped Zoo & Co 8 1 2026-11-05 10:00:00 (in 10 d) yes {changed}"
    assert f"1 order matches. {buttons} {columns} {row} {buttons}" == browser.cards[1]
    await browser.get("/orders/1")
    record = "Record Pet 7 Quantity 2 Ship date 2026-11-01 10:00:00 (in 6 d) Complete no Reference A & <1>"
    assert f"{record} Account none Last change {changed} Created {changed}" == browser.cards[0]
    assert '<a href="/console/orders?reference=A+%26+%3C1%3E"><bdi>A &amp; &lt;1&gt;</bdi></a>' in browser.page


@pytest.mark.usefixtures("each_backend")
async def test_orders_lead_to_their_owner_and_back_and_are_exported_with_it(
    three_orders: None, browser: Browser
) -> None:
    link = '<a href="/console/accounts/Zoo%20%26%20Co"><bdi>Zoo &amp; Co</bdi></a>'
    for path in ("/orders", "/orders/2"):
        await browser.get(path)
        assert 1 == browser.page.count(link)
        assert ('data-name="Reference"' in browser.page) == (path == "/orders"), "where an order has one"
    await browser.get("/accounts/Zoo & Co")
    assert '<a href="/console/orders?account=Zoo%20%26%20Co">' in browser.page
    exported = (await browser.http.get("/console/orders/export?format=csv&account=Zoo+%26+Co")).text
    assert "2,8,1,2026-11-05T10:00:00Z,true,shipped,,Zoo & Co" == exported.splitlines()[1]


async def test_orders_are_paged_and_selected_a_page_at_a_time_by_a_link(console: Console, browser: Browser) -> None:
    await add_orders(console, *(Order(number, 1) for number in range(1, 121)))
    shown = [ids(page) for page in await pages(browser, "/orders", "?petId=1&sort=-shipDate")]
    assert [[*range(120, 70, -1)], [*range(70, 20, -1)], [*range(20, 0, -1)]] == shown
    assert '<a href="?petId=1&amp;sort=-shipDate">First page</a>' in browser.page
    await browser.get("/orders?sort=-id&select=all")
    assert (50, 50) == (browser.page.count(" checked>"), len(ids(browser.page)))
    assert 'name="back" value="?sort=-id"' in browser.page
    await browser.get("/orders?sort=-id")
    assert (0, 0) == (browser.page.count(" checked>"), browser.page.count("First page"))


async def test_a_wrong_filter_is_explained_and_kept(browser: Browser) -> None:
    for link, wrong in (
        ("/orders?petId=cat", "A pet id is a whole number"),
        ("/orders?status=lost", "Choose one of pending"),
        ("/orders?shipDateFrom=soon", "is not a time"),
        ("/orders?shipDateTo=soon", "is not a time"),
        ("/orders?sort=price", "Choose one of id"),
        ("/orders?account=missing", "There is no account &#39;missing&#39;."),
        ("/orders?id=seven", "An order identifier is"),
        ("/audit?since=soon", "is not a time"),
        ("/audit?until=soon", "is not a time"),
    ):
        await browser.get(link, 400)
        assert wrong in browser.page
        name, value = link.partition("?")[2].split("=")
        assert re.search(rf'name="{name}"[^>]* aria-invalid="true"', browser.page), link
        assert f'value="{value}"' in browser.page or name in ("status", "sort")


POSITIONS = (
    *("orders?after=[", "orders?after=[1]", "orders?after=[null,0.5]"),
    *(f"orders?sort=shipDate&after=[{number},1]" for number in (-(2**63) - 1, 2**63)),
    *(f"audit?before={position}" for position in ("nan", "[1]", f"[1,{2**63}]", f"[1,{-(2**63) - 1}]")),
    *(f"imports?after={position}" for position in ("[1]", "[1,2]", r'[1,"import-\u0000"]', '["x","y"]')),
)
TEXTS = (
    *("orders?reference=", "orders?account=", "orders?id=", "orders/", "keys/", "accounts/", "accounts?search="),
    *("audit?actor=", "audit?action=", "audit?subject=", "audit?request="),
    *("bans?name=", "imports?actor=", "imports/import-"),
)


async def test_an_impossible_position_shows_the_first_page(
    each_backend: Stores, console: Console, browser: Browser
) -> None:
    await add_orders(console, Order(7, ship_date="2026-11-01T10:00:00Z"))
    for link in POSITIONS:
        page = await browser.get(f"/{link}")
        assert re.search("Imported orders import-1|standard input running test", page) or [7] == ids(browser.page), link
    for sort, number in (("-shipDate", -(2**63)), ("shipDate", 2**63 - 1)):  # which are possible
        await browser.get(f"/orders?sort={sort}&after=[{number},{number}]")
        assert [] == ids(browser.page)


async def test_a_text_that_one_engine_cannot_look_for_is_refused_on_both(
    each_backend: Stores, browser: Browser
) -> None:
    refusals = [await browser.get(f"/{path}x%00", 400) for path in TEXTS]
    refusals.append(await browser.submit("/search", {"q": "a\0b"}, 400))
    assert not [each for each in refusals if "A text holds the character U+0000" not in each]


@pytest.mark.parametrize(
    ("order", "offered"),
    [
        (Order(1), ["Ship", "Cancel"]),
        (Order(1, status=Status.SHIPPED), ["Complete"]),
        (Order(1, complete=True, status=Status.SHIPPED), []),
        (Order(1, status=Status.CANCELLED), []),
    ],
)
async def test_an_orders_page_offers_what_its_state_allows(
    order: Order, offered: list[str], console: Console, browser: Browser
) -> None:
    await add_orders(console, order)
    assert "Imported orders import-1" in await browser.get("/orders/1")
    assert offered == re.findall(r">(Ship|Cancel|Complete)</button>", browser.page)


TYPED = {"petId": "8", "quantity": "2", "shipDate": "2027-01-31", "reference": "", "complete": ""}
"""The form of corrections as an operator fills it in."""


async def correct(browser: Browser, order_id: int, fields: dict[str, str], status: int = 200) -> str:
    """Submit the form of corrections on the page of an order; the text of the page that results."""
    await browser.get(f"/orders/{order_id}")
    return await browser.submit(f"/orders/{order_id}/edit", {"seen": browser.hidden("seen"), **fields}, status)


async def test_an_order_is_corrected_field_by_field_unless_it_was_changed_meanwhile(
    console: Console, browser: Browser
) -> None:
    await add_orders(console, Order(1, 7, 2, reference="R 1"), Order(2, status=Status.SHIPPED))
    await browser.get("/orders/1")
    stale = {"seen": browser.hidden("seen"), **TYPED, "petId": "9"}
    assert "Corrected order 1." in await correct(browser, 1, TYPED)
    assert Order(1, 8, 2, "2027-01-31T00:00:00Z") == await console.store.orders.find(1)
    entry = (await log(console.store))[-1]
    assert "order.update" == entry.action
    assert {"petId": 7, "reference": "R 1"} == entry.before
    assert "Nothing was changed: order 1 has these values already." in await correct(browser, 1, TYPED)
    assert entry == (await log(console.store))[-1]
    assert "was changed meanwhile" in await browser.submit("/orders/1/edit", stale, 409)
    assert "Corrected order 2." in await correct(browser, 2, {"quantity": "5", "complete": "true"})
    assert Order(2, None, 5, None, True, Status.SHIPPED) == await console.store.orders.find(2)


async def test_a_field_that_gets_or_loses_its_value_meanwhile_concerns_only_those_who_change_it(
    console: Console, browser: Browser
) -> None:
    await add_orders(console, Order(1, 7, 2))
    await browser.get("/orders/1")
    stale = {"seen": browser.hidden("seen"), "petId": "7", "quantity": "2", "shipDate": "", "reference": ""}
    await correct(browser, 1, {"petId": "", "quantity": "2", "reference": "R 1"})
    assert "Corrected order 1." in await browser.submit("/orders/1/edit", {**stale, "quantity": "3"})
    assert Order(1, None, 3, reference="R 1") == await console.store.orders.find(1)
    for name, typed, now in (("petId", "8", "is empty now"), ("reference", "R 2", "is “R 1” now")):
        page = await browser.submit("/orders/1/edit", {**stale, name: typed}, 409)
        assert f"The value {now}; submit the form again to replace that." in page
    assert Order(1, None, 3, reference="R 1") == await console.store.orders.find(1)


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"quantity": "2.5"}, 400, "A quantity is a whole number"),
        ({"shipDate": "soon"}, 400, "'soon' is not a time"),
        ({"reference": "x" * 65}, 400, "There is a problem The reference is not 1 to 64 printable characters"),
        ({"complete": "true"}, 409, "only a shipped order can be completed"),
        ({"reference": "R 3"}, 409, "Order 3 already has this reference; give this order another one."),
    ],
)
async def test_a_wrong_correction_is_explained_and_changes_nothing(
    fields: dict[str, str], status: int, problem: str, console: Console, browser: Browser
) -> None:
    await add_orders(console, Order(1, 8, 2), Order(3, reference="R 3"))
    assert problem in await correct(browser, 1, TYPED | fields, status)
    assert Order(1, 8, 2) == await console.store.orders.find(1)


async def test_of_a_cancelled_order_the_page_offers_only_to_remove_the_reference(
    console: Console, browser: Browser
) -> None:
    await add_orders(console, Order(1, 7, reference="R 1", status=Status.CANCELLED))
    page = await browser.get("/orders/1")
    assert "Remove “" in page
    assert 'name="quantity"' not in page
    seen = browser.hidden("seen")
    assert "Corrected order 1." in await browser.submit("/orders/1/edit", {"seen": seen, "only": "reference"})
    assert Order(1, 7, status=Status.CANCELLED) == await console.store.orders.find(1)
    assert "Remove" not in await browser.get("/orders/1")
    stale = {"seen": seen, "petId": "7", "quantity": "3", "reference": "R 1"}
    page = await browser.submit("/orders/1/edit", stale)
    assert "Order 1 is already cancelled and can no longer be corrected." in page


async def test_orders_are_shipped_completed_and_cancelled(console: Console, browser: Browser) -> None:
    await add_orders(console, *(Order(number) for number in range(1, 5)))
    await browser.get("/orders")
    assert "Shipped 2 orders." in await browser.submit("/orders/ship", {"order": ["1", "2"]})
    assert "2026-10-26T07:33:20Z" == (await console.store.orders.find(1)).ship_date
    assert 'class="notice notice-ok"' in browser.page
    assert "Completed 1 order." in await browser.submit("/orders/complete", {"order": ["1"], "back": "/1"})
    assert "Cancel 2 orders?" in await browser.submit("/orders/cancel", {"order": ["3", "4"], "back": "?sort=-id"})
    assert 'href="/console/orders?sort=-id">Keep them' in browser.page
    cancel = {"order": ["3", "4"], "confirmed": browser.hidden("confirmed")}
    assert "Cancelled 2 orders." in await browser.submit("/orders/cancel", cancel)
    done = (("ship", 1), ("ship", 2), ("complete", 1), ("cancel", 3), ("cancel", 4))
    taken = [("operator:ada", f"order.{action}", f"order:{number}") for action, number in done]
    assert taken == (await console.actions())[1:]


async def test_bad_selections_are_refused(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1))
    await browser.get("/orders")
    token = {"form_token": browser.form_token}
    assert "No order is selected" in await browser.submit("/orders/ship", token, 400)
    many = [str(number) for number in range(1, 1002)]
    assert "at most 1,000 orders" in await browser.submit("/orders/ship", {**token, "order": many}, 400)
    await browser.submit("/orders/ship", {**token, "order": [*many[:1000], "7"]})
    missing = "There is no order {}; list the orders to see which identifiers exist."
    reasons = [missing.format(number) for number in range(2, 7)]
    more = "Not changed for such reasons: 994 more orders."
    assert ("warn", ["Shipped 1 order.", *reasons, more]) == browser.notice
    await browser.submit("/orders/ship", {**token, "order": "one"}, 404)


ELSEWHERE = ("//evil.example", "https://evil.example", "/..//evil.example", "?x\r\nSet-Cookie: a=b")


@pytest.mark.parametrize("back", [*ELSEWHERE, "?status=pending", "/1"])
async def test_an_action_leads_back_and_never_to_another_site(back: str, console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1))
    await browser.get("/orders")
    path = "" if back in ELSEWHERE else back
    assert f"/console/orders{path}" == await browser.led_to("/orders/ship", {"order": "1", "back": back})


FORMULAS = {
    **{text: f"'{text}" for text in ("=1+1", "+49 30", "-7", "@SUM(A1)", " =1", "＝1+1")},
    **{text: text for text in ('a=1,"b"', "Zoë", "'quoted", "a;b")},
    "a;=1+1": "a;'=1+1",  # where spreadsheets divide cells at semicolons
    'a; "=1+1;b': "a;' \"=1+1;b",
}
"""References, and how a spreadsheet gets them: what it would take for a formula begins with an apostrophe."""


@pytest.mark.parametrize(
    ("query", "ending", "kind"),
    [
        ("", "csv", "text/csv; charset=utf-8"),
        ("?format=csv-bom", "csv", "text/csv; charset=utf-8"),
        ("?format=json", "json", "application/json"),
        ("?format=jsonl", "jsonl", "application/jsonl"),
    ],
)
async def test_orders_are_exported_and_a_spreadsheet_takes_no_cell_for_a_formula(
    query: str, ending: str, kind: str, console: Console, browser: Browser
) -> None:
    texts = [*FORMULAS, *(f"R {number}" for number in range(1500))]  # more than one batch
    await add_orders(console, *(Order(number, -3, 1, reference=text) for number, text in enumerate(texts, 1)))
    response = await browser.http.get(f"/console/orders/export{query}")
    assert kind == response.headers["content-type"]
    assert f'attachment; filename="orders-20261026T073320Z.{ending}"' == response.headers["content-disposition"]
    assert (query == "?format=csv-bom") == response.content.startswith(BOM_UTF8)
    text = response.content.decode("utf-8-sig")
    if ending == "csv":
        rows: list[Any] = list(csv.DictReader(io.StringIO(text)))
        texts = [FORMULAS.get(text, text) for text in texts]
    else:
        rows = json.loads(text) if ending == "json" else list(map(json.loads, text.splitlines()))
    assert texts == [row["reference"] for row in rows]
    assert {"-3"} == {str(row["petId"]) for row in rows}, "numbers stay numbers"
    exact = [part async for part, _ in export_orders(console.store, "csv")]
    assert b"\n1,-3,1,,,pending,=1+1,\n" in b"".join(exact), "the command exports what an import reads"


async def test_an_export_that_cannot_begin_has_a_page(console: Console, browser: Browser) -> None:
    assert "Orders are exported as csv, csv-bom, jsonl, json." in await browser.get("/orders/export?format=xml", 400)
    with patch.object(console.store.engine, "snapshot", side_effect=ServiceUnavailable("the disk is full")):
        assert "The disk is full." in await browser.get("/orders/export", 503)


async def test_an_export_is_in_the_audit_log_but_not_among_the_last_changes(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1), Order(2))
    viewer = await console.another_browser().sign_in("bob", Role.VIEWER)
    await viewer.http.get("/console/orders/export?format=json")
    assert 200 == (await viewer.http.head("/console/orders/export?format=csv")).status_code  # exports nothing
    await browser.http.get("/console/orders/export?petId=7&status=pending&shipDateFrom=&sort=-id")
    await browser.get("/orders/export?petId=cat", 400)
    found = [each for each in await log(console.store) if each.action == "orders.export"]
    assert [("operator:bob", "orders", None), ("operator:ada", "orders", {"petId": "7", "status": "pending"})] == [
        (each.actor, each.subject, each.after) for each in found
    ]
    await browser.get("/audit?action=orders.export")
    assert 2 == browser.page.count("<strong>Exported orders</strong>")
    assert "Exported orders" not in await browser.get("/")


async def test_orders_are_exported_while_the_audit_log_takes_nothing(
    console: Console, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    await add_orders(console, Order(1))
    with patch.object(console.store.audit, "record_export", side_effect=ServiceUnavailable("the disk is full")):
        exported = await browser.http.get("/console/orders/export?format=jsonl")
    assert (200, 1) == (exported.status_code, exported.text.count("\n"))
    assert [("WARNING", "operator:ada", "The disk is full.")] == [
        (each.levelname, vars(each)["actor"], vars(each)["reason"])
        for each in caplog.records
        if each.message == "export not recorded"
    ]


async def test_the_audit_log_is_filtered_and_says_how_many_entries_match(
    waits: list[float], console: Console, browser: Browser
) -> None:
    await add_orders(console, *(Order(number) for number in range(1, 4)))
    await console.store.orders.change(1, CANCEL, Actor("operator:bob", START - 7200))
    await console.store.accounts.create("acme", *FREE, Actor("operator:bob", START - 3600))
    await console.store.keys.create(api_key("one", "acme"), Actor("operator:bob", START - 60))
    await console.store.orders.change(2, CANCEL, Actor("key:key_one", START - 60, "abc-7f"))
    imported, first, second = "Imported orders import-1", "Cancelled the order 1", "Cancelled the order 2"
    account, key = "Created the account acme", "Created the key key_one"
    for query, expected in (
        ("actor=bob", [key, account, first]),
        ("actor=key:key_one", [second]),
        ("actor=unknown", []),
        ("action=order.cancel&since=1h", [second]),
        ("action=order.cancel&until=1h", [first]),
        ("action=order.cancel&by=operators", [first]),
        ("subject=1", [first, imported]),
        ("subject=order:2&actor=key:key_one", [second]),
        ("subject=2&actor=bob", []),
        ("subject=acme", [key, account]),
        ("subject=account:acme&until=10m", [account]),
        ("subject=key_one", [key]),
        ("subject=key:key_one", [key]),
        ("request=abc-7f", [second]),
    ):
        page = await browser.get(f"/audit?{query}")
        entries = re.findall(r"<strong>([^<]+)</strong>\s*<a [^>]*><bdi>([^<]+)<", browser.page)
        assert expected == [" ".join(entry) for entry in entries], query
        count = ("No change matches", "1 change matches.", *(f"{number} changes match." for number in (2, 3)))
        assert count[len(expected)] in page
    assert "key_one of acme ·" in page
    assert 1 == browser.page.count(' of <a href="/console/accounts/acme">')
    assert 0.3 in waits


def test_every_action_of_the_audit_log_can_be_filtered_and_is_described() -> None:
    sources = [path.read_text() for layer in ("domain", "store", "engines") for path in (PACKAGE / layer).rglob("*.py")]
    recorded = re.findall(r'"((?:account|console|key|orders?|pets|store|webhook)\.[a-z_-]+)"', "".join(sources))
    assert sorted(set(recorded)) == list(actions()) == list(ACTIONS)


async def test_the_audit_log_is_paged_and_counted_as_far_as_it_is_examined(
    monkeypatch: pytest.MonkeyPatch, waits: list[float], console: Console, browser: Browser
) -> None:
    for number in range(120):
        await console.store.accounts.create(f"shop {number:03}", *FREE, Actor("operator:bob", START - number // 7))
    shown = [re.findall(r">(shop \d+)<", page) for page in await pages(browser, "/audit", "?action=account.create")]
    assert [50, 50, 20] == list(map(len, shown))
    assert 120 == len({name for page in shown for name in page})
    assert "122 changes." in await browser.get("/audit")
    await browser.get("/")
    assert 12 == browser.page.count('<p class="by">'), "the overview has the last ones"
    monkeypatch.setattr(audit, "MAX_SCAN", 20)
    assert "At least 20 changes." in await browser.get("/audit")
    assert "At least 20 changes match." in await browser.get("/audit?actor=bob")


async def test_the_search_box_finds_an_order_by_its_exact_reference(
    each_backend: Stores, console: Console, browser: Browser
) -> None:
    await console.store.accounts.create("1005", *FREE, BY)
    named = {1: "#1001", 2: "#1002", 3: "#1002", 4: "1004", 5: "1005", 1005: "1"}
    await add_orders(console, *(Order(order_id, reference=reference) for order_id, reference in named.items()))
    await browser.get("/")
    for text, path in (
        ("#1001", "/orders/1"),
        ("#1002", "/orders?reference=%231002"),
        ("1004", "/orders/4"),
        ("1005", "/orders/1005"),
        ("1", "/orders/1"),
    ):
        assert f"/console{path}" == await browser.led_to("/search", {"q": text})
    assert "No order, key," in await browser.submit("/search", {"q": "#100"}, 404)
    assert "Another order has the reference 1005: orders with this reference" in await browser.get("/orders/1005")
    assert '<a href="/console/orders?reference=1005">' in browser.page
    for path in ("/orders/4", "/orders/5"):
        assert "Another order has" not in await browser.get(path)


async def test_names_that_look_like_identifiers_are_found(console: Console, browser: Browser) -> None:
    for name in ("7", "key_partner"):
        await console.store.accounts.create(name, *FREE, BY)
        for number in range(25):
            await console.store.accounts.change(name, edit(None, f"Note {number}"), BY)
    await add_orders(console, Order(7, reference="wh_1001"), Order(8, reference="import-77"))
    for name in ("7", "key_partner"):
        await browser.get(f"/accounts/{name}")
        [link] = re.findall('<a href="/console(/audit[^"]+)">All changes of the account', browser.page)
        assert "26 changes match." in await browser.get(link)
    assert "26 changes match." in await browser.get("/audit?subject=key_partner")
    for text, path in (
        ("wh_1001", "/orders/7"),
        ("import-77", "/orders/8"),
        ("key_partner", "/accounts/key_partner"),
    ):
        assert f"/console{path}" == await browser.led_to("/search", {"q": text})


async def test_the_search_box_leads_to_what_it_names(console: Console, browser: Browser) -> None:
    await add_key(console.store)
    await add_orders(console, Order(1))
    await console.store.orders.change(1, CANCEL, Actor("key:key_one", START, "abc-7f"))
    await browser.get("/")
    for text, path in (
        ("-7", "/orders/-7"),
        ("key_one", "/keys/key_one"),
        ("wh_one", "/webhooks/wh_one"),
        ("import-/?", "/imports/import-%2F%3F"),
        ("zoo", "/accounts/zoo"),
        ("abc-7f", "/audit?request=abc-7f"),
        ("OO", "/accounts?search=OO"),
    ):
        assert f"/console{path}" == await browser.led_to("/search", {"q": text})
    assert "No order, key, webhook, import, account or request" in await browser.submit("/search", {"q": "zo o"}, 404)


async def test_a_list_says_how_many_orders_match_and_exports_them(
    waits: list[float], console: Console, browser: Browser
) -> None:
    shipped = [Order(number, 8, status=Status.SHIPPED) for number in range(1, 4)]
    await add_orders(console, *shipped, *(Order(number, 7) for number in range(10, 10_011)))
    for query, number in (
        ("sort=-id", "10,004 orders"),
        ("status=shipped", "3 orders match"),
        ("petId=7", "At least 10,000 orders match"),
    ):
        await browser.get(f"/orders?{query}")
        assert f'<p class="matches">{number}.</p>' in browser.page
    assert 0.15 in waits
    exported = await browser.http.get("/console/orders/export?format=jsonl&status=shipped")
    assert [1, 2, 3] == [json.loads(line)["id"] for line in exported.text.splitlines()]
    assert "Correct the filters" in await browser.get("/orders/export?petId=cat", 400)


async def test_an_order_that_was_not_changed_is_explained_with_a_link(console: Console, browser: Browser) -> None:
    await add_key(console.store)
    await add_orders(console, Order(1))
    await console.store.orders.change(1, ship(datetime.fromtimestamp(START, UTC)), Actor("operator:bob", START - 180))
    await console.store.orders.change(1, COMPLETE, Actor("key:key_one", START - 120))
    await browser.get("/orders")
    await browser.submit("/orders/ship", {"order": "1"})
    reason = "Order 1 has already shipped and cannot be shipped again; nothing is left to do."
    explained = f"{reason} Completed the order: key key_one of zoo, 2 min ago. Show it"
    assert ("bad", ["Nothing was changed.", explained]) == browser.notice
    assert 'href="/console/orders/1">Show it' in browser.page


async def test_what_was_done_before_the_store_failed_is_reported(console: Console, browser: Browser) -> None:
    await browser.get("/orders")
    outcomes = [Order(1), ServiceUnavailable("the disk is full")]
    with patch.object(console.store.orders, "change", AsyncMock(side_effect=outcomes)):
        await browser.submit("/orders/ship", {"order": ["1", "2"]})
    text = "The disk is full. The list shows which of the other orders were changed."
    assert ("warn", ["Shipped 1 order.", text]) == browser.notice
    with patch.object(console.store.keys, "change", AsyncMock(side_effect=[api_key("one"), *outcomes[1:]])):
        await browser.submit("/bans", {"key": ["key_one", "key_two"]})
    lifted = "Lifted 1 ban; these keys work again within a second."
    assert ("warn", [lifted, "The disk is full. The bans that follow were not lifted."]) == browser.notice


async def test_imports_are_listed_with_what_became_of_each(console: Console, browser: Browser) -> None:
    assert "Nothing was imported yet." in await browser.get("/imports")
    actor = Actor("operator:bob", START)
    for number in range(52):
        orders = [Order(10 * number), Order(10 * number + 1)]
        await console.store.orders.import_batch(orders, f"import-{number}", actor, file=f"{number}.csv")
    await console.store.pets.import_batch([Pet(1, "Ada")], "import-pets", actor, file="-")
    shown = [re.findall(r"\d+\.csv|standard input", page) for page in await pages(browser, "/imports", "?actor=bob")]
    files = ["standard input", *(f"{number}.csv" for number in range(51, -1, -1))]
    assert [files[:50], files[50:]] == shown
    page = await browser.get("/imports")
    assert "53 imports." in page
    assert "standard input (pets) running bob" in page
    assert "2 0 0 0" in page
    assert "53 imports match." in await browser.get("/imports?actor=bob")
    assert "No import is by eve." in await browser.get("/imports?actor=eve")


async def test_the_page_of_an_order_shows_every_import_that_touched_it(console: Console, browser: Browser) -> None:
    """However many batches were imported since."""
    for quantity in (1, 2):
        orders = [Order(number, 7, quantity) for number in range(1, 5_501)]
        await console.store.orders.import_batch(orders, f"import-{quantity}", Actor("operator:bob", START))
    page = await browser.get("/orders/100")
    assert ["import-2", "import-1"] == re.findall(r"import-\d", page)
    assert "quantity 1 → 2" in page
    assert re.search("2 changes match.*quantity 1 → 2", await browser.get("/audit?subject=100"))
    assert "2 changes match." in await browser.get("/audit?subject=100&action=orders.import")
    assert "No change matches" in await browser.get("/audit?subject=100&actor=eve")
    assert 2 == (await browser.get("/")).count("Imported orders"), "one entry for each import"
    for number in range(4, 55):
        await console.store.orders.import_batch([Order(6_000, 7, number)], f"import-{number}", BY)
    assert "All 51 changes of it" in await browser.get("/orders/6000")
    assert 50 == browser.page.count('<p class="by">')


async def test_changes_are_found_by_an_index(file_store: Stores) -> None:
    async with file_store.opened() as store:
        for filters, index in (
            (AuditFilters(request_id="abc-7f"), "audit_by_order_request"),
            (AuditFilters(actor="operator:bob"), "audit_by_actor"),
            (AuditFilters(action="key.create"), "audit_by_other_action"),
            (AuditFilters(subjects=("order:7", "key:key_one")), "audit_by_subject"),
            (AuditFilters(since=START), "audit_by_time"),
            (AuditFilters(action="order.cancel"), "audit_by_time"),
        ):
            query = page_statement(filters, 50, None, newest_first=True)
            assert index in str(await store.engine.query(f"EXPLAIN QUERY PLAN {query.sql}", query.parameters)), filters
