"""The client addresses that were refused most: what is counted, in bounded memory, and who is shown the counts."""

import socket
import threading
from pathlib import Path

import httpx2
import pytest

from petstore_server.domain.accounts import Limits, Plan
from petstore_server.domain.keys import Scope
from petstore_server.telemetry.refusals import (
    INTERVAL_SECONDS,
    INTERVALS,
    MAX_ADDRESSES,
    REPORTED,
    RefusedAddress,
    RefusedAddresses,
    most_refused,
)
from support.command_line import CommandLine
from support.console import running_console
from support.open_stores import Stores
from support.process import new_key, petstore, petstore_json, serving
from support.redis_engine import shared_redis
from support.service import Clock, Service, bearer, in_service
from support.subprocesses import free_port

ORDERS = "/v1/store/orders"


def test_the_most_refused_come_first_with_their_statuses() -> None:
    refusals = RefusedAddresses(Clock())
    for address, status, count in (("a", 401, 2), ("b", 429, 5), ("a", 429, 1), ("c", 403, 3)):
        for _ in range(count):
            refusals.count(address, status)
    assert [("b", {429: 5}), ("a", {401: 2, 429: 1}), ("c", {403: 3})] == refusals.report()
    assert [5, 3, 3] == [each.refused for each in refusals.report()]


def test_refusals_are_forgotten_after_an_hour() -> None:
    clock = Clock(INTERVAL_SECONDS * 1_000_000.0)
    refusals = RefusedAddresses(clock)
    refusals.count("a", 401)
    clock.now += 55 * 60
    refusals.count("b", 401)
    assert ["a", "b"] == [each.address for each in refusals.report()]
    clock.now += 5 * 60
    assert ["b"] == [each.address for each in refusals.report()]
    clock.now += 3600
    assert [] == refusals.report()


def test_a_clock_that_was_set_back_does_not_raise() -> None:
    clock = Clock()
    refusals = RefusedAddresses(clock)
    refusals.count("a", 401)
    clock.now -= 7200
    refusals.count("b", 401)
    assert ["b"] == [each.address for each in refusals.report()]


def test_any_number_of_addresses_takes_bounded_memory_and_does_not_hide_the_most_refused() -> None:
    refusals = RefusedAddresses(Clock())
    for number in range(50 * MAX_ADDRESSES):
        refusals.count(f"2001:db8::{number:x}", 401)
        if number % 10 == 0:
            refusals.count("203.0.113.7", 429)
    [first, *_] = refusals.report()
    assert "203.0.113.7" == first.address
    assert 5 * MAX_ADDRESSES >= first.refused > 4 * MAX_ADDRESSES
    assert len(refusals.report()) <= REPORTED
    assert refusals.entries <= MAX_ADDRESSES


def test_intervals_are_bounded() -> None:
    clock = Clock()
    refusals = RefusedAddresses(clock)
    for _ in range(3 * INTERVALS):
        refusals.count("a", 401)
        clock.now += INTERVAL_SECONDS
    assert INTERVALS == refusals.entries


def test_reports_of_several_processes_are_summed() -> None:
    one = [RefusedAddress("a", {401: 2}), RefusedAddress("b", {429: 3})]
    other = [RefusedAddress("a", {401: 1, 403: 1})]
    assert [("a", {401: 3, 403: 1}), ("b", {429: 3})] == most_refused([one, other], 20)
    assert [("a", {401: 3, 403: 1})] == most_refused([one, other], 1)


@pytest.mark.anyio
async def test_every_kind_of_refusal_is_counted_for_the_address_behind_the_proxy(tmp_path: Path) -> None:
    async def story(service: Service) -> None:
        async def get(address: str, key: str | None = None, path: str = ORDERS) -> int:
            headers = {"X-Forwarded-For": address, **(bearer(key) if key else {})}
            return (await service.client.get(path, headers=headers)).status_code

        reader = await service.key(scopes=frozenset({Scope.PETS_READ}))
        small = await service.key(await service.account(Plan.ENTERPRISE, Limits(1, 10)))
        for address, key in (
            *[("203.0.113.1", None)] * 61,
            *[("203.0.113.2", reader)] * 2,
            *[("2001:db8::1", small)] * 2,
            ("2001:db8::2", small),
        ):
            await get(address, key)
        assert 404 == await get("203.0.113.9", reader, "/v1/nothing")
        assert [
            ("203.0.113.1", {401: 60, 429: 1}),
            ("2001:db8::/64", {429: 2}),
            ("203.0.113.2", {403: 2}),
        ] == await service.application.refused_addresses()

    await in_service(tmp_path, story, PETSTORE_TRUSTED_PROXIES="127.0.0.1")


@pytest.mark.anyio
async def test_the_admin_port_reports_them(tmp_path: Path) -> None:
    async def story(service: Service) -> None:
        await service.client.get(ORDERS)
        transport = httpx2.ASGITransport(app=service.application.admin)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as admin:
            found = (await admin.get("/refused-addresses")).json()
            assert {"addresses": [{"address": "127.0.0.1", "statuses": {"401": 1}}]} == found
            elsewhere = await admin.get("/refused-addresses", headers={"Host": "rebound.example"})
            assert (421, False) == (elsewhere.status_code, "127.0.0.1" in elsewhere.text)
            assert 200 == (await admin.get("/readyz", headers={"Host": "rebound.example"})).status_code

    await in_service(tmp_path, story)


def test_the_command_shows_the_refusals_of_all_workers_also_of_malformed_requests(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    new_key(store)
    with serving(store, "--workers", "2", PETSTORE_REDIS_URL=shared_redis().empty()) as server:
        admin_port = server.admin.rpartition(":")[2]
        for _ in range(40):  # connections that the kernel spreads among the workers
            with server.client() as client:
                assert 401 == client.get(ORDERS).status_code
        with server.connect() as connection:
            connection.sendall(b"GARBAGE\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")
        found = petstore_json(store, "usage", "addresses", PETSTORE_ADMIN_PORT=admin_port)
        assert [{"address": "127.0.0.1", "refused": 41, "statuses": {"400": 1, "401": 40}}] == found
        shown = petstore(store, "usage", "addresses", "--limit", "1", PETSTORE_ADMIN_PORT=admin_port)
        header, row = shown.stdout.splitlines()
        assert ["ADDRESS", "REFUSED", "401", "403", "429", "OTHER"] == header.split()
        assert ["127.0.0.1", "41", "40", "0", "0", "1"] == row.split()


@pytest.mark.anyio
async def test_the_console_shows_them(each_backend: Stores) -> None:
    async with running_console(each_backend) as console:
        await console.browser.sign_in()
        assert "No request was refused." in await console.browser.get("/")
        console.refused += [RefusedAddress(f"203.0.113.{number}", {401: 1000, 400: 7}) for number in range(30)]
        page = await console.browser.get("/")
        assert "203.0.113.0 1,000 0 0 7" in page
        assert "203.0.113.19" in page
        assert "203.0.113.20" not in page


def respond_once(listener: socket.socket, response: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(10_000)
        connection.sendall(response)


@pytest.mark.parametrize(
    "response",
    [b"garbage\r\n\r\n", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n[]", b""],
)
def test_the_command_says_so_if_another_program_responds(tmp_path: Path, response: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=respond_once, args=(listener, response))
        thread.start()
        port = str(listener.getsockname()[1])
        done = CommandLine(tmp_path / "store.db")("usage", "addresses", PETSTORE_ADMIN_PORT=port)
        thread.join()
    assert 1 == done.code
    assert 1 == len(done.err.splitlines())
    assert f"http://127.0.0.1:{port}" in done.err


def test_the_command_says_so_if_no_server_runs(tmp_path: Path) -> None:
    port = free_port()
    cli = CommandLine(tmp_path / "store.db")
    done = cli("usage", "addresses", "--json", PETSTORE_ADMIN_PORT=str(port), http_proxy="http://127.0.0.1:9")
    assert (1, "") == (done.code, done.out)
    assert "service_unavailable" == done.error()["code"]
    assert (
        f"No server responds at http://127.0.0.1:{port} (Connection refused). "
        "Start it, or set PETSTORE_ADMIN_HOST and PETSTORE_ADMIN_PORT as for the server."
    ) == done.error()["message"]
    assert 2 == cli("usage", "addresses", "--limit", "0").code
    assert 2 == cli("usage", "addresses", "--limit", str(REPORTED + 1)).code
