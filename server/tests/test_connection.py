"""One response for each request, in order, whatever a client sends next to or behind its requests (D3, D13)."""

import itertools
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from testing import wire
from testing.process import UNLIMITED, Server, exchange, new_key, petstore, receive, serving
from testing.subprocesses import busy

TARGET = "/v1/store/orders"
ORDERS = 40_000
GARBAGE = b"\x00garbage\r\n\r\n"


class Served(NamedTuple):
    """A server of a list of some megabytes, and a key that no test here can use up."""

    server: Server
    key: str
    untouched: Iterator[int]
    """Orders that no other test changes."""

    def head(self, method: str, target: str, *lines: str, version: str = "1.1") -> bytes:
        return wire.head(method, target, *lines, key=self.key, version=version)

    def exchange(self, data: bytes) -> list[int]:
        """The statuses of what is answered on one connection, which the server ends."""
        with self.server.connect() as connection:
            return statuses(exchange(connection, data))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = tmp_path_factory.mktemp("served") / "store.db"
    lines = "".join(f'{{"id":{number},"petId":{number},"quantity":1}}\n' for number in range(1, ORDERS + 1))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    key, _ = new_key(store, plan=UNLIMITED)
    with serving(store, PETSTORE_CONSOLE="off") as server:  # loading it would count as memory
        yield Served(server, key, itertools.count(1))
        assert '"level":"error"' not in server.log.read_text()


def statuses(raw: bytes) -> list[int]:
    return [response.status for response in wire.responses(raw)]


def test_a_body_is_ignored_up_to_64_kib_and_413_beyond_and_the_connection_goes_on(served: Served) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    framed = [(f"Content-Length: {size}", b"x" * size) for size in (65_536, 65_537, 10_000_000)]
    framed += [("Transfer-Encoding: chunked", chunk * number + b"0\r\n\r\n") for number in (2, 20)]
    sent = b"".join(served.head("DELETE", f"{TARGET}/0", framing) + body for framing, body in framed)
    assert [404, 413, 413, 404, 413, 200] == served.exchange(sent + served.head("GET", TARGET, "Connection: close"))


def test_100_continue_stands_behind_the_responses_before_it(served: Served) -> None:
    expecting = ("Connection: close", "Expect: 100-continue", "Content-Length: 5")
    with served.server.connect() as connection:
        connection.sendall(served.head("GET", "/v1/x") + served.head("DELETE", f"{TARGET}/0", *expecting))
        received = b""
        while b" 100 Continue\r\n\r\n" not in received:
            more = connection.recv(65536)
            assert more, "the connection was closed"
            received += more
        received += exchange(connection, b"hello")
    assert [b"404", b"100", b"404"] == re.findall(rb"HTTP/1\.1 (\d+) ", received)


def test_a_body_that_is_too_large_is_not_asked_for(served: Served) -> None:
    too_large = served.head("DELETE", f"{TARGET}/0", "Expect: 100-continue", "Content-Length: 99999999")
    assert [413] == served.exchange(too_large)


def test_http_1_0_is_closed_unless_it_asks_to_be_kept_alive(served: Served) -> None:
    with served.server.connect() as connection:
        kept = served.head("GET", "/", "Connection: keep-alive", version="1.0")
        found = wire.responses(exchange(connection, kept + served.head("GET", "/", version="1.0")))
    assert [(200, "keep-alive"), (200, "close")] == [(each.status, each.headers["connection"]) for each in found]


def test_a_client_that_closes_its_half_still_gets_its_responses(served: Served) -> None:
    requests = served.head("GET", TARGET) + served.head("DELETE", f"{TARGET}/0")
    for _ in range(10):
        with served.server.connect() as connection:
            began = time.monotonic()
            assert [200, 404] == statuses(exchange(connection, requests, last=True))
        assert time.monotonic() - began < 5 + busy()


def test_a_cancel_whose_body_never_comes_is_not_carried_out(served: Served) -> None:
    order = next(served.untouched)
    with served.server.connect() as connection:
        began = time.monotonic()
        cancel = served.head("DELETE", f"{TARGET}/{order}", "Content-Length: 5")
        assert b"" == exchange(connection, cancel + b"hel", last=True)
    assert time.monotonic() - began < 5 + busy()  # before its deadline
    assert [204] == served.exchange(served.head("DELETE", f"{TARGET}/{order}", "Connection: close"))


@pytest.mark.parametrize("lines", [(), ("Upgrade: h2c", "Connection: Upgrade")], ids=["plain", "upgrade"])
def test_malformed_bytes_behind_a_cancel_do_not_replace_its_response(served: Served, lines: tuple[str, ...]) -> None:
    cancel = served.head("DELETE", f"{TARGET}/{next(served.untouched)}", *lines)
    assert [204, 400] == served.exchange(cancel + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00")


def test_malformed_bytes_behind_a_list_are_refused_behind_it_also_while_it_is_on_its_way(served: Served) -> None:
    assert [200, 400] == served.exchange(served.head("GET", TARGET) + GARBAGE)
    with served.server.connect() as connection:
        connection.sendall(served.head("GET", TARGET))
        begun = connection.recv(1000)
        assert [200, 400] == statuses(begun + exchange(connection, GARBAGE))


def test_a_malformed_body_gets_one_response_and_its_cancel_is_not_carried_out(served: Served) -> None:
    order = next(served.untouched)
    cancel = served.head("DELETE", f"{TARGET}/{order}", "Transfer-Encoding: chunked")
    assert [400] == served.exchange(cancel + b"zz\r\n")
    with served.server.connect() as connection:
        connection.sendall(cancel + b"5\r\nhello\r\n")
        assert [400] == statuses(exchange(connection, b"zz\r\n"))
    assert [204] == served.exchange(served.head("DELETE", f"{TARGET}/{order}", "Connection: close"))


def test_a_malformed_body_behind_a_refused_head_gets_no_second_response(served: Served) -> None:
    with served.server.connect() as connection:
        connection.sendall(wire.head("DELETE", f"{TARGET}/1", "Transfer-Encoding: chunked", key="x"))
        refused = connection.recv(65536)
        assert [401] == statuses(refused + exchange(connection, b"zz\r\n"))


@pytest.mark.parametrize("malformed", [b" ", b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_the_response_to_a_malformed_head_request_has_no_body(served: Served, malformed: bytes) -> None:
    with served.server.connect() as connection:
        response = exchange(connection, b"HEAD /v1/store/orders" + malformed + b"\r\n\r\n")
    assert response.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 "))
    assert b"\r\nContent-Length: " in response
    assert response.endswith(b"\r\n\r\n")


def test_thousands_of_pipelined_requests_are_answered_in_order(served: Served) -> None:
    numbers = [str(number) for number in range(3_000)]
    requests = b"".join(served.head("GET", f"/v1/x/{number}", f"X-Request-Id: {number}") for number in numbers)
    with served.server.connect() as connection:
        sending = threading.Thread(
            target=connection.sendall, args=(requests + served.head("GET", "/", "Connection: close"),)
        )
        sending.start()
        *found, last = wire.responses(receive(connection))
        sending.join()
    assert [(404, number) for number in numbers] == [(each.status, each.headers["x-request-id"]) for each in found]
    assert 200 == last.status


def test_a_response_to_a_client_that_is_still_sending_is_not_lost_in_a_reset(served: Served) -> None:
    for _ in range(5):
        with served.server.connect() as connection:
            raw = served.head("DELETE", f"{TARGET}/1", "Connection: close", "Content-Length: 300000")
            connection.sendall(raw + b"x" * 100_000)
            received = connection.recv(65536)
            connection.sendall(b"x" * 200_000)
            assert [413] == statuses(received + receive(connection))


def test_resets_in_the_middle_of_a_list_do_no_harm(served: Served) -> None:
    for _ in range(10):
        connection = served.server.connect()
        connection.sendall(served.head("GET", TARGET) * 3)
        connection.recv(1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    assert [200] == served.exchange(served.head("GET", TARGET, "Connection: close"))


def test_nothing_is_answered_behind_the_last_request_of_a_connection(served: Served) -> None:
    first, last = served.head("GET", TARGET), served.head("GET", TARGET, "Connection: close")
    assert [200, 200] == served.exchange(first + last + served.head("DELETE", f"{TARGET}/1") + last)


def test_many_connections_of_every_kind_leave_memory_bounded(served: Served) -> None:
    before = served.server.memory()
    connections = [served.server.connect() for _ in range(400)]
    try:
        for connection in connections[:200]:  # slow to send
            connection.sendall(served.head("DELETE", f"{TARGET}/1")[:-2])
        for connection in connections[200:]:  # pipelining, and slow to read
            connection.setblocking(False)
            with suppress(BlockingIOError):
                for _ in range(10):
                    connection.send(served.head("GET", TARGET) * 1000)
        assert [200] == served.exchange(served.head("GET", TARGET, "Connection: close"))
        assert served.server.memory() - before < 30 * 2**20
    finally:
        for connection in connections:
            connection.close()
