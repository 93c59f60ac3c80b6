"""Orders and the audit log in the console: filters, pages, actions and what they report."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

import petstore_server
from petstore_server.console.pages import audit as audit_page
from petstore_server.console.pages import orders
from petstore_server.console.rendering import actions
from petstore_server.domain.accounts import PLAN_LIMITS, Limits, Plan
from petstore_server.domain.audit import Actor, AuditFilters
from petstore_server.domain.orders import CANCEL, Order, Status
from petstore_server.domain.pets import Pet
from petstore_server.operations.audit import ACTIONS
from petstore_server.store import audit
from petstore_server.store.audit import page_statement
from testing.console import START, Browser, Console
from testing.stores import BY, SqlitePlaces, Stores, add_key, api_key, log

pytestmark = pytest.mark.anyio

PACKAGE = Path(petstore_server.__file__).parent


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


async def statuses(console: Console, *order_ids: int) -> list[str]:
    return [str((await console.store.orders.find(order_id)).status) for order_id in order_ids]


async def test_orders_are_filtered_and_sorted(console: Console, browser: Browser) -> None:
    assert "There are no orders yet" in await browser.get("/orders")
    await add_orders(
        console,
        Order(1, 7, 2, "2026-11-01T10:00:00Z", False, Status.PENDING, "A & <1>"),
        Order(2, 8, 1, "2026-11-05T10:00:00Z", True, Status.SHIPPED),
        Order(3, 7, None, None, None, Status.CANCELLED),
    )
    for query, expected in (
        ("", [1, 2, 3]),
        ("?status=shipped", [2]),
        ("?petId=7", [1, 3]),
        ("?reference=A+%26+%3C1%3E", [1]),
        ("?reference=A", []),
        ("?petId=7&status=cancelled", [3]),
        ("?complete=true", [2]),
        ("?shipDateFrom=2026-11-02", [2]),
        ("?shipDateTo=2026-11-02", [1]),
        ("?sort=-id", [3, 2, 1]),
        ("?sort=-shipDate", [2, 1, 3]),
    ):
        await browser.get(f"/orders{query}")
        assert expected == ids(browser.page), query
    assert "No order matches" in await browser.get("/orders?petId=9")
    await browser.get("/orders/1")
    assert '<a href="/console/orders?reference=A+%26+%3C1%3E">A &amp; &lt;1&gt;</a>' in browser.page


async def test_orders_are_paged(console: Console, browser: Browser) -> None:
    await add_orders(console, *(Order(number, 1) for number in range(1, 121)))
    shown = [number for page in await pages(browser, "/orders", "?petId=1&sort=-shipDate") for number in ids(page)]
    assert list(range(120, 0, -1)) == shown


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("petId=cat", "A pet id is a whole number"),
        ("status=lost", "Choose one of pending"),
        ("shipDateFrom=soon", "is not a time"),
        ("sort=price", "Choose one of id"),
        ("id=seven", "An order identifier is"),
    ],
)
async def test_a_wrong_filter_is_explained_and_kept(query: str, wrong: str, browser: Browser) -> None:
    assert wrong in await browser.get(f"/orders?{query}", 400)
    assert 'aria-invalid="true"' in browser.page


@pytest.mark.parametrize(
    "link",
    [
        f"/orders?after=.{10**30}",
        f"/orders?sort=shipDate&after={10**30}.1",
        "/orders?after=1",
        "/orders?after=x.y",
        f"/audit?before=1,{10**30}",
        "/audit?before=nan,7",
        "/audit?before=1",
    ],
)
async def test_an_impossible_position_shows_the_first_page(link: str, console: Console, browser: Browser) -> None:
    await console.store.orders.import_batch([Order(7)], "import-7", BY)
    text = await browser.get(link)
    assert "import-7" in text if "audit" in link else "7" in text


async def test_an_order_is_found_by_its_id(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(7, 3))
    response = await browser.http.get("/console/orders?id=7")
    assert (303, "/console/orders/7") == (response.status_code, response.headers["location"])
    assert "There is no order 8" in await browser.get("/orders/8", 404)
    await browser.get("/orders/x", 404)


async def test_an_orders_page_shows_what_happened_to_it(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(7), Order(8))
    await console.store.orders.change(7, CANCEL, Actor("key:key_one", START))
    page = await browser.get("/orders/7")
    assert "Cancelled the order" in page
    assert "/console/keys/key_one" in browser.page
    assert "Imported orders import-1" in await browser.get("/orders/8")


async def test_an_orders_page_offers_what_its_state_allows(console: Console, browser: Browser) -> None:
    shipped, complete = Order(2, status=Status.SHIPPED), Order(3, complete=True, status=Status.SHIPPED)
    await add_orders(console, Order(1), shipped, complete, Order(4, status=Status.CANCELLED))
    offered = []
    for number in range(1, 5):
        await browser.get(f"/orders/{number}")
        offered.append(re.findall(r">(Ship|Cancel|Complete)</button>", browser.page))
    assert [["Ship", "Cancel"], ["Complete"], [], []] == offered


async def test_orders_are_shipped_completed_and_cancelled(console: Console, browser: Browser) -> None:
    await add_orders(console, *(Order(number) for number in range(1, 5)))
    await browser.get("/orders")
    assert "Shipped 2 orders." in await browser.submit("/orders/ship", {"order": ["1", "2"]})
    assert "Completed 1 order." in await browser.submit("/orders/complete", {"order": ["1"], "back": "/1"})
    asked = await browser.submit("/orders/cancel", {"order": ["3", "4"]})
    assert "Cancel 2 orders?" in asked
    assert ["pending", "pending"] == await statuses(console, 3, 4)
    done = await browser.submit("/orders/cancel", {"order": ["3", "4"], "confirmed": browser.hidden("confirmed")})
    assert "Cancelled 2 orders." in done
    assert ["shipped", "shipped", "cancelled", "cancelled"] == await statuses(console, 1, 2, 3, 4)
    entries = [(entry.actor, entry.action, entry.subject) for entry in await log(console.store)][-5:]
    assert {
        ("operator:ada", "order.ship", "order:1"),
        ("operator:ada", "order.ship", "order:2"),
        ("operator:ada", "order.complete", "order:1"),
        ("operator:ada", "order.cancel", "order:3"),
        ("operator:ada", "order.cancel", "order:4"),
    } == set(entries)


async def test_a_conflict_is_reported_and_changes_nothing(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1, status=Status.SHIPPED), Order(2))
    await browser.get("/orders")
    page = await browser.submit("/orders/cancel", {"order": "1", "confirmed": "yes"})
    assert "Nothing was changed. Order 1 has already shipped" in page
    page = await browser.submit("/orders/ship", {"order": ["1", "2", "99"]})
    assert "Shipped 1 order. Order 1 is shipped; only a pending order can be shipped." in page
    assert "There is no order 99" in page


async def test_bad_selections_are_refused(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1))
    await browser.get("/orders")
    token = {"form_token": browser.form_token}
    assert "No order is selected" in await browser.submit("/orders/ship", token, 400)
    many = {**token, "order": [str(number) for number in range(1001)]}
    assert "at most 1,000 orders" in await browser.submit("/orders/ship", many, 400)
    await browser.submit("/orders/ship", {**token, "order": "one"}, 404)


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/..//evil.example", "?x\r\nSet-Cookie: a=b"]
)
async def test_an_action_never_leads_to_another_site(back: str, console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1))
    await browser.get("/orders")
    data = {"form_token": browser.form_token, "order": "1", "back": back}
    response = await browser.http.post("/console/orders/ship", data=data)
    assert (303, "/console/orders") == (response.status_code, response.headers["location"])


async def test_orders_are_exported(console: Console, browser: Browser) -> None:
    await add_orders(console, *(Order(number, 1) for number in range(1, 2001)))
    texts = {}
    for file_format in ("csv", "json", "jsonl"):
        response = await browser.http.get(f"/console/orders/export?format={file_format}")
        assert f'.{file_format}"' in response.headers["content-disposition"]
        texts[file_format] = response.text
    lines = {file_format: len(text.splitlines()) for file_format, text in texts.items()}
    assert (2001, 2000, 2000) == (lines["csv"], lines["jsonl"], len(json.loads(texts["json"])))


async def test_the_audit_log_is_filtered_and_says_how_many_entries_match(
    monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    monkeypatch.setattr(audit_page, "COUNT_SECONDS", 60.0)
    await add_orders(console, *(Order(number) for number in range(1, 4)))
    await console.store.orders.change(1, CANCEL, Actor("operator:bob", START - 7200))
    await console.store.accounts.create("acme", *_free(), Actor("operator:bob", START - 3600))
    await console.store.keys.create(api_key("one", "acme"), Actor("operator:bob", START - 60))
    await console.store.orders.change(2, CANCEL, Actor("key:key_one", START - 60, "abc-7f"))
    imported, first, second = "Imported orders import-1", "Cancelled the order 1", "Cancelled the order 2"
    account, key = "Created the account acme", "Created the key key_one"
    for query, expected in (
        ("actor=bob", [key, account, first]),
        ("actor=bob&action=key.create&since=10m", [key]),
        ("actor=key:key_one", [second]),
        ("actor=unknown", []),
        ("action=order.cancel", [second, first]),
        ("action=order.cancel&actor=key:key_one", [second]),
        ("action=order.cancel&since=1h", [second]),
        ("action=order.cancel&until=1h", [first]),
        ("subject=1", [first, imported]),
        ("subject=order:2&actor=key:key_one", [second]),
        ("subject=2&actor=bob", []),
        ("subject=acme", [key, account]),
        ("subject=acme&until=10m", [account]),
        ("request=abc-7f", [second]),
        ("request=abc-7", []),
    ):
        page = await browser.get(f"/audit?{query}")
        entries = re.findall(r"<strong>([^<]+)</strong>\s*<a [^>]*>([^<]+)<", browser.page)
        assert expected == [" ".join(entry) for entry in entries], query
        count = ("No change matches", "1 change matches.", *(f"{number} changes match." for number in (2, 3)))
        assert (True, False) == (count[len(expected)] in page, "At least" in page)
    await browser.get("/audit?since=soon", 400)
    assert 'aria-invalid="true"' in browser.page


def test_every_action_of_the_audit_log_can_be_filtered_and_is_described() -> None:
    sources = [path.read_text() for layer in ("domain", "store", "engines") for path in (PACKAGE / layer).rglob("*.py")]
    recorded = re.findall(r'"((?:account|console|key|orders?|pets|store)\.[a-z_-]+)"', "".join(sources))
    assert sorted(set(recorded)) == list(actions()) == list(ACTIONS)


async def test_the_audit_log_is_paged_and_counted_as_far_as_it_is_examined(
    monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    monkeypatch.setattr(audit_page, "COUNT_SECONDS", 60.0)
    for number in range(120):
        await console.store.accounts.create(f"shop {number:03}", *_free(), Actor("operator:bob", START - number // 7))
    await add_orders(console, Order(1))
    await console.store.orders.change(1, CANCEL, Actor("key:key_one", START))
    shown = re.findall(r">(shop \d+)<", "".join(await pages(browser, "/audit", "?action=account.create")))
    assert 120 == len(set(shown)) == len(shown)
    assert "124 changes." in await browser.get("/audit")
    monkeypatch.setattr(audit, "MAX_SCAN", 20)
    assert "At least 20 changes." in await browser.get("/audit")
    assert "At least 20 changes match." in await browser.get("/audit?actor=bob")
    assert "At least 1 change matches." in await browser.get("/audit?action=order.cancel")


def _free() -> tuple[Plan, Limits]:
    return Plan.FREE, PLAN_LIMITS[Plan.FREE]


async def test_recent_changes_are_without_sign_ins(browser: Browser) -> None:
    assert "Nothing was changed lately." in await browser.get("/")
    assert "Signed in to the console" in await browser.get("/audit")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("7", "/orders/7"),
        ("-7", "/orders/-7"),
        ("key_one", "/keys/key_one"),
        ("import-1", "/imports/import-1"),
        ("zoo", "/accounts/zoo"),
        ("abc-7f", "/audit?request=abc-7f"),
        ("zo o", "/accounts?search=zo+o"),
    ],
)
async def test_the_search_box_leads_to_what_it_names(text: str, path: str, console: Console, browser: Browser) -> None:
    await add_key(console.store)
    await add_orders(console, Order(1))
    await console.store.orders.change(1, CANCEL, Actor("key:key_one", START, "abc-7f"))
    await browser.get("/")
    fields = {"form_token": browser.form_token, "q": text}
    response = await browser.http.post("/console/search", data=fields)
    assert (303, f"/console{path}") == (response.status_code, response.headers["location"])


async def test_a_list_says_how_many_orders_match_and_exports_them(
    monkeypatch: pytest.MonkeyPatch, console: Console, browser: Browser
) -> None:
    monkeypatch.setattr(orders, "_COUNT_SECONDS", 60.0)
    monkeypatch.setattr(orders, "_MAX_COUNTED", 100)
    shipped = [Order(number, 8, status=Status.SHIPPED) for number in range(1, 4)]
    await add_orders(console, *shipped, *(Order(number, 7) for number in range(10, 130)))
    assert "123 orders." in await browser.get("/orders")
    assert "3 orders match." in await browser.get("/orders?status=shipped")
    assert "At least 100 orders match." in await browser.get("/orders?petId=7")
    exported = await browser.http.get("/console/orders/export?format=jsonl&status=shipped")
    assert [1, 2, 3] == [json.loads(line)["id"] for line in exported.text.splitlines()]
    assert "Correct the filters" in await browser.get("/orders/export?petId=cat", 400)


async def test_all_orders_of_a_page_are_selected_by_a_link(console: Console, browser: Browser) -> None:
    await add_orders(console, *(Order(number) for number in range(1, 61)))
    await browser.get("/orders?sort=-id&select=all")
    assert (50, 50) == (browser.page.count(" checked>"), len(ids(browser.page)))
    assert 'name="back" value="?sort=-id"' in browser.page
    await browser.get("/orders?sort=-id")
    assert 0 == browser.page.count(" checked>")


async def test_an_order_that_was_not_changed_is_explained_with_a_link(console: Console, browser: Browser) -> None:
    await add_orders(console, Order(1))
    await console.store.orders.change(1, CANCEL, Actor("operator:bob", START - 120))
    await browser.get("/orders")
    page = await browser.submit("/orders/ship", {"order": "1"})
    assert "Order 1 is cancelled; only a pending order can be shipped. Cancelled the order: operator bob" in page
    assert ", 2 min ago." in page
    assert 'href="/console/orders/1">Show it' in browser.page


async def test_imports_are_listed_with_what_became_of_each(console: Console, browser: Browser) -> None:
    assert "Nothing was imported yet." in await browser.get("/imports")
    actor = Actor("operator:bob", START)
    for number in range(52):
        for batch in range(2):
            orders = [Order(10 * number + batch)]
            await console.store.orders.import_batch(orders, f"import-{number}", actor, file=f"{number}.csv")
    await console.store.pets.import_batch([Pet(1, "Ada")], "import-pets", actor, file="-")
    page = await browser.get("/imports")
    assert "53 imports." in page
    assert "standard input (pets) running bob" in page
    assert page.index("51.csv running bob") < page.index("50.csv running bob")
    assert "2 0 0 0" in page
    [older] = re.findall(r'<a rel="next" href="([^"]*)"', browser.page)
    page = await browser.get(f"/imports{unescape(older)}")
    assert "1.csv" in page
    assert "50.csv" not in page
    assert "53 imports match." in await browser.get("/imports?actor=bob")
    assert "No import is by eve." in await browser.get("/imports?actor=eve")


async def test_the_page_of_an_order_shows_every_import_that_touched_it(
    each_backend: Stores, console: Console, browser: Browser
) -> None:
    """However many batches were imported since, and next to them nothing else."""
    for quantity in (1, 2):
        orders = [Order(number, 7, quantity) for number in range(1, 5_501)]
        await console.store.orders.import_batch(orders, f"import-{quantity}", Actor("operator:bob", START))
    await console.store.orders.import_batch([Order(101, 7, 3)], "import-3", Actor("operator:bob", START))
    page = await browser.get("/orders/100")
    assert ["import-2", "import-1"] == re.findall(r"import-\d", page)
    assert "quantity 1 → 2" in page
    assert "Nothing since it was imported" not in page
    assert 2 == page.count("Imported orders")
    audit_page = await browser.get("/audit?subject=100")
    assert "2 changes match." in audit_page
    assert "quantity 1 → 2" in audit_page
    assert "2 changes match." in await browser.get("/audit?subject=100&action=orders.import")
    assert "No change matches" in await browser.get("/audit?subject=100&actor=eve")
    assert 3 == (await browser.get("/")).count("Imported orders"), "one entry for each import"
    await console.store.orders.import_batch([Order(6_000)], "import-4", Actor("operator:bob", START))
    assert "import-4" not in await browser.get("/orders/100")
    assert ["import-4"] == re.findall(r"import-\d", await browser.get("/orders/6000"))
    await browser.get("/audit?subject=import-4")
    assert "createdChecksums" not in browser.page


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (AuditFilters(request_id="abc-7f"), "audit_by_request"),
        (AuditFilters(actor="operator:bob"), "audit_by_actor"),
        (AuditFilters(action="key.create"), "audit_by_action"),
        (AuditFilters(subjects=("order:7", "key:key_one")), "audit_by_subject"),
        (AuditFilters(since=START), "audit_by_time"),
        (AuditFilters(action="order.cancel"), "audit_by_time"),
    ],
)
async def test_changes_are_found_by_an_index(tmp_path: Path, filters: AuditFilters, index: str) -> None:
    async with Stores(SqlitePlaces(tmp_path)).opened() as store:
        query = page_statement(filters, 50, None, newest_first=True)
        plan = await store.engine.query(f"EXPLAIN QUERY PLAN {query.sql}", query.parameters)
        assert index in str(plan)


async def test_the_changes_of_an_account_are_also_those_of_all_its_keys(console: Console, browser: Browser) -> None:
    await console.store.accounts.create("acme", *_free(), Actor("operator:bob", START - 3600))
    for number in range(250):
        await console.store.keys.create(api_key(f"k{number:03}", "acme"), Actor("operator:bob", START - 60))
    assert "251 changes match." in await browser.get("/audit?subject=acme")
    assert "All changes of the account and its keys" in await browser.get("/accounts/acme")
