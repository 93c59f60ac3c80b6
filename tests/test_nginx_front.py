"""nginx before a real `petstore serve`: what the service promises survives the way through the shipped front.

Behind another proxy, which forwards Upgrade, a request cannot be hidden in the body of another.
"""

import json
import re
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from petstore_server.api.v2.input import MAX_WAIT
from testing.nginx_front import SHIPPED, Front, front
from testing.process import UNLIMITED, Server, exchange, new_key, petstore_json, put_orders, serving
from testing.subprocesses import PATIENCE, free_port, within

pytestmark = pytest.mark.system

TARGET = "/v1/store/orders"
CHANGES = "/v2/store/changes"
LIMITS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit")
PLAIN = {"Accept-Encoding": "identity"}
THE_FRONTS_OWN = {"connection", "date", "server", "x-request-id"}
FIELDS = ',"quantity":1,"shipDate":"2026-10-07T03:51:47Z","complete":false'
LONG_LIST = 200_000  # about 18 MB


class Site(NamedTuple):
    """A service and the front before it. `key` cannot be used up, `free` is on the plan free."""

    server: Server
    front: Front
    key: str
    free: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    store = folder / "store.db"
    put_orders(store, 500, FIELDS)
    key, _ = new_key(store, plan=UNLIMITED)
    free, _ = new_key(store, "initech")
    with serving(store, PETSTORE_TRUSTED_PROXIES="127.0.0.1") as server, front(folder / "nginx", server.port) as before:
        yield Site(server, before, key, free)


def test_an_answer_comes_through_as_the_service_gave_it(site: Site) -> None:
    with site.front.client(site.free) as through, site.server.client(site.free) as straight:
        expected, found = straight.get(TARGET, headers=PLAIN), through.get(TARGET, headers=PLAIN)
    assert (200, expected.content) == (found.status_code, found.content)
    assert expected.headers.keys() - THE_FRONTS_OWN == found.headers.keys() - THE_FRONTS_OWN
    moving = {"x-ratelimit-remaining", "ratelimit", "date", *THE_FRONTS_OWN}
    same = [name for name in expected.headers if name not in moving]
    assert [expected.headers[name] for name in same] == [found.headers[name] for name in same]
    remaining = [int(response.headers["x-ratelimit-remaining"]) for response in (expected, found)]
    assert [remaining[0], remaining[0] - 1] == remaining
    assert "private, no-cache" == found.headers["cache-control"]


def test_a_list_is_answered_304_in_gzip_and_to_head_under_the_services_own_etags(site: Site) -> None:
    with site.front.client(site.key) as client:
        plain = client.get(TARGET, headers=PLAIN)
        zipped = client.get(TARGET, headers={"Accept-Encoding": "gzip"})
        unchanged = client.get(TARGET, headers={"If-None-Match": zipped.headers["etag"], "Accept-Encoding": "gzip"})
        head = client.head(TARGET, headers=PLAIN)
    assert (None, "gzip") == (plain.headers.get("content-encoding"), zipped.headers["content-encoding"])
    assert plain.headers["etag"][:-1] + '-gzip"' == zipped.headers["etag"]
    assert plain.content == zipped.content
    assert int(zipped.headers["content-length"]) < int(plain.headers["content-length"])
    assert (304, zipped.headers["etag"]) == (unchanged.status_code, unchanged.headers["etag"])
    assert (200, plain.headers["content-length"]) == (head.status_code, head.headers["content-length"])


def test_cancels_and_refusals_keep_their_statuses_and_bodies(site: Site) -> None:
    with site.front.client(site.key) as client:
        responses = [
            client.delete(f"{TARGET}/7"),
            client.delete(f"{TARGET}/7"),
            client.delete(f"{TARGET}/7000000"),
            client.get(f"{TARGET}/"),
            client.delete(f"{TARGET}/%201"),
            client.post(TARGET),
            client.get("/metrics"),
        ]
    assert [
        (204, ""),
        (409, "order_already_cancelled"),
        (404, "order_not_found"),
        (404, "not_found"),
        (404, "invalid_order_id"),
        (405, "method_not_allowed"),
        (404, "not_found"),
    ] == [(response.status_code, response.json()["code"] if response.content else "") for response in responses]


@pytest.mark.parametrize(
    ("settings", "trusted"),
    [
        ({"PETSTORE_TRUSTED_PROXIES": "127.0.0.1"}, True),
        ({"PETSTORE_TRUSTED_PROXIES": "127.0.0.1", "PETSTORE_FORWARDED_HEADER": "Forwarded"}, True),
        ({}, False),
    ],
    ids=["X-Forwarded-For", "Forwarded", "not trusted"],
)
def test_clients_are_distinguished_if_the_proxy_is_trusted(
    tmp_path: Path, settings: dict[str, str], trusted: bool
) -> None:
    def remaining(before: Front, address: str, **headers: str) -> int:
        with before.client(address=address) as client:
            response = client.get(TARGET, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return int(response.headers["x-ratelimit-remaining"])

    spoofed = {"X_Forwarded_For": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
    with serving(tmp_path / "store.db", **settings) as server, front(tmp_path / "nginx", server.port) as before:
        found = [
            remaining(before, "127.0.0.2"),
            remaining(before, "127.0.0.2", **spoofed),
            remaining(before, "127.0.0.3"),
            remaining(before, "127.0.0.3", **spoofed),
        ]
    assert ([59, 58, 59, 58] if trusted else [59, 58, 57, 56]) == found


@pytest.mark.parametrize("size", [64 * 1024 + 1, 8 * 1024 * 1024])
@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_a_body_too_large_gets_the_services_413(site: Site, size: int, chunked: bool) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(size // 65536):
            yield b"x" * 65536
        yield b"x"

    with site.front.client(site.key) as client:
        response = client.request("DELETE", f"{TARGET}/8", content=parts() if chunked else b"x" * size)
        assert (413, "payload_too_large") == (response.status_code, response.json()["code"])
    with site.front.client(site.key) as client:  # nginx may close the first connection without saying so
        assert 200 == client.get(TARGET).status_code
    assert [] == site.front.written_to_disk()


def test_a_body_that_is_allowed_is_ignored(site: Site) -> None:
    with site.front.client(site.key) as client:
        assert 204 == client.request("DELETE", f"{TARGET}/9", content=b"x" * 64 * 1024).status_code


def test_headers_and_targets_too_large_get_the_services_431_and_414(site: Site) -> None:
    with site.front.client(site.key) as client:
        many = client.get(TARGET, headers={f"X-Filler-{number}": "x" * 4000 for number in range(9)})
        one = client.get(TARGET, headers={"X-Filler": "x" * 40_000})
        target = client.get(f"{TARGET}?{'x' * 9000}")
    codes = [(response.status_code, response.json()["code"]) for response in (many, one, target)]
    assert [(431, "headers_too_large")] * 2 + [(414, "uri_too_long")] == codes


def test_the_largest_head_of_a_response_passes(tmp_path: Path) -> None:
    store, reference = tmp_path / "store.db", "{" * 64
    put_orders(store, 2, f',"reference":"{reference}"')
    key, _ = new_key(store, plan=UNLIMITED)
    target = f"/v2/store/orders?limit=1{f'&reference={reference}' * 108}"
    head = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    with serving(store) as server, front(tmp_path / "nginx", server.port) as before, before.connect() as connection:
        response = exchange(connection, head.encode())
    assert response.startswith(b"HTTP/1.1 200 ")
    assert 108 * 64 == response.count(b"%7B")


@pytest.mark.parametrize(
    ("request_head", "status", "code"),
    [
        ("GET /v1/x HTTP/1.1\r\n\r\n", 400, "bad_request"),
        ("GET /v1/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request"),
        ("nonsense\r\n\r\n", 400, "bad_request"),
        ("GET /v1/x HTTP/2.5\r\nHost: x\r\n\r\n", 400, "bad_request"),
        ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: br\r\n\r\n", 400, "bad_request"),
        ("TRACE /v1/x HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"),
        (f"GET /v1/{'x' * 70_000} HTTP/1.1\r\nHost: x\r\n\r\n", 414, "uri_too_long"),
        (f"GET /v1/x HTTP/1.1\r\nHost: x\r\nX: {'x' * 70_000}\r\n\r\n", 431, "headers_too_large"),
    ],
    ids=["no Host", "bad escape", "no request", "version", "unknown coding", "TRACE", "target", "header"],
)
def test_what_nginx_refuses_itself_has_the_error_body(site: Site, request_head: str, status: int, code: str) -> None:
    with site.front.connect() as connection:
        head, _, body = exchange(connection, request_head.encode()).partition(b"\r\n\r\n")
    assert f"HTTP/1.1 {status} " == head.decode()[:13]
    assert "content-type: application/json" in head.decode().lower()
    assert re.search(r"\r\nX-Request-Id: [0-9a-f]{32}\r\n", head.decode() + "\r\n")
    error = json.loads(body)
    assert (code, status, {"code", "message", "status"}) == (error["code"], error["status"], set(error))


def test_plain_http_on_the_tls_port_is_refused(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.front.port)) as connection:
        response = exchange(connection, b"GET /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in response


def test_http_2_is_served(site: Site) -> None:
    command = ["curl", "-s", "-k", "--http2", "-o", "-", "-w", "\n%{http_version} %{http_code}"]
    url = f"https://127.0.0.1:{site.front.port}{TARGET}"
    done = subprocess.run(
        [*command, "-H", f"Authorization: Bearer {site.key}", url], capture_output=True, text=True, check=True
    )
    body, _, summary = done.stdout.rpartition("\n")
    assert ("2 200", 500) == (summary, len(json.loads(body)))


@pytest.mark.parametrize("given", ["mine", None])
def test_the_log_has_the_id_that_the_response_has_and_no_key(site: Site, given: str | None) -> None:
    with site.front.client(site.key) as client:
        headers = {"X-Request-Id": given} if given else {}
        found = client.get(TARGET, headers=headers).headers["x-request-id"]
    assert given in (None, found)
    within(PATIENCE, lambda: site.front.log().rstrip().endswith(f" {found}"))
    written = [path.read_text() for path in site.front.folder.glob("*.log")]
    assert [] == [found for text in written for found in re.findall(r"pso_(?:live|test)_\w+", text)]


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    store = tmp_path_factory.mktemp("long") / "store.db"
    put_orders(store, LONG_LIST, FIELDS)
    return store, new_key(store, plan=UNLIMITED)[0]


@pytest.fixture
def long_site(long_store: tuple[Path, str], tmp_path: Path) -> Iterator[Site]:
    store, key = long_store
    with serving(store) as server, front(tmp_path / "nginx", server.port) as before:
        yield Site(server, before, key, "")


def test_a_long_list_streams_to_a_slow_reader_through_bounded_memory_and_no_file(long_site: Site) -> None:
    with long_site.server.client(long_site.key) as client:
        whole = client.get(TARGET, headers=PLAIN).content
    before = long_site.front.memory()
    with begun_list(long_site) as (connection, length, read):
        time.sleep(1)
        assert [] == long_site.front.written_to_disk()
        assert long_site.front.memory() - before < 8 * 2**20  # buffers, and what TLS takes at its first use
        while len(read) < length and (part := connection.recv(1 << 20)):
            read += part
    assert len(whole) > 15_000_000
    assert read == whole


def test_a_list_that_the_service_cuts_off_does_not_look_whole(long_site: Site) -> None:
    with begun_list(long_site) as (connection, length, read):
        long_site.server.kill()
        while part := connection.recv(1 << 20):
            read += part
    assert 0 < len(read) < length


@contextmanager
def begun_list(site: Site) -> Iterator[tuple[socket.socket, int, bytearray]]:
    """A connection on which the list has begun to come: its length in bytes, and what was read of it."""
    head = f"GET {TARGET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.key}\r\nConnection: close\r\n\r\n"
    with site.front.connect() as connection:
        connection.sendall(head.encode())
        read = b""
        while b"\r\n\r\n" not in read:
            read += connection.recv(1024)
        responded, _, body = read.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", responded)
        assert length, responded
        yield connection, int(length[1]), bytearray(body)


class Dying(socketserver.StreamRequestHandler):
    """Answers the first request of a connection, and takes the second one without an answer to it."""

    server: "Service"

    def handle(self) -> None:
        self.server.connections += 1
        self._take()
        self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        self._take()

    def _take(self) -> None:
        if request := self.rfile.readline():
            self.server.requests.append(request.decode().partition(" HTTP/")[0])
        size = 0
        while line := self.rfile.readline().strip().lower():
            assert not line.startswith(b"x-front-")  # which is only between the two servers of nginx
            size = int(line.removeprefix(b"content-length:")) if line.startswith(b"content-length:") else size
        self.rfile.read(size)


class Service(socketserver.TCPServer):
    """Stands for a service that dies on the second request of each connection."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Dying)
        self.connections = 0
        self.requests: list[str] = []


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[Service, Front]]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, args=(0.01,)).start()
        try:
            with front(tmp_path / "nginx", service.server_address[1]) as before:
                yield service, before
        finally:
            service.shutdown()


@pytest.mark.parametrize(
    "change", [f"DELETE {TARGET}/", "DELETE /v2/webhooks/wh_", "PUT /v2/store/orders/"], ids=["cancel", "delete", "put"]
)
def test_a_change_is_never_sent_twice_but_a_list_may_be(failing: tuple[Service, Front], change: str) -> None:
    service, before = failing
    requests = [f"{change}1", f"{change}2", f"GET {TARGET}", f"GET {TARGET}"]
    body = 'Content-Length: 11\r\nX-Front-Method: DELETE\r\n\r\n{"petId":1}' if "PUT" in change else ""
    responses = [_ask(before, request, body if "PUT" in request else "") for request in requests]
    assert [204, 503, 204, 204] == [status for status, _ in responses]
    assert "\r\nRetry-After: 1\r\n" in responses[1][1]
    assert '"code":"service_unavailable"' in responses[1][1]
    assert [*requests, requests[-1]] == service.requests


def test_a_request_for_changes_is_sent_to_one_host_only(failing: tuple[Service, Front]) -> None:
    service, before = failing
    requests = [f"GET {CHANGES}?wait=30", f"GET {CHANGES}?wait=30"]
    assert [204, 503] == [_ask(before, request)[0] for request in requests]
    assert requests == service.requests


def test_a_request_for_changes_is_held_through_the_front_and_ends_with_its_client(site: Site) -> None:
    assert MAX_WAIT + 5 <= int(*re.findall(r"/changes \{.*?proxy_read_timeout +(\d+)s", SHIPPED.read_text(), re.DOTALL))
    with site.front.client(site.key) as client:
        token = client.get(CHANGES, params={"after": "now"}).json()["next"]
        assert [] == client.get(CHANGES, params={"after": token, "wait": 1}).json()["data"]
    head = f"GET {CHANGES}?after={token}&wait=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.key}\r\n\r\n"
    with site.front.connect() as connection:
        connection.sendall(head.encode())
        within(PATIENCE, lambda: site.server.metrics()["petstore_held_requests"] == 1)
    within(PATIENCE, lambda: site.server.metrics()["petstore_held_requests"] == 0)


def test_connections_to_the_service_are_kept_open(failing: tuple[Service, Front]) -> None:
    service, before = failing
    for _ in range(2):
        _ask(before, f"DELETE {TARGET}/1")
    assert (1, 2) == (service.connections, len(service.requests))


def _ask(before: Front, request: str, body: str = "") -> tuple[int, str]:
    """The response to a request; `body` begins with its header lines."""
    with before.connect() as connection:
        head = request if " HTTP/1.1\r\n" in request else f"{request} HTTP/1.1\r\nHost: x"
        response = exchange(connection, f"{head}\r\nConnection: close\r\n{body or chr(13) + chr(10)}".encode())
    return int(response.split(b" ")[1]), response.decode()


@pytest.mark.parametrize(
    ("request_line", "doubt"),
    [
        (f"GET {TARGET}", ""),
        ("GET /v2/store/orders/1", ""),
        (f"DELETE {TARGET}/1", "A cancellation may have been applied."),
        ("DELETE /v2/webhooks/wh_1", "A change may have been applied."),
        ("POST /v2/store/orders", ""),
        ("PUT /v2/store/orders/1", "A change may have been applied."),
        ("PATCH /v2/store/orders/1", "A change may have been applied."),
        ("POST /v2/store/orders/1/ship", "A change may have been applied."),
        ("POST /v2/store/orders/batch", "A change may have been applied."),
        ("POST /v2/webhooks", "A change may have been applied."),
        ("POST /v2/webhooks/wh_1/rotate", "A change may have been applied."),
        ("POST /v2/webhooks/wh_1/ping", ""),
    ],
)
def test_a_service_that_is_down_is_503_with_retry_after_and_the_clients_request_id(
    tmp_path: Path, request_line: str, doubt: str
) -> None:
    with front(tmp_path / "nginx", free_port()) as before:
        status, response = _ask(before, f"{request_line} HTTP/1.1\r\nX-Request-Id: mine-{request_line[:3]}\r\nHost: x")
        assert 503 == status
        assert '"code":"service_unavailable"' in response
        assert f'retry after the seconds in Retry-After.{doubt and " "}{doubt}"' in response
        assert f"\r\nX-Request-Id: mine-{request_line[:3]}\r\n" in response
        within(PATIENCE, lambda: f"mine-{request_line[:3]}" in before.log())


# As nginx's documentation forwards WebSockets, with one connection to the service that all clients share.
FORWARDS_UPGRADE = """
map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
upstream service {{ server 127.0.0.1:{service_port}; keepalive 1; }}
server {{
    listen 127.0.0.1:{port};
    location / {{
        proxy_pass http://service;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection_upgrade;
    }}
}}
"""


@pytest.fixture
def forwarding(tmp_path: Path) -> Iterator[Site]:
    """A service with three orders behind a proxy that forwards Upgrade."""
    store = tmp_path / "store.db"
    put_orders(store, 3)
    key, _ = new_key(store, plan=UNLIMITED)

    def configuration(folder: Path, port: int, service_port: int) -> str:
        return FORWARDS_UPGRADE.format(port=port, service_port=service_port)

    with serving(store) as server, front(tmp_path / "nginx", server.port, configuration) as before:
        yield Site(server, before, key, "")


@pytest.mark.parametrize("target", ["/nope", TARGET])
@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_a_request_in_a_body_does_not_swallow_the_next_clients_request(
    forwarding: Site, tmp_path: Path, target: str, chunked: bool
) -> None:
    hidden = f"DELETE {TARGET}/2 HTTP/1.1\r\nX-Swallow: "
    framing, body = f"Content-Length: {len(hidden)}", hidden
    if chunked:
        framing, body = "Transfer-Encoding: chunked", f"{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n"
    attack = f"POST {target} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n{framing}\r\n\r\n{body}"
    victim = f"GET {TARGET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {forwarding.key}\r\nConnection: close\r\n\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", forwarding.front.port)) as attacker:
            attacker.settimeout(10)
            attacker.sendall(attack.encode())
            assert attacker.recv(65536).startswith(b"HTTP/1.1 404 " if target == "/nope" else b"HTTP/1.1 401 ")
        with socket.create_connection(("127.0.0.1", forwarding.front.port)) as client:
            head, _, orders = exchange(client, victim.encode()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert [1, 2, 3] == [order["id"] for order in json.loads(orders)]
    assert "pending" == petstore_json(tmp_path / "store.db", "orders", "show", "2")["status"]


@pytest.mark.parametrize("through_proxy", [False, True])
def test_curl_that_offers_http_2_places_an_order(forwarding: Site, tmp_path: Path, through_proxy: bool) -> None:
    key = petstore_json(tmp_path / "store.db", "keys", "create", "acme", "--scope", "orders:write")["key"]
    port = forwarding.front.port if through_proxy else forwarding.server.port
    headers = (f"Authorization: Bearer {key}", "Content-Type: application/json", "Idempotency-Key: order")
    done = subprocess.run(
        ["curl", "-s", "--http2", "-w", "\n%{http_code}", "-d", '{"petId":7,"quantity":1}']
        + [argument for header in headers for argument in ("-H", header)]
        + [f"http://127.0.0.1:{port}/v2/store/orders"],
        capture_output=True,
        text=True,
        check=True,
    )
    body, _, status = done.stdout.rpartition("\n")
    assert ("201", 7) == (status, json.loads(body)["petId"])
