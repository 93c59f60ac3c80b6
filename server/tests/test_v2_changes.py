"""listChanges over HTTP: tokens, pages, and requests that are held until something changes (D20)."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from petstore_server.api.v2 import changes
from petstore_server.domain.accounts import PLAN_LIMITS, Plan, set_plan, suspend
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.keys import revoke
from petstore_server.domain.lists import ChangeClock
from petstore_server.domain.orders import CANCEL, Order
from petstore_server.engines.sqlite.maintenance import backup, restore
from petstore_server.runtime.backend import opened_backend
from petstore_server.store.statements import Execute
from testing import wire
from testing.deployment import Deployment
from testing.partners import CHANGES, Partner, counted
from testing.service import UNLIMITED, Service, bearer, code, embedded, running
from testing.stores import BY
from testing.subprocesses import busy

SOON = 0.5
"""Seconds within which a change is answered."""

pytestmark = pytest.mark.usefixtures("each_deployment")


@dataclass
class Follower(Partner):
    """A partner with the token of its last response."""

    token: str | None = None

    async def ask(self, **query: str | int) -> httpx2.Response:
        """The response to a request with the token."""
        given = {} if self.token is None else {"after": self.token}
        return await self.get(CHANGES, **{**given, **query})

    async def page(self, **query: str | int) -> dict[str, Any]:
        """The page of a request, after which the next one continues."""
        response = await self.ask(**query)
        assert 200 == response.status_code
        page: dict[str, Any] = response.json()
        self.token = page["next"]
        return page

    async def changed(self, **query: str | int) -> list[int]:
        return [order["id"] for order in (await self.page(**query))["data"]]

    def waiting(self, seconds: int = 30) -> AbstractAsyncContextManager[asyncio.Task[httpx2.Response]]:
        """A request that the service holds by now."""
        return self.held(self.token or "now", seconds)


async def follower(service: Service, account: str | None = None) -> Follower:
    """A follower with a new key of the account; without limits unless the account has some."""
    return with_key(service, await service.key(account or await service.account(Plan.ENTERPRISE, UNLIMITED)))


def with_key(service: Service, key: str) -> Follower:
    """A follower of which only the key matters."""
    return Follower(service, "", 0, bearer(key))


async def held_requests(service: Service, number: int) -> None:
    """Wait until the service holds so many requests."""
    async with asyncio.timeout(10):
        while service.application.changes.held != number:  # noqa: ASYNC110 - it is another program, as it were
            await asyncio.sleep(0.005)


async def test_every_order_comes_once_and_then_every_change_in_its_order(service: Service) -> None:
    client = await follower(service)
    assert {"data": [], "more": False} == {k: v for k, v in (await client.page()).items() if k != "next"}
    await service.orders(*(Order(number, reference=f"A {number}") for number in range(1, 8)))
    first = await client.page(limit=3)
    assert (["A 1", "A 2", "A 3"], True) == ([order["reference"] for order in first["data"]], first["more"])
    last = await client.page(limit=4)
    assert ([4, 5, 6, 7], False) == ([order["id"] for order in last["data"]], last["more"])
    assert [] == await client.changed()
    for number in (5, 2):
        await service.backend.store.orders.change(number, CANCEL, service.actor)
    assert [(5, "cancelled"), (2, "cancelled")] == [
        (order["id"], order["status"]) for order in (await client.page())["data"]
    ]
    assert [] == await client.changed()
    client.token = None
    assert [1, 3, 4, 6, 7, 5, 2] == await client.changed()
    assert [] == await client.changed(after="now")
    await service.backend.store.orders.change(7, CANCEL, service.actor)
    assert [7] == await client.changed()


@embedded
async def test_a_response_is_not_cached_and_compressed_on_request(service: Service) -> None:
    await service.orders(*(Order(number) for number in range(100)))
    client = await follower(service)
    client.headers["Accept-Encoding"] = "gzip"
    response = await client.ask()
    assert ("no-store", "gzip") == (response.headers["cache-control"], response.headers["content-encoding"])
    assert "etag" not in response.headers
    for method in ("HEAD", "POST", "DELETE"):
        refused = await service.client.request(method, CHANGES, headers=client.headers)
        assert (405, "GET") == (refused.status_code, refused.headers["allow"])


@embedded
async def test_an_altered_token_is_refused(service: Service) -> None:
    client = await follower(service)
    await service.orders(Order(1), Order(2))
    token = (await client.page())["next"]
    assert 40 == len(token)
    altered = token[:9] + ("A" if token[9] != "A" else "B") + token[10:]
    cursor = (await service.client.get("/v2/store/orders?limit=1", headers=client.headers)).json()["nextCursor"]
    for text in ("NOW", "a", token[:-1], token + "A", "a" * 300, altered, cursor):
        assert (400, "invalid_cursor") == code(await client.ask(after=text)), text
    listed = await service.client.get(f"/v2/store/orders?cursor={token}", headers=client.headers)
    assert (400, "invalid_cursor") == code(listed)


async def test_a_held_request_is_answered_soon_after_a_change(service: Service) -> None:
    client = await follower(service)
    await service.orders(Order(1))
    await client.page()
    async with client.waiting() as waiting:
        began = monotonic()
        await service.backend.store.orders.change(1, CANCEL, service.actor)
        response = await waiting
    assert monotonic() - began < SOON + busy()
    assert ["cancelled"] == [order["status"] for order in response.json()["data"]]
    assert 0 == service.application.changes.held
    assert not any(service.application.concurrency._of_account.values())


async def test_a_held_request_ends_at_its_time_with_an_empty_page(service: Service) -> None:
    started = monotonic()
    client = await follower(service)
    token = (await client.page())["next"]
    began = monotonic()
    assert {"data": [], "next": token, "more": False} == await client.page(wait=1)
    assert 1 <= monotonic() - began < 1 + SOON + busy()
    waited = [
        sample.value
        for metric in await service.application.collect()
        for sample in metric.samples
        if sample.name == "petstore_request_duration_seconds_sum" and sample.labels["operation"] == "v2.listChanges"
    ]
    assert 0 < sum(waited) < monotonic() - started - 0.99  # the histogram has no waiting time


async def test_a_held_request_is_charged_once_and_shows_the_limits_when_it_is_answered(service: Service) -> None:
    account = await service.account(Plan.FREE)
    client, other = await follower(service, account), await follower(service, account)
    await client.page()
    async with client.waiting() as waiting:
        await other.page()
        service.clock.now += 2
        await service.orders(Order(1))
        response = await waiting
    assert "57" == response.headers["x-ratelimit-remaining"]
    assert '"minute";r=57;t=58, "day";r=997;t=86398' == response.headers["ratelimit"]
    assert "56" == (await other.ask()).headers["x-ratelimit-remaining"]


async def test_a_key_that_is_banned_while_its_request_is_held_gets_429(service: Service) -> None:
    account = await service.account()
    client, other = await follower(service, account), await follower(service, account)
    await client.page()
    async with client.waiting() as waiting, other.waiting() as unbanned:
        for _ in range(57):  # what the plan has left
            assert 200 == (await other.ask()).status_code
        await client.ask()
        service.clock.now += 3
        for _ in range(20):
            assert 429 == (await client.ask()).status_code
        await service.orders(Order(1))
        refused, admitted = await waiting, await unbanned
    assert (429, "api_key_banned") == code(refused)
    assert '"minute";r=0;t=57, "day";r=940;t=86397, "ban";r=0;t=120' == refused.headers["ratelimit"]
    assert ("0", "120") == (refused.headers["x-ratelimit-remaining"], refused.headers["retry-after"])
    assert (200, '"minute";r=0;t=57, "day";r=940;t=86397') == (admitted.status_code, admitted.headers["ratelimit"])


@embedded
async def test_a_key_that_ends_while_its_request_is_held_gets_401_and_a_new_plan_counts(service: Service) -> None:
    suspended, changed = await service.account(), await service.account()
    revoked, revoked_id = await service.key_and_id()
    clients = [await follower(service, suspended), await follower(service, changed)]
    expiring = await service.key(expires_at=service.clock.now + 5)
    clients += [with_key(service, key) for key in (expiring, revoked)]
    for client in clients:
        await client.page()
    async with AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(client.waiting()) for client in clients]
        accounts = service.backend.store.accounts
        await accounts.change(suspended, suspend(service.actor.at), service.actor)
        await accounts.change(changed, set_plan(Plan.PRO, PLAN_LIMITS[Plan.PRO]), service.actor)
        await service.backend.store.keys.change(revoked_id, revoke(service.actor.at), service.actor)
        await service.background_round()
        service.clock.now += 5
        await service.orders(Order(1))
        responses = [await each for each in waiting]
    assert [401, 200, 401, 401] == [response.status_code for response in responses]
    assert '"address";r=60;t=60' == responses[2].headers["ratelimit"]
    assert "300" == responses[1].headers["x-ratelimit-limit"]


@embedded
async def test_more_requests_than_are_held_are_answered_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await follower(service), await follower(service)
    await client.page()
    async with client.waiting(), client.waiting(), client.waiting(), client.waiting() as last:
        refused = await client.ask(wait=30)
        assert (200, "2", []) == (refused.status_code, refused.headers["retry-after"], refused.json()["data"])
        monkeypatch.setattr(changes, "MAX_HELD", 5)
        async with other.waiting():
            third = await follower(service)
            assert "2" == (await third.ask(wait=30)).headers["retry-after"]
            assert "retry-after" not in (await third.ask()).headers
            await service.orders(Order(1))
            await last
    assert 0 == service.application.changes.held


@embedded
async def test_an_account_has_at_most_32_requests_held_with_all_its_keys(service: Service) -> None:
    account = await service.account(Plan.ENTERPRISE, UNLIMITED)
    clients = [await follower(service, account) for _ in range(9)]
    other = await follower(service)
    waiting = [asyncio.create_task(client.ask(wait=30, after="now")) for client in clients[:8] for _ in range(4)]
    await held_requests(service, 32)
    assert "2" == (await clients[8].ask(wait=30, after="now")).headers["retry-after"]
    async with other.waiting():
        await service.orders(Order(1))
    assert {200} == {(await each).status_code for each in waiting}
    await held_requests(service, 0)
    async with clients[8].waiting():
        await service.orders(Order(2))


@embedded
async def test_a_stop_answers_what_is_held_and_holds_no_more(service: Service) -> None:
    client = await follower(service)
    await client.page()
    async with client.waiting() as waiting:
        began = monotonic()
        service.application.drain()
        assert [] == (await waiting).json()["data"]
        assert monotonic() - began < SOON + busy()
    assert "2" == (await client.ask(wait=30)).headers["retry-after"]


@embedded
async def test_a_client_that_ends_its_half_of_the_connection_is_answered_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await service.key()
    request = wire.head("GET", f"{CHANGES}?wait=30", key=key)
    clock = service.backend.store.search.change_clock

    async def late() -> ChangeClock:
        await asyncio.sleep(0.1)
        return await clock()

    monkeypatch.setattr(service.backend.store.search, "change_clock", late)
    for pause in (0.0, 0.05, 0.4):  # with the request, before it is held, while it is held
        reader, writer = await asyncio.open_connection("127.0.0.1", service.transport.port)
        writer.write(request)
        await asyncio.sleep(pause)
        writer.write_eof()
        async with asyncio.timeout(5):
            assert b'"data":[]' in await reader.read()
        writer.close()
        assert 0 == service.application.changes.held


@embedded
async def test_a_client_that_goes_away_frees_its_place_although_requests_behind_are_unread(service: Service) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", service.transport.port)
    writer.write(wire.head("GET", f"{CHANGES}?wait=30", key=await service.key()) * 3)
    await held_requests(service, 1)
    wire.reset(writer)
    await held_requests(service, 0)


@embedded
async def test_requests_for_the_same_share_one_look_and_one_page(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [await follower(service) for _ in range(5)]
    for client in clients:
        await client.page()
    asked = counted(service, monkeypatch)
    waiting = [asyncio.create_task(client.ask(wait=30)) for client in clients]
    await held_requests(service, 5)
    asked.clear()
    began = monotonic()
    await asyncio.sleep(1)
    assert 1 <= asked["change_clock"] <= 1 + (monotonic() - began) / changes.LOOK_SECONDS
    assert 0 == asked["page"]
    await service.orders(Order(1))
    assert [[1]] * 5 == [[order["id"] for order in (await each).json()["data"]] for each in waiting]
    assert 1 == asked["page"]
    await asyncio.sleep(0.4)
    before = asked["change_clock"]
    await asyncio.sleep(0.4)
    assert before == asked["change_clock"]


@embedded
async def test_a_clock_that_ticks_without_a_change_of_an_order_ends_nothing(service: Service) -> None:
    client = await follower(service)
    await service.orders(Order(1))
    await client.page()
    async with client.waiting() as waiting:
        engine = service.backend.store.engine

        def tick() -> Any:
            yield from engine.dialect.write_orders([], [], service.clock.now)

        await engine.transaction(tick)
        await asyncio.sleep(0.6)
        assert not waiting.done()
        await service.backend.store.orders.change(1, CANCEL, service.actor)
        assert [1] == [order["id"] for order in (await waiting).json()["data"]]


@embedded
async def test_while_the_store_does_not_answer_a_request_is_held_until_its_time_is_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await follower(service)
    await client.page()
    search = service.backend.store.search
    clock = search.change_clock

    async def broken() -> Any:
        raise ServiceUnavailable("a reason")

    async with client.waiting(1) as ending, client.waiting(30) as lasting:
        monkeypatch.setattr(search, "change_clock", broken)
        assert (503, "service_unavailable") == code(await ending)
        monkeypatch.setattr(search, "change_clock", clock)
        await service.orders(Order(1))
        assert 200 == (await lasting).status_code


# Histories


async def token_of_a_story(deployment: Deployment) -> tuple[str, str]:
    """A key, and its token after two orders and a change of one."""
    async with running(deployment) as service:
        key = await service.key(await service.account(Plan.ENTERPRISE, UNLIMITED))
        await service.orders(Order(1), Order(2))
        await service.backend.store.orders.change(1, CANCEL, service.actor)
        return key, (await with_key(service, key).page())["next"]


async def outcome(deployment: Deployment, key: str, token: str) -> tuple[int, str | list[int]]:
    """What a service over the deployment answers to a token."""
    async with running(deployment) as service:
        response = await with_key(service, key).ask(after=token)
        if response.status_code != 200:
            return code(response)
        return 200, [order["id"] for order in response.json()["data"]]


RESET = (410, "changes_reset")


async def test_a_restart_keeps_tokens(deployment: Deployment) -> None:
    key, token = await token_of_a_story(deployment)
    assert [(200, [])] * 2 == [await outcome(deployment, key, token) for _ in range(2)]


@embedded
async def test_a_restore_begins_a_new_history(deployment: Deployment, service: Service, tmp_path: Path) -> None:
    key, token = await token_of_a_story(deployment)
    backup(deployment.store, tmp_path / "backup.db")
    assert (200, []) == await outcome(deployment, key, token)
    client = with_key(service, key)
    await client.page()
    async with client.waiting() as waiting:
        restore(deployment.store, tmp_path / "backup.db", BY)
        assert RESET == code(await waiting)
    client.token = None
    token = str((await client.page())["next"])
    assert (200, []) == await outcome(deployment, key, token)


@embedded
@pytest.mark.parametrize(("make", "put"), [(shutil.copyfile, Path.replace), (backup, shutil.copyfile)])
async def test_a_file_that_takes_the_place_of_another_begins_a_new_history(
    deployment: Deployment, tmp_path: Path, make: Callable[[Path, Path], object], put: Callable[[Path, Path], object]
) -> None:
    key, token = await token_of_a_story(deployment)
    make(deployment.store, tmp_path / "copy")
    put(tmp_path / "copy", deployment.store)
    assert RESET == await outcome(deployment, key, token)


@embedded
async def test_a_token_from_after_the_clock_is_of_another_history(deployment: Deployment) -> None:
    """The content of the file was replaced in place: only the token shows that something is gone."""
    key, token = await token_of_a_story(deployment)
    with closing(sqlite3.connect(deployment.store, isolation_level=None)) as database:
        database.execute("UPDATE orders SET updated_at = updated_at - 1")
        database.execute("UPDATE clock SET at = at - 1")
    assert RESET == await outcome(deployment, key, token)


async def set_back(service: Service) -> None:
    """Take the last change back, as a physical restore does."""

    def work() -> Any:
        yield Execute("UPDATE petstore.orders SET updated_at = updated_at - 5 WHERE id = 1")
        yield Execute("UPDATE petstore.clock SET change = change - 1, at = at - 5")

    await service.backend.store.engine.transaction(work)


@pytest.mark.parametrize("each_deployment", ["scaled-out"], indirect=True)
async def test_a_clock_behind_what_was_shown_begins_a_new_history_before_the_next_change(service: Service) -> None:
    client = await follower(service)
    await service.orders(Order(1), Order(2))
    await service.backend.store.engine.verify()
    assert [1, 2] == await client.changed()
    await service.backend.store.orders.change(1, CANCEL, service.actor)
    assert [1] == await client.changed()  # noted as it is shown, not by the next look
    await set_back(service)
    async with opened_backend(service.settings, service.clock) as other:  # another process, which connects
        await other.store.orders.change(2, CANCEL, service.actor)
    assert RESET == code(await client.ask())
    client.token = None
    assert [1, 2] == await client.changed()
    await service.backend.store.engine.verify()
    assert [] == await client.changed()
