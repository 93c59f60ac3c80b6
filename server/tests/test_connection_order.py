"""One response for each request, in order, whatever a client sends next to or behind its requests."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from testing.process import UNLIMITED, Server, exchange, new_key, petstore, receive, serving
from testing.subprocesses import busy

TARGET = "/v1/store/orders"
FLOODING = "127.0.0.2"
"""The address of tests that send more requests without a valid key than one address may."""
ORDERS = 40_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server of a list of some megabytes, and a key that no test here can use up."""
    store = tmp_path_factory.mktemp("served") / "store.db"
    lines = "".join(f'{{"id":{number},"petId":{number},"quantity":1}}\n' for number in range(1, ORDERS + 1))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    key, _ = new_key(store, plan=UNLIMITED)
    with serving(store, PETSTORE_CONSOLE="off") as server:  # loading it would count as memory
        yield server, key


@pytest.fixture
def order(request: pytest.FixtureRequest) -> int:
    """An order that no other test cancels."""
    names = sorted(item.nodeid for item in request.session.items if "order" in getattr(item, "fixturenames", ()))
    return names.index(request.node.nodeid) + 1


def head(key: str, method: str, target: str, *lines: str, version: str = "1.1") -> bytes:
    parts = [f"{method} {target} HTTP/{version}", "Host: x", f"Authorization: Bearer {key}", *lines]
    return "\r\n".join([*parts, "", ""]).encode()


_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")


def statuses(raw: bytes) -> list[int]:
    """The statuses of the responses on a connection, which must have nothing between or behind them."""
    found = []
    at = 0
    while at < len(raw):
        ends = raw.find(b"\r\n\r\n", at)
        assert ends >= 0, raw[-200:]
        response = raw[at:ends]
        assert response.startswith(b"HTTP/1.1 "), response[:200]
        found.append(int(response[9:12]))
        length = _LENGTH.search(response)
        at = ends + 4 + (int(length[1]) if length else 0)
    assert at == len(raw), "a body is not complete"
    return found


@pytest.mark.parametrize(
    "garbage", [b"\x00garbage\r\n\r\n", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n"]
)
def test_malformed_bytes_behind_a_list_are_refused_behind_it(served: tuple[Server, str], garbage: bytes) -> None:
    server, key = served
    with server.connect() as connection:
        connection.sendall(head(key, "GET", TARGET) + garbage)
        assert [200, 400] == statuses(receive(connection))


def test_malformed_bytes_sent_while_a_list_is_on_its_way_are_refused_behind_it(served: tuple[Server, str]) -> None:
    server, key = served
    with server.connect() as connection:
        connection.sendall(head(key, "GET", TARGET))
        begun = connection.recv(1000)
        connection.sendall(b"\x00garbage\r\n\r\n")
        assert [200, 400] == statuses(begun + receive(connection))


def test_malformed_bytes_behind_a_cancel_do_not_replace_its_response(served: tuple[Server, str], order: int) -> None:
    server, key = served
    with server.connect() as connection:
        received = exchange(connection, head(key, "DELETE", f"{TARGET}/{order}") + b"\x00garbage\r\n\r\n")
    assert [204, 400] == statuses(received)


def test_a_malformed_body_gets_one_response_and_its_cancel_is_not_carried_out(
    served: tuple[Server, str], order: int
) -> None:
    server, key = served
    cancel = head(key, "DELETE", f"{TARGET}/{order}", "Transfer-Encoding: chunked")
    with server.connect() as connection:
        connection.sendall(cancel + b"5\r\nhello\r\n")
        assert [400] == statuses(exchange(connection, b"zz\r\n"))
    with server.connect() as connection:
        assert [400] == statuses(exchange(connection, cancel + b"zz\r\n"))
    with server.connect() as connection:
        assert [204] == statuses(exchange(connection, head(key, "DELETE", f"{TARGET}/{order}", "Connection: close")))


def test_a_malformed_body_behind_a_refused_head_gets_no_second_response(served: tuple[Server, str]) -> None:
    server, _ = served
    with server.connect() as connection:
        connection.sendall(head("x", "DELETE", f"{TARGET}/1", "Transfer-Encoding: chunked"))
        refused = connection.recv(65536)
        assert [401] == statuses(refused + exchange(connection, b"zz\r\n"))


def test_ten_thousand_pipelined_requests_are_answered_in_order(served: tuple[Server, str]) -> None:
    server, key = served
    requests = b"".join(head(key, "GET", f"/v1/x/{number}", f"X-Request-Id: {number}") for number in range(10_000))
    with server.connect() as connection:
        sending = threading.Thread(
            target=connection.sendall, args=(requests + head(key, "GET", "/", "Connection: close"),)
        )
        sending.start()
        received = receive(connection, silence=20)
        sending.join()
    assert [b"%d" % number for number in range(10_000)] == re.findall(rb"x-request-id: (\d+)\r\n", received)
    assert [404] * 10_000 + [200] == statuses(received)


def test_other_clients_are_served_while_some_pipeline_without_end(served: tuple[Server, str]) -> None:
    server, key = served
    flood = head(key, "GET", "/v1/x") * 100
    flooding = [server.connect() for _ in range(5)]
    try:
        for connection in flooding:
            connection.setblocking(False)
        for _ in range(20):
            for connection in flooding:
                with suppress(BlockingIOError):
                    connection.send(flood)
                with suppress(BlockingIOError):
                    connection.recv(1 << 20)
            began = time.monotonic()
            with server.connect() as other:
                assert [404] == statuses(exchange(other, head(key, "GET", "/v1/x", "Connection: close")))
            assert time.monotonic() - began < 1 + busy()
    finally:
        for connection in flooding:
            connection.close()


def test_pipelined_requests_whose_responses_are_not_read_leave_memory_flat(served: tuple[Server, str]) -> None:
    server, key = served
    before = server.memory()
    for requests in (head(key, "GET", "/v1/x"), b"GET /v1/x HTTP/1.1\r\nHost:a\r\n\r\n"):
        with server.connect(FLOODING) as connection:
            connection.settimeout(1)
            with pytest.raises(TimeoutError):
                connection.sendall(requests * 1_000_000)
            assert server.memory() - before < 8 * 2**20


def test_many_connections_of_every_kind_leave_memory_bounded(served: tuple[Server, str]) -> None:
    server, key = served
    before = server.memory()
    connections = [server.connect() for _ in range(600)]
    try:
        for connection in connections[:200]:  # slow to send
            connection.sendall(head(key, "DELETE", f"{TARGET}/1")[:-2])
        for connection in connections[200:400]:  # pipelining, and slow to read
            connection.setblocking(False)
            for _ in range(10):
                try:
                    connection.send(head(key, "GET", TARGET) * 1000)
                except BlockingIOError:
                    break
        with server.client(key) as client:
            assert 200 == client.head(TARGET).status_code
        assert server.memory() - before < 30 * 2**20
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    "malformed",
    [
        b"HEAD /v1/store/orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HEAD /v1/store/orders HTTP/1.1\r\nHost : x\r\n\r\n",
        b"HEAD  /v1/store/orders HTTP/1.1\r\nHost: x\r\n\r\n",
        b"HEAD /v1/store/orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_the_response_to_a_malformed_head_request_has_no_body(served: tuple[Server, str], malformed: bytes) -> None:
    server, _ = served
    with server.connect() as connection:
        response = exchange(connection, malformed)
    assert response.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 "))
    assert b"\r\ncontent-length: " in response
    assert response.endswith(b"\r\n\r\n")


def test_http_1_0_never_gets_100_continue(served: tuple[Server, str]) -> None:
    server, key = served
    lines = ("Expect: 100-continue", "Content-Length: 5")
    with server.connect() as connection:
        connection.sendall(head(key, "DELETE", f"{TARGET}/0", *lines, version="1.0"))
        assert b"" == receive(connection, silence=0.5)
        assert [404] == statuses(exchange(connection, b"hello"))


def test_http_1_0_is_closed_unless_it_asks_to_be_kept_alive(served: tuple[Server, str]) -> None:
    server, key = served
    with server.connect() as connection:
        kept = head(key, "GET", "/", "Connection: keep-alive", version="1.0")
        received = exchange(connection, kept + head(key, "GET", "/", version="1.0"))
        assert connection.recv(1) == b""
    assert [200, 200] == statuses(received)
    assert [b"keep-alive", b"close"] == re.findall(rb"\r\nconnection: (\S+)\r\n", received)


@pytest.mark.parametrize("target", ["http://a?/v1/store/orders/{}", "http://a#/v1/store/orders/{}", "http:///?/v1/{}"])
def test_a_target_without_a_path_is_not_routed_by_its_query(
    served: tuple[Server, str], order: int, target: str
) -> None:
    server, key = served
    with server.connect() as connection:
        raw = head(key, "DELETE", target.format(order), "Connection: close")
        assert statuses(exchange(connection, raw))[0] in (400, 404, 405)
    with server.connect() as connection:
        assert [204] == statuses(exchange(connection, head(key, "DELETE", f"{TARGET}/{order}", "Connection: close")))


@pytest.mark.parametrize("body", [b"", b"hello"])
def test_what_follows_a_connect_is_not_taken_for_a_request(served: tuple[Server, str], order: int, body: bytes) -> None:
    server, key = served
    lines = (f"Content-Length: {len(body)}",) if body else ()
    with server.connect() as connection:
        received = exchange(
            connection, head(key, "CONNECT", "x:443", *lines) + body + head(key, "DELETE", f"{TARGET}/{order}")
        )
        assert connection.recv(1) == b""
    assert [404] == statuses(received)
    with server.connect() as connection:
        assert [204] == statuses(exchange(connection, head(key, "DELETE", f"{TARGET}/{order}", "Connection: close")))


@pytest.mark.parametrize(
    ("status", "coding", "version"),
    [(501, "gzip, chunked", "1.1"), (400, "gzip", "1.1"), (400, "chunked", "1.0"), (400, "gzip, chunked", "1.0")],
)
def test_a_transfer_coding_that_is_not_supported_ends_the_connection(
    served: tuple[Server, str], order: int, status: int, coding: str, version: str
) -> None:
    server, key = served
    lines = (f"Transfer-Encoding: {coding}", "Connection: keep-alive")
    refused = head(key, "DELETE", f"{TARGET}/{order}", *lines, version=version) + b"5\r\nhello\r\n0\r\n\r\n"
    with server.connect() as connection:
        received = exchange(connection, refused + head(key, "DELETE", f"{TARGET}/{order}"))
        assert connection.recv(1) == b""
    assert [status] == statuses(received)
    assert received.endswith(b'","status":%d}' % status)
    with server.connect() as connection:
        assert [204] == statuses(exchange(connection, head(key, "DELETE", f"{TARGET}/{order}", "Connection: close")))


def test_data_of_another_protocol_behind_an_upgrade_does_not_cost_the_cancel_its_response(
    served: tuple[Server, str], order: int
) -> None:
    server, key = served
    upgrade = head(key, "DELETE", f"{TARGET}/{order}", "Upgrade: h2c", "Connection: Upgrade")
    with server.connect() as connection:
        received = exchange(
            connection, upgrade + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        )
    assert [204, 400] == statuses(received)


def test_a_response_to_a_client_that_is_still_sending_is_not_lost_in_a_reset(served: tuple[Server, str]) -> None:
    server, key = served
    for _ in range(20):
        with server.connect() as connection:
            raw = head(key, "DELETE", f"{TARGET}/1", "Connection: close", "Content-Length: 300000")
            connection.sendall(raw + b"x" * 100_000)
            received = connection.recv(65536)
            connection.sendall(b"x" * 200_000)
            assert [413] == statuses(received + receive(connection))


def test_resets_in_the_middle_of_a_list_do_no_harm(served: tuple[Server, str]) -> None:
    server, key = served
    for _ in range(30):
        connection = server.connect()
        connection.sendall(head(key, "GET", TARGET) * 3)
        connection.recv(1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    with server.client(key) as client:
        assert ORDERS == len(client.get(TARGET).json())
    assert '"level":"error"' not in server.log.read_text()
