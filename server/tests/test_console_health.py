"""The state of the service as every page of the console shows it: found lately, since when, on every host."""

import asyncio
import re
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock

import pytest

from petstore_server.domain.errors import ServiceUnavailable, StoreUnusable
from petstore_server.domain.health import HostHealth
from petstore_server.operations import monitor
from petstore_server.operations.health import CheckResult
from petstore_server.runtime import opening
from testing.console import Browser, Console, running_console
from testing.stores import Stores, add_key
from testing.subprocesses import PATIENCE, busy

LIVE_SECONDS = monitor._LIVE_SECONDS
"""For which a page waits for the service; those of the other tests wait for as long as a busy machine takes."""
DEGRADED = {"status": "degraded", "reason": "each process counts limits by itself: Redis is gone"}


async def strip(console: Console, path: str = "/orders") -> str:
    """The text of the strip on a page."""
    await console.browser.get(path)
    [(state, text)] = re.findall(r'<div class="strip strip-(\S+)">(.*?)<form', console.browser.page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", f"{state}: {text}").split())


async def test_every_page_says_how_the_service_is_and_when_that_was_found(console: Console, browser: Browser) -> None:
    for path in ("/", "/accounts", "/orders", "/imports", "/audit", "/bans"):
        assert "ready: Ready · checked 0 s ago" == await strip(console, path)
    await browser.get("/missing", 404)
    assert "Check again" in browser.page
    assert "Sample data" not in browser.page
    browser.http.cookies.clear()
    await browser.get("/orders", 401)
    assert "Check again" not in browser.page


async def test_a_state_keeps_its_beginning_across_pages_and_a_restart(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        await console.browser.sign_in()
        console.service.detail = DEGRADED
        assert "degraded: Degraded since 07:33 (0 s) Each process counts" in await strip(console)
        console.clock.now += 31 * 60
        assert "since 07:33 (31 min)" in await strip(console)
        await console.check()
    async with running_console(each_backend) as console:  # is stopped before it knows the state of before
        console.clock.now += 60
        console.service.detail = DEGRADED
        await console.sources.monitor._ask()
    async with running_console(each_backend) as console:
        found = await console.store.health.find(console.sources.monitor._host)
        assert found is not None
        assert console.clock.now + 31 * 60 == found.checked_at
        assert found.stopped
        console.clock.now += 32 * 60
        console.service.detail = DEGRADED
        await console.browser.sign_in()
        await console.check()
        assert "Degraded since 07:33 (32 min) Each process" in await strip(console)
        console.service.detail = {"status": "ok"}
        assert "ready: Ready · checked 0 s ago" == await strip(console)
        console.clock.now += 60
        console.service.ready, console.service.detail = False, {"status": "unavailable", "reason": "the disk is full"}
        assert "not-ready: Not ready since 08:06 (0 s) The disk is full. · checked 0 s ago" == await strip(console)


async def test_a_stop_does_not_begin_another_state(console: Console, browser: Browser) -> None:
    console.service.detail = DEGRADED
    await console.check()
    console.service.ready = False
    console.service.detail = {"status": "unavailable", "reason": "draining: the process is about to stop"}
    await console.check()
    assert "Degraded since 07:33" in await strip(console)


async def test_the_worst_host_is_shown_and_a_silent_one_named(console: Console, browser: Browser) -> None:
    now = console.clock.now
    other = HostHealth("web2:8081", "degraded", "Redis is gone", now - 600, now - 8)
    await console.store.health.save(other)
    await console.store.health.save(HostHealth("web3:8081", "not ready", "", now - 600, now, stopped=True))
    await console.check()
    shown = "degraded: Degraded since 07:23 (10 min) on web2:8081 Redis is gone. · checked 8 s ago"
    assert shown == await strip(console)
    await console.store.health.save(other._replace(state="ready", reason=""))
    await console.check()
    assert "ready: Ready on 2 hosts · checked 8 s ago" == await strip(console)
    console.clock.now += 130
    assert "warn: Ready · checked 0 s ago · web2:8081 has not reported for 2 min" == await strip(console)
    console.clock.now += 86_400
    await browser.sign_in()
    await console.check()
    assert "ready: Ready · checked 0 s ago" == await strip(console)


async def test_a_clock_that_was_ahead_leaves_no_state_behind(console: Console, browser: Browser) -> None:
    ahead = console.clock.now + 365 * 86_400
    gone = HostHealth("web2:8081", "not ready", "the disk is full", ahead, ahead)
    await console.store.health.save(gone)
    console.service.detail = DEGRADED
    console.clock.now += 3600
    await console.check()
    console.clock.now -= 3600
    await console.check()
    assert "Degraded since 07:33 (0 s)" in await strip(console)


async def test_a_service_that_does_not_answer_is_not_shown_as_ready(
    console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await strip(console)
    monkeypatch.setattr(monitor, "_LIVE_SECONDS", LIVE_SECONDS)
    answered = asyncio.Event()
    readiness = console.service.readiness

    async def late() -> tuple[bool, dict[str, Any]]:
        await answered.wait()
        return await readiness()

    console.service.readiness = late  # type: ignore[method-assign]
    console.clock.now += 8
    began = monotonic()
    assert re.fullmatch("warn: Ready · checked 8 s ago · no answer for [1-9] s", await strip(console))
    assert monotonic() - began < 2.0 + busy()
    console.clock.now += 120
    assert re.match("old: State not known · ready when it was last checked · checked 2 min ago", await strip(console))
    console.service.ready, console.service.detail = False, {"status": "unavailable", "reason": "worker 2 is frozen"}
    answered.set()
    assert "not-ready: Not ready since 07:35 (0 s) Worker 2 is frozen." in await strip(console)


async def test_what_is_live_outranks_older_checks(console: Console) -> None:
    await console.check()
    checks = {each.check for each in console.sources.monitor.checks or ()}
    assert "backup" in checks
    assert not checks & {"server", "store", "redis", "integrity"}, "readiness says that"


async def test_a_check_that_cannot_be_made_says_so_and_hides_no_other(
    each_backend: Stores, console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, full = ServiceUnavailable("it is locked"), StoreUnusable("It is full.", "Wait.")
    monkeypatch.setattr(console.store.orders, "last_identifier", AsyncMock(side_effect=locked))
    monkeypatch.setattr(opening, "postgres_state", AsyncMock(side_effect=full))
    await add_key(console.store)
    await console.check()
    checks = {each.check for each in console.sources.monitor.checks or ()}
    assert {"settings", "accounts", "identifiers", "backup", "clock"} < checks
    shown = (await browser.get("/")).partition("Healthy, with ")[2].partition(" recommendation")[0]
    assert "warn identifiers This was not checked: It is locked." in shown
    asked = each_backend.url.startswith("postgresql:")
    assert asked == ("warn postgresql This was not checked: It is full. Wait." in shown)


@pytest.mark.parametrize("waits", [True, False])
async def test_checks_on_demand_begin_after_those_under_way(
    waits: bool, console: Console, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, allowed = asyncio.Event(), asyncio.Event()

    async def examine() -> list[CheckResult]:
        found = CheckResult("disk", "ok", "after the change" if begun.is_set() else "before the change")
        begun.set()
        await allowed.wait()
        return [found]

    await console.check()
    await browser.get("/orders")
    console.sources.monitor._examine = examine
    under_way = asyncio.create_task(console.sources.monitor.watch())
    await begun.wait()
    if not waits:  # the page is shown before the round under way has ended
        monkeypatch.setattr(monitor, "_ROUND_SECONDS", 0.01)
    submitted = asyncio.create_task(browser.submit("/check"))
    if waits:
        await asyncio.sleep(0.05)
        allowed.set()
        assert "after the change" in await submitted
    else:
        assert "after the change" not in await submitted
        allowed.set()
        await asyncio.wait(console.sources.monitor._wanted, timeout=PATIENCE)
        assert "after the change" in await browser.get("/")
    await under_way


async def test_checks_are_repeated_on_demand_and_a_failed_one_shows_on_every_page(
    console: Console, browser: Browser
) -> None:
    failed = CheckResult("disk", "fail", "1 MiB is free.", "Free some space.")
    advice = CheckResult("x", "warn", "advice", "Do it.")
    await console.check()
    console.sources.monitor._examine = AsyncMock(return_value=[failed, advice])
    await browser.get("/orders?status=pending")
    fields = {"here": browser.hidden("here"), "form_token": browser.form_token}
    assert "/console/orders?status=pending" == await browser.led_to("/check", fields)
    assert "degraded: Degraded since 07:33 (0 s) 1 MiB is free. · checked 0 s ago" == await strip(console)
    overview = await browser.get("/")
    assert "A check has failed" in overview
    assert "1 recommendation" in overview
    console.sources.submissions.clear()  # some seconds later
    await browser.led_to("/check", fields)  # works again
