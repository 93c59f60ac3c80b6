"""Races for one order have one winner, and every reply is true to the end state (D5)."""

import json
import random
from asyncio import to_thread
from pathlib import Path

import pytest

from testing.preloaded import PipedProcess
from testing.process import UNLIMITED, environment, new_key, put_orders, serving, statuses
from testing.wire import send_all

ORDERS = "/v1/store/orders"
TRIES = 3_000
"""Enough for commands of a second process to last until requests come in between, on a busy machine too."""


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Path:
    """A store with pending orders."""
    store = tmp_path / "store.db"
    put_orders(store, TRIES)
    return store


@pytest.fixture(name="key")
def _key(store: Path) -> str:
    return new_key(store, plan=UNLIMITED)[0]


def ship(store: Path, identifiers: list[str]) -> PipedProcess:
    """Start the command that ships orders, as a separate process."""
    return PipedProcess(["orders", "ship", *identifiers, "--json"], environment(store))


async def test_of_a_cancel_over_http_and_a_ship_by_a_second_process_exactly_one_wins(store: Path, key: str) -> None:
    identifiers = [str(order_id) for order_id in range(1, TRIES + 1)]
    cancels = [("DELETE", f"{ORDERS}/{order_id}") for order_id in identifiers]
    random.Random(11).shuffle(cancels)  # so that the two meet all along the way
    with serving(store) as server:
        shipping = ship(store, identifiers)
        with server.client(key) as client:
            while "shipDate" not in client.get(ORDERS).text:
                assert shipping.poll() is None
        replies = await send_all(server.port, key, cancels, connections=32, check=False)
        printed, _ = shipping.communicate(timeout=100)
    cancelled = {int(reply.target.rpartition("/")[2]) for reply in replies if reply.status == 204}
    refused = {int(reply.target.rpartition("/")[2]) for reply in replies if reply.code == "order_already_shipped"}
    found = await to_thread(statuses, store)
    assert {204, 409} == {reply.status for reply in replies}
    assert {order_id for order_id, status in found.items() if status == "cancelled"} == cancelled
    assert {order_id for order_id, status in found.items() if status == "shipped"} == refused
    assert TRIES == len(cancelled) + len(refused)
    assert cancelled
    assert refused
    assert refused == {json.loads(line)["id"] for line in printed.splitlines()}
