"""The admin port of one process: what it reports by itself, and the bounds of its connections (D1)."""

import asyncio
import math
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest
from prometheus_client.core import GaugeMetricFamily

from petstore_server import __version__, commit
from petstore_server.domain.accounts import PLAN_LIMITS, Plan
from petstore_server.domain.audit import Actor
from petstore_server.domain.orders import Order
from petstore_server.runtime import servers
from petstore_server.runtime.background import STALLED_SECONDS, BackgroundTask
from petstore_server.runtime.servers import MAX_ADMIN_CONNECTIONS, AdminServer
from petstore_server.telemetry.metrics import aggregate
from testing.clock import START
from testing.deployment import Deployment
from testing.public_server import LIST, begin_slowly, connect, until_closed
from testing.service import Service
from testing.stores import BY, api_key
from testing.subprocesses import PATIENCE, until


async def get(service: Service, path: str, host: str | None = "127.0.0.1:8081") -> httpx2.Response:
    """The response to a request with this Host; None sends none."""
    transport = httpx2.ASGITransport(app=service.application.admin)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as admin:
        request = admin.build_request("GET", path, headers={"Host": host or ""})
        if host is None:
            del request.headers["host"]
        return await admin.send(request)


def values(text: str, name: str) -> dict[str, float]:
    """The values of a metric by its labels."""
    lines = [line.removeprefix(name).rpartition(" ") for line in text.splitlines() if line.startswith(name)]
    return {labels: float(value) for labels, _, value in lines}


async def test_a_stalled_background_task_makes_the_process_unready(service: Service) -> None:
    assert {"": 1.0} == values((await get(service, "/metrics")).text, "petstore_ready")
    task = BackgroundTask("watch access", asyncio.Event().wait, 0, lambda: STALLED_SECONDS, _finished_at=0.0)
    service.application.background = [task]
    response = await get(service, "/readyz")
    assert (503, "unavailable") == (response.status_code, response.json()["status"])
    assert "watch access" in response.json()["reason"]
    assert {"": 0.0} == values((await get(service, "/metrics")).text, "petstore_ready")


async def test_a_store_that_does_not_respond_in_two_seconds_makes_the_process_unready(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, timeout = service.backend.store, asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: timeout(seconds / 100))
    monkeypatch.setattr(store, "check_orders", asyncio.Event().wait)
    for fault, reason in ((None, "the store did not respond within 2 seconds"), ("it is damaged", "it is damaged")):
        monkeypatch.setattr(store.engine, "fault", lambda fault=fault: fault)
        assert {"status": "unavailable", "reason": reason} == (await get(service, "/readyz")).json()


@pytest.mark.settings(PETSTORE_DRAIN_DELAY_SECONDS="0")
@pytest.mark.parametrize("error", [None, OSError("too many files")])
async def test_a_server_is_ready_once_its_admin_port_responds_and_drains_when_that_or_its_companion_ends(
    service: Service, error: OSError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    tasks = asyncio.all_tasks()

    async def on_ready() -> None:
        begun.append("ready")

    begin_slowly(monkeypatch, begun, error)
    for name in ("gc", "sys"):  # which the process of the tests keeps as they are
        monkeypatch.setattr(servers, name, Mock())
    with socket.create_server(("127.0.0.1", 0)) as public, socket.create_server(("127.0.0.1", 0)) as admin:
        given = service.settings, service.application, public, on_ready
        with pytest.raises(OSError, match="too many files") if error else nullcontext():
            await servers.serve_until_stopped(*given, admin=admin, companion=partial(asyncio.sleep, 0))
    assert ([] if error else ["admin port", "ready"]) == begun
    assert (True, tasks) == (service.application.gate.draining, asyncio.all_tasks())


async def test_the_root_lists_every_path_that_is_served(service: Service) -> None:
    root = await get(service, "/")
    assert 200 == root.status_code
    listed = [line.split()[0] for line in root.text.splitlines() if line.startswith("/")]
    assert ["/livez", "/readyz", "/metrics", "/console/"] == listed
    for path in listed[:3]:
        assert 200 == (await get(service, path)).status_code
        assert 404 == (await get(service, f"{path}/")).status_code  # never redirected to the request's host


async def test_a_scrape_shows_what_the_store_has(service: Service) -> None:
    store = service.backend.store
    _, connection = await asyncio.open_connection("127.0.0.1", service.transport.port)
    for have, add in (
        ((0, 0, 0), store.orders.import_batch([Order(1)], "import:1", BY)),
        ((1, 0, 0), store.accounts.create("zoo", Plan.FREE, PLAN_LIMITS[Plan.FREE], BY)),
        ((1, 1, 0), store.keys.create(api_key("one"), BY)),
        ((1, 1, 1), asyncio.sleep(0)),
    ):
        text = (await get(service, "/metrics")).text
        expected = dict(zip([f'{{kind="{kind}"}}' for kind in ("orders", "accounts", "keys")], have, strict=True))
        assert expected == values(text, "petstore_store_has")
        await add
    assert {"": START} == values(text, "petstore_start_timestamp_seconds")
    assert {} == values(text, "petstore_postgresql")
    assert {"petstore_"} == {re.sub("# (HELP|TYPE) ", "", line)[:9] for line in text.splitlines()}
    assert {"": 1.0} == values(text, "petstore_connections ")
    connection.close()
    assert 0.0 == values(text, "petstore_accounts_using")['{operation="listOrders"}']
    without_redis = ("limit_decisions_local_total", "limits_degraded", "limit_counts_lost_total", "clock_ahead_seconds")
    assert [{"": 0.0}] * 4 == [values(text, f"petstore_{name}") for name in without_redis]
    assert [f'{{commit="{commit()}",version="{__version__}"}}'] == list(values(text, "petstore_build_info"))


@pytest.mark.settings(PETSTORE_USAGE_HOURLY_RETENTION_DAYS="0", PETSTORE_USAGE_DAILY_RETENTION_DAYS="0")
async def test_without_a_usage_history_a_scrape_shows_no_use(service: Service) -> None:
    assert {} == values((await get(service, "/metrics")).text, "petstore_accounts_using")


@pytest.mark.parametrize("each_deployment", ["scaled-out"], indirect=True)
async def test_a_scrape_shows_the_last_backup_and_the_connections_of_postgresql(
    each_deployment: Deployment, service: Service
) -> None:
    assert {"": 0.0} == values((await get(service, "/metrics")).text, "petstore_last_backup_timestamp_seconds")
    await service.backend.store.audit.record_backup("orders.dump", Actor("operator:ann", START))
    assert START == await service.backend.store.audit.last_backup()
    text = (await get(service, "/metrics")).text
    assert {"": START} == values(text, "petstore_last_backup_timestamp_seconds")
    assert {"": 60} == values(text, "petstore_postgresql_max_connections")
    assert 1 <= values(text, "petstore_postgresql_connections")[""] < 60
    assert {"": 0} == values(text, "petstore_old_primaries_refused_total")


@pytest.mark.parametrize("name", ["petstore_last_backup_timestamp_seconds", "petstore_start_timestamp_seconds"])
async def test_a_time_that_several_workers_report_is_the_latest(name: str) -> None:
    [family] = aggregate([[GaugeMetricFamily(name, "", at)] for at in (START, START + 60)])
    assert [START + 60] == [sample.value for sample in family.samples]


@pytest.mark.settings(PETSTORE_CONSOLE_HOSTS="ops.example.com")
async def test_health_and_metrics_are_read_under_addresses_and_known_names_and_not_by_a_page_of_another_site(
    service: Service,
) -> None:
    addresses = ("10.0.0.7:8081", "[fd00::7]:8081", "localhost:8081", "petstore:8081", "app.localhost", "")
    others = ("rebound.example:8081", "127.0.0.1.rebound.example", "10.0.0.7@rebound.example", "a/b")
    expected = [(host, 200) for host in (*addresses, "ops.example.com", None)] + [(host, 421) for host in others]
    for host, status in expected:
        for path in ("/livez", "/readyz", "/metrics"):
            assert status == (await get(service, path, host)).status_code, (host, path)


def test_the_bounds_of_these_connections_are_documented() -> None:
    text = " ".join(Path("docs/operating.md").read_text("utf-8").split())
    assert f"At most {MAX_ADMIN_CONNECTIONS} connections to this port are open, and each has ten seconds" in text
    assert (10, 60) == (servers._ADMIN_HEAD_SECONDS, servers._ADMIN_STALL_SECONDS)


ASKED = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
BODY_OF_4 = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
TWO = ASKED[:-2] + b"X-Forwarded-For: 10.0.0.1\r\n\r\nGET / HT"


async def is_answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether a request gets its response."""
    try:
        writer.write(ASKED)
        return (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


@asynccontextmanager
async def admin_server(seconds: float = 0, *parts: bytes) -> AsyncIterator[tuple[AdminServer, tuple[str, int]]]:
    """An admin server that answers so many seconds after each request, and its address; stopped at the end."""

    async def respond(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert "127.0.0.1" == scope["client"][0]
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(seconds)
        length = b"%d" % sum(map(len, parts))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for number, part in enumerate(parts or [b""], 1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    server = AdminServer(respond)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        await server.wait_until_started()
        yield server, listener.getsockname()
        server.should_exit = True
        await asyncio.wait_for(task, PATIENCE)


@pytest.mark.parametrize(("sent", "pace"), [(b"", 1), (ASKED[:-4], 9), (ASKED, 6), (TWO, 30), (BODY_OF_4 + b"p", 99)])
async def test_a_request_that_is_not_complete_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, pace: int
) -> None:
    for name in ("_ADMIN_HEAD_SECONDS", "_ADMIN_STALL_SECONDS"):
        monkeypatch.setattr(servers, name, 0.5)
    async with admin_server(0.8) as (_, address):  # a response may take longer than a head
        reader, writer = await asyncio.open_connection(*address)
        for at in range(0, len(sent), pace):
            writer.write(sent[at : at + pace])
            await asyncio.sleep(0.2)
        received = await until_closed(reader)
        assert sent.endswith(b"HT") == received.startswith(b"HTTP/1.1 200")
        assert b"server:" not in received
        writer.close()


@pytest.mark.parametrize("parts", [1, 2])
async def test_an_upload_and_a_response_take_as_long_as_they_need_and_end_when_the_client_stalls(
    monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    for name, seconds in (("_ADMIN_HEAD_SECONDS", 0.2), ("_ADMIN_STALL_SECONDS", 1.5)):
        monkeypatch.setattr(servers, name, seconds)
    async with admin_server(0, *[bytes(LIST)] * parts) as (server, (_, port)), asyncio.timeout(PATIENCE):
        reader, writer = await connect(port)
        writer.write(BODY_OF_4)
        for _ in range(4):
            await asyncio.sleep(0.5)
            writer.write(b"x")
        for _ in range(4):
            await reader.readexactly(10_000)
            await asyncio.sleep(0.5)
        assert server.server_state.connections
        await until(lambda: not server.server_state.connections)
        writer.close()


@pytest.mark.parametrize("begun", [ASKED[:9], BODY_OF_4])
async def test_connections_are_bounded_and_the_one_that_waits_longest_for_its_client_makes_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, begun: bytes
) -> None:
    monkeypatch.setattr(servers, "MAX_ADMIN_CONNECTIONS", 2)
    monkeypatch.setattr(servers.AdminConnection, "_warned_at", -math.inf)
    async with admin_server() as (_, address), asyncio.timeout(PATIENCE):
        silent, answered = [await asyncio.open_connection(*address) for _ in "12"]
        silent[1].write(begun)
        assert await is_answered(*answered)
        third = await asyncio.open_connection(*address)
        assert await is_answered(*third)
        assert [False, True] == [await is_answered(*each) for each in (silent, answered)]
        last = await asyncio.open_connection(*address)
        assert [True, False, True] == [await is_answered(*each) for each in (last, third, answered)]
        for _, writer in (silent, answered, third, last):
            writer.close()
    assert 1 == caplog.messages.count("admin connections closed")


@pytest.mark.parametrize("seconds", [0.1, PATIENCE])
async def test_a_stop_ends_idle_connections_and_new_ones_after_their_first_request_or_a_second(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    assert 1 == servers._FIRST_REQUEST_SECONDS
    monkeypatch.setattr(servers, "_FIRST_REQUEST_SECONDS", seconds)
    for others in ("_ADMIN_HEAD_SECONDS", "DRAIN_SECONDS"):
        monkeypatch.setattr(servers, others, 2 * PATIENCE)
    async with admin_server() as (server, address), asyncio.timeout(PATIENCE):
        (idle, write_idle), (new, write_new) = [await asyncio.open_connection(*address) for _ in "12"]
        assert await is_answered(idle, write_idle)
        server.should_exit = True
        assert b"" == await idle.read()
        if seconds == PATIENCE:
            assert await is_answered(new, write_new)
        else:
            assert b"" == await new.read()
        write_new.close()
        write_idle.close()


async def test_a_stop_answers_a_request_that_came_while_the_process_was_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timers are due then before it has read anything."""
    loop = asyncio.get_running_loop()
    call_later, due = loop.call_later, asyncio.Queue[Callable[[], object]]()

    def pause(seconds: float, call: Callable[..., object], *values: Any) -> asyncio.TimerHandle | None:
        if seconds != servers._FIRST_REQUEST_SECONDS:
            return call_later(seconds, call, *values)
        due.put_nowait(partial(call, *values))
        return None

    monkeypatch.setattr(loop, "call_later", pause)
    async with admin_server() as (server, address), asyncio.timeout(PATIENCE):
        with socket.create_connection(address) as client:
            await until(lambda: bool(server.server_state.connections))
            server.should_exit = True
            timer = await due.get()
            client.sendall(ASKED)
            timer()
            client.setblocking(False)
            assert (await loop.sock_recv(client, 4096)).startswith(b"HTTP/1.1 200 ")
