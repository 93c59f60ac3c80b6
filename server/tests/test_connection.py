"""Raw connections: what the HTTP parser accepts gets the whole answer, what it refuses 4xx or an end (D3, D13)."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testing.checked_clients import contract
from testing.process import UNLIMITED, Server, exchange, new_key, receive, serving
from testing.subprocesses import PATIENCE, busy

TARGET = "/v1/store/orders"
FLOODING = "127.0.0.2"
"""The address of tests that send more requests without a valid key than one address may."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server, and a key that no test here can use up."""
    store = tmp_path_factory.mktemp("served") / "store.db"
    key, _ = new_key(store, plan=UNLIMITED)
    with serving(store, PETSTORE_CONSOLE="off") as server:  # loading it would count as memory
        yield server, key


def responses(raw: bytes, method: str = "GET", target: str = TARGET) -> list[tuple[int, dict[str, str], bytes]]:
    """Take apart the answers on a connection, holding each to the contract."""
    found = []
    while raw:
        head, separator, raw = raw.partition(b"\r\n\r\n")
        assert separator, raw
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = [(line.partition(": ")[0], line.partition(": ")[2]) for line in lines]
        length = int(dict(headers).get("content-length", "0"))
        body, raw = raw[:length], raw[length:]
        status = int(status_line.split(" ")[1])
        contract().check(method, target, status, headers, body)
        found.append((status, dict(headers), body))
    return found


def ask(server: Server, request: str | bytes, method: str = "GET", target: str = TARGET) -> tuple[int, dict[str, str]]:
    with server.connect() as connection:
        raw = exchange(connection, request if isinstance(request, bytes) else request.encode("latin-1"), last=True)
    ((status, headers, _),) = responses(raw, method, target)
    return status, headers


def request(key: str, method: str = "GET", target: str = TARGET, *lines: str, version: str = "1.1") -> str:
    head = [f"{method} {target} HTTP/{version}", "Host: x", f"Authorization: Bearer {key}", "Connection: close", *lines]
    return "\r\n".join([*head, "", ""])


def test_a_websocket_handshake_gets_the_same_response_as_any_request(served: tuple[Server, str]) -> None:
    server, key = served
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA=="
    with_key = f"GET {TARGET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{upgrade}\r\n\r\n"
    assert 200 == ask(server, with_key)[0]
    without = ask(server, f"GET /v1/anything HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n\r\n", target="/v1/anything")
    assert (401, "60") == (without[0], without[1]["x-ratelimit-limit"])


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PATCH", "POST", "PROPFIND", "QUERY", "PURGE"])
def test_any_method_that_the_parser_knows_is_405(served: tuple[Server, str], method: str) -> None:
    server, key = served
    status, headers = ask(server, request(key, method), method)
    assert (405, "GET, HEAD") == (status, headers["allow"])


@pytest.mark.parametrize("target", ["/v1/%FF%FE", "/v1/%zz", "/v1/store/orders%00", "/v1/."])
def test_a_path_that_is_not_text_is_404_with_limits(served: tuple[Server, str], target: str) -> None:
    server, key = served
    status, headers = ask(server, request(key, "GET", target), target="/v1/x")
    assert status in (404, 405)
    assert "x-ratelimit-limit" in headers


def test_a_target_that_names_no_path_is_answered_outside_v1(served: tuple[Server, str]) -> None:
    server, key = served
    assert 404 == ask(server, request(key, "OPTIONS", "*"), "OPTIONS", "/*")[0]
    assert 404 == ask(server, request(key, "CONNECT", "x:443"), "CONNECT", "/x:443")[0]


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost:\r\n",
        "Host:\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: u@a\r\n",
        "Host: a:b\r\n",
        "Host: a:1:2\r\n",
        "Host: http://a\r\n",
        "Host: [::1\r\n",
        "Host: [a]x\r\n",
        "Host: ::1\r\n",
        "Host: a\xe9\r\n",
        "Host: <a>\r\n",
        f"Host: {'a' * 301}\r\n",
    ],
)
def test_no_host_and_what_is_not_one_are_400_with_limits(served: tuple[Server, str], lines: str) -> None:
    server, key = served
    authorised = f"Authorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    status, headers = ask(server, f"GET {TARGET} HTTP/1.1\r\n{lines}{authorised}")
    assert (400, "1000000") == (status, headers["x-ratelimit-limit"])
    assert (400 if lines else 200) == ask(server, f"GET {TARGET} HTTP/1.0\r\n{lines}{authorised}")[0]


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/store/orders/\xe9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/store/orders HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /v1/store/orders HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /v1/store/orders HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_the_parser_refuses_is_400_with_the_error_body(served: tuple[Server, str], raw: bytes) -> None:
    server, _ = served
    with server.connect() as connection:
        received = exchange(connection, raw)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert re.search(rb'\r\n\r\n{"code":"bad_request","message":"[^"]+","status":400}$', received)


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "Content-Length: +5\r\n\r\nhello",
        "Content-Length: 5, 5\r\n\r\nhello",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
        "Content-Length: 5\r\n X: folded\r\n\r\nhello",
    ],
)
def test_a_smuggling_shape_gets_4xx_or_an_end_and_never_a_second_answer(
    served: tuple[Server, str], framing: str
) -> None:
    server, key = served
    smuggled = f"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    head = f"DELETE {TARGET}/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{framing}"
    with server.connect() as connection:
        received = exchange(connection, (head + smuggled).encode())
    assert re.match(rb"HTTP/1\.1 4\d\d |$", received)
    assert len(re.findall(rb"HTTP/1\.1 \d", received)) <= 1
    assert b" 204 " not in received


@pytest.mark.parametrize("framing", ["Content-Length: 65536", "Content-Length: 65537", "Content-Length: 10000000"])
def test_a_body_is_ignored_up_to_64_kib_and_413_beyond(served: tuple[Server, str], framing: str) -> None:
    server, key = served
    size = int(framing.split(" ")[1])
    head = f"DELETE {TARGET}/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{framing}\r\n\r\n"
    with server.connect() as connection:
        received = exchange(connection, head.encode() + b"x" * size + request(key).encode())
    assert [b"404" if size == 65536 else b"413", b"200"] == re.findall(rb"HTTP/1\.1 (\d+) ", received)


def test_a_chunked_body_is_bounded_as_well_and_the_connection_goes_on(served: tuple[Server, str]) -> None:
    server, key = served
    head = f"DELETE {TARGET}/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with server.connect() as connection:
        raw = head.encode() + body * 2 + b"0\r\n\r\n" + head.encode() + body * 20 + b"0\r\n\r\n" + request(key).encode()
        received = exchange(connection, raw)
    assert [b"404", b"413", b"200"] == re.findall(rb"HTTP/1\.1 (\d+) ", received)


def test_expect_100_continue_gets_100_or_is_refused_at_once(served: tuple[Server, str]) -> None:
    server, key = served
    small = request(key, "DELETE", f"{TARGET}/1", "Expect: 100-continue", "Content-Length: 5")
    with server.connect() as connection:
        connection.sendall(small.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        assert exchange(connection, b"hello").startswith(b"HTTP/1.1 404 ")
    large = request(key, "DELETE", f"{TARGET}/1", "Expect: 100-continue", "Content-Length: 99999999")
    status, headers = ask(server, large, "DELETE", f"{TARGET}/1")
    assert (413, "close") == (status, headers["connection"])


def test_100_continue_stands_behind_the_responses_before_it(served: tuple[Server, str]) -> None:
    server, key = served
    first = f"GET /v1/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    waiting = request(key, "DELETE", f"{TARGET}/1", "Expect: 100-continue", "Content-Length: 5")
    with server.connect() as connection:
        connection.sendall((first + waiting).encode())
        received = b""
        while b" 100 Continue\r\n\r\n" not in received:
            more = connection.recv(65536)
            assert more, "the connection was closed"
            received += more
        received += exchange(connection, b"hello")
    assert [b"404", b"100", b"404"] == re.findall(rb"HTTP/1\.1 (\d+) ", received)


def test_a_client_that_closes_its_half_still_gets_its_responses(served: tuple[Server, str]) -> None:
    server, key = served
    keep = f"Host: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    for _ in range(50):
        with server.connect() as connection:
            connection.sendall(f"GET {TARGET} HTTP/1.1\r\n{keep}DELETE {TARGET}/1 HTTP/1.1\r\n{keep}".encode())
            connection.shutdown(socket.SHUT_WR)
            began = time.monotonic()
            received = receive(connection, silence=10)
        assert [b"200", b"404"] == re.findall(rb"HTTP/1\.1 (\d+) ", received)
        assert time.monotonic() - began < 5 + busy()


def test_a_cancel_whose_body_never_comes_is_not_carried_out(served: tuple[Server, str]) -> None:
    server, key = served
    with server.connect() as connection:
        connection.sendall(request(key, "DELETE", f"{TARGET}/1", "Content-Length: 5").encode() + b"hel")
        connection.shutdown(socket.SHUT_WR)
        assert b"204" not in receive(connection)


@pytest.mark.parametrize("form", ["one long line", "many short lines", "a long target"])
def test_unfinished_heads_take_bounded_memory(served: tuple[Server, str], form: str) -> None:
    server, key = served
    start = request(key).encode()[:-2]
    many = start + b"".join(b"%x:\r\n" % number for number in range(20_000))
    head = {
        "one long line": start + b"X: " + b"x" * 60_000,
        "many short lines": many,
        "a long target": b"GET /" + b"x" * 60_000,
    }
    before = server.memory()
    connections = [server.connect() for _ in range(400)]
    try:
        for connection in connections:
            with suppress(OSError):  # the server has refused the request
                connection.sendall(head[form])
        with server.client(key) as client:
            assert 200 == client.get(TARGET).status_code
        assert server.memory() - before < 400 * 80 * 1024
    finally:
        for connection in connections:
            connection.close()


def test_a_flood_of_headers_ends_the_connection_and_leaves_memory_flat(served: tuple[Server, str]) -> None:
    server, key = served
    before = server.memory()
    for line in (b"X-Flood: " + b"x" * 1000 + b"\r\n", b"x" * 1000):
        with server.connect() as connection:
            head = request(key).encode()[:-2]
            with pytest.raises(OSError, match=r"."):  # noqa: PT012 - it breaks at some point of the flood
                connection.sendall(head + b"X-Long: ")
                for _ in range(100_000):
                    connection.sendall(line)
                raise OSError("the flood was taken whole")
            assert connection.fileno() >= 0
    assert server.memory() - before < 16 * 2**20


def test_connections_that_drip_are_cut_and_a_normal_client_is_served_meanwhile(served: tuple[Server, str]) -> None:
    server, key = served
    began = time.monotonic()
    dripping = [server.connect() for _ in range(50)]
    for connection in dripping[:25]:
        connection.sendall(b"GET / HT")
    for connection in dripping[25:]:
        connection.sendall(request(key, "DELETE", f"{TARGET}/1", "Content-Length: 99").encode())
    while dripping and time.monotonic() - began < PATIENCE:
        for connection in [connection for connection in dripping if _is_cut(connection)]:
            connection.close()
            dripping.remove(connection)
        with server.client(key) as client:
            assert 200 == client.get(TARGET).status_code
        time.sleep(0.5)
    assert [] == dripping


def _is_cut(connection: socket.socket) -> bool:
    """Drip one byte, and see whether the other end still takes it."""
    connection.settimeout(0.01)
    try:
        connection.sendall(b"x")
        return connection.recv(100) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_many_distinct_bad_keys_leave_memory_flat(served: tuple[Server, str]) -> None:
    server, _ = served
    line = "GET /v1/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer pso_live_{:033d}\r\n\r\n"
    before = server.memory()
    with server.connect(FLOODING) as connection:
        connection.settimeout(PATIENCE)
        for batch in range(60):
            connection.sendall("".join(line.format(batch * 200 + number) for number in range(200)).encode())
            seen = b""
            while seen.count(b"HTTP/1.1 ") < 200:
                seen += connection.recv(1 << 20)
    assert server.memory() - before < 16 * 2**20


def test_the_server_answers_on_after_all_of_this(served: tuple[Server, str], tmp_path: Path) -> None:
    server, key = served
    with server.client(key) as client:
        assert 200 == client.get(TARGET).status_code
    assert "request failed" not in server.log.read_text()
