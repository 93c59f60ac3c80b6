"""Placing orders while the server is killed (D20)."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

import httpx2

from testing.deployment import Deployment
from testing.process import EVERY_SCOPE, UNLIMITED, Server, new_key, serving

ORDERS = "/v2/store/orders"
THREADS = 8
PLACED = 40


@contextmanager
def threads(server: Server, key: str) -> Iterator[tuple[ThreadPoolExecutor, httpx2.Client]]:
    with server.client(key) as client, ThreadPoolExecutor(THREADS) as pool:
        yield pool, client


def place(client: httpx2.Client, number: int) -> tuple[int, httpx2.Response | None]:
    """The response to the order with this number; None if the connection was lost."""
    body = {"petId": number, "quantity": 1}
    try:
        return number, client.post(ORDERS, json=body, headers={"Idempotency-Key": f"order-{number}"})
    except httpx2.TransportError:
        return number, None


def test_an_order_is_placed_once_however_often_the_server_is_killed(each_deployment: Deployment) -> None:
    store = each_deployment
    key, _ = new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)
    acknowledged: dict[int, bytes] = {}
    for _ in range(2):
        with serving(store) as server, threads(server, key) as (pool, client):
            responses = [pool.submit(place, client, number) for number in range(PLACED)]
            for done, (number, response) in enumerate(future.result() for future in as_completed(responses)):
                if response is not None and response.status_code == 201:
                    assert acknowledged.setdefault(number, response.content) == response.content
                if done == PLACED // 4:
                    server.kill()
    assert acknowledged
    with serving(store) as server, threads(server, key) as (pool, client):
        for number, response in pool.map(lambda number: place(client, number), range(PLACED)):
            assert response is not None
            assert 201 == response.status_code
            assert acknowledged.setdefault(number, response.content) == response.content
        page = client.get(f"{ORDERS}?limit=1000").json()
    assert "nextCursor" not in page
    assert Counter(range(PLACED)) == Counter(order["petId"] for order in page["data"])
    assert PLACED == len({order["id"] for order in page["data"]})
