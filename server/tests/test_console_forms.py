"""Forms of the console: each works once, for good, and loses nothing that was typed."""

import asyncio
import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from http.cookies import SimpleCookie
from typing import Any
from unittest.mock import AsyncMock, patch
from urllib.parse import urlencode

import httpx2
import pytest
from starlette.requests import Request

from petstore_server.console import visit
from petstore_server.console.routes import needed_role
from petstore_server.domain.accounts import PLAN_LIMITS, Plan, VisibleOrders, edit, set_plan
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import Environment, new_key
from petstore_server.domain.orders import CANCEL, Order, correct
from petstore_server.domain.roles import Role
from testing.console import HOST, START, Browser, Console, running_console, text_of
from testing.stores import Stores, add_key, log
from testing.subprocesses import PATIENCE

pytestmark = pytest.mark.usefixtures("zoo")
BOB = Actor("operator:bob", START)
CHANGED = "This was changed meanwhile, so nothing was done. The {} now; submit the form again to replace that."


def form(browser: Browser, action: str) -> dict[str, str]:
    """The fields of a form of the last page, as a browser would submit them, without check boxes."""
    found = re.findall(rf'<form method="post" action="/console{action}".*?</form>', browser.page, re.DOTALL)[0]
    chosen = re.findall(r'<select[^>]* name="(\w+)".*?value="(\w+)" selected', found, re.DOTALL)
    return dict(chosen + re.findall(r'<input[^>]* name="(\w+)"(?: type="\w+")? value="([^"]*)"', found))


async def form_on(browser: Browser, page: str, action: str = "") -> dict[str, str]:
    """The fields of a form of this page, below whose path the action is."""
    await browser.get(page)
    return form(browser, page + action)


FORMS: list[tuple[str, str, dict[str, Any]]] = [
    ("/accounts", "/accounts", {"name": "new{0}", "plan": "free"}),
    ("/accounts/zoo{0}", "/accounts/zoo{0}/plan", {"plan": "pro"}),
    ("/accounts/zoo{0}", "/accounts/zoo{0}/details", {"note": "renews in March"}),
    ("/accounts/zoo{0}/suspend", "/accounts/zoo{0}/suspend", {}),
    ("/accounts/zoo{0}/close", "/accounts/zoo{0}/close", {}),
    ("/accounts/zoo{0}", "/accounts/zoo{0}/keys", {"scope": "orders:read"}),
    ("/keys/key_{0}/rotate", "/keys/key_{0}/rotate", {}),
    ("/keys/key_{0}/revoke", "/keys/key_{0}/revoke", {}),
    ("/keys/key_{0}", "/keys/key_{0}/unban", {}),
    ("/bans", "/bans", {"key": ["key_{0}", "key_other{0}"]}),
    ("/orders", "/orders/ship", {"order": ["{0}", "-{0}"]}),
]


@pytest.mark.parametrize(("page", "action", "fields"), FORMS, ids=[action for _, action, _ in FORMS])
async def test_a_form_fails_only_where_it_changed_nothing_whichever_call_of_the_store_fails(
    page: str, action: str, fields: dict[str, Any], console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = failing = 0

    def or_failure(name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(console.store.engine, name)

        async def called(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise ServiceUnavailable("the disk is full")
            return await call(*arguments, **options)

        return called

    while calls >= failing:
        calls, failing = 0, failing + 1
        for name in (f"{failing}", f"other{failing}"):
            await add_key(console.store, name, f"zoo{name}")
            await console.store.usage.save({}, [Ban(f"key_{name}", int(START) - 10, int(START) + 110, 2)])
        await console.store.orders.import_batch([Order(failing), Order(-failing)], "import:1", BOB)
        await browser.get(page.format(failing))
        data = {
            name: value.format(failing) if isinstance(value, str) else [each.format(failing) for each in value]
            for name, value in (form(browser, action.format(failing)) | fields).items()
        }
        before = len(await log(console.store))
        with monkeypatch.context() as patched:
            for name in ("query", "read", "submit"):
                patched.setattr(console.store.engine, name, or_failure(name))
            calls = 0
            response = await browser.http.post("/console" + action.format(failing), data=data)
        assert response.status_code in (200, 303, 503), response.text
        assert (response.status_code != 503) is (len(await log(console.store)) > before), failing
    assert failing > 3


async def test_a_reload_of_the_page_with_a_new_key_makes_no_second_key_ever(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        browser = await console.browser.sign_in()
        fields = await form_on(browser, "/accounts/zoo", "/keys") | {"scope": "orders:read"}
        await browser.get("/accounts/zoo")  # another tab
        other = form(browser, "/accounts/zoo/keys") | {"scope": "orders:read"}
        clicks = [browser.http.post("/console/accounts/zoo/keys", data=fields) for _ in range(3)]
        shown = [re.findall(r"pso_live_\w+", page.text) for page in await asyncio.gather(*clicks)]
        assert shown[0]
        assert [shown[0]] * 3 == shown, "one key, shown three times"
        console.sources.submissions.clear()  # some seconds later
        console.clock.now += 11 * 3600
        assert "This form was submitted before" in await browser.submit("/accounts/zoo/keys", fields, 409)
        assert 2 == len(await console.store.keys.list("zoo"))
        assert "pso_live_" in await browser.submit("/accounts/zoo/keys", other, 200)
    async with running_console(each_backend) as after:  # the process was restarted, or it is another host
        after.clock.now += 12 * 3600
        again = after.another_browser()
        again.http.cookies = console.browser.http.cookies
        for each in (fields, other):
            assert "This form was submitted before" in await again.submit("/accounts/zoo/keys", each, 409)
        assert 3 == len(await after.store.keys.list("zoo"))


async def test_a_form_that_was_refused_can_be_submitted_again(console: Console, browser: Browser) -> None:
    fields = await form_on(browser, "/keys/key_one/revoke")
    await console.store.accounts.change("zoo", edit("a", None), BOB)
    for _ in range(2):
        await browser.submit("/keys/none/revoke", fields, 404)
        await browser.submit("/keys/key_one/rotate", {**fields, "grace": "2h"}, 400)
        console.sources.submissions.clear()
    await browser.submit("/keys/key_one/revoke", fields, 200)


async def test_a_form_whose_request_is_cancelled_is_not_done_again(
    console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = form(browser, "/accounts/zoo/details")
    cancelled = AsyncMock(side_effect=asyncio.CancelledError)
    with patch.object(console.store.accounts, "change", cancelled), pytest.raises(asyncio.CancelledError):
        await browser.submit("/accounts/zoo/details", fields)
    sent = await browser.http.post("/console/accounts/zoo/details", data=fields)
    assert (500, b"") == (sent.status_code, sent.content), "a second click waits for no response"
    console.sources.submissions.clear()  # some seconds later
    monkeypatch.setattr(visit, "_REPEATED_SECONDS", 0.0)
    await browser.submit("/accounts/zoo/details", fields, 409)
    await asyncio.sleep(0.01)
    assert {} == console.sources.submissions


async def test_a_session_that_ended_loses_nothing_that_was_typed(console: Console, browser: Browser) -> None:
    await browser.get("/accounts/zoo?keys=usable")
    typed = form(browser, "/accounts/zoo/details") | {"contact": "ann@zoo.example", "note": "calls; on “Mondays”"}
    await console.store.sessions.end_all(BOB)
    page = await browser.submit("/accounts/zoo/details", typed, 401)
    assert "what you typed is kept" in page
    assert "petstore console" in page
    assert "/console/accounts/zoo?keys=usable" == (await browser.http.get(await browser.link())).headers["location"]
    for _ in range(2):  # a reload, and wrong input, lose nothing either
        assert "What you had typed is in the form below again." in await browser.get("/accounts/zoo?keys=usable")
        again = form(browser, "/accounts/zoo/details")
        assert ("ann@zoo.example", "calls; on “Mondays”") == (again["contact"], again["note"])
        await browser.submit("/accounts/zoo/details", {**again, "note": "x" * 201}, 400)
    assert "" == (await console.store.accounts.find("zoo")).contact
    await browser.submit("/accounts/zoo/details", again, 200)
    assert "ann@zoo.example" == (await console.store.accounts.find("zoo")).contact
    assert "What you had typed" not in await browser.get("/accounts/zoo")


async def send_slowly(browser: Browser, path: str, fields: dict[str, str], work: Awaitable[object]) -> httpx2.Response:
    """Submit a form that takes longer to arrive than a page may take; `work` is done meanwhile."""
    encoded, kind = urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(visit, "PAGE_SECONDS", 0.0)

        async def content() -> AsyncIterator[bytes]:
            yield encoded[:10]
            patched.setattr(visit, "PAGE_SECONDS", PATIENCE)
            await work
            yield encoded[10:]

        return await browser.http.post(f"/console{path}", content=content(), headers=kind)


async def test_a_session_that_ends_while_a_form_is_sent_changes_nothing(console: Console, browser: Browser) -> None:
    fields = form(browser, "/accounts/zoo/details") | {"note": "typed slowly"}
    response = await send_slowly(browser, "/accounts/zoo/details", fields, console.store.sessions.end_all(BOB))
    assert 401 == response.status_code
    assert "Your session has ended Nothing was changed." in text_of(response)
    assert "Sign out" not in response.text
    assert "console.end_sessions" == (await log(console.store))[-1].action
    await browser.sign_in()
    assert "typed slowly" == (await form_on(browser, "/accounts/zoo", "/details"))["note"]


async def test_a_form_that_arrives_slowly_has_the_time_of_a_page(browser: Browser) -> None:
    fields = await form_on(browser, "/accounts") | {"name": "zoo", "plan": "free"}
    response = await send_slowly(browser, "/accounts", fields, asyncio.sleep(0))
    assert "The account &#39;zoo&#39; exists already" in response.text


async def test_a_change_has_the_time_at_which_its_form_has_arrived(console: Console, browser: Browser) -> None:
    async def wait() -> None:
        console.clock.now += 60

    await send_slowly(browser, "/accounts/zoo/details", form(browser, "/accounts/zoo/details") | {"note": "a"}, wait())
    assert START + 60 == (await log(console.store))[-1].at


async def test_what_was_typed_waits_for_a_role_that_has_the_form(console: Console, browser: Browser) -> None:
    typed = await form_on(browser, "/accounts/zoo", "/details") | {"note": "typed"}
    await console.store.sessions.end_all(BOB)
    await browser.submit("/accounts/zoo/details", typed, 401)
    for role, shown in ((Role.VIEWER, False), (Role.ADMIN, True)):
        await browser.sign_in("bob", role)
        assert shown == ("What you had typed" in await browser.get("/accounts/zoo"))


async def test_what_was_typed_waits_until_its_own_form_is_submitted(console: Console, browser: Browser) -> None:
    typed = await form_on(browser, "/accounts/zoo", "/details") | {"note": "typed"}
    search, pause = form(browser, "/search") | {"q": "zoo"}, {"form_token": browser.form_token}
    await console.store.sessions.end_all(BOB)
    await browser.submit("/accounts/zoo/details", typed, 401)
    for path, other in (("/search", search), ("/keys/key_one/unban", pause)):
        assert "what you typed is kept" not in await browser.submit(path, other, 401)
    await browser.sign_in()
    await browser.submit("/search", {"q": "zoo"})
    assert "What you had typed" in await browser.get("/accounts/zoo")
    await console.store.accounts.close_account("zoo", BOB)
    assert "What you had typed" not in await browser.get("/accounts/zoo"), "it has no form any more"
    await browser.submit("/sign-out")
    assert not [name for name in browser.http.cookies if "kept" in name]


async def test_no_corrections_are_announced_of_an_order_that_is_cancelled_by_now(
    console: Console, browser: Browser
) -> None:
    await console.store.orders.import_batch([Order(1, 7, reference="R 1")], "import:1", BOB)
    typed = await form_on(browser, "/orders/1", "/edit") | {"quantity": "3"}
    await console.store.sessions.end_all(BOB)
    await browser.submit("/orders/1/edit", typed, 401)
    await console.store.orders.change(1, CANCEL, BOB)
    await browser.sign_in()
    assert "What you had typed" not in await browser.get("/orders/1")
    assert "Corrected order 1." in await browser.submit("/orders/1/edit", form(browser, "/orders/1/edit"))


async def test_a_form_of_an_earlier_session_is_shown_again_too(browser: Browser) -> None:
    typed = await form_on(browser, "/accounts") | {"name": "Café & Söhne", "plan": "pro", "note": "new"}
    await browser.sign_in()  # in another tab
    assert "Show the form again" in await browser.submit("/accounts", typed, 403)
    again = await form_on(browser, "/accounts")
    assert ("Café &amp; Söhne", "pro", "new") == (again["name"], again["plan"], again["note"])


async def test_a_store_that_is_down_loses_nothing_that_was_typed(console: Console, browser: Browser) -> None:
    typed = form(browser, "/accounts/zoo/details") | {"note": "long text"}
    with patch.object(console.store.accounts, "change", AsyncMock(side_effect=ServiceUnavailable("the disk is full"))):
        assert "Show the form again" in await browser.submit("/accounts/zoo/details", typed, 503)
    assert "" == (await form_on(browser, "/accounts"))["note"], "another form, which has a note too"
    assert "long text" == (await form_on(browser, "/accounts/zoo", "/details"))["note"]


@pytest.mark.parametrize("altered", ["content", "signature", "unsigned", "other"])
async def test_a_form_that_was_not_kept_by_the_console_is_not_shown(
    altered: str, console: Console, browser: Browser
) -> None:
    typed = form(browser, "/accounts/zoo/details") | {"note": "long text"}
    with patch.object(console.store.accounts, "change", AsyncMock(side_effect=ServiceUnavailable("the disk is full"))):
        await browser.submit("/accounts/zoo/details", typed, 503)
    content, _, mac = browser.http.cookies["petstore_kept_8081"].partition(".")
    forged = urlsafe_b64encode(b'["/accounts/zoo/details",[["note","a long text"]]]').decode()
    value = {"content": f"{forged}.{mac}", "signature": f"{content}.{mac[:-1]}x", "unsigned": forged, "other": "é.é"}
    cookies = {**browser.http.cookies, "petstore_kept_8081": value[altered]}
    header = "; ".join(f"{name}={text}" for name, text in cookies.items()).encode()
    browser.http.cookies.clear()
    page = await browser.http.get("/console/accounts/zoo", headers=[(b"cookie", header)])
    assert 200 == page.status_code
    assert "long text" not in page.text


async def test_what_was_done_is_not_offered_again_after_signing_in(console: Console, browser: Browser) -> None:
    fields = form(browser, "/accounts/zoo/keys") | {"scope": "orders:read", "note": "mine"}
    await browser.submit("/accounts/zoo/keys", fields, 200)
    await console.store.sessions.end_all(BOB)
    await browser.submit("/accounts/zoo/keys", fields, 401)
    await browser.sign_in()
    assert "" == (await form_on(browser, "/accounts/zoo", "/keys"))["note"]


async def test_no_key_and_nothing_long_is_kept_in_the_browser(console: Console, browser: Browser) -> None:
    key, longest = new_key(Environment.PRODUCTION, lambda _: 1), "x" * (2500 - len('["/accounts",[["note",""]]]'))
    for text, kept in ((key, 0), (f"x {key}", 0), (f"{longest}x", 0), (longest, 1)):
        await browser.sign_in()
        await console.store.sessions.end_all(BOB)
        typed = {"form_token": browser.form_token, "note": text}
        response = await browser.http.post("/console/accounts", data=typed)
        assert 1 + kept == response.headers["set-cookie"].count("Max-Age=3600; Path=/console; SameSite=lax")
        assert kept == len([name for name in browser.http.cookies if "kept" in name])


async def test_a_notice_is_cut_so_that_a_cookie_holds_it(console: Console, browser: Browser) -> None:
    cookies = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    headers = [(b"host", HOST.encode()), (b"cookie", cookies.encode())]
    scope = {"type": "http", "method": "GET", "path": "/console/", "query_string": b"", "headers": headers}
    lines = ("a" * 1000, ("b" * 1000, "/orders/7"))
    response = visit.Visit(Request(scope), console.sources, needed_role).redirect_with_notice("/accounts", *lines)
    assert (303, "/console/accounts") == (response.status_code, response.headers["location"])
    cookie = SimpleCookie(response.headers["set-cookie"])["petstore_notice_8081"]
    browser.http.cookies.set(cookie.key, cookie.value, domain="127.0.0.1", path="/console")
    await browser.get("/accounts")
    shown = f'<p>{"a" * 500}</p><p>{"b" * 500} <a href="/console/orders/7">Show it</a></p>'
    assert f'<div class="notice notice-ok" role="status">\n{shown}' in browser.page


@pytest.mark.parametrize(("size", "fields", "status"), [(2**18, 2000, 303), (2**18 + 1, 3, 413), (9000, 2001, 400)])
async def test_a_form_has_a_largest_size(size: int, fields: int, status: int, browser: Browser) -> None:
    body = f"form_token={browser.form_token}" + "&a=b" * (fields - 2) + "&c="
    sent = await browser.http.post(
        "/console/check",
        content=body + "x" * (size - len(body)),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert status == sent.status_code
    assert ["Show the form again" in sent.text, "set-cookie" in sent.headers] == [False, False] or status == 303


async def test_an_edit_keeps_what_another_operator_has_changed_meanwhile_elsewhere(
    console: Console, browser: Browser
) -> None:
    typed = form(browser, "/accounts/zoo/details") | {"contact": "ann@zoo.example"}
    await console.store.accounts.change("zoo", set_plan(Plan.PRO, PLAN_LIMITS[Plan.PRO]), BOB)
    await console.store.accounts.change("zoo", edit(None, "bob's note"), BOB)
    page = await browser.submit("/accounts/zoo/details", typed, 200)
    assert "Saved the contact and the note of zoo." in page
    assert "Contact: ann@zoo.example · bob's note" in page
    assert ("operator:ada", "account.edit", "account:zoo") == (await console.actions())[-1]
    assert Plan.PRO == (await console.store.accounts.find("zoo")).plan


async def test_a_form_that_is_shown_again_does_not_undo_what_it_does_not_change(
    console: Console, browser: Browser
) -> None:
    typed = await form_on(browser, "/accounts/zoo", "/details") | {"contact": "ann@zoo.example"}
    await console.store.accounts.change("zoo", edit("bob@zoo.example", "bob was first"), BOB)
    assert "Nothing was changed" in await browser.submit("/accounts/zoo/details", typed, 409)
    assert [("details-contact", CHANGED.format("contact is “bob@zoo.example”"))] == browser.problems
    again = form(browser, "/accounts/zoo/details")
    assert ("ann@zoo.example", "bob was first") == (again["contact"], again["note"])
    await browser.submit("/accounts/zoo/details", again)
    account = await console.store.accounts.find("zoo")
    assert ("ann@zoo.example", "bob was first") == (account.contact, account.note)
    await console.store.orders.import_batch([Order(1, 7, 2)], "import:1", BOB)
    typed = await form_on(browser, "/orders/1", "/edit") | {"quantity": "3"}
    await console.store.orders.change(1, correct({"quantity": 4, "reference": "R 1"}), BOB)
    await browser.submit("/orders/1/edit", typed, 409)
    await browser.submit("/orders/1/edit", form(browser, "/orders/1/edit"))
    assert Order(1, 7, 3, reference="R 1") == await console.store.orders.find(1)


@pytest.mark.parametrize("way", ["wrong input", "session ended"])
async def test_a_form_that_is_shown_again_still_notices_what_was_changed_meanwhile(
    way: str, console: Console, browser: Browser
) -> None:
    await console.store.orders.import_batch([Order(1, 7, 2)], "import:1", BOB)
    for path, action, mine, wrong, change in (
        ("/accounts/zoo", "/plan", {"plan": "business"}, {"per_day": "x"}, set_plan(Plan.PRO, PLAN_LIMITS[Plan.PRO])),
        ("/accounts/zoo", "/orders", {"orders": "own"}, {"orders": "x"}, edit(None, None, VisibleOrders.OWN)),
        ("/accounts/zoo", "/details", {"note": "mine"}, {"contact": "\x7f"}, edit(None, "bob's")),
        ("/orders/1", "/edit", {"quantity": "3"}, {"petId": "x"}, correct({"quantity": 4, "reference": "R 1"})),
    ):
        typed = await form_on(browser, path, action) | mine
        changes: Any = console.store.orders if action == "/edit" else console.store.accounts
        await changes.change(1 if action == "/edit" else "zoo", change, BOB)
        if way == "wrong input":
            await browser.submit(path + action, typed | wrong, 400)
        else:
            await console.store.sessions.end_all(BOB)
            await browser.submit(path + action, typed, 401)
            await browser.sign_in()
            await browser.get(path)
        again = form(browser, path + action) | {name: typed.get(name, "") for name in wrong} | mine
        page = await browser.submit(path + action, again, 409)
        assert "This was changed meanwhile, so nothing was done." in page, action
    assert Order(1, 7, 4, reference="R 1") == await console.store.orders.find(1)
    assert ("bob's", Plan.PRO) == ((zoo := await console.store.accounts.find("zoo")).note, zoo.plan)


async def test_what_is_wrong_with_a_form_is_not_said_where_the_form_is_gone(console: Console, browser: Browser) -> None:
    await console.store.orders.import_batch([Order(1, 7, 2, reference="R 1")], "import:1", BOB)
    typed = await form_on(browser, "/orders/1", "/edit") | {"quantity": "3"}
    await console.store.orders.change(1, correct({"quantity": 4}), BOB)
    await console.store.orders.change(1, CANCEL, BOB)
    for wrong in ({}, {"petId": "x"}):
        page = await browser.submit("/orders/1/edit", typed | wrong, 409)
        assert "Order 1 is already cancelled and can no longer be corrected." in page
        assert ("Cancelled the order" in page, "Error:" in page) == (True, False)
    other = await form_on(browser, "/orders/1", "/edit")
    await console.store.orders.change(1, correct({"reference": None}), BOB)
    assert "Nothing was changed: order 1 has these values already." in await browser.submit("/orders/1/edit", other)
    wrong = await form_on(browser, "/accounts/zoo", "/plan") | {"per_day": "x"}
    await console.store.accounts.close_account("zoo", BOB)
    page = await browser.submit("/accounts/zoo/plan", wrong, 409)
    assert ("The account 'zoo' is closed" in page, "Error:" in page) == (True, False)


async def test_two_operators_make_the_same_correction(console: Console, browser: Browser) -> None:
    await console.store.orders.import_batch([Order(1, 7, 2)], "import:1", BOB)
    typed = await form_on(browser, "/orders/1", "/edit") | {"quantity": "3"}
    await console.store.orders.change(1, correct({"quantity": 3}), BOB)
    assert "Nothing was changed: order 1 has these values already." in await browser.submit("/orders/1/edit", typed)
