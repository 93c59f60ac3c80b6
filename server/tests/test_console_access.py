"""Signing in to the console, its sessions, and the requests that it refuses."""

import asyncio
from pathlib import Path

import pytest

from petstore_server.console.application import HANDLERS
from petstore_server.domain.audit import Actor
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME
from petstore_server.engines.sqlite.maintenance import backup, restore
from testing.console import Browser, Console, finished, running_console, text_of, upload
from testing.stores import BY, SqlitePlaces, Stores, add_key, log

pytestmark = pytest.mark.anyio


PAGES = ["/", "/anything"]


async def test_a_link_starts_a_session_with_a_strict_cookie(console: Console) -> None:
    response = await console.browser.http.get(await console.browser.link())
    assert (303, "/console/") == (response.status_code, response.headers["location"])
    attributes = {part.strip().lower() for part in response.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/console"} <= attributes
    assert "Overview" in await console.browser.get("/")
    assert "ada" in await console.browser.get("/")


async def test_exactly_one_of_several_concurrent_uses_of_a_link_signs_in(
    each_backend: Stores, console: Console
) -> None:
    link = await console.browser.link()
    browsers = [console.another_browser() for _ in range(8)]
    responses = await asyncio.gather(*(each.http.get(link) for each in browsers))
    assert [303] + [401] * 7 == sorted(each.status_code for each in responses)
    later = await console.another_browser().http.get(link)
    assert (401, True) == (later.status_code, "petstore console" in text_of(later))


async def test_a_link_expires_after_five_minutes(console: Console) -> None:
    link = await console.browser.link()
    console.clock.now += LINK_LIFETIME
    assert 401 == (await console.browser.http.get(link)).status_code


@pytest.mark.parametrize(
    "headers", [{"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}, {"X-Moz": "prefetch"}]
)
async def test_fetching_a_link_in_advance_does_not_use_it_up(headers: dict[str, str], console: Console) -> None:
    link = await console.browser.link()
    assert 503 == (await console.browser.http.get(link, headers=headers)).status_code
    assert 200 == (await console.browser.http.head(link)).status_code
    assert 303 == (await console.browser.http.get(link)).status_code


async def test_a_link_opened_from_another_site_goes_on_without_a_redirect(console: Console) -> None:
    response = await console.browser.http.get(await console.browser.link(), headers={"Sec-Fetch-Site": "cross-site"})
    assert 200 == response.status_code
    assert 'content="0; url=/console/"' in response.text


@pytest.mark.parametrize("path", PAGES)
async def test_without_a_session_every_page_says_how_to_sign_in(path: str, console: Console) -> None:
    assert "petstore console" in await console.browser.get(path, 401)
    console.browser.http.cookies.set("petstore_session_8081", "invented", domain="127.0.0.1", path="/console")
    assert "petstore console" in await console.browser.get(path, 401)


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
        await away.get("/")
        assert 1 == await other.store.sessions.end_all(Actor("operator:bob", one.clock.now))
        await one.browser.get("/", 401)
        await away.get("/", 401)


async def test_ending_all_sessions_makes_unused_links_invalid(console: Console) -> None:
    link = await console.browser.link()
    await console.store.sessions.end_all(Actor("operator:bob", console.clock.now))
    assert 401 == (await console.browser.http.get(link)).status_code


async def test_signing_out_ends_only_this_session(console: Console, browser: Browser) -> None:
    other = await console.another_browser().sign_in("bob")
    stolen = dict(browser.http.cookies)
    browser.http.cookies.set("petstore_notice_8081", "unseen", domain="127.0.0.1", path="/console")
    page = await browser.submit("/sign-out")
    assert {} == dict(browser.http.cookies)
    assert "You are signed out" in page
    assert "The link works once and for 5 minutes." in page
    browser.http.cookies.update(stolen)
    await browser.get("/", 401)
    await other.get("/")


async def test_access_is_audited_without_secrets(console: Console, browser: Browser) -> None:
    await console.store.sessions.end_all(Actor("operator:bob", console.clock.now))
    entries = await log(console.store)
    assert [
        ("operator:ada", "console.create_link"),
        ("operator:ada", "console.sign_in"),
        ("operator:bob", "console.end_sessions"),
    ] == [(entry.actor, entry.action) for entry in entries]
    assert {"sessions": 1} == entries[-1].after
    assert browser.http.cookies["petstore_session_8081"] not in repr(entries)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8081", "localhost", "LOCALHOST:1", "[::1]:8081", "127.9.9.9", "ops.example.com", "admin.test:8081"],
)
async def test_known_host_names_are_served(file_store: Stores, host: str) -> None:
    environ = {"PETSTORE_CONSOLE_HOSTS": "ops.example.com", "PETSTORE_ADMIN_HOST": "admin.test"}
    async with running_console(file_store, environ) as console:
        assert 401 == (await console.browser.http.get("/console/", headers={"Host": host})).status_code


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "evil.example:8081", "[::1"]
)
async def test_other_host_names_are_misdirected(host: str, console: Console) -> None:
    for path in ("/console", "/console/", "/console/static/console.css", "/console/sign-in"):
        assert 421 == (await console.browser.http.get(path, headers={"Host": host})).status_code


async def sign_out(console: Console, headers: dict[str, str], token: str | None = None) -> int:
    """The status of signing out with the form of the page, or with another token."""
    await console.browser.sign_in()
    data = {"form_token": console.browser.form_token if token is None else token}
    response = await console.browser.http.post("/console/sign-out", data=data, headers=headers)
    return response.status_code


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1:8081", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8081"}, 200),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_only_a_form_of_the_console_is_accepted(headers: dict[str, str], status: int, console: Console) -> None:
    assert status == await sign_out(console, headers)
    await console.browser.get("/", {403: 200, 200: 401}[status])


async def test_a_form_without_the_sessions_token_changes_nothing(console: Console) -> None:
    other = await console.another_browser().sign_in("bob")
    for token in ("", "0" * 64, "ü", other.form_token):
        assert 403 == await sign_out(console, {}, token)
        await console.browser.get("/")


async def test_every_action_needs_the_sessions_token(console: Console) -> None:
    browser = await console.browser.sign_in()
    key = await add_key(console.store)
    file = await upload(browser, b'{"id": 1}\n')
    await finished(browser, file)
    names = {"name": key.account, "key": key.id, "upload": file.rpartition("/")[2]}
    actions = [path.format(**names) for path, (_, action) in HANDLERS.items() if action and path != "/imports/new"]
    sent = [await browser.http.post(f"/console{path}", data={"form_token": "0" * 64}) for path in actions]
    assert dict.fromkeys(actions, 403) == dict(zip(actions, [each.status_code for each in sent], strict=True))
    assert "The form has expired" in await upload(browser, b"", 403, form_token="0" * 64)


@pytest.mark.parametrize(
    ("path", "status", "content_type"),
    [
        ("/console/", 200, "text/html; charset=utf-8"),
        ("/console/missing", 404, "text/html; charset=utf-8"),
        ("/console/static/console.css", 200, "text/css; charset=utf-8"),
        ("/console/static/icon.svg", 200, "image/svg+xml"),
        ("/console", 307, None),
    ],
)
async def test_every_response_carries_the_protective_headers(
    path: str, status: int, content_type: str | None, browser: Browser
) -> None:
    response = await browser.http.get(path)
    assert (status, content_type) == (response.status_code, response.headers.get("content-type"))
    assert "no-store" == response.headers["cache-control"]
    assert "DENY" == response.headers["x-frame-options"]
    assert "no-referrer" == response.headers["referrer-policy"]
    assert "default-src 'none'" in response.headers["content-security-policy"]


async def test_a_form_that_is_too_large_is_refused(browser: Browser) -> None:
    data = {"form_token": browser.form_token, "more": "x" * 300_000}
    assert 413 == (await browser.http.post("/console/sign-out", data=data)).status_code


async def test_a_restore_ends_the_sessions_of_the_backup(tmp_path: Path) -> None:
    file_store = Stores(SqlitePlaces(tmp_path))
    file, copy = Path(file_store.url.removeprefix("sqlite:///")), tmp_path / "copy.db"
    async with running_console(file_store) as console:
        await console.browser.sign_in()
        backup(file, copy)
    restore(file, copy, BY)
    async with running_console(file_store) as other:
        other.browser.http.cookies = console.browser.http.cookies
        await other.browser.get("/", 401)


async def test_cookies_are_named_by_the_port_so_that_two_consoles_can_share_a_host(console: Console) -> None:
    names = []
    for host in ("127.0.0.1:8081", "127.0.0.1:9000", "127.0.0.1"):
        response = await console.browser.http.get(await console.browser.link(), headers={"Host": host})
        names.append(response.headers["set-cookie"].partition("=")[0])
    assert ["petstore_session_8081", "petstore_session_9000", "petstore_session_http"] == names


@pytest.mark.parametrize(("headers", "secure"), [({}, False), ({"X-Forwarded-Proto": "https"}, True)])
async def test_cookies_are_secure_behind_tls(headers: dict[str, str], secure: bool, console: Console) -> None:
    for path in (await console.browser.link(), "/console/orders"):
        response = await console.another_browser().http.get(path, headers=headers)
        assert secure is ("secure" in response.headers["set-cookie"].lower())


@pytest.mark.parametrize("path", ["/console/orders?status=pending&after=.7", "/console/accounts/acme%20corp"])
async def test_signing_in_leads_to_the_page_that_was_wanted(path: str, console: Console) -> None:
    assert 401 == (await console.browser.http.get(path)).status_code
    response = await console.browser.http.get(await console.browser.link())
    assert (303, path) == (response.status_code, response.headers["location"])
    assert "petstore_wanted_8081" not in console.browser.http.cookies


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example/", "/console/sign-in?token=x", "/console", "/console/a;b", ""]
)
async def test_signing_in_never_leads_elsewhere(wanted: str, console: Console) -> None:
    headers = {"Cookie": f'petstore_wanted_8081="{wanted}"'}
    response = await console.browser.http.get(await console.browser.link(), headers=headers)
    assert (303, "/console/") == (response.status_code, response.headers["location"])


async def test_a_page_without_a_session_says_how_to_get_in_to_this_store(console: Console) -> None:
    console.sources.sign_in_command = "PETSTORE_DATABASE_URL=sqlite:////tmp/demo.db petstore console"
    assert "PETSTORE_DATABASE_URL=sqlite:////tmp/demo.db petstore console" in await console.browser.get("/", 401)
