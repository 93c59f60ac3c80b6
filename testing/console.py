"""The operator console over a store of its own, and a browser that follows its rules: cookies, forms, Host."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from unittest.mock import patch

import httpx2
from prometheus_client.core import Metric
from starlette.applications import Starlette

from petstore_server.console import sources, visit
from petstore_server.console.sources import Cached, Sources
from petstore_server.domain.audit import Actor
from petstore_server.domain.roles import Role
from petstore_server.operations import monitor
from petstore_server.runtime.application import make_console
from petstore_server.runtime.opening import webhook_service
from petstore_server.settings import read_settings
from petstore_server.store import Store
from testing.clock import Clock
from testing.kept_templates import keep_templates
from testing.stores import Stores, log
from testing.subprocesses import PATIENCE

HOST = "127.0.0.1:8081"
keep_templates()
START = 1_793_000_000.0
CURRENT = {"old": 60.0, "missing": 60.0, "rest": 0.0}
"""The waits of `Cached` with which every page waits for statistics that are current."""


@dataclass
class Service:
    """What the service on this host reports."""

    ready: bool = True
    detail: dict[str, Any] = field(default_factory=lambda: {"status": "ok"})
    families: list[Metric] = field(default_factory=list)

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        return self.ready, self.detail

    async def collect(self) -> list[Metric]:
        return self.families


@dataclass
class Console:
    """A console and the first operator's browser, which is not signed in."""

    store: Store
    clock: Clock
    application: Starlette
    browser: "Browser"
    service: "Service"
    sources: Sources

    def another_browser(self, address: str = "127.0.0.1", headers: Sequence[tuple[str, str]] = ()) -> "Browser":
        """A browser with its own cookies, or a proxy at that address, which adds these headers to each request."""
        return Browser(self.application, self.store, self.clock, address, headers)

    async def actions(self) -> list[tuple[str, str, str]]:
        """Who did what to what so far, by the audit log, but for signing in."""
        entries = [entry for entry in await log(self.store) if not entry.action.startswith("console.")]
        return [(entry.actor, entry.action, entry.subject) for entry in entries]

    async def check(self) -> None:
        """Run a whole round of checks that begins now: a page may have begun one before the last change."""
        await self.sources.monitor.watch()
        await self.sources.monitor.watch()


class Browser:
    """Requests with cookies. `page` is the text of the last page."""

    def __init__(
        self,
        application: Starlette,
        store: Store,
        clock: Clock,
        address: str = "127.0.0.1",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        transport = httpx2.ASGITransport(app=application, raise_app_exceptions=True, client=(address, 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=list(headers))
        self.page = ""
        self._store = store
        self._clock = clock

    async def link(self, name: str = "ada", role: Role = Role.ADMIN) -> str:
        """The path of a new sign-in link."""
        token = secrets.token_urlsafe(20)
        await self._store.sessions.create_link(token, Actor(f"operator:{name}", self._clock.now), role)
        return f"/console/sign-in?token={token}"

    async def sign_in(self, name: str = "ada", role: Role = Role.ADMIN) -> "Browser":
        response = await self.http.get(await self.link(name, role))
        assert 303 == response.status_code
        await self.get("/")
        return self

    async def get(self, path: str, status: int = 200) -> str:
        """The text of a page below /console, with entities decoded and without repeated white space."""
        response = await self.http.get(f"/console{path}")
        assert status == response.status_code, response.text
        self.page = response.text
        return text_of(response)

    async def submit(self, path: str, fields: Mapping[str, Any] | None = None, status: int = 200) -> str:
        """Submit a form of the last page, and follow the redirect; the text of the page that results."""
        data = dict(fields or {})
        if "form_token" not in data:
            data["form_token"] = self.form_token
        response = await self.http.post(f"/console{path}", data=data, follow_redirects=True)
        assert status == response.status_code, response.text
        self.page = response.text
        return text_of(response)

    async def led_to(self, path: str, fields: Mapping[str, Any]) -> str:
        """Submit a form of the last page, which stays the last one; the location of the redirect."""
        data = {"form_token": self.form_token, **fields}
        response = await self.http.post(f"/console{path}", data=data)
        assert 303 == response.status_code, response.text
        return response.headers["location"]

    @property
    def text(self) -> str:
        """What a reader sees of the last page."""
        return _text(self.page)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """What the last page says is wrong: the id of each field, and the message."""
        return [(field, unescape(text)) for field, text in re.findall(r'<li><a href="#([\w-]+)">(.*?)</a>', self.page)]

    @property
    def notice(self) -> tuple[str, list[str]]:
        """The kind and the lines of the last page's notice."""
        [(kind, lines)] = re.findall(r'<div class="notice notice-(\w+)" role="status">\s*(.*?)\s*</div>', self.page)
        return kind, [_text(line).strip() for line in lines.split("</p>")[:-1]]

    @property
    def cards(self) -> list[str]:
        """The texts of the sections of the last page, each with its heading."""
        return [_text(each).strip() for each in re.findall(r'<section class="card.*?</section>', self.page, re.DOTALL)]

    @property
    def sorting(self) -> list[tuple[str, str]]:
        """How the list of the last page is sorted by a column, and how its link sorts it."""
        return re.findall(r'aria-sort="(\w+)"><a href="\?sort=([\w-]+)"', self.page)

    @property
    def form_token(self) -> str:
        return self.hidden("form_token")

    def hidden(self, name: str) -> str:
        """The value of a hidden field of the last page."""
        found = re.search(rf'name="{name}" value="([^"]*)"', self.page)
        assert found is not None, f"no field {name} in the page"
        return unescape(found[1])


def text_of(response: httpx2.Response) -> str:
    """What a reader sees: the page without tags, with entities decoded."""
    return _text(response.text)


def _text(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", re.sub("</?bdi>", "", page))))


@asynccontextmanager
async def running_console(stores: Stores, environ: Mapping[str, str] | None = None) -> AsyncIterator[Console]:
    """A console over the store, opened at the beginning of the test's time.

    Its pages wait for all that they show for as long as a busy machine takes, and only the first one begins a round of
    checks.
    """
    clock = Clock(START)
    service = Service()
    async with AsyncExitStack() as opened:
        store = await opened.enter_async_context(stores.opened())
        for module, name in (
            (visit, "PAGE_SECONDS"),
            (sources, "_SESSION_SECONDS"),
            (monitor, "_LIVE_SECONDS"),
            (monitor, "_ROUND_SECONDS"),
            (monitor, "CHECK_SECONDS"),
        ):
            opened.enter_context(patch.object(module, name, PATIENCE))
        settings = read_settings({"PETSTORE_DATABASE_URL": stores.url, **(environ or {})})
        defaults: Any = Cached.__init__.__kwdefaults__
        with patch.dict(defaults, CURRENT):
            webhooks = webhook_service(settings, store, clock)
            console = make_console(settings, store, service, webhooks, clock)
        application = Starlette(routes=[console])
        browser = Browser(application, store, clock)
        try:
            yield Console(store, clock, application, browser, service, console.sources)
        finally:
            await console.sources.close()


async def upload(browser: Browser, content: bytes, status: int = 303, name: str = "orders.jsonl", **fields: str) -> str:
    """Upload a file; the path of its page, or the text of the page that says what is wrong."""
    await browser.get("/imports/new")
    data = {"form_token": browser.form_token, **fields}
    response = await browser.http.post("/console/imports/new", data=data, files={"file": (name, content)})
    assert status == response.status_code, response.text
    browser.page = response.text
    return response.headers.get("location", "").removeprefix("/console") or text_of(response)


async def finished(browser: Browser, path: str) -> str:
    """The text of an upload's page, once the work under way has ended."""
    async with asyncio.timeout(60):
        while True:
            text = await browser.get(path)
            if ">Stop<" not in browser.page:
                return text
            await asyncio.sleep(0.05)
