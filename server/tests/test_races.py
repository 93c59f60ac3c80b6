"""Races for one order have one winner, and every reply is true to the end state (D5)."""

import asyncio
import json
import random
import subprocess
from collections import Counter
from pathlib import Path

from support.load import send_all
from support.process import PETSTORE, UNLIMITED, environment, new_key, petstore, serving

ORDERS = "/v1/store/orders"
TRIES = 10_000
_ONE_WINNER = ("204", "order_already_cancelled")


def put_orders(store: Path) -> None:
    lines = "".join(f'{{"id":{order_id}}}\n' for order_id in range(1, TRIES + 1))
    assert 0 == petstore(store, "orders", "import", "-", "--format", "jsonl", text=lines).returncode


def statuses(store: Path) -> dict[int, str]:
    exported = petstore(store, "orders", "export", "-", "--format", "jsonl").stdout
    return {order["id"]: order["status"] for order in map(json.loads, exported.splitlines())}


def test_of_two_cancels_over_http_one_wins_in_ten_thousand_tries(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    put_orders(store)
    key, _ = new_key(store, plan=UNLIMITED)
    twice = [("DELETE", f"{ORDERS}/{order_id}") for order_id in range(1, TRIES + 1) for _ in range(2)]
    with serving(store) as server:
        replies = asyncio.run(send_all(server.port, key, twice, connections=32, check=False))
    codes = Counter((reply.target, reply.code) for reply in replies)
    expected = {(f"{ORDERS}/{order_id}", code) for order_id in range(1, TRIES + 1) for code in _ONE_WINNER}
    assert expected == codes.keys()
    assert {1} == set(codes.values())
    assert {"cancelled"} == set(statuses(store).values())


def test_of_a_cancel_over_http_and_a_ship_by_a_second_process_one_wins_in_ten_thousand_tries(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    put_orders(store)
    key, _ = new_key(store, plan=UNLIMITED)
    identifiers = [str(order_id) for order_id in range(1, TRIES + 1)]
    cancels = [("DELETE", f"{ORDERS}/{order_id}") for order_id in identifiers]
    random.Random(11).shuffle(cancels)  # so that the two meet all along the way
    with serving(store) as server:
        shipping = subprocess.Popen(
            [PETSTORE, "orders", "ship", *identifiers, "--json"],
            env=environment(store),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with server.client(key) as client:
            while "shipDate" not in client.get(ORDERS).text:
                assert shipping.poll() is None
        replies = asyncio.run(send_all(server.port, key, cancels, connections=32, check=False))
        printed, _ = shipping.communicate(timeout=100)
    cancelled = {int(reply.target.rpartition("/")[2]) for reply in replies if reply.status == 204}
    refused = {int(reply.target.rpartition("/")[2]) for reply in replies if reply.code == "order_already_shipped"}
    found = statuses(store)
    assert {204, 409} == {reply.status for reply in replies}
    assert {order_id for order_id, status in found.items() if status == "cancelled"} == cancelled
    assert {order_id for order_id, status in found.items() if status == "shipped"} == refused
    assert TRIES == len(cancelled) + len(refused)
    assert cancelled
    assert refused
    assert refused == {json.loads(line)["id"] for line in printed.splitlines()}
