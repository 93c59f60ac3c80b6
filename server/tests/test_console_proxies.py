"""Signing in to the console by a proxy: whose header is believed, which name and role it gives, and what stays."""

import asyncio
from unittest.mock import AsyncMock

import httpx2
import pytest
from starlette.requests import Request

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import Order
from petstore_server.store import Store
from testing.console import Console, finished, running_console, text_of, upload
from testing.stores import BY, Stores, log

PROXY = "10.0.0.5"
SETTINGS = {
    "PETSTORE_CONSOLE_USER_HEADER": "X-Forwarded-Email",
    "PETSTORE_CONSOLE_PROXIES": "10.0.0.0/24, fd00::/8",
    "PETSTORE_CONSOLE_GROUPS_HEADER": "X-Forwarded-Groups",
    "PETSTORE_CONSOLE_ROLES": "admin:pets-admins, operator:pets-ops, viewer:staff:all",
}
ADA = ("X-Forwarded-Email", "ada@example.com")
ADMINS = ("X-Forwarded-Groups", "pets-admins")
pytestmark = pytest.mark.settings(**SETTINGS)
REFUSED = Request({"type": "http", "headers": [], "client": (PROXY, 1)})


async def answer(console: Console, *headers: tuple[str, str], address: str = PROXY) -> httpx2.Response:
    return await console.another_browser(address, headers).http.get("/console/")


async def role_of(console: Console, *groups: str) -> str | None:
    """The role that the overview shows to an operator in these groups; None if it is refused."""
    response = await answer(console, ADA, *(("X-Forwarded-Groups", group) for group in groups))
    if response.status_code == 403:
        return None
    assert 200 == response.status_code
    assert "ada@example.com" in response.text
    return next(role for role in ("viewer", "operator", "admin") if f">{role}</a>" in response.text)


async def test_the_name_and_the_role_come_with_each_request_and_without_a_session(console: Console) -> None:
    browser = console.another_browser(PROXY, [ADA, ADMINS])
    assert "Sign out" not in await browser.get("/")
    assert {} == dict(browser.http.cookies)
    assert [] == await console.store.sessions.list(console.clock.now)
    assert "The proxy has signed you in" in await browser.get("/sessions")
    assert "The proxy has signed you in; sign out there." in await browser.submit("/sign-out", status=409)


async def test_of_several_groups_the_highest_role_holds_and_they_match_exactly(console: Console) -> None:
    for groups, expected in (
        ("pets-admins", "admin"),
        (" staff:all ,\tpets-ops", "operator"),
        ("pets-ops,pets-admins,staff:all", "admin"),
        ("PETS-ADMINS,staff:all", "viewer"),
        ("pets-admins staff:all", None),
        ("staff", None),
        ("*", None),
        ("", None),
    ):
        assert expected == await role_of(console, groups), groups
    assert None is await role_of(console)


@pytest.mark.parametrize("given", ["", "viewer:*"])
async def test_everybody_is_a_viewer_unless_roles_are_given(given: str, file_store: Stores) -> None:
    settings = {name: SETTINGS[name] for name in ("PETSTORE_CONSOLE_USER_HEADER", "PETSTORE_CONSOLE_PROXIES")}
    async with running_console(file_store, settings | {"PETSTORE_CONSOLE_ROLES": given}) as console:
        assert "viewer" == await role_of(console, "pets-admins")


@pytest.mark.parametrize(
    ("headers", "address", "reason"),
    [
        ([ADA, ADMINS], "10.0.1.5", "came from 10.0.1.5, which PETSTORE_CONSOLE_PROXIES does not have"),
        ([ADA, ADMINS], "127.0.0.1", "came from 127.0.0.1"),
        ([ADA, ADMINS, ("X-Forwarded-For", PROXY), ("Forwarded", f"for={PROXY}")], "192.0.2.1", "came from 192.0.2.1"),
        ([ADA, ADMINS], "", "came from"),
        ([("X-Forwarded-Email", "")], "10.0.1.5", "came from 10.0.1.5"),
        ([("X-Forwarded-Email", "  "), ADMINS], PROXY, "is empty"),
        ([ADA, ADA, ADMINS], PROXY, "was sent more than once"),
        ([ADA, ("x-forwarded-email", "eve@example.com"), ADMINS], PROXY, "was sent more than once"),
        ([("X-Forwarded-Email", "ada@example.com, eve@example.com"), ADMINS], PROXY, "holds more than one name"),
        ([("X-Forwarded-Email", "a" * 101), ADMINS], PROXY, "is text of 1 to 100 characters"),
        ([("X-Forwarded-Email", "ada\x7f"), ADMINS], PROXY, "is text of 1 to 100 characters on one line"),
        ([ADA, ADMINS, ("X-Forwarded-Groups", "staff:all")], PROXY, "x-forwarded-groups was sent more than once"),
    ],
)
async def test_a_header_that_cannot_be_believed_is_refused_with_a_page_that_says_why(
    headers: list[tuple[str, str]], address: str, reason: str, console: Console
) -> None:
    response = await answer(console, *headers, address=address)
    assert 403 == response.status_code, text_of(response)
    assert reason in text_of(response), text_of(response)


def refused(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The fields of the lines about refused sign-ins so far."""
    names = ("peer", "reason", "operator", "omitted")
    lines = [vars(each) for each in caplog.records if each.message == "sign-in refused"]
    assert {"WARNING"} >= {line["levelname"] for line in lines}
    return [{name: line[name] for name in names if name in line} for line in lines]


async def test_a_refused_sign_in_is_logged_and_a_name_only_if_a_trusted_proxy_has_given_it(
    console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = "The header x-forwarded-email came from 10.0.1.5, which PETSTORE_CONSOLE_PROXIES does not have."
    role = (
        "ada@example.com is signed in, but in no group that has a role. PETSTORE_CONSOLE_ROLES gives roles to groups."
    )
    await answer(console, ("X-Forwarded-Email", "eve\x1b[31m@example.com"), ADMINS, address="10.0.1.5")
    page = text_of(await answer(console, ADA, ("X-Forwarded-Groups", "guests")))
    assert role in page
    assert "Check again" not in page
    await answer(console, ADA, ADMINS)
    assert [
        {"peer": "10.0.1.5", "reason": elsewhere},
        {"peer": PROXY, "reason": role, "operator": "ada@example.com"},
    ] == refused(caplog)
    assert "eve" not in caplog.text


async def test_a_link_that_does_not_work_is_logged_without_its_token(
    console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    browser = console.another_browser("192.0.2.7")
    used = await browser.link()
    assert 303 == (await browser.http.get(used)).status_code
    for link in (used, "/console/sign-in?token=made-up", "/console/sign-in"):
        assert 401 == (await browser.http.get(link)).status_code
    reason = "The link was used up, has expired, or was made for another store."
    assert [{"peer": "192.0.2.7", "reason": reason}] * 3 == refused(caplog)
    assert not any(used.partition("token=")[2] in str(vars(line)) for line in caplog.records)


async def test_a_few_refused_sign_ins_are_logged_each_second_and_the_others_counted_at_its_end_and_at_a_stop(
    console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(8):
        console.sources.refused_sign_ins.log(REFUSED, "why")
    await asyncio.sleep(1.1)
    for _ in range(7):
        console.sources.refused_sign_ins.log(REFUSED, "why")
    await console.sources.close()
    lines = [{"peer": PROXY, "reason": "why"}] * 5
    assert [*lines, {"omitted": 3}, *lines, {"omitted": 2}] == refused(caplog)


async def test_a_name_in_another_encoding_is_refused_and_one_in_utf_8_is_shown(console: Console) -> None:
    browser = console.another_browser(PROXY, [ADMINS])
    for value, status in ((b"Zo\xeb", 403), ("Zoë".encode(), 200)):
        response = await browser.http.get("/console/", headers=[(b"X-Forwarded-Email", value)])
        assert (status, status == 200) == (response.status_code, "Zoë" in response.text)


@pytest.mark.parametrize("address", [PROXY, "::ffff:10.0.0.5", "fd00::7", "fd00::7%eth0"])
async def test_proxies_are_known_by_the_address_of_their_connection(address: str, console: Console) -> None:
    assert 200 == (await answer(console, ADA, ADMINS, address=address)).status_code


async def test_a_session_of_a_link_still_works_but_not_with_a_header_from_elsewhere(console: Console) -> None:
    browser = await console.browser.sign_in("bob")
    assert 403 == (await browser.http.get("/console/", headers=dict([ADA]))).status_code
    await browser.get("/")
    behind = console.another_browser(PROXY)
    behind.http.cookies = browser.http.cookies
    assert "bob" in await behind.get("/"), "as after the identity provider has failed"
    page = await console.another_browser(PROXY).get("/", 401)
    assert "open the console through the proxy" in page


@pytest.mark.settings
async def test_the_headers_mean_nothing_where_they_are_not_configured(console: Console) -> None:
    assert 401 == (await answer(console, ADA, ADMINS)).status_code


async def test_a_header_outweighs_a_session_and_a_link_is_not_used_up(console: Console) -> None:
    link = await console.another_browser().link("bob")
    browser = console.another_browser(PROXY, [ADA, ADMINS])
    response = await browser.http.get(link)
    assert (303, "/console/", {}) == (response.status_code, response.headers["location"], dict(browser.http.cookies))
    assert 303 == (await console.another_browser().http.get(link)).status_code
    browser.http.cookies.set("petstore_session_8081", "invented", domain="127.0.0.1", path="/console")
    assert "ada@example.com" in await browser.get("/")


async def test_a_form_carries_a_token_of_its_operator(console: Console) -> None:
    ada, eve = (console.another_browser(PROXY, [("X-Forwarded-Email", name), ADMINS]) for name in ("ada", "eve"))
    fields = {"name": "acme", "plan": "free", "orders": "all"}
    for browser in (ada, eve):
        await browser.get("/accounts")
    for token in ("", "0" * 64, eve.form_token):
        assert "The form has expired" in await ada.submit("/accounts", {**fields, "form_token": token}, 403)
    await ada.get("/accounts")
    assert "Created the account acme" in await ada.submit("/accounts", fields)


async def test_a_form_works_on_every_host(each_backend: Stores) -> None:
    async with running_console(each_backend, SETTINGS) as one, running_console(each_backend, SETTINGS) as other:
        here, there = (each.another_browser(PROXY, [ADA, ADMINS]) for each in (one, other))
        await here.get("/accounts")
        fields = {"name": "acme", "plan": "free", "orders": "all", "form_token": here.form_token}
        assert "Created the account acme" in await there.submit("/accounts", fields)


async def test_an_operator_stays_signed_in_while_the_store_is_down(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = console.another_browser(PROXY, [ADA, ADMINS])
    await browser.get("/")
    monkeypatch.setattr(console.store, "epoch", AsyncMock(side_effect=ServiceUnavailable("The store is away")))
    for name in ("ada", "bob"):
        await console.another_browser(PROXY, [("X-Forwarded-Email", name), ADMINS]).get("/")
    console.sources._epoch = None
    assert "The store is away" in await browser.get("/", 503)


async def test_the_audit_log_tells_verified_names_from_typed_ones(console: Console) -> None:
    verified = console.another_browser(PROXY, [("X-Forwarded-Email", "ada"), ADMINS])
    await console.store.orders.import_batch([Order(1), Order(2)], "import:1", BY)
    typed = await console.browser.sign_in("ada")
    for browser, order in ((verified, "1"), (typed, "2")):
        await browser.get("/orders")
        await browser.submit("/orders/ship", {"order": order})
    entries = [each for each in await log(console.store) if each.action == "order.ship"]
    assert [("operator:ada", True), ("operator:ada", False)] == [(each.actor, each.verified) for each in entries]
    assert all("verified" not in each.after for each in entries)
    assert "verified operator ada" in await typed.get("/orders/1")
    assert "verified" not in await typed.get("/orders/2")


@pytest.mark.parametrize("name", ["ada@example.com", "eve"])
async def test_an_import_of_a_verified_operator_is_marked_too(name: str, console: Console) -> None:
    browser = console.another_browser(PROXY, [ADA, ADMINS])
    if name == "eve":
        browser = await console.browser.sign_in(name)
    path = await upload(browser, b'{"id": 1}\n{"id": 2}\n')
    await finished(browser, path)
    await browser.submit(f"{path}/import")
    await finished(browser, path)
    [entry] = [each for each in await log(console.store) if each.action == "orders.import"]
    assert (f"operator:{name}", name != "eve") == (entry.actor, entry.verified)
    [batch] = [each async for each in console.store.imports.batches(entry.subject)]
    [(_, of_order)] = await console.store.imports.of_order(1)
    assert (entry.verified, entry.verified) == (batch.verified, of_order.verified)


async def test_an_entry_without_other_values_is_marked_as_well(store: Store) -> None:
    await store.orders.import_batch([Order(1)], "import-1", Actor("operator:ada", 1.0, "request-1", verified=True))
    await store.sessions.end_all(Actor("operator:ada", 2.0, verified=True))
    entries = await log(store)
    assert [True] == [each.verified for each in entries if each.action == "console.end_sessions"]
