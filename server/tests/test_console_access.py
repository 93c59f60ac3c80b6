"""Signing in to the console, its sessions, and the requests that it refuses."""

import asyncio
import re
from pathlib import Path
from unittest.mock import patch

import pytest

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME
from petstore_server.engines.sqlite.maintenance import backup, restore
from testing.console import Browser, Console, running_console
from testing.stores import BY, Stores, log


async def test_cookies_are_for_the_console_at_this_port_and_secure_behind_tls(console: Console) -> None:
    """Two consoles can share a host; a session is not sent with what another site's page asks for."""
    for headers, port, secure in (
        ({"Host": "127.0.0.1:8081"}, "8081", ""),
        ({"Host": "127.0.0.1:9000"}, "9000", ""),
        ({"Host": "127.0.0.1"}, "http", ""),
        ({"X-Forwarded-Proto": "HTTPS"}, "8081", "; Secure"),
    ):
        refused = await console.another_browser().http.get("/console/bans", headers=headers)
        wanted = f'petstore_wanted_{port}="/console/bans"; HttpOnly; Max-Age=3600; Path=/console; SameSite=lax{secure}'
        assert [wanted] == refused.headers.get_list("set-cookie")
        entered = await console.another_browser().http.get(await console.browser.link(), headers=headers)
        session = rf"petstore_session_{port}=[\w-]{{27}}; HttpOnly; Path=/console; SameSite=strict{secure}"
        assert re.fullmatch(session, entered.headers.get_list("set-cookie")[0])


async def test_exactly_one_of_several_concurrent_uses_of_a_link_signs_in(
    each_backend: Stores, console: Console
) -> None:
    link = await console.browser.link()
    browsers = [console.another_browser() for _ in range(8)]
    responses = await asyncio.gather(*(each.http.get(link) for each in browsers))
    assert [303] + [401] * 7 == sorted(each.status_code for each in responses)
    later = await console.another_browser().get(link.removeprefix("/console"), 401)
    assert "This link does not work any more" in later
    link = await console.browser.link()
    console.clock.now += LINK_LIFETIME
    assert 401 == (await console.browser.http.get(link)).status_code, "it has expired"


async def test_a_sign_in_that_the_store_does_not_take_says_why_and_leaves_the_link(console: Console) -> None:
    link = await console.browser.link()
    reason = "another program keeps a table or rows of PostgreSQL locked: petstore.audit"
    with patch.object(console.store.engine, "transaction", side_effect=ServiceUnavailable(reason)):
        refused = await console.browser.get(link.removeprefix("/console"), 503)
    assert f"{reason[1:]}. Open the link again shortly." in refused
    assert 303 == (await console.browser.http.get(link)).status_code


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Purpose": "prerender"}, {"Purpose": "Prefetch"}, {"X-Moz": "prefetch"}, {"X-Purpose": "preview"}],
)
async def test_fetching_a_link_in_advance_does_not_use_it_up(headers: dict[str, str], console: Console) -> None:
    link, other_site = await console.browser.link(), {"Sec-Fetch-Site": "cross-site"}
    early = await console.browser.http.get(link, headers=headers)
    assert (503, "1") == (early.status_code, early.headers["retry-after"])
    assert 200 == (await console.browser.http.head(link, headers=other_site)).status_code
    entered = await console.browser.http.get(link, headers=other_site)
    assert 200 == entered.status_code
    assert 'content="0; url=/console/"' in entered.text, "a redirect would lose the cookie"


@pytest.mark.parametrize("token", ["", "invented"])
async def test_without_a_session_every_page_says_how_to_sign_in(token: str, console: Console) -> None:
    command = "PETSTORE_DATABASE_URL=sqlite:////tmp/demo.db petstore console"
    console.sources.sign_in_command = command  # of this store
    if token:
        console.browser.http.cookies.set("petstore_session_8081", token, domain="127.0.0.1", path="/console")
    for path in ("/", "/anything"):
        page = await console.browser.get(path, 401)
        assert command in page
        assert "what you typed is kept" not in page
    page = await console.browser.submit("/accounts", {"name": "acme", "form_token": ""}, 401)
    assert bool(token) == ("what you typed is kept" in page)


async def test_the_token_of_a_link_is_not_a_session(console: Console) -> None:
    link = await console.browser.link()
    thief = console.another_browser()
    for name in ("petstore_session_8081", "petstore_session"):
        thief.http.cookies.set(name, link.partition("=")[2], domain="127.0.0.1", path="/console")
    await thief.get("/", 401)
    assert 303 == (await console.browser.http.get(link)).status_code


async def test_a_session_ends_after_twelve_hours_without_a_request(console: Console, browser: Browser) -> None:
    for _ in range(3):
        console.clock.now += SESSION_LIFETIME - 1
        await browser.get("/")
    console.clock.now += SESSION_LIFETIME + 60
    await browser.get("/", 401)


async def test_a_session_works_on_every_host_and_ends_on_all_of_them(each_backend: Stores) -> None:
    async with running_console(each_backend) as one, running_console(each_backend) as other:
        await one.browser.sign_in()
        away = other.another_browser()
        away.http.cookies = one.browser.http.cookies
        link = await one.another_browser().link()
        await away.get("/")
        assert 1 == await other.store.sessions.end_all(Actor("operator:bob", one.clock.now))
        entry = (await log(other.store))[-1]
        assert ("operator:bob", "console.end_sessions") == (entry.actor, entry.action)
        assert {"sessions": 1} == entry.after
        await one.browser.get("/", 401)
        await away.get("/", 401)
        assert 401 == (await away.http.get(link)).status_code, "a link that was not used has ended too"


async def test_signing_out_ends_only_this_session(console: Console, browser: Browser) -> None:
    other = await console.another_browser().sign_in("bob")
    stolen = dict(browser.http.cookies)
    browser.http.cookies.set("petstore_notice_8081", "unseen", domain="127.0.0.1", path="/console")
    page = await browser.submit("/sign-out")
    assert {} == dict(browser.http.cookies)
    assert {} == console.sources.submissions
    assert "You are signed out" in page
    assert "The link works once and for 5 minutes." in page
    browser.http.cookies.update(stolen)
    await browser.get("/", 401)
    await other.get("/")


async def test_access_is_audited_without_secrets(console: Console, browser: Browser) -> None:
    entries = await log(console.store)
    assert ["console.create_link", "console.sign_in"] == [entry.action for entry in entries]
    assert {"operator:ada"} == {entry.actor for entry in entries}
    assert browser.http.cookies["petstore_session_8081"] not in repr(entries)


@pytest.mark.settings(
    PETSTORE_CONSOLE_HOSTS="ops.example.com,2001:0DB8::0:2", PETSTORE_ADMIN_HOST="2001:db8:0:0:0:0:0:1"
)
async def test_only_known_host_names_are_served(console: Console) -> None:
    own = ("127.0.0.1:8081", "localhost", "LOCALHOST:1", "[::1]:8081", "127.9.9.9", "[::ffff:127.0.0.1]:8081")
    known = (*own, "ops.example.com", "[2001:db8::1]:8081", "[2001:db8::2]")
    others = ("evil.example:8081", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "[::1")
    paths = ("/console", "/console/", "/console/static/console.css", "/console/sign-in")
    expected = {(host, "/console/"): 401 for host in known} | {(host, path): 421 for host in others for path in paths}
    for (host, path), status in expected.items():
        assert status == (await console.browser.http.get(path, headers={"Host": host})).status_code, (host, path)


async def test_a_method_that_the_console_does_not_have_passes_the_same_checks(browser: Browser) -> None:
    for method in ("TRACE", "INVENTED", "trace"):
        for path in ("/console", "/console/", "/console/static/console.css", "/console/anything"):
            refused = await browser.http.request(method, path)
            assert (405, "no-store") == (refused.status_code, refused.headers["cache-control"]), path
            assert "GET" in refused.headers["allow"]
            assert "default-src 'none'" in refused.headers["content-security-policy"]
            other = await browser.http.request(method, path, headers={"Host": "evil.example"})
            assert 421 == other.status_code, path


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:8081", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8081"}, 200),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_only_a_form_of_the_console_is_accepted(headers: dict[str, str], status: int, browser: Browser) -> None:
    response = await browser.http.post("/console/sign-out", data={"form_token": browser.form_token}, headers=headers)
    assert status == response.status_code
    await browser.get("/", {403: 200, 200: 401}[status])


PROTECTIVE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


async def test_every_response_carries_the_protective_headers(browser: Browser) -> None:
    for path, status, content_type in (
        ("/console/", 200, "text/html; charset=utf-8"),
        ("/console/missing", 404, "text/html; charset=utf-8"),
        ("/console/static/console.css", 200, "text/css; charset=utf-8"),
        ("/console/static/icon.svg", 200, "image/svg+xml"),
        ("/console", 307, None),
    ):
        response = await browser.http.get(path)
        assert (status, content_type) == (response.status_code, response.headers.get("content-type")), path
        assert PROTECTIVE.items() <= response.headers.items()


async def test_what_the_console_does_not_have_is_not_found_by_any_method(browser: Browser) -> None:
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    sent = [await browser.http.request(method, "/console/missing") for method in methods]
    assert dict.fromkeys(methods, 404) == {each.request.method: each.status_code for each in sent}


async def test_a_restore_ends_the_sessions_of_the_backup(tmp_path: Path, file_store: Stores) -> None:
    file, copy = Path(file_store.url.removeprefix("sqlite:///")), tmp_path / "copy.db"
    async with running_console(file_store) as console:
        await console.browser.sign_in()
        backup(file, copy)
    restore(file, copy, BY)
    async with running_console(file_store) as other:
        other.browser.http.cookies = console.browser.http.cookies
        await other.browser.get("/", 401)


@pytest.mark.parametrize("path", ["/console/orders?status=pending&after=.7", "/console/accounts/acme%20corp"])
async def test_signing_in_leads_to_the_page_that_was_wanted(path: str, console: Console) -> None:
    assert 401 == (await console.browser.http.get(path)).status_code
    response = await console.browser.http.get(await console.browser.link())
    assert (303, path) == (response.status_code, response.headers["location"])
    deleted = 'petstore_wanted_8081=""; HttpOnly; Max-Age=0; Path=/console; SameSite=strict'
    assert deleted in response.headers.get_list("set-cookie")
    other = await console.another_browser().http.get("/console/orders?a;b")
    assert "set-cookie" not in other.headers, "no cookie can hold it"


@pytest.mark.parametrize(
    "wanted",
    ["https://evil.example/console/", "//evil.example/", "/console/sign-in?token=x", "/console", "/console/a;b", ""],
)
async def test_signing_in_and_checking_again_never_lead_elsewhere(wanted: str, console: Console) -> None:
    headers = {"Cookie": f'petstore_wanted_8081="{wanted}"'}
    entered = await console.browser.http.get(await console.browser.link(), headers=headers)
    assert (303, "/console/") == (entered.status_code, entered.headers["location"])
    await console.browser.get("/")
    assert "/console/" == await console.browser.led_to("/check", {"here": wanted.removeprefix("/console")})
