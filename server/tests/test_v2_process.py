"""Placing orders in real processes: a server that is killed, and two servers that share a store (D20)."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from testing.deployment import Deployment
from testing.process import EVERY_SCOPE, UNLIMITED, Server, new_key, serving

ORDERS = "/v2/store/orders"
THREADS = 8
PLACED = 40


def writer_key(store: Deployment) -> str:
    return new_key(store, plan=UNLIMITED, options=EVERY_SCOPE)[0]


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


def all_orders(client: httpx2.Client) -> list[dict[str, Any]]:
    page = client.get(f"{ORDERS}?limit=1000").json()
    orders: list[dict[str, Any]] = page["data"]
    assert "nextCursor" not in page
    return orders


def test_an_order_is_placed_once_however_often_the_server_is_killed(each_deployment: Deployment) -> None:
    store = each_deployment
    key = writer_key(store)
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
        orders = all_orders(client)
    assert Counter(range(PLACED)) == Counter(order["petId"] for order in orders)
    assert PLACED == len({order["id"] for order in orders})


def test_two_servers_place_one_order_for_one_key(tmp_path: Path, scaled_out: dict[str, str]) -> None:
    store = Deployment(tmp_path / "store.db", scaled_out)
    key = writer_key(store)
    bodies: dict[int, set[bytes]] = {number: set() for number in range(30)}
    with (
        serving(store) as one,
        serving(store) as other,
        threads(one, key) as (pool, first),
        other.client(key) as second,
    ):
        requests = [(client, number) for number in bodies for client in (first, second, first, second)]
        for number, response in pool.map(lambda request: place(*request), requests):
            assert response is not None
            if response.status_code in (409, 503):  # 503 if PostgreSQL is slow, on a busy machine
                assert response.json()["code"] in ("idempotency_key_in_use", "service_unavailable")
            else:
                assert 201 == response.status_code
                bodies[number].add(response.content)
        assert [1] * 30 == [len(found) for found in bodies.values()]
        assert all_orders(first) == all_orders(second)
        assert 30 == len(all_orders(first))
