"""What each role may see and do in the console: over every route, every page, and the sessions that give roles."""

import re
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from typing import cast
from unittest.mock import AsyncMock, patch

import pytest

from petstore_server.console.routes import ROUTES, Endpoint, needed_role
from petstore_server.console.security import is_form_token
from petstore_server.domain.audit import Actor
from petstore_server.domain.bans import Ban
from petstore_server.domain.errors import ServiceUnavailable, SessionNotFound
from petstore_server.domain.orders import Order
from petstore_server.domain.roles import Role
from petstore_server.domain.sessions import LINK_LIFETIME, SESSION_LIFETIME, token_digest
from petstore_server.domain.timestamps import DAY, HOUR
from petstore_server.store import Store
from testing.console import START, Browser, Console, finished, upload
from testing.stores import BY, Stores, add_key, log
from testing.webhook_messages import SETTINGS

pytestmark = pytest.mark.settings(**SETTINGS)
ORDERS = b'{"id": 1}\n{"id": 2}\n{"id": "x"}\n'
ROLES = list(Role)
FOR_ALL = {"/sign-out", "/search", "/check"}
OPERATORS = (
    *("/bans", "/keys/{key}/unban", "/orders/ship", "/orders/complete", "/orders/cancel", "/orders/{order}/edit"),
    *(f"/webhooks/{{webhook}}/{action}" for action in ("pause", "resume", "replay", "ping")),
    *("/imports/new", *(f"/imports/{{upload}}/{action}" for action in ("check", "import", "stop", "discard"))),
)
"""The actions of an operator; all others but FOR_ALL are those of an admin."""

OPERATORS_PAGES = ("/imports/new", "/imports/{upload}/rejects")
ADMINS_PAGES = (
    *("/accounts/{name}/suspend", "/accounts/{name}/close", "/keys/{key}/rotate", "/keys/{key}/revoke"),
    *("/webhooks/{webhook}/rotate", "/webhooks/{webhook}/delete"),
)
"""The pages that a viewer does not get: what asks before an action, and the rejected rows of a file."""


def expected(route: Endpoint) -> Role:
    """The role that the design gives to a route."""
    operators, admins = (OPERATORS_PAGES, ADMINS_PAGES) if route.method == "GET" else (OPERATORS, ())
    if route.path in operators:
        return Role.OPERATOR
    if route.path in admins:
        return Role.ADMIN
    return Role.VIEWER if route.method == "GET" or route.path in FOR_ALL else Role.ADMIN


@pytest.fixture(name="paths")
async def _paths(console: Console, browser: Browser) -> dict[str, str]:
    """What stands in paths for an account, its banned key and webhook, an order, a checked upload, and a session."""
    key = await add_key(console.store)
    webhook = (await console.sources.webhooks.create_for(key.account, "http://127.0.0.1:1/", BY)).webhook
    await console.store.usage.save({}, [Ban(key.id, int(START) - 60, int(START) + 3600, 1)])
    await console.store.orders.import_batch([Order(7)], "import:1", BY)
    file = await upload(browser, ORDERS)
    await finished(browser, file)
    await console.another_browser().sign_in("carol")
    [session] = [each for each in await console.store.sessions.list(START) if each.operator == "carol"]
    names = {"name": key.account, "key": key.id, "order": "7", "session": session.id}
    names["webhook"] = webhook.id
    return {**names, "upload": file.rpartition("/")[2]}


def test_every_route_but_signing_in_has_the_role_that_the_design_gives_it() -> None:
    assert [("GET", "/sign-in")] == [(each.method, each.path) for each in ROUTES if each.role is None]
    found = {(each.method, each.path): each.role for each in ROUTES if each.role is not None}
    assert {(each.method, each.path): expected(each) for each in ROUTES if each.role is not None} == found


def test_a_route_without_a_role_is_an_error() -> None:
    with pytest.raises(TypeError, match="POST /orders/7 has no role; give one of viewer, operator, admin"):
        Endpoint("POST", "/orders/7", cast("Role", "anybody"), ROUTES[0].handle)
    with pytest.raises(TypeError):
        Endpoint("POST", "/orders/7", handle=ROUTES[0].handle)  # type: ignore[call-arg]
    with pytest.raises(LookupError, match="The console does not have POST /nothing"):
        needed_role("POST", "/nothing")


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_lacks_is_refused_and_what_it_has_is_not(
    role: Role, console: Console, paths: dict[str, str]
) -> None:
    """The matrix of roles and routes, each requested by a session of the role."""
    browser = await console.another_browser().sign_in("bob", role)
    token = browser.form_token
    refused = set[tuple[str, str]]()
    before = len(await log(console.store))
    for route in ROUTES:
        if route.path in ("/sign-in", "/sign-out"):
            continue
        path = f"/console{route.path.format(**paths)}"
        data = {"form_token": token, "confirmed": "no"} if route.method == "POST" else None
        response = await browser.http.request(route.method, path, data=data)
        assert 500 > response.status_code, path
        needs = f"Your role is {role}, and this needs the role"
        assert (needs in response.text) == (response.status_code == 403 and "expired" not in response.text), path
        if needs in response.text:
            assert "What you typed is kept" not in response.text
            refused.add((route.method, route.path))
    assert refused == {
        (each.method, each.path) for each in ROUTES if each.role is not None and not role.allows(expected(each))
    }
    entries = (await log(console.store))[before:]
    refusals = [each for each in entries if each.action == "console.refuse"]
    forms = [each for each in ROUTES if each.method == "POST" and (each.method, each.path) in refused]
    needed = {each.path.format(**paths): str(expected(each)) for each in forms}
    assert needed == {each.after["form"]: each.after["needs"] for each in refusals}
    assert {"operator:bob"} >= {each.actor for each in refusals}
    assert all(each.after["role"] == role for each in refusals)
    if role is Role.VIEWER:
        assert {"console.refuse", "orders.export"} == {each.action for each in entries}, "nothing was changed"


@pytest.mark.parametrize("role", ROLES)
async def test_every_page_shows_exactly_the_actions_that_the_role_has(
    role: Role, console: Console, paths: dict[str, str]
) -> None:
    browser = await console.another_browser().sign_in("bob", role)
    shown = set[str]()
    for route in ROUTES:
        allowed = route.role is not None and role.allows(route.role)
        if route.method == "GET" and allowed and route.path != "/orders/export":
            page = await browser.http.get(f"/console{route.path.format(**paths)}")
            assert 200 == page.status_code, route.path
            assert role is not Role.VIEWER or 'type="checkbox"' not in page.text, route.path
            found = set(_actions(page.text))
            assert [] == [path for method, path in found if not role.allows(needed_role(method, path))], route.path
            shown |= {path for method, path in found if method == "POST"}
    expected_actions = {
        each.path.format(**paths)
        for each in ROUTES
        if each.method == "POST" and each.role is not None and role.allows(each.role)
    }
    elsewhere = {  # on pages of a suspended account, a paused webhook, an order that has shipped, a file that is read
        f"/accounts/{paths['name']}/resume",
        f"/webhooks/{paths['webhook']}/resume",
        "/orders/complete",
        f"/imports/{paths['upload']}/stop",
    }
    assert expected_actions - elsewhere <= shown


def _actions(page: str) -> Iterator[tuple[str, str]]:
    """The method and path, below the console's, of each form, button and link to a page of an action."""
    for method, path in re.findall(r'<form method="(\w+)" action="/console(/[^"]*)"', page):
        yield method.upper(), unescape(path)
    for path in re.findall(r'formaction="/console(/[^"]*)"', page):
        yield "POST", unescape(path)
    for path in re.findall(r'href="/console(/imports/new|/[^"]*/(?:rejects|rotate|revoke))[?"]', page):
        yield "GET", unescape(path)


async def test_a_viewer_is_not_told_to_choose_how_a_file_is_read(
    console: Console, browser: Browser, paths: dict[str, str]
) -> None:
    viewer = await console.another_browser().sign_in("bob", Role.VIEWER)
    unknown = await upload(browser, b"amount\n1\n", name="orders.csv")
    await finished(browser, unknown)
    for path in (f"/imports/{paths['upload']}", unknown):
        for reader, shown in ((browser, True), (viewer, False)):
            text = await reader.get(path)
            assert shown == ("How the file is read" in text)
            assert not ("Choose below" in text and not shown)


async def test_every_action_needs_the_sessions_token(console: Console, browser: Browser, paths: dict[str, str]) -> None:
    other = await console.another_browser().sign_in("bob")
    posted = [each.path for each in ROUTES if each.method == "POST" and each.path != "/imports/new"]
    for token in ("", "0" * 64, "ü", other.form_token):
        for path in (path.format(**paths) for path in posted):
            sent = await browser.http.post(f"/console{path}", data={"form_token": token})
            assert 403 == sent.status_code, path
        text = await upload(browser, ORDERS, 403, form_token=token)
        assert "The form has expired" in text
        assert "Show the form again" not in text
    assert not is_form_token("\ud800", "session")  # which a part of an upload can hold, in UTF-7


async def test_a_form_is_refused_also_while_the_refusal_cannot_be_recorded(
    console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    browser = await console.another_browser().sign_in("bob", Role.VIEWER)
    away = AsyncMock(side_effect=ServiceUnavailable("The store is away"))
    with patch.object(console.store.sessions, "record_refusal", away):
        await browser.submit("/orders/ship", {"order": "7"}, status=403)
    assert "refusal not recorded" in caplog.messages


async def test_the_page_of_sessions_names_each_and_an_admin_ends_those_of_others(
    each_backend: Stores, console: Console
) -> None:
    console.clock.now += 3600
    admin = await console.browser.sign_in("ada")
    other = await console.another_browser().sign_in("bob", Role.VIEWER)
    page = await admin.get("/sessions")
    assert "ada this session admin" in page
    assert "bob viewer" in page
    assert ["End"] == re.findall(r">(End)<", admin.page), "one's own session ends by signing out"
    await other.get("/sessions")
    assert [] == re.findall(r">(End)<", other.page)
    [ended] = re.findall(r'action="/console(/sessions/session_[0-9a-f]{12}/end)"', admin.page)
    page = await admin.submit(ended)
    assert "Ended the session of bob." in page
    await other.get("/", 401)
    assert "There is no session" in await admin.submit(ended, status=404)
    entry = (await log(console.store))[-1]
    assert ("operator:ada", "console.end_session") == (entry.actor, entry.action)
    assert {"session": ended.split("/")[2], "operator": "bob", "role": "viewer"} == entry.before


async def test_sessions_have_the_role_of_their_link_and_the_times_of_their_use(store: Store) -> None:
    for number, role in enumerate(Role):
        actor = Actor(f"operator:{role}", START + number)
        assert START + number + LINK_LIFETIME == await store.sessions.create_link(f"link-{role}", actor, role)
        signed_in = await store.sessions.sign_in(f"link-{role}", f"token-{role}", START + number)
        assert signed_in is not None
        assert (role, START + number) == (signed_in.role, signed_in.began_at)
    used = START + 600
    assert await store.sessions.find("token-viewer", used) is not None
    found = await store.sessions.list(used)
    assert ["viewer", "admin", "operator"] == [each.operator for each in found], "the last used first"
    assert (used, used + SESSION_LIFETIME) == (found[0].used_at, found[0].expires_at)
    assert 3 == len({each.id for each in found})
    await store.sessions.end("token-viewer")
    assert None is await store.sessions.find("token-viewer", used)
    with pytest.raises(SessionNotFound):
        await store.sessions.end_one(found[0].id, actor)
    assert [] == await store.sessions.list(START + 2 * SESSION_LIFETIME)


@pytest.mark.parametrize("ahead", [0, HOUR, DAY])
async def test_links_and_sessions_last_no_longer_because_a_clock_was_ahead(ahead: int, store: Store) -> None:
    """Clocks may differ by an hour."""
    right, actor = ahead <= HOUR, Actor("operator:ada", START + ahead)
    for link in ("used", "unused"):
        await store.sessions.create_link(link, actor)
    assert await store.sessions.sign_in("used", "token", actor.at)
    assert right == (await store.sessions.sign_in("unused", "other", START) is not None)
    assert right == (await store.sessions.find("token", START) is not None)
    assert right == bool(await store.sessions.list(START))
    await store.sessions.create_link("next", Actor("operator:ada", START))
    assert right == (await store.sessions.find("token", actor.at) is not None)


async def test_the_end_of_a_session_ends_the_unused_links_of_its_operator(store: Store) -> None:
    for name, role in (("ada", Role.ADMIN), ("bob", Role.VIEWER), ("bob", Role.ADMIN)):
        await store.sessions.create_link(f"link-{name}-{role}", Actor(f"operator:{name}", START), role)
    await store.sessions.sign_in("link-bob-viewer", "token", START)
    [session] = await store.sessions.list(START)
    await store.sessions.end_one(session.id, Actor("operator:ada", START))
    assert None is await store.sessions.sign_in("link-bob-admin", "token", START)
    assert None is not await store.sessions.sign_in("link-ada-admin", "token", START)


async def test_release_1_0_0_finds_only_sessions_that_may_do_everything(store: Store) -> None:
    """It gives all rights to each session that it finds, by the SHA-256 of the token."""
    for role in Role:
        await store.sessions.create_link(f"link-{role}", Actor("operator:ada", START), role)
        await store.sessions.sign_in(f"link-{role}", f"token-{role}", START)
    found = [
        await store.engine.query(
            "SELECT actor FROM petstore.console_sessions WHERE digest = %s",
            (sha256(f"{before}token-{role}".encode("utf-8", "surrogatepass")).digest(),),
        )
        for role in Role
        for before in ("", f"{role}:", f"{role}\xff", f"{role}\udcff")  # what operators may write into their own cookie
    ]
    assert [[("operator:ada",)]] == [[tuple(row) for row in rows] for rows in found if rows]
    assert 3 == len({token_digest("token", role) for role in Role})
