"""Races of the shop's operations over two processes: one order of events explains all that was seen (D5, D22)."""

import asyncio
import json
import random
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import pytest

from petstore_server.runtime.opening import opened_store
from testing import wire
from testing.checked_clients import contract
from testing.deployment import Deployment
from testing.partners import ORDERS
from testing.process import EVERY_SCOPE, UNLIMITED, environment, new_key, petstore, serving
from testing.redis_engine import shared_redis
from testing.stores import all_orders
from testing.subprocesses import PATIENCE

RACES = 500
AT_ONCE = 10
DATE = "2026-11-01T10:00:00Z"
NEW = {"petId": 9, "quantity": 9, "status": "pending"}
TIMES = ("id", "createdAt", "updatedAt")
UNAVAILABLE = "service_unavailable"
Fields = dict[str, Any] | None
"""An order without its identifier and times; None if there is none."""


class Asked(NamedTuple):
    """A request about an order: the method, what follows the path of the order, the body, and further headers."""

    action: str
    body: dict[str, Any] | None = None
    if_match: str = ""


class Seen(NamedTuple):
    """A request and its response. `order` is in the body of a success."""

    asked: Asked
    outcome: str
    order: Fields = None

    def fits(self, outcome: str, after: Fields) -> bool:
        """Whether this may have been the outcome, and the order after it."""
        return self.outcome == UNAVAILABLE or (self.outcome == outcome and self.order in (None, after))


METHODS = {
    "ship": ("POST", "/ship"),
    "complete": ("POST", "/complete"),
    "update": ("PATCH", ""),
    "put": ("PUT", ""),
    "cancel": ("DELETE", ""),
}
CHANGES_OF_ORDERS = "SELECT subject, action FROM petstore.audit WHERE substr(subject, 1, 6) = 'order:' ORDER BY id"
CONDITIONAL = (Asked("ship", {"shipDate": DATE}), Asked("update", {"petId": 3}), Asked("put", NEW), Asked("cancel"))


def applied(order: Fields, asked: Asked, *, matches: bool) -> tuple[str, Fields]:
    """The outcome of a request, and the order after it. `matches`: it is as If-Match says."""
    if order is None and asked.action == "put":
        outcome, after = "created", {"status": "pending"} | (asked.body or {})
    elif order is None:
        outcome, after = "not found", None
    else:
        outcome, after = changed(order, asked)
    is_left = outcome.startswith("order_already") or (outcome == "done" and after == order)
    if asked.if_match and not matches and not is_left:
        return "precondition_failed", order
    return outcome, after


def changed(order: dict[str, Any], asked: Asked) -> tuple[str, dict[str, Any]]:
    """The outcome without a precondition, for an order that exists."""
    status, body = order["status"], asked.body or {}
    after = {"status": "pending"} | body if asked.action == "put" else order | body
    if asked.action in ("put", "update") and after == order:
        return "done", order
    if status == "cancelled" or (status == "shipped" and asked.action not in ("complete", "update")):
        return f"order_already_{status}", order
    match asked.action:
        case "ship":
            return "done", after | {"status": "shipped"}
        case "cancel":
            return "done", order | {"status": "cancelled"}
        case "complete" if status == "pending":
            return "order_not_shipped", order
        case "complete" if order.get("complete"):
            return "order_already_complete", order
        case "complete":
            return "done", order | {"complete": True}
    return "done", after


def explained(seen: Sequence[Seen], first: Fields, last: Fields, actions: Sequence[str]) -> bool:
    """Whether the requests have an order with these responses, in which the changes are those of the log.

    A request with If-Match saw the order as it was at first. One for which a busy machine had no time may have been
    carried out.
    """

    def follow(left: tuple[Seen, ...], order: Fields, version: int) -> bool:
        if not left:
            return order == last and version == len(actions)
        for place, each in enumerate(left):
            outcome, after = applied(order, each.asked, matches=first is not None and version == 0)
            is_change, rest = after != order, left[:place] + left[place + 1 :]
            if each.outcome == UNAVAILABLE and follow(rest, order, version):
                return True
            if not each.fits(outcome, after):
                continue
            if is_change and (version >= len(actions) or actions[version] != f"order.{each.asked.action}"):
                continue
            if follow(rest, after, version + is_change):
                return True
        return False

    return follow(tuple(seen), first, 0)


class Connections:
    """Connections to two servers, each for one request after the other."""

    def __init__(self, ports: Sequence[int], key: str) -> None:
        self._ports = ports
        self._key = key
        self._free: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {port: [] for port in ports}

    async def send(self, place: int, method: str, path: str, body: object = None, if_match: str = "") -> wire.Response:
        """Send a request to one of the servers, by its place; check the response, and return it."""
        port = self._ports[place % len(self._ports)]
        free = self._free[port]
        reader, writer = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"If-Match: {if_match}"] if if_match else []
        lines += [f"Content-Length: {len(content)}", "Content-Type: application/json"] if content else []
        writer.write(wire.head(method, path, *lines, key=self._key) + content)
        async with asyncio.timeout(PATIENCE):
            response = await wire.read_response(reader, method)
        contract().check(method, path, response.status, list(response.headers.items()), response.body)
        free.append((reader, writer))
        return response

    async def close(self) -> None:
        for _, writer in [each for free in self._free.values() for each in free]:
            writer.close()
            await writer.wait_closed()


def fields_of(response: wire.Response) -> Fields:
    if response.status == 404:
        return None
    return {name: value for name, value in response.json.items() if name not in TIMES}


def outcome_of(response: wire.Response) -> str:
    if response.status >= 400:
        return "not found" if response.status == 404 else response.code
    return "created" if response.status == 201 else "done"


async def read(connections: Connections, place: int, path: str) -> wire.Response:
    """The response with the order, once the server has time for it."""
    while (response := await connections.send(place, "GET", path)).status == 503:
        pass
    return response


async def race(connections: Connections, order_id: int, chance: random.Random) -> tuple[Fields, list[Seen], Fields]:
    """Send all requests about one order at the same time; return the order before, the responses, the order after."""
    path = f"{ORDERS}/{order_id}"
    before = await read(connections, 0, path)
    tag = before.headers.get("etag", '"none"')
    asked = [
        Asked("ship", {"shipDate": DATE}),
        Asked("cancel"),
        Asked("complete"),
        Asked("update", {"quantity": 5}),
        Asked("put", {"petId": 7, "quantity": 1}),
        chance.choice(CONDITIONAL)._replace(if_match=tag),
    ]
    chance.shuffle(asked)
    asked = asked[: chance.choice((3, 5, 6, 6))]

    async def send(place: int, each: Asked) -> Seen:
        method, end = METHODS[each.action]
        response = await connections.send(place, method, path + end, each.body, each.if_match)
        order = fields_of(response) if response.status in (200, 201) else None
        return Seen(each, outcome_of(response), order)

    seen = await asyncio.gather(*(send(place, each) for place, each in enumerate(asked)))
    return fields_of(before), seen, fields_of(await read(connections, 1, path))


@pytest.fixture(name="key")
def _key(each_deployment: Deployment) -> str:
    """A key with every scope; four of five orders exist."""
    lines = "".join(f'{{"id":{number},"petId":1}}\n' for number in range(1, RACES + 1) if number % 5)
    assert 0 == petstore(each_deployment, "orders", "import", "-", "--format", "jsonl", text=lines).returncode
    return new_key(each_deployment, plan=UNLIMITED, options=EVERY_SCOPE)[0]


async def test_500_races_over_two_processes_are_explained_by_one_order_of_events_each(
    each_deployment: Deployment, key: str
) -> None:
    chance, numbers = random.Random(17), count(1)
    races: dict[int, tuple[Fields, list[Seen], Fields]] = {}
    more = {"PETSTORE_REDIS_URL": shared_redis().empty(), **each_deployment.engines}
    with serving(each_deployment, **more) as one, serving(each_deployment, **more) as two:
        connections = Connections([one.port, two.port], key)

        async def work() -> None:
            while (order_id := next(numbers)) <= RACES:
                races[order_id] = await race(connections, order_id, chance)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await connections.close()
    actions: dict[int, list[str]] = {order_id: [] for order_id in races}
    async with opened_store(environment(each_deployment)["PETSTORE_DATABASE_URL"]) as store:
        for subject, action in await store.engine.query(CHANGES_OF_ORDERS, short=False):
            actions[int(subject.removeprefix("order:"))].append(action)
        finals = {order.id: str(order.status) for order in await all_orders(store)}
    assert RACES == len(races)
    outcomes = {each.outcome for _, seen, _ in races.values() for each in seen}
    assert {"done", "created", "not found", "precondition_failed", "order_not_shipped"} <= outcomes
    assert {"order_already_shipped", "order_already_cancelled"} <= outcomes
    for order_id, (first, seen, last) in races.items():
        assert finals.get(order_id) == (last or {}).get("status")
        assert explained(seen, first, last, actions[order_id]), (order_id, first, seen, last, actions[order_id])
