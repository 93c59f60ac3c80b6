"""Clients that cancel, place and list through nginx while hosts behind it are upgraded."""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Self

import httpx2

from testing.nginx_front import Front
from testing.subprocesses import PATIENCE, within

SCOPES = [word for scope in ("orders:read", "orders:cancel", "orders:write") for word in ("--scope", scope)]
ORDERS = 1_000_000
NOTHING_FAILED = {("DELETE", 204), ("POST", 201), ("GET", 200)}


class Clients(ABC):
    """Clients that send requests, each on a thread, until the block ends; then what one of them raised is raised."""

    def __init__(self, clients: int) -> None:
        self._stopping = threading.Event()
        self._threads, self._clients = ThreadPoolExecutor(clients), clients

    def __enter__(self) -> Self:
        self._running = [self._threads.submit(self._send) for _ in range(self._clients)]
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._threads.shutdown()
        for running in self._running:
            running.result()

    @abstractmethod
    def total(self) -> int:
        """How many requests have been answered."""

    @abstractmethod
    def _send(self) -> None:
        """Send requests until `_stopping` is set."""

    def wait_for(self, requests: int) -> None:
        """Return when so many more requests have been answered."""
        begun = self.total()
        within(PATIENCE, lambda: self.total() > begun + requests)


class Load(Clients):
    """Clients that cancel, place and list in turn, each over a new connection to nginx now and then."""

    def __init__(self, before: Front, key: str) -> None:
        super().__init__(3)
        self.outcomes: Counter[tuple[str, int]] = Counter()
        self._front, self._key = before, key
        self._orders = count(1)
        self._lock = threading.Lock()

    def total(self) -> int:
        return sum(self.outcomes.values())

    def _send(self) -> None:
        with self._front.client(self._key) as client:
            client.event_hooks = {"response": [_take_older_link, *client.event_hooks["response"]]}
            while not self._stopping.wait(0.05):
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


def _take_older_link(response: httpx2.Response) -> None:
    """Take the reference that 1.0.0 writes in Link for the present one: both lead to the same address."""
    link = response.headers.get("Link", "")
    if link.startswith("<?"):
        response.headers["Link"] = f"<orders{link[1:]}"
