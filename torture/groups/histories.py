"""Histories of many clients on several servers under faults, and limits that servers count together."""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2

from petstore_server.domain.accounts import Limits
from petstore_server.domain.orders import Status
from testing.stores import opened_at
from testing.wire import Response
from torture.client import LIST, ORDERS, Connection, NoReply
from torture.cluster import OWNERS, Cluster, Faults, cluster, keys_of_owners
from torture.history import (
    ABSENT,
    CANCEL,
    CANCELLED,
    EFFECTS,
    PENDING,
    PLACE,
    READ,
    SHIP,
    SHIPPED,
    UNKNOWN,
    History,
    Operation,
)
from torture.plan import Check, Plan, Result
from torture.power_commands import write_orders
from torture.programs import petstore
from torture.state import new_key, read_state

CLIENTS, FOLLOWERS = 10, 4
CHANGES = "/v2/store/changes"
_FIRST = datetime.min.replace(tzinfo=UTC), 0
TIMEOUT = 3.0
LIMIT = 300
COMPLETE, UPDATE = "complete", "update"
_ACTIONS = {READ: 8, CANCEL: 4, SHIP: 4, UPDATE: 4, COMPLETE: 2}
"""What is asked about an order, with how often."""
_CODES = {
    "order_already_cancelled": CANCELLED,
    "order_already_shipped": SHIPPED,
    "order_already_complete": SHIPPED,
    "order_not_shipped": PENDING,
    "order_not_found": ABSENT,
}
"""The states that refusals show."""
_ENDED = (201, 204, 200, 404, 409)
_OWN = re.compile(r"^petstore_limit_decisions_local_total(?:\{.*\})? (\S+)$", re.MULTILINE)
_READ = (200, 304)
# A client asks again for an order under another key now and then, and for the same key from two connections.


def checks(plan: Plan) -> Iterator[Check]:
    """Each seed chooses the engine, the number of servers, and whether a replica is promoted."""
    for seed in plan.seeds:
        engine = "sqlite" if seed % 3 == 0 else "postgres"
        yield history(seed, engine, 2 + seed % 2, plan.seconds, replica=engine == "postgres" and seed % 2 == 0)
        yield limits(seed, min(plan.seconds, 50.0))


class Clients:
    """The clients of a run, and what they know of orders together. `keys` has one of each of OWNERS."""

    def __init__(self, made: Cluster, chance: random.Random, keys: list[str]) -> None:
        self.history = History()
        self.stopped = False
        self.settled = False
        self._made = made
        self._chance = chance
        self._keys_of = keys
        self._known: list[int] = []
        self._owners: dict[int, int] = {}  # of the known orders, as places in OWNERS
        self._keys = 0
        self._references = Counter[int]()
        self._tokens: dict[int, str] = {}

    async def client(self, account: int) -> None:
        """Requests at random, each to a server at random."""
        key = self._keys_of[account]
        connections = [Connection(server.port, key, TIMEOUT) for server in self._made.servers]
        while not self.stopped:
            connection = self._chance.choice(connections)
            if not self._known or self._chance.random() < 0.3:
                await self._place(account)
            else:
                order_id = self._chance.choice(self._known[-8:])
                [action] = self._chance.choices([*_ACTIONS], [*_ACTIONS.values()])
                if account in (0, self._owners[order_id]):
                    await self._about(connection, order_id, action)
                else:
                    await self._about_others(connection, order_id, action)
            await asyncio.sleep(self._chance.uniform(0, 0.02))
        for connection in connections:
            connection.close()

    async def _place(self, account: int) -> None:
        """Place an order, and repeat that until a response comes; now and then at two servers at once."""
        self._keys += 1
        key, pet_id = f"key-{self._keys}", 1_000_000 * len(OWNERS) + self._keys * len(OWNERS) + account
        reference = None
        if self._chance.random() < 0.5:  # the same texts for all accounts
            self._references[account] += 1
            reference = f"R {self._references[account]}"
        self.history.attempts[key] = pet_id, time.monotonic()
        twice = self._chance.random() < 0.1
        await asyncio.gather(*(self._until_placed(account, key, pet_id, reference) for _ in range(1 + twice)))
        if reference is not None and self.history.placed[key]:
            await self._place_again(account, f"{key} again", pet_id, reference, self.history.placed[key])

    async def _until_placed(self, account: int, key: str, pet_id: int, reference: str | None) -> None:
        for _ in range(40):
            self.history.requests += 1
            with suppress(NoReply), self._connection(account) as connection:
                reply = await connection.place(key, pet_id, reference)
                if reply.status == 201:
                    order_id = reply.json["id"]
                    self.history.placed[key].add(order_id)
                    operation = Operation(self.history.attempts[key][1], time.monotonic(), PLACE, PENDING)
                    self.history.add(order_id, operation)
                    self._owners[order_id] = account
                    self._known.append(order_id)
            if self.history.placed[key] or self.stopped:
                return
            self.history.unknown += 1
            await asyncio.sleep(self._chance.uniform(0.02, 0.2))

    async def _place_again(self, account: int, key: str, pet_id: int, reference: str, placed: Iterable[int]) -> None:
        """Place an order with a reference that one has: it must be refused, and lead to that one."""
        self.history.requests += 1
        with suppress(NoReply), self._connection(account) as connection:
            reply = await connection.place(key, pet_id, reference)
            leads = reply.headers.get("location") in [f"orders/{order_id}" for order_id in placed]
            if reply.status == 201 or (reply.code == "reference_in_use" and not leads):
                self.history.seen_of_others.append(f"{reference} of {OWNERS[account]} got {reply}")

    async def _about(self, connection: Connection, order_id: int, action: str) -> None:
        """Change or read an order, once."""
        began = time.monotonic()
        reply = await self._ask(connection, order_id, action)
        result, ended = _result(reply), time.monotonic()
        self.history.unknown += result == UNKNOWN
        if result == UNKNOWN and action in EFFECTS:
            self.history.add(order_id, Operation(began, inf, action, UNKNOWN))
        elif reply is not None and result != UNKNOWN:
            did = action if action in EFFECTS and reply.status < 300 else READ
            self.history.add(order_id, Operation(began, ended, did, result))

    async def _about_others(self, connection: Connection, order_id: int, action: str) -> None:
        """Change or read an order of another account: it must not be there."""
        result = _result(await self._ask(connection, order_id, action))
        self.history.unknown += result == UNKNOWN
        if result not in (ABSENT, UNKNOWN):
            self.history.seen_of_others.append(f"{action} of order {order_id} by another account: {result}")

    async def _ask(self, connection: Connection, order_id: int, action: str) -> Response | None:
        self.history.requests += 1
        body = {"quantity": self._chance.randint(1, 5)} if action == UPDATE else None
        with suppress(NoReply):
            if action == READ:
                return await connection.read(order_id)
            if self._chance.random() < 0.3:
                changes = {} if body is None else {"changes": body}
                return await connection.batch({"operation": action, "orderId": order_id, **changes})
            if action == CANCEL:
                return await connection.cancel(order_id)
            return await connection.change(action, order_id, body)
        return None

    def _connection(self, account: int = 0) -> Connection:
        """A new connection to any server."""
        return Connection(self._chance.choice(self._made.servers).port, self._keys_of[account], TIMEOUT)

    def _check_own(self, account: int, orders: Iterable[dict[str, Any]]) -> None:
        """Check that an account that sees only its own orders got no other."""
        others = [order for order in orders if account and order["petId"] % len(OWNERS) != account]
        if others:
            self.history.seen_of_others.append(f"{OWNERS[account]} got {others[:3]}")

    async def reader_of_own_list(self, account: int) -> None:
        """Read the own list of version 1 until the others have stopped: each has its ETag, and what was placed."""
        lists: dict[str, bytes] = {}
        while not self.settled:
            own = {order_id for order_id, owner in self._owners.items() if owner == account}
            tag = next(reversed(lists), "")
            with suppress(NoReply), self._connection(account) as connection:
                reply = await connection.request("GET", LIST, b"", f"If-None-Match: {tag}")
                etag, body = reply.headers.get("etag", ""), lists.get(tag) if reply.status == 304 else reply.body
                if reply.status in _READ:
                    self._check_list(account, own, lists, etag, body)
            await asyncio.sleep(self._chance.uniform(0.1, 0.4))

    def _check_list(self, account: int, own: set[int], lists: dict[str, bytes], etag: str, body: bytes | None) -> None:
        """Check one list, given the orders that were placed before it was asked for."""
        found, name = self.history.seen_of_others, OWNERS[account]
        if body is None or lists.setdefault(etag, body) != body or len(set(lists.values())) != len(lists):
            found.append(f"{name} got the ETag {etag} for another list")
            return
        lists[etag] = lists.pop(etag)  # the latest
        while len(lists) > 20:
            del lists[next(iter(lists))]
        orders = json.loads(body)
        self._check_own(account, orders)
        ids = [order["id"] for order in orders]
        if ids != sorted(set(ids)) or not own <= set(ids):
            found.append(f"the list of {name} lacks {sorted(own - set(ids))[:5]}, or is not in order")

    async def follower(self) -> None:
        """Follow changes, as the documentation describes, until the others have stopped and all is seen."""
        states: dict[int, str] = {}
        self.history.followed.append(states)
        since = "2000-01-01T00:00:00Z"
        while True:
            last = self.settled
            target: str | None = f"{ORDERS}?sort=updatedAt&updatedFrom={since}&limit=50"
            with suppress(NoReply), self._connection() as connection:
                while target:
                    reply = await connection.request("GET", target)
                    if reply.status != 200:
                        break
                    for order in reply.json["data"]:
                        states[order["id"]], since = order["status"], order["updatedAt"]
                    target = _next(reply)
            if last and target is None:
                return
            await asyncio.sleep(0.05)

    async def follower_with_tokens(self, account: int = 0) -> None:
        """Follow changes with tokens, by requests that are held, until the others have stopped and all is seen."""
        states: dict[int, str] = {}
        if account:
            self.history.followed_own.append((OWNERS[account], states))
        else:
            self.history.followed.append(states)
        token, latest = "", _FIRST
        while True:
            last, is_end = self.settled, False
            with suppress(NoReply), self._connection(account) as connection:
                await self._try_others_token(connection, account)
                reply = await connection.request("GET", f"{CHANGES}?limit=50&wait=1{token}")
                if reply.status == 410:
                    token, latest = "", _FIRST
                    states.clear()
                if reply.status == 200:
                    self._check_own(account, reply.json["data"])
                    for order in reply.json["data"]:
                        place = datetime.fromisoformat(order["updatedAt"]), order["id"]
                        if place <= latest:
                            self.history.misplaced.append(f"{order} came after {latest}")
                        states[order["id"]], latest = order["status"], place
                    token, is_end = f"&after={reply.json['next']}", not reply.json["data"]
                    self._tokens[account] = token
            if last and is_end:
                return

    async def _try_others_token(self, connection: Connection, account: int) -> None:
        """Now and then, ask with a token of another account, which must be refused. Raises NoReply."""
        others = [token for owner, token in self._tokens.items() if owner != account]
        if others and self._chance.random() < 0.1:
            reply = await connection.request("GET", f"{CHANGES}?limit=50{self._chance.choice(others)}")
            if reply.status == 200:
                self.history.seen_of_others.append(f"{OWNERS[account]} used another account's token: {reply}")


def _result(reply: Response | None) -> str:
    if reply is None or reply.status not in _ENDED:
        return UNKNOWN
    if reply.status == 200:
        return str(reply.json["status"])
    return CANCELLED if reply.status == 204 else _CODES[reply.json["code"]]


def _next(reply: Response) -> str | None:
    found = re.search('<(.*)>; rel="next"', reply.headers.get("link", ""))
    return urljoin(ORDERS, found[1]) if found else None


async def importing(made: Cluster, folder: Path, stopped: asyncio.Event) -> None:
    """Import new orders again and again, from the command line."""
    for first in range(10_000_000, 20_000_000, 500):
        if stopped.is_set():
            return
        write_orders(folder / "import.csv", range(first, first + 500), ("", *OWNERS[1:]))
        await asyncio.to_thread(petstore, made.url, "orders", "import", str(folder / "import.csv"))


async def history(seed: int, engine: str, servers: int, seconds: float, *, replica: bool = False) -> Result:
    """Clients, followers, imports and faults for a while; then one order of events must explain what was seen."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        made = await cluster(stack, engine, servers, replica=replica)
        clients, stopped = Clients(made, chance, await keys_of_owners(made)), asyncio.Event()
        followers = [clients.follower, clients.follower_with_tokens] * (FOLLOWERS // 2)
        others = [asyncio.create_task(follower()) for follower in followers]
        for account in range(1, len(OWNERS)):
            others.append(asyncio.create_task(clients.follower_with_tokens(account)))
            others.append(asyncio.create_task(clients.reader_of_own_list(account)))
        imports = asyncio.create_task(importing(made, made.clocks[0].parent, stopped))
        working = [asyncio.create_task(clients.client(number % len(OWNERS))) for number in range(CLIENTS)]
        faults = Faults(made, chance)
        await faults.run(seconds)
        clients.stopped = True
        stopped.set()
        await asyncio.gather(*working, imports)
        clients.settled = True
        async with asyncio.timeout(60):
            await asyncio.gather(*others)
        async with opened_at(made.url if made.primary is None else made.primary.url("postgres")) as store:
            state = await read_state(store)
    truth = {order.id: str(Status(order.status)) for order in state.orders.values()}
    pets = {order.id: order.pet_id or 0 for order in state.orders.values()}
    owners = {order.id: order.account for order in state.orders.values()}
    found = clients.history
    found.seen_of_others += [
        f"order {order_id} for pet {pet} belongs to {owners[order_id]}"
        for order_id, pet in pets.items()
        if owners[order_id] != OWNERS[pet % len(OWNERS)] and (pet % len(OWNERS) or owners[order_id] is not None)
    ]
    name = f"{servers} servers on {engine}{', a replica promoted' if replica else ''}"
    shown = (
        f"{found.requests} requests, {found.unknown} unanswered or 503, {len(truth)} orders, {len(made.faults)} faults"
    )
    return Result(name, seed, shown, found.problems(truth, pets, owners))


async def limits(seed: int, seconds: float) -> Result:
    """Two servers count one account under faults: what is beyond the plan was decided by one of them."""
    chance = random.Random(seed)
    admitted = 0
    async with AsyncExitStack() as stack:
        made = await cluster(stack, "sqlite", 2)
        key = await new_key(made.url, "limited", Limits(LIMIT, 100_000))
        await asyncio.sleep(1.1)
        ends = time.monotonic() + seconds

        async def greedy(port: int) -> None:
            nonlocal admitted
            with Connection(port, key, TIMEOUT) as connection:
                while time.monotonic() < ends:
                    with suppress(NoReply):
                        reply = await connection.request("GET", f"{ORDERS}/1")
                        admitted += reply.status == 404
                    await asyncio.sleep(chance.uniform(0, 0.3))

        faults = Faults(made, chance)
        greedily = [asyncio.create_task(greedy(server.port)) for server in made.servers for _ in range(4)]
        while time.monotonic() < ends:
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            await chance.choice([faults.freeze_redis, faults.step, faults.freeze])()
        await asyncio.gather(*greedily)
        own = sum(own_decisions(server.admin_port) for server in made.servers)
    beyond = max(0, admitted - LIMIT)
    problems = [f"{beyond} beyond the plan, {own} decisions of one server"] if beyond > own else []
    problems += [f"{beyond} beyond a plan of {LIMIT}, with two servers"] if beyond > 2 * LIMIT else []
    return Result(
        "limits with faults of Redis", seed, f"{admitted} of {LIMIT} admitted, {own} decisions of one server", problems
    )


def own_decisions(admin_port: int) -> int:
    """How many decisions on limits a server made by itself."""
    found = _OWN.search(httpx2.get(f"http://127.0.0.1:{admin_port}/metrics", timeout=30.0).text)
    return int(float(found[1])) if found else 0
