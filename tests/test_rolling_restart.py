"""A rolling restart: two hosts behind the shipped nginx file are restarted in turn, and no request fails."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from testing.nginx_front import Front, front, rendered_for
from testing.process import UNLIMITED, Server, petstore, petstore_json, serving
from testing.redis_engine import own_redis
from testing.subprocesses import PATIENCE, free_port, within

pytestmark = pytest.mark.system

CLIENTS = 6
SCOPES = [word for scope in ("orders:read", "orders:cancel", "orders:write") for word in ("--scope", scope)]


class Load:
    """Clients that cancel, place and list in turn, each over a new connection to nginx now and then."""

    def __init__(self, before: Front, key: str) -> None:
        self.outcomes: Counter[tuple[str, int]] = Counter()
        self._front, self._key = before, key
        self._orders = count(1)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(CLIENTS)

    def __enter__(self) -> "Load":
        self._running = [self._threads.submit(self._send) for _ in range(CLIENTS)]
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._threads.shutdown()
        for running in self._running:
            running.result()

    def total(self) -> int:
        return sum(self.outcomes.values())

    def _send(self) -> None:
        with self._front.client(self._key) as client:
            while not self._stopping.is_set():
                with self._lock:
                    number = next(self._orders)
                responses = [
                    client.delete(f"/v1/store/orders/{number}"),
                    client.post(
                        "/v2/store/orders",
                        json={"petId": 1, "quantity": 1},
                        headers={"Idempotency-Key": f"order-{number}"},
                    ),
                    client.get("/v2/store/orders?limit=2"),
                ]
                with self._lock:
                    self.outcomes.update((each.request.method, each.status_code) for each in responses)


@pytest.fixture(name="redis")
def _redis() -> Iterator[str]:
    with own_redis() as redis:
        yield redis.url


def test_no_request_fails_while_two_hosts_are_restarted_one_after_the_other(tmp_path: Path, redis: str) -> None:
    store = tmp_path / "store.db"
    lines = "".join(f'{{"id":{number}}}\n' for number in range(1, 50_001))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    petstore_json(store, "accounts", "create", "acme", *UNLIMITED)
    key = petstore_json(store, "keys", "create", "acme", *SCOPES)["key"]
    ports = [free_port(), free_port()]

    with ExitStack() as stack:

        def start(port: int) -> Server:
            more = {"PETSTORE_REDIS_URL": redis, "PETSTORE_TRUSTED_PROXIES": "127.0.0.1"}
            return stack.enter_context(serving(store, "--port", str(port), **more))

        servers = [start(port) for port in ports]
        before = stack.enter_context(front(tmp_path / "nginx", ports[0], rendered_for(*ports)))
        with Load(before, key) as load:
            for place in (0, 1, 0, 1):
                _wait_for(load, 60)
                assert 0 == servers[place].stop()
                _wait_for(load, 60)  # the other host has it all, and each connection to this one is refused
                servers[place] = start(ports[place])
            _wait_for(load, 60)
    assert {("DELETE", 204), ("POST", 201), ("GET", 200)} == set(load.outcomes), load.outcomes
    assert load.total() > 600


def _wait_for(load: Load, requests: int) -> None:
    begun = load.total()
    within(PATIENCE, lambda: load.total() > begun + requests)
