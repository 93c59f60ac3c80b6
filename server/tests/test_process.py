"""`petstore serve` as an operator runs it: starting, stopping, being killed, next to the command line."""

import asyncio
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from petstore_server.runtime import servers
from testing import needs
from testing.browser import served_demo
from testing.cli import CommandLine
from testing.deployment import Deployment
from testing.process import (
    EVERY_SCOPE,
    PETSTORE,
    UNLIMITED,
    Server,
    begin_demo,
    environment,
    new_key,
    petstore,
    petstore_json,
    petstore_process,
    put_orders,
    receive,
    serving,
    serving_as,
    statuses,
    wait_until_serving,
)
from testing.redis_engine import shared_redis, wait_for_redis
from testing.stores import new_store_file
from testing.subprocesses import PATIENCE, busy, demo_output, descendants, end, kill, within
from testing.wire import before, send_all

ORDERS = "/v1/store/orders"


LONG = ',"quantity":9223372036854775807,"shipDate":"2026-11-01T00:00:00.123456Z","complete":true'
"""More fields of an order: a list of these is long and quickly filled."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize(
    ("setting", "value", "code", "named"),
    [
        ("PETSTORE_DATABASE_URL", "sqlite:////nowhere/at/all/store.db", 1, "/nowhere/at/all"),
        ("PETSTORE_DATABASE_URL", "sqlite:////dev", 1, "/dev"),
        ("PETSTORE_HOST", "203.0.113.7", 2, "give an address of this machine with PETSTORE_HOST."),
        ("PETSTORE_ADMIN_HOST", "no.such.host.invalid", 2, "give an address of this machine with PETSTORE_ADMIN_HOST."),
    ],
)
def test_what_prevents_the_start_is_one_line(store: Path, setting: str, value: str, code: int, named: str) -> None:
    done = petstore_process(store, "serve", **{"PETSTORE_PORT": "0", "PETSTORE_ADMIN_PORT": "0", setting: value})
    assert code == done.returncode
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr
    assert named in done.stderr


def test_a_port_that_another_process_only_bound_is_taken_or_refused_and_never_waited_for(store: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        failed = petstore_process(store, "serve", "--port", str(other.getsockname()[1]), "--admin-port", "0")
        assert (2, 1) == (failed.returncode, len(failed.stderr.splitlines()))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        with serving(store, "--port", str(other.getsockname()[1])) as server:
            with pytest.raises(OSError, match="Address already in use"):
                other.listen()
            assert 404 == httpx2.get(f"{server.api}/x").status_code
            assert 0 == server.stop()


def test_a_stop_under_load_answers_every_request_that_it_took(store: Path) -> None:
    put_orders(store, 5000)
    key, _ = new_key(store, plan=UNLIMITED)
    with serving(store) as server:
        stopping = threading.Timer(0.5, lambda: server.process.send_signal(signal.SIGTERM))
        stopping.start()
        requests = [("DELETE", f"{ORDERS}/{number}") for number in range(1, 5001)]
        replies = asyncio.run(send_all(server.port, key, requests, connections=32))
        stopping.join()
        assert 0 == server.process.wait(timeout=PATIENCE)
    acknowledged = {int(reply.target.rpartition("/")[2]) for reply in replies if reply.status == 204}
    assert {204} == {reply.status for reply in replies if reply.status}
    assert acknowledged == {number for number, status in statuses(store).items() if status == "cancelled"}


def test_a_second_server_on_the_same_store_is_refused(store: Path) -> None:
    with serving(store):
        done = petstore_process(store, "serve", "--port", "0", "--admin-port", "0")
    assert (1, 1) == (done.returncode, len(done.stderr.strip().splitlines())), done.stderr
    assert "PETSTORE_REDIS_URL" in done.stderr


def test_what_the_command_line_changes_the_server_shows_at_once(each_deployment: Deployment) -> None:
    store = each_deployment
    with serving(store) as server:
        key, _ = new_key(store)
        with server.client(key) as client:
            assert [] == client.get(ORDERS).json()
            put_orders(store, 3)
            assert [1, 2, 3] == [order["id"] for order in client.get(ORDERS).json()]
            petstore_json(store, "orders", "ship", "2", "--at", "2026-11-20T12:00:00Z")
            assert "2026-11-20T12:00:00Z" == client.get(ORDERS).json()[1]["shipDate"]
            assert 409 == client.delete(f"{ORDERS}/2").status_code
            assert 204 == client.delete(f"{ORDERS}/1").status_code
            assert {1: "cancelled", 2: "shipped", 3: "pending"} == statuses(store)
            assert 6 == petstore(store, "orders", "ship", "1").returncode


def test_counts_and_bans_are_on_disk_within_a_second_even_if_the_server_is_killed(each_deployment: Deployment) -> None:
    store = each_deployment
    key, key_id = new_key(store)
    quick = {"PETSTORE_BAN_GRACE_SECONDS": "0", "PETSTORE_BAN_STRIKES": "3"}

    def saved() -> tuple[int, list[str]]:
        """The requests that were counted, and the keys that are banned."""
        windows = petstore_json(store, "accounts", "show", "acme")["windows"]
        return windows[0]["used"], [banned["id"] for banned in petstore_json(store, "keys", "list", "--banned")]

    with serving_as(store, [], quick, wait_for_redis) as server:
        with server.client(key) as client:
            for _ in range(60):
                client.get(ORDERS)
            codes = [client.get(ORDERS).json()["code"] for _ in range(4)]
        assert "api_key_banned" == codes[-1]
        within(1.0, lambda: saved() == (60, [key_id]))
        server.kill()
    assert (60, [key_id]) == saved()
    assert 60 == sum(row["admitted"] for row in petstore_json(store, "usage", "acme")["history"])
    with serving(store, **quick) as server, server.client(key) as client:
        assert "api_key_banned" == client.get(ORDERS).json()["code"]
        petstore(store, "keys", "unban", key_id)
        within(1.0, lambda: client.get(ORDERS).text.find("api_key_banned") < 0)


def test_no_acknowledged_cancel_is_lost_when_the_server_is_killed_under_load(each_deployment: Deployment) -> None:
    store = each_deployment
    put_orders(store, 1000)
    key, _ = new_key(store, plan=UNLIMITED)
    acknowledged: set[int] = set()
    for kills in range(1, 3):
        with serving(store) as server:
            left = [order_id for order_id in range(1, 1001) if order_id not in acknowledged]
            requests = before(250 * kills, server.kill, [("DELETE", f"{ORDERS}/{order_id}") for order_id in left])
            replies = asyncio.run(send_all(server.port, key, requests))
        acknowledged |= {int(reply.target.rpartition("/")[2]) for reply in replies if reply.status == 204}
        assert {204, 409, 503, 0} >= {reply.status for reply in replies}  # 503: on a busy machine, a wait was too long
    found = statuses(store)
    assert acknowledged
    assert [] == [order_id for order_id in acknowledged if found[order_id] != "cancelled"]

    def every_cancel_is_recorded_once() -> bool:
        count = list(statuses(store).values()).count("cancelled")
        audit = [json.loads(line) for line in petstore(store, "audit", "--json").stdout.splitlines()]
        cancelled = [entry["subject"] for entry in audit if entry["action"] == "order.cancel"]
        return len(cancelled) == len(set(cancelled)) == count

    within(1.0, every_cancel_is_recorded_once)  # PostgreSQL may end a transaction after the server was killed


def _refuses(server: Server) -> bool:
    """Whether the server refuses a new connection."""
    with suppress(OSError):
        server.connect().close()
        return False
    return True


def test_sigterm_lets_what_is_under_way_finish_and_says_so_on_readyz_first(store: Path) -> None:
    put_orders(store, 20_000, LONG)
    key, _ = new_key(store)
    with serving(store, PETSTORE_DRAIN_DELAY_SECONDS="4") as server:
        with server.connect() as slow, httpx2.Client() as admin:
            slow.sendall(f"GET {ORDERS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            assert slow.recv(1000).startswith(b"HTTP/1.1 200 ")
            assert 200 == admin.get(f"{server.admin}/readyz").status_code
            assert 200 == admin.get(f"{server.api}/healthz").status_code
            server.process.send_signal(signal.SIGTERM)
            within(0, lambda: 503 == admin.get(f"{server.admin}/readyz").status_code)
            assert 503 == admin.get(f"{server.api}/healthz").status_code
            assert "drain" in admin.get(f"{server.admin}/readyz").json()["reason"]
            with server.client(key) as client:
                assert 200 == client.head(ORDERS).status_code  # it goes on accepting for the delay
            within(4, lambda: _refuses(server))
            assert "drain" in admin.get(f"{server.admin}/readyz").json()["reason"]  # to the end
            received = 1000
            while part := slow.recv(1 << 20):
                received += len(part)
            assert received > 1_000_000
        assert 0 == server.process.wait(timeout=PATIENCE)
    assert "Traceback" not in server.log.read_text()
    begun, ended = [json.loads(line) for line in server.log.read_text().splitlines()][-2:]
    assert ("draining", "SIGTERM", 4.0) == (begun["event"], begun["signal"], begun["delay_seconds"])
    assert ("stopped", True) == (ended["event"], begun["timestamp"] < ended["timestamp"])
    assert [store.name] == [file.name for file in store.parent.iterdir() if file != server.log]


def drain_for_two_seconds() -> None:
    servers.DRAIN_SECONDS = 2


def test_a_reader_that_takes_nothing_does_not_hold_up_the_stop(store: Path) -> None:
    put_orders(store, 56_000, LONG, 9 * 10**18)
    key, _ = new_key(store)
    with serving_as(store, [], {}, drain_for_two_seconds) as server:
        with server.connect() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # or the system holds much of the list
            stuck.sendall(f"GET {ORDERS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            assert stuck.recv(10)
            began = time.monotonic()
            assert 0 == server.stop()
            assert 2 < time.monotonic() - began < 2 + busy()
            received = len(receive(stuck))
        assert received < 6_500_000  # cut off, not closed as if whole: 7.5 MB were announced


def test_ctrl_c_stops_it_and_a_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    needs.program("curl")
    process = begin_demo(tmp_path, "--workers", "3", PETSTORE_REDIS_URL=shared_redis().empty())
    commands = [line.strip() for line in demo_output(process) if line.strip().startswith("curl")]
    shown = [subprocess.check_output(["sh", "-c", command], text=True, timeout=PATIENCE) for command in commands]
    assert ["200", "200", "204", "409"] == [response.split(" ")[1] for response in shown]
    assert [40, 8] == [response.count('"petId"') for response in shown[:2]]
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, complaints
    assert "Traceback" not in complaints
    assert [] == list(tmp_path.iterdir())
    assert [] == shared_redis().client.keys("*")  # it is one process, which counts by itself


@pytest.mark.parametrize("public", ["", "https://api.example/v1"])
def test_the_guide_of_a_demo_has_its_own_address_unless_another_is_set(tmp_path: Path, public: str) -> None:
    with served_demo(tmp_path / "log", PETSTORE_BASE_URL=public) as demo:
        shown = httpx2.get(f"{demo.api}/docs/guide", timeout=PATIENCE).text
    assert f"export API={public or f'{demo.api}/v1'} KEY=" in shown
    assert ":8080" not in shown


@contextmanager
def on_a_terminal(tmp_path: Path, *command: str | Path) -> Iterator[tuple["subprocess.Popen[bytes]", int, Path]]:
    """A server as the leader of a terminal's session; with the descriptor that closes the terminal, and its log."""
    log = tmp_path / "log"
    controller, terminal = os.openpty()
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--port", "0", "--admin-port", "0"],
            env=environment(tmp_path / "store.db", TMPDIR=str(tmp_path)),
            stdin=terminal,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY),
        )
    os.close(terminal)
    try:
        wait_until_serving(process, log)
        yield process, controller, log
    finally:
        kill(process)


def test_closing_the_terminal_stops_a_demo_which_leaves_nothing_behind(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, PETSTORE, "serve", "--demo") as (process, controller, log):
        os.close(controller)
        assert 0 == process.wait(PATIENCE)
        assert '"event":"stopped"' in log.read_text()
    assert [log] == list(tmp_path.iterdir())


def test_a_server_under_nohup_goes_on_when_its_terminal_is_closed(tmp_path: Path) -> None:
    new_store_file(tmp_path / "store.db")
    with on_a_terminal(tmp_path, "nohup", PETSTORE, "serve") as (process, controller, log):
        os.close(controller)
        assert 200 == httpx2.get(f"{wait_until_serving(process, log)['admin']}/readyz").status_code
        assert 0 == end(process, signal.SIGTERM, log)


def test_a_service_without_a_terminal_ignores_sighup_and_says_so(store: Path) -> None:
    redis = {"PETSTORE_REDIS_URL": shared_redis().empty()}
    with serving_as(store, ["--workers", "2"], redis, os.setsid) as server:
        processes = [server.process.pid, *descendants(server.process.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGHUP)
        within(2, lambda: server.log.read_text().count('"event":"SIGHUP ignored"') == len(processes))
        assert 200 == httpx2.get(f"{server.admin}/readyz").status_code
        assert processes == [server.process.pid, *descendants(server.process.pid)]
        assert 0 == server.stop()


def test_a_full_disk_is_503_with_lists_served_on_and_recovers_by_itself(store: Path) -> None:
    put_orders(store, 20)
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    with serving(store) as server, server.client(key) as client, httpx2.Client() as admin:

        def place() -> httpx2.Response:
            order = {"petId": 1, "quantity": 1}
            return client.post("/v2/store/orders", json=order, headers={"Idempotency-Key": "a"})

        assert 204 == client.delete(f"{ORDERS}/1").status_code
        unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, unlimited[1]))  # no file may grow
        refused = client.delete(f"{ORDERS}/2")
        assert (503, "service_unavailable") == (refused.status_code, refused.json()["code"])
        assert "1" == refused.headers["retry-after"]
        assert 503 == place().status_code
        assert 20 == len(client.get(ORDERS).json())
        unready = admin.get(f"{server.admin}/readyz")
        assert (503, "unavailable") == (unready.status_code, unready.json()["status"])
        assert 200 == admin.get(f"{server.admin}/livez").status_code
        within(PATIENCE, lambda: '"reason"' in server.log.read_text())
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        assert 204 == client.delete(f"{ORDERS}/2").status_code
        assert 200 == admin.get(f"{server.admin}/readyz").status_code
        assert {"cancelled": 2, "pending": 18} == dict(Counter(statuses(store).values()))
        assert (201, 21) == ((placed := place()).status_code, placed.json()["id"])
        audit = petstore(store, "audit", "--json").stdout
        assert (2, 1) == (audit.count('"order.cancel"'), audit.count('"order.place"'))
        assert 0 == petstore(store, "db", "check").returncode
        assert "Traceback" not in server.log.read_text()


def test_a_store_whose_file_was_moved_away_is_503_until_it_is_back(store: Path) -> None:
    put_orders(store, 3)
    key, _ = new_key(store)
    with serving(store) as server, server.client(key) as client, httpx2.Client() as admin:
        ports = {"PETSTORE_PORT": str(server.port), "PETSTORE_ADMIN_PORT": server.admin.rpartition(":")[2]}
        assert "A server runs on this store and is ready." in petstore(store, "doctor", "--json", **ports).stdout
        store.rename(store.with_name("elsewhere.db"))
        assert 503 == client.delete(f"{ORDERS}/1").status_code
        assert 200 == client.get("/v2/store/orders").status_code
        assert "moved or deleted" in admin.get(f"{server.admin}/readyz").json()["reason"]
        examined = CommandLine(store, make=False)("doctor", "--json", **ports).out
        found = {each["check"]: each for each in json.loads(examined)}
        assert ("fail", True) == (found["server"]["level"], "put it back, and create none" in found["server"]["remedy"])
        assert (False, False) == ("ports" in found, "db migrate" in examined)
        store.write_bytes(b"")  # another file in its place is not the store
        assert 503 == client.delete(f"{ORDERS}/1").status_code
        store.with_name("elsewhere.db").rename(store)
        assert 204 == client.delete(f"{ORDERS}/1").status_code
