"""`petstore serve --workers N`: several processes behave as one to clients, operators and the system (D1, D12)."""

import asyncio
import io
import json
import os
import re
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock, call

import httpx2
import pytest

from petstore_server.api.admin import DRAINING, Readiness
from petstore_server.runtime import servers, supervisor
from petstore_server.runtime.worker import WorkerReport
from petstore_server.telemetry.logs import configure_logging
from testing.process import UNLIMITED, Server, new_key, petstore, petstore_process, put_orders, serving, serving_as
from testing.redis_engine import shared_redis, wait_for_redis
from testing.subprocesses import PATIENCE, busy, descendants, within
from testing.webhook_messages import SETTINGS
from testing.wire import before, codes, send_all

ORDERS = "/v1/store/orders"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def redis() -> str:
    return shared_redis().empty()


@pytest.fixture
def server(request: pytest.FixtureRequest, store: Path, redis: str) -> Iterator[Server]:
    """Two workers, which are interpreters as in production if a test asks for that: they start slowly."""
    fork = getattr(request, "param", True)
    # However slowly the machine sends a burst, no request is a strike.
    settings = {"PETSTORE_REDIS_URL": redis, "PETSTORE_BAN_GRACE_SECONDS": "600"}
    with serving_as(store, ["--workers", "2"], settings, wait_for_redis, fork_workers=fork) as server:
        yield server
        server.stop()


def workers(server: Server) -> list[int]:
    """The process ids of the workers."""
    return descendants(server.process.pid)


def send(server: Server, key: str, number: int) -> Counter[str]:
    return codes([server.port], key, [("GET", ORDERS)] * number)


def responded(server: Server) -> float:
    found = server.metrics()
    return sum(value for name, value in found.items() if name.startswith("petstore_requests_total"))


def test_workers_read_the_file_with_a_secret_themselves(store: Path, redis: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"{redis}\n")
    settings = {"PETSTORE_REDIS_URL_FILE": str(tmp_path / "url"), "PETSTORE_BAN_GRACE_SECONDS": "600"}
    with serving_as(store, ["--workers", "2"], settings, wait_for_redis) as server:
        key, _ = new_key(store)
        assert {"200": 60, "rate_limit_exceeded": 40} == send(server, key, 100)
        assert redis not in Path(f"/proc/{workers(server)[0]}/environ").read_text()


def test_metrics_have_once_what_each_worker_sees_of_the_store(store: Path, redis: str, tmp_path: Path) -> None:
    put_orders(store, 3)
    new_key(store, "acme", UNLIMITED)
    for command in (
        ("db", "backup", f"{tmp_path / 'backup.db'}"),
        ("webhooks", "create", "acme", "https://shop.example"),
    ):
        assert 0 == petstore(store, *command, **SETTINGS).returncode
    counted = re.compile(r"\w+_(total|bucket|count|sum)\b")

    def read(workers: str) -> dict[str, float]:
        settings = {"PETSTORE_REDIS_URL": redis, **SETTINGS}
        with serving_as(store, ["--workers", workers], settings, wait_for_redis) as server:
            within(PATIENCE, lambda: "petstore_webhooks" in str(server.metrics()))
            return {name: value for name, value in server.metrics().items() if not counted.match(name)}

    one, two = read("1"), read("2")
    assert 2 == two["petstore_workers"]
    doubled = [name for name, value in one.items() if value and 2 * value == two.get(name)]
    assert [] == doubled, "add them to _SAME of telemetry/metrics.py, or except here a sum of parts"


def test_both_workers_take_connections_and_count_as_one_and_metrics_sum_them(store: Path, server: Server) -> None:
    key, _ = new_key(store)
    assert 2 == len(workers(server))
    assert {"200": 60, "rate_limit_exceeded": 240} == send(server, key, 300)
    found = server.metrics()
    assert 60 == found['petstore_limit_decisions_total{outcome="admitted",plan="free",window="none"}']
    assert 240 == found['petstore_limit_decisions_total{outcome="limited",plan="free",window="minute"}']
    assert 60 == found['petstore_request_duration_seconds_count{operation="listOrders"}']
    assert 60 == found['petstore_request_duration_seconds_bucket{le="+Inf",operation="listOrders"}']
    assert (1, 2) == (found["petstore_ready"], found["petstore_workers"])
    within(3.0, lambda: 1 == server.metrics()['petstore_accounts_using{operation="listOrders"}'])  # of both, not 2
    assert (200, "ok") == server.readiness()
    assert 200 == httpx2.get(f"{server.admin}/livez").status_code
    free, _ = new_key(store, "globex", UNLIMITED)
    earlier = [processor_time(pid) for pid in workers(server)]
    for _ in range(10):  # on a busy machine one of them may take all connections of a while
        send(server, free, 500)
        spent = [processor_time(pid) - before for pid, before in zip(workers(server), earlier, strict=True)]
        if min(spent) > 0.1 * sum(spent):
            return
    raise AssertionError(spent)


def processor_time(pid: int) -> int:
    """Clock ticks that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("server", [False], ids=["interpreters"], indirect=True)
def test_a_worker_killed_under_load_loses_only_its_connections_and_is_replaced(store: Path, server: Server) -> None:
    key, _ = new_key(store, plan=UNLIMITED)
    first, second = workers(server)
    assert [first, second] == [os.getsid(first), os.getsid(second)]  # so that Ctrl-C reaches only the supervisor
    assert {"200": 200} == send(server, key, 200)
    earlier = responded(server)
    requests = before(300, lambda: os.kill(first, signal.SIGKILL), [("GET", ORDERS)] * 1000)
    under_load = Counter(reply.code for reply in asyncio.run(send_all(server.port, key, requests, 32, check=False)))
    assert {"200", "0"} == under_load.keys()
    assert under_load["0"] <= 32  # at most one for each connection
    assert {"200": 50} == send(server, key, 50)  # without a pause, by the other worker
    within(PATIENCE, lambda: (200, "ok") == server.readiness())
    assert second in workers(server)
    assert 2 == len(workers(server))
    assert responded(server) >= earlier  # a sum that fell would read as a restart
    assert {"200": 200} == send(server, key, 200)
    ended = [json.loads(line) for line in server.log.read_text().splitlines() if "worker ended" in line]
    assert 1 == server.metrics()["petstore_worker_restarts_total"]
    assert [(1, -9)] == [(line["worker"], line["exit_code"]) for line in ended]


def test_a_worker_that_hangs_makes_the_service_unready(server: Server) -> None:
    pid = workers(server)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert (503, "unavailable") == server.readiness()
        found = server.metrics()
        assert (0, 1) == (found["petstore_ready"], found["petstore_workers"])
    finally:
        os.kill(pid, signal.SIGCONT)
    within(PATIENCE, lambda: (200, "ok") == server.readiness())

    def logged() -> list[tuple[str, str]]:
        lines = map(json.loads, server.log.read_text().splitlines())
        return [
            (line["event"], line["reason"]) for line in lines if line["pid"] == server.process.pid and "reason" in line
        ]

    silent = "worker 2 does not respond"
    within(PATIENCE, lambda: [("not ready", silent), ("ready again", silent)] == logged())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_drains_all_workers(store: Path, redis: str, how: signal.Signals) -> None:
    key, _ = new_key(store)
    options = {"PETSTORE_REDIS_URL": redis, "PETSTORE_DRAIN_DELAY_SECONDS": "600"}
    with serving(store, "--workers", "2", **options) as server:
        pids = workers(server)
        server.process.send_signal(how)
        within(0, lambda: (503, "unavailable") == server.readiness())
        assert {"200": 10} == send(server, key, 10)  # it goes on accepting for the delay
        server.process.send_signal(how)  # which a second signal ends
        began = time.monotonic()
        assert 0 == server.process.wait(timeout=PATIENCE)
        assert time.monotonic() - began < 10 + busy()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        assert not any("exception" in line for line in lines)
        [draining] = [line for line in lines if line["event"] == "draining"]  # of the supervisor, once
        assert (how.name, 600.0, server.process.pid) == tuple(
            draining[name] for name in ("signal", "delay_seconds", "pid")
        )
        assert ["draining", "stopped"] == [line["event"] for line in lines][-2:]


def test_workers_stop_when_the_process_that_started_them_is_killed(store: Path, redis: str) -> None:
    with serving(store, "--workers", "2", PETSTORE_REDIS_URL=redis) as server:
        pids = workers(server)
        server.kill()
        within(PATIENCE, lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        assert 0 == petstore(store, "db", "check").returncode


def serve_two(store: Path, redis: str, admin_port: str) -> str:
    """The one line that a start with two workers fails with."""
    options = ("--workers", "2", "--port", "0", "--admin-port", admin_port)
    done = petstore_process(store, "serve", *options, PETSTORE_REDIS_URL=redis)
    [line] = done.stderr.strip().splitlines()
    return f"{done.returncode} {line}"


def test_workers_share_a_port_on_which_a_connection_ended() -> None:
    first = servers.listening("127.0.0.1", 0, "PETSTORE_PORT")
    with socket.create_connection(first.getsockname()):
        select.select([first], [], [], PATIENCE)
        first.accept()[0].close()
    sockets = servers.spread(first, 3)
    assert [(first.getsockname(), False)] * 3 == [(each.getsockname(), each.getblocking()) for each in sockets]
    for each in sockets:
        each.close()


def test_what_prevents_the_start_is_one_line_and_its_exit_code(store: Path, tmp_path: Path, redis: str) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database, but a text that is long enough to be taken for one" * 100)
    assert re.match(f"1 .*{broken}", serve_two(broken, redis, "0"))
    with serving(store, PETSTORE_REDIS_URL=redis) as other:
        port = other.admin.rpartition(":")[2]
        line = serve_two(store, redis, port)
    problem = f"Cannot listen on 127.0.0.1:{port} (Address already in use)"
    assert line.startswith(
        f'2 {{"reason":"{problem}; choose another with PETSTORE_ADMIN_PORT; `ss -ltnp` shows what uses this one."'
    )


async def test_a_worker_that_dies_soon_is_replaced_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    configure_logging("info", log)
    lives, now = [1, 1, 1, 1, 1, 30, 31, 1], 0

    async def ended() -> int:
        nonlocal now
        if not lives:
            raise asyncio.CancelledError  # the service stops
        now += lives.pop(0)
        return 1

    dying = Mock(supervisor.Worker, number=1, start=AsyncMock(), ended=ended)
    monkeypatch.setattr(asyncio, "sleep", pause := AsyncMock())
    monkeypatch.setattr(supervisor, "monotonic", lambda: now)
    with pytest.raises(asyncio.CancelledError):
        await supervisor.Workers([])._keep(dying)
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    pauses = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 0.1, 0.2]
    assert pauses == [line["retry_in_seconds"] for line in logged if line["event"] == "worker ended"]
    assert [call(seconds) for seconds in pauses] == pause.mock_calls


OK, DEGRADED = Readiness(True, {"status": "ok"}), Readiness(True, {"status": "degraded", "reason": "redis"})


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([OK, OK], OK),
        ([OK, DEGRADED], DEGRADED),
        ([DEGRADED, OK], DEGRADED),
        ([DEGRADED, None], Readiness.unavailable("worker 2 does not respond")),
    ],
)
def test_workers_together_are_as_ready_as_the_least_ready(
    reported: list[Readiness | None], expected: Readiness
) -> None:
    reports = [each and WorkerReport(each, "") for each in reported]
    together = supervisor.Workers([])
    assert expected == together._evaluate(reports)
    together.stop(signal.SIGTERM)
    assert DRAINING == together._evaluate(reports)


def test_a_stop_ends_a_worker_that_starts_too(store: Path, redis: str) -> None:
    with serving_as(store, ["--workers", "2"], {"PETSTORE_REDIS_URL": redis}, fork_workers=False) as server:
        [killed, other] = workers(server)
        os.kill(killed, signal.SIGKILL)
        within(PATIENCE, lambda: killed not in (running := workers(server)) and len(running) == 2)
        started = workers(server)
        assert other in started
        server.process.send_signal(signal.SIGTERM)
        assert 0 == server.process.wait(timeout=PATIENCE)
        within(PATIENCE, lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
