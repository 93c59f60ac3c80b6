"""The client with a real server over sockets, and with misbehaving peers."""

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpcore2
import httpx2
import pytest

from petstore_client import (
    APIConnectionError,
    APITimeoutError,
    AsyncClient,
    ChangesResetError,
    Client,
    InvalidResponseError,
    NotFoundError,
    Order,
    PetstoreError,
    v2,
)
from petstore_client.testing import FakeClock, FakePetstore
from testing.deployment import Deployment
from testing.process import EVERY_SCOPE, UNLIMITED, new_key, petstore, put_orders, serving
from testing.served_fake import served
from testing.subprocesses import PATIENCE, within


def test_version_2_pages_follows_changes_and_places_orders(each_deployment: Deployment) -> None:
    lines = "".join(json.dumps({"id": n, "petId": n % 9, "quantity": 1}) + "\n" for n in range(1, 2501))
    assert 0 == petstore(each_deployment, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    key, _ = new_key(each_deployment, plan=UNLIMITED, options=EVERY_SCOPE)
    with serving(each_deployment) as server, Client(f"{server.api}/v1", api_key=key) as client:
        orders = list(client.v2.iter_orders(sort="updatedAt"))
        assert list(range(1, 2501)) == sorted(order.id for order in orders)
        assert [n for n in range(1, 2501) if n % 9 == 4] == [o.id for o in client.v2.iter_orders(pet_id=4, limit=50)]
        with ThreadPoolExecutor(8) as pool:
            placed = list(pool.map(lambda _: client.v2.place_order(pet_id=3, quantity=1), range(40)))
        client.v2.cancel_order(placed[0].id)
        first = min(order.created_at for order in placed)
        changed = client.v2.iter_orders(sort="updatedAt", updated_from=first)
        assert {order.id for order in placed} <= {order.id for order in changed}
        assert 40 == len({order.id for order in placed})
        assert "cancelled" == client.v2.get_order(placed[0].id).status
        assert "enterprise" == client.v2.get_usage().plan
        assert 2540 == len(client.list_orders())


def test_a_follower_sees_every_change_in_time_over_a_restart_and_a_restore(tmp_path: Path) -> None:
    store, backup = tmp_path / "store.db", tmp_path / "backup.db"
    put_orders(store, 2500)
    key, _ = new_key(store, plan=UNLIMITED)
    assert 0 == petstore(store, "db", "backup", str(backup)).returncode
    mirror: dict[int, str] = {}
    failures: list[PetstoreError] = []
    tokens: list[str] = []
    pages: list[int] = []

    def follow(client: Client, after: str | None = None) -> None:
        try:
            for page in client.v2.follow_changes(after=after):
                assert page.data
                mirror.update({order.id: order.status for order in page.data})
                pages.append(len(page.data))
                tokens.append(page.next)
        except PetstoreError as error:
            failures.append(error)

    with serving(store) as first:
        port = first.port
        client = Client(f"{first.api}/v1", api_key=key)
        following = threading.Thread(target=follow, args=[client])
        following.start()
        within(PATIENCE, lambda: mirror.get(2500) == "pending")
        client.cancel_order(7)  # is not delayed by the request that is held
        within(10, lambda: mirror.get(7) == "cancelled")
        assert 0 == petstore(store, "orders", "ship", "8").returncode  # another process
        within(10, lambda: mirror.get(8) == "shipped")
        assert 0 == first.stop()
    assert 0 == petstore(store, "orders", "ship", "9").returncode
    with serving(store, "--port", str(port)) as second:
        within(PATIENCE, lambda: mirror.get(9) == "shipped")
        assert 2500 + 3 == sum(pages)  # nothing came twice
        began = time.monotonic()
        client.close()
        following.join(10)
        assert not following.is_alive()
        assert time.monotonic() - began < 10
        assert [] == failures
        assert ["pending"] * 2497 == [status for number, status in mirror.items() if number not in (7, 8, 9)]
        assert 0 == second.stop()
    assert 0 == petstore(store, "db", "restore", str(backup), "--yes").returncode
    with serving(store) as third, Client(f"{third.api}/v1", api_key=key) as client:
        with pytest.raises(ChangesResetError) as caught:
            next(client.v2.follow_changes(after=tokens[-1]))
        assert "changes_reset" == caught.value.code
        assert {7: "pending"}.items() <= {
            order.id: order.status for order in next(client.v2.follow_changes()).data
        }.items()


def test_a_placement_survives_a_killed_server(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    with serving(store) as first:
        port = first.port
        client = Client(f"{first.api}/v1", api_key=key, retry_timeout=60.0, max_retries=50)
        ready = client.v2.place_order(pet_id=1, quantity=1)
        with ThreadPoolExecutor(4) as pool:
            placing = [pool.submit(client.v2.place_order, pet_id=2, quantity=1) for _ in range(100)]
            first.kill()
            with serving(store, "--port", str(port)):
                placed = [ready.id, *(each.result(60).id for each in placing)]
                assert sorted(placed) == [order.id for order in client.list_orders()]
    client.close()


@contextmanager
def peer(
    response: bytes, then: bytes = b"", *, hold: bool = False, path: Path | None = None
) -> Iterator[tuple[str, list[OSError]]]:
    """A peer that answers the first request with these bytes, and with `then` again and again for twenty seconds.

    Afterwards it closes the connection, or holds it. Yields its base URL, and the error with which the client has ended
    that, if it has. With `path` it listens there.
    """
    ended: list[OSError] = []
    with socket.create_server(("127.0.0.1", 0)) if path is None else socket.socket(socket.AF_UNIX) as listener:
        if path is not None:
            listener.bind(str(path))
            listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(response)
                    for _ in range(400 if then else 0):
                        connection.sendall(then)
                        time.sleep(0.05)
                    while hold and connection.recv(65536):
                        pass
                except OSError as error:
                    ended.append(error)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1] if path is None else 80}/v1", ended
        thread.join()


def head(body: bytes, length: int | None, *more: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


BODY = json.dumps([{"id": number} for number in range(2000)], separators=(",", ":")).encode()


@pytest.mark.parametrize("length", [None, len(BODY)], ids=["to the end", "declared"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_body_is_never_accepted_as_complete(length: int | None, compressed: bool) -> None:
    body = gzip.compress(BODY) if compressed else BODY
    more = ["Content-Encoding: gzip"] if compressed else []
    declared = None if length is None else len(body)
    with peer(head(body[: len(body) // 2], declared, *more)) as (url, _):
        got: list[Order] = []
        with Client(url, api_key="key", max_retries=0) as client, pytest.raises(InvalidResponseError) as caught:
            got.extend(client.iter_orders())
    assert caught.value.truncated
    assert [Order(id=number) for number in range(len(got))] == got


@pytest.mark.parametrize("response", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 banana\r\n\r\n"])
def test_a_peer_that_does_not_speak_http_is_a_connection_error(response: bytes) -> None:
    with (
        peer(response) as (url, _),
        Client(url, api_key="key", max_retries=0) as client,
        pytest.raises(APIConnectionError) as caught,
    ):
        client.cancel_order(1)
    assert caught.value.sent
    assert caught.value.may_have_been_applied


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
DRIPS = {
    "interim responses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "line of a chunk": (CHUNKED + b"2;", b"a"),
}


def test_the_deadline_of_a_call_does_not_bound_what_the_program_sends_over_the_same_connection() -> None:
    fake, clock = FakePetstore([Order(id=1)]), FakeClock()
    with served(fake) as url, httpx2.Client() as http:
        with Client(url, api_key=fake.api_key, deadline=30, http_client=http, clock=clock) as client:
            list(client.iter_orders())
            client.list_orders()
            with suppress(NotFoundError):
                client.cancel_order(2)
        clock.advance(31)
        assert 401 == http.get(f"{url}/store/orders").status_code


def test_a_connection_is_read_with_arguments_by_name_too_as_one_to_a_socks_proxy_is() -> None:
    fake, responses = FakePetstore(), list[httpx2.Response]()
    with served(fake) as url, httpx2.Client(event_hooks={"response": [responses.append]}) as http:
        with Client(url, api_key=fake.api_key, http_client=http) as client:
            client.list_orders()
        with pytest.raises(httpcore2.ReadTimeout):
            responses[0].extensions["network_stream"].read(max_bytes=1, timeout=0.01)


Kind = type[Client | AsyncClient]
each_kind = pytest.mark.parametrize("kind", [Client, AsyncClient])


def use(kind: Kind, url: str, call: Callable[[Any], Any], **options: Any) -> None:
    """Make a call with a client of this kind."""

    async def use_asynchronously() -> None:
        async with AsyncClient(url, api_key="key", **options) as client:
            await call(client)

    if kind is AsyncClient:
        asyncio.run(use_asynchronously())
    else:
        with Client(url, api_key="key", **options) as client:
            call(client)


@pytest.mark.parametrize("drips", DRIPS.values(), ids=DRIPS)
@each_kind
def test_a_deadline_bounds_a_response_of_which_a_little_comes_again_and_again(
    kind: Kind, drips: tuple[bytes, bytes]
) -> None:
    with peer(*drips) as (url, ended), pytest.raises(APITimeoutError) as caught:
        use(kind, url, lambda client: client.list_orders(), deadline=0.5)
    assert ("deadline", 1) == (caught.value.ended_by, len(ended))


def test_a_deadline_bounds_connecting_and_the_handshake_of_tls_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, connect = FakeClock(), socket.create_connection

    def connect_late(*address: Any, **options: Any) -> socket.socket:
        clock.advance(19.9)
        return connect(*address, **options)

    monkeypatch.setattr(socket, "create_connection", connect_late)
    with (
        peer(b"", hold=True) as (url, _),  # which sends nothing in the handshake
        Client(url.replace("http:", "https:"), api_key="key", deadline=20, clock=clock) as client,
    ):
        began = time.monotonic()
        with pytest.raises(APITimeoutError) as caught:
            client.list_orders()
        assert ("deadline", True) == (caught.value.ended_by, time.monotonic() - began < 10)


SMALL_BUFFERS = [(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)]
PUTS: list[v2.BatchOperation] = [v2.Put(number, reference="x" * 400) for number in range(500)]  # about 240 KiB


@contextmanager
def slow_reader(take: Callable[[socket.socket], object]) -> Iterator[str]:
    """A peer that takes a request with `take` until that returns nothing. Yields its base URL."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                while take(connection):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join()


def test_a_deadline_bounds_a_request_of_which_the_peer_takes_a_little_again_and_again() -> None:
    clock, taken = FakeClock(), list[int]()

    def take(connection: socket.socket) -> int:
        clock.advance(1)
        taken.append(len(connection.recv(4096)))
        return taken[-1]

    transport = httpx2.HTTPTransport(socket_options=SMALL_BUFFERS)
    with (
        slow_reader(take) as url,
        Client(url, api_key="key", deadline=20, clock=clock, transport=transport, max_retries=0) as client,
    ):
        with pytest.raises(APITimeoutError) as caught:
            client.v2.batch_orders(PUTS)
        client.close()
    assert caught.value.may_have_been_applied
    assert sum(taken) < 200_000


@each_kind
def test_a_deadline_bounds_connecting_and_a_request_that_the_peer_does_not_take_together(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = (httpx2.HTTPTransport if kind is Client else httpx2.AsyncHTTPTransport)(socket_options=SMALL_BUFFERS)
    options = {"deadline": 60, "jitter": lambda: 1.0, "transport": transport}
    clock, ended, connect, connect_asynchronously = (
        FakeClock(), threading.Event(), socket.create_connection, anyio.connect_tcp,
    )  # fmt: skip

    def connect_late(*address: Any, **options: Any) -> socket.socket:
        clock.advance(59.9)
        return connect(*address, **options)

    async def connect_late_asynchronously(*address: Any, **options: Any) -> Any:
        clock.advance(59.9)
        return await connect_asynchronously(*address, **options)

    monkeypatch.setattr(socket, "create_connection", connect_late)
    monkeypatch.setattr(anyio, "connect_tcp", connect_late_asynchronously)
    with slow_reader(lambda _: ended.wait(PATIENCE) and None) as url:
        began = time.monotonic()
        with pytest.raises(APITimeoutError) as caught:
            use(kind, url, lambda client: client.v2.batch_orders(PUTS), clock=clock, **options)
        assert ("deadline", True) == (caught.value.ended_by, time.monotonic() - began < 20)
        ended.set()


def test_a_deadline_bounds_reads_from_a_unix_socket_too(tmp_path: Path) -> None:
    path, [drips, *_] = tmp_path / "socket", DRIPS.values()
    with peer(*drips, path=path) as (url, ended):
        transport = httpx2.HTTPTransport(uds=str(path))
        client = Client(url, api_key="key", deadline=0.5, transport=transport)
        with client, pytest.raises(APITimeoutError) as caught:
            client.list_orders()
    assert ("deadline", 1) == (caught.value.ended_by, len(ended))
