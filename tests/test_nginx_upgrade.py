"""A proxy that forwards Upgrade and keeps connections: a request cannot be hidden in the body of another."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testing.nginx_front import front
from testing.process import UNLIMITED, Server, exchange, new_key, petstore_json, put_orders, serving

pytestmark = pytest.mark.system

TARGET = "/v1/store/orders"

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


class Site(NamedTuple):
    """A service with three orders, the port of the proxy before it, and a key."""

    store: Path
    server: Server
    port: int
    key: str


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = tmp_path / "store.db"
    put_orders(store, 3)
    key, _ = new_key(store, plan=UNLIMITED)

    def configuration(folder: Path, port: int, service_port: int) -> str:
        return FORWARDS_UPGRADE.format(port=port, service_port=service_port)

    with serving(store) as server, front(tmp_path / "nginx", server.port, configuration) as before:
        yield Site(store, server, before.port, key)


@pytest.mark.parametrize("target", ["/nope", TARGET])
@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_a_request_in_a_body_does_not_swallow_the_next_clients_request(site: Site, target: str, chunked: bool) -> None:
    hidden = f"DELETE {TARGET}/2 HTTP/1.1\r\nX-Swallow: "
    framing, body = f"Content-Length: {len(hidden)}", hidden
    if chunked:
        framing, body = "Transfer-Encoding: chunked", f"{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n"
    attack = f"POST {target} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n{framing}\r\n\r\n{body}"
    victim = f"GET {TARGET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.key}\r\nConnection: close\r\n\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", site.port)) as attacker:
            attacker.settimeout(10)
            attacker.sendall(attack.encode())
            assert attacker.recv(65536).startswith(b"HTTP/1.1 404 " if target == "/nope" else b"HTTP/1.1 401 ")
        with socket.create_connection(("127.0.0.1", site.port)) as client:
            head, _, orders = exchange(client, victim.encode()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert [1, 2, 3] == [order["id"] for order in json.loads(orders)]
    assert "pending" == petstore_json(site.store, "orders", "show", "2")["status"]


@pytest.mark.parametrize("through_proxy", [False, True])
def test_curl_that_offers_http_2_places_an_order(site: Site, through_proxy: bool) -> None:
    key = petstore_json(site.store, "keys", "create", "acme", "--scope", "orders:write")["key"]
    port = site.port if through_proxy else site.server.port
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
