"""The console of a server with workers while an engine or a worker stands still: each page within two seconds."""

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import httpx2
import pytest

from petstore_server.engines.postgres.pool import CONNECTIONS
from testing.engines import PostgresEngine, running_engine
from testing.process import UNLIMITED, Server, petstore, serving
from testing.redis_engine import RedisEngine, own_redis
from testing.subprocesses import busy, descendants, within

PAGES = ("", "accounts", "accounts/acme", "bans", "orders", "imports", "audit", "?period=week")


class Host(NamedTuple):
    """A server with two workers over engines of its own, and a browser that is signed in to its console."""

    server: Server
    postgres: PostgresEngine
    redis: RedisEngine
    browser: httpx2.Client

    def page(self, path: str) -> str:
        """A page, which takes two seconds at most."""
        began = time.monotonic()
        response = self.browser.get(f"{self.server.admin}/console/{path}")
        took = time.monotonic() - began
        assert took < 2.0 + busy(), f"{path} took {took:.1f} s"
        assert response.status_code in (200, 503), path
        return response.text

    def all_pages(self) -> None:
        """Every page twice, all at the same time: more than there are connections to the store."""
        pages = PAGES * 2
        assert len(pages) > CONNECTIONS
        with ThreadPoolExecutor(len(pages)) as threads:
            list(threads.map(self.page, pages))

    def strip(self) -> str:
        """The text of the strip of the overview."""
        [found] = re.findall(r'<div class="strip.*?<form', self.page(""), re.DOTALL)
        return " ".join(re.sub(r"<[^>]+>", " ", found).split())

    def eventually_says(self, text: str) -> None:
        """Load pages until the strip has the text."""
        within(30, lambda: text in self.strip())


@pytest.fixture(name="host", scope="module")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    store = tmp_path_factory.mktemp("frozen") / "store.db"
    with ExitStack() as opened:
        postgres, redis = opened.enter_context(running_engine()), opened.enter_context(own_redis())
        urls = {"PETSTORE_DATABASE_URL": postgres.url("postgres"), "PETSTORE_REDIS_URL": redis.url}
        assert 0 == petstore(store, "db", "migrate", **urls).returncode
        server = opened.enter_context(serving(store, PETSTORE_WORKERS="2", **urls))
        browser = opened.enter_context(httpx2.Client(follow_redirects=True, timeout=30))
        petstore(store, "accounts", "create", "acme", *UNLIMITED, **urls)
        link = petstore(store, "console", "--url", server.admin, **urls)
        assert 0 == link.returncode, link.stderr
        assert 200 == browser.get(link.stdout.strip()).status_code
        yield Host(server, postgres, redis, browser)


@pytest.mark.parametrize(("engine", "state"), [("postgres", "Not ready since"), ("redis", "Degraded since")])
def test_pages_appear_while_an_engine_stands_still(host: Host, engine: str, state: str) -> None:
    host.eventually_says("Ready · checked")
    with getattr(host, engine).frozen():
        first = host.page("")
        assert "Requests per minute in the last hour" in first  # what is in memory
        assert "This was not read in time" in first or engine == "redis"
        host.all_pages()
        host.eventually_says(state)
    host.eventually_says("Ready · checked")


def test_a_worker_that_stands_still_is_named(host: Host) -> None:
    host.eventually_says("Ready · checked")
    worker = descendants(host.server.process.pid)[-1]
    os.kill(worker, signal.SIGSTOP)
    try:
        assert "Ready · checked 0 s ago Check" not in host.strip()
        host.all_pages()
        host.eventually_says("does not respond. · checked")
        assert re.search(r"Not ready since .* Worker \d does not respond", host.strip())
    finally:
        os.kill(worker, signal.SIGCONT)
    host.eventually_says("Ready · checked")
