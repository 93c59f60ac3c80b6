"""Copies of orders that receivers of webhooks and programs keep, while receivers, servers and engines fail."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from petstore_client import v2
from petstore_server.store import webhooks as stored
from testing.webhook_messages import SETTINGS
from testing.wire import Response
from torture.client import ORDERS, Connection, NoReply
from torture.cluster import OWNERS, Cluster, Faults, cluster, keys_of_owners
from torture.mirrors import Mirror, listed
from torture.plan import Check, Plan, Result
from torture.power_commands import write_orders
from torture.programs import petstore
from torture.receivers import HANG_SECONDS, Order, Receiver
from torture.recording import Options

FILTERS: tuple[tuple[str, ...], ...] = ((), (), ("cancelled",), ("pending", "shipped"))
"""The statuses of each account's webhooks."""
CLIENTS = 2 * len(OWNERS)
IMPORTED, TOGETHER = 60, 12  # orders of an import, and operations of a batch at most
_WEBHOOKS = "/v2/webhooks"
_PAUSES = {
    "petstore_server.domain.webhooks.RETRY_SECONDS": (0.1, 0.3, 0.6, 1.0),
    "petstore_server.webhooks.sending.ATTEMPT_SECONDS": HANG_SECONDS / 2,
}
_LEASE = "4.0"  # seconds
"""Statements have the length of a lease in their text."""
_STATEMENTS = {
    f"{stored.__name__}.{name}": value.replace(str(stored.LEASE_SECONDS), _LEASE)
    for name, value in vars(stored).items()
    if isinstance(value, str) and str(stored.LEASE_SECONDS) in value
}
_SETTLING = 60.0  # seconds within which the copies must be equal after the last change
_REFUSALS = (404, 409, 503)  # after a restore, of an order that cannot change so any more, and in an outage
_TIMEOUT = 3.0  # of a request that changes orders
_ACTIONS = {"place": 7, "update": 6, "cancel": 3, "ship": 4, "complete": 2, "batch": 1, "import": 0.1}
"""What is done, with how often."""


def checks(plan: Plan) -> Iterator[Check]:
    for seed in plan.seeds:
        yield copies(seed, "sqlite", plan.changes)
        yield copies(seed, "postgres", plan.changes)


class Changes:
    """What changes orders and webhooks: clients of each account, imports, and operators. `done` counts changes."""

    def __init__(self, made: Cluster, keys: list[str], receivers: dict[str, Receiver], chance: random.Random) -> None:
        self.done = 0
        self.unknown = 0
        self.problems: list[str] = []
        self._made = made
        self._keys = keys
        self._receivers = receivers  # by the path of the webhook
        self._chance = chance
        self._known: dict[int, list[int]] = {account: [] for account in range(len(OWNERS))}
        self._numbers = 0

    async def run(self, wanted: int) -> None:
        """Change orders until so many changes are made."""
        clients = [self._client(number % len(OWNERS), wanted) for number in range(CLIENTS)]
        await asyncio.gather(self._operate(wanted), *clients)

    async def _client(self, account: int, wanted: int) -> None:
        while self.done < wanted:
            [action] = self._chance.choices([*_ACTIONS], [*_ACTIONS.values()])
            whose = account or self._chance.randrange(len(OWNERS))  # the first account changes others' orders too
            known = self._known[whose][-60:]
            if action == "import":
                await self._import()
            elif action == "place" or not known:
                await self._place(account)
            elif action == "batch":
                chosen = self._chance.choices(known, k=TOGETHER)
                await self._send(account, "POST", f"{ORDERS}/batch", {"operations": list(map(self._operation, chosen))})
            elif action == "cancel":
                await self._send(account, "DELETE", f"{ORDERS}/{self._chance.choice(known)}")
            elif action == "update":
                await self._send(account, "PATCH", f"{ORDERS}/{self._chance.choice(known)}", self._corrections())
            else:
                await self._send(account, "POST", f"{ORDERS}/{self._chance.choice(known)}/{action}")
            await asyncio.sleep(self._chance.uniform(0, 0.12))

    def _corrections(self) -> dict[str, Any]:
        return {"quantity": self._chance.randint(1, 1_000_000)}

    def _operation(self, order_id: int) -> dict[str, Any]:
        if self._chance.random() < 0.7:
            return {"operation": "update", "orderId": order_id, "changes": self._corrections()}
        return {"operation": self._chance.choice(["ship", "cancel", "complete"]), "orderId": order_id}

    async def _place(self, account: int) -> None:
        self._numbers += 1
        pet_id = self._numbers * len(OWNERS) + account
        reply = await self._send(account, "POST", ORDERS, {"petId": pet_id, "quantity": 1})
        if reply is not None and reply.status == 201:
            self._known[account].append(reply.json["id"])

    async def _import(self) -> None:
        first = 10_000_000 + self._numbers * IMPORTED
        self._numbers += 1
        file = self._made.clocks[0].parent / f"import-{first}.csv"
        write_orders(file, range(first, first + IMPORTED), OWNERS)
        done = await asyncio.to_thread(petstore, self._made.url, "orders", "import", str(file))
        self.done += IMPORTED if done.returncode == 0 else 0

    async def _send(self, account: int, method: str, target: str, body: object = None) -> Response | None:
        """Send a request to a server at random, and count what it changed; None without a response."""
        reply = await _request(self._made, self._keys[account], method, target, body, self._chance)
        if reply is None:
            self.unknown += 1
            await asyncio.sleep(0.05)
        elif target.endswith("/batch") and reply.status == 200:
            self.done += sum(result["status"] < 300 for result in reply.json["results"])
        elif reply.status < 300:
            self.done += 1
        elif reply.status not in _REFUSALS:
            self.problems.append(f"{method} {target}: {reply}")
        return reply

    async def _operate(self, wanted: int) -> None:
        """Replay, pause, resume and edit webhooks, and rotate their secrets."""
        while self.done < wanted:
            await asyncio.sleep(self._chance.uniform(0.5, 2))
            path, receiver = self._chance.choice([*self._receivers.items()])
            kind = self._chance.choices(["rotate", "pause", "replay", "edit"], [4, 4, 1, 2])[0]
            if kind == "rotate":
                reply = await self._until_done(path, "POST", f"{path}/rotate", {"grace": 3600})
                receiver.secrets.append(reply.json["secret"])
            elif kind == "replay":
                await self._until_done(path, "PATCH", path, {"after": "beginning"})
            elif kind == "edit":
                await self._until_done(path, "PATCH", path, {"url": _url(receiver, str(self._chance.random()))})
            else:
                await self._until_done(path, "PATCH", path, {"state": "paused"})
                await asyncio.sleep(self._chance.uniform(0, 2))
                await self._until_done(path, "PATCH", path, {"state": "active"})

    async def resume(self) -> None:
        """Resume all webhooks: a restore may have brought back one that was paused."""
        for path in self._receivers:
            await self._until_done(path, "PATCH", path, {"state": "active"})

    async def _until_done(self, path: str, method: str, target: str, body: object) -> Response:
        account = _account(self._receivers[path])
        while True:
            reply = await _request(self._made, self._keys[account], method, target, body, self._chance)
            if reply is not None and reply.status == 200:
                return reply
            await asyncio.sleep(0.1)


async def _request(
    made: Cluster, key: str, method: str, target: str, body: object, chance: random.Random
) -> Response | None:
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"Content-Type: {media}"] if content else []
    lines += [f"Idempotency-Key: {chance.random()}"] if target == ORDERS else []
    with suppress(NoReply), Connection(chance.choice(made.servers).port, key, _TIMEOUT) as connection:
        return await connection.request(method, target, content, *lines)
    return None


def _url(receiver: Receiver, query: str = "") -> str:
    return f"http://127.0.0.1:{receiver.port}/orders?{query}"


async def copies(seed: int, engine: str, wanted: int) -> Result:
    """Many changes, kills of servers, and half-way a failover (PostgreSQL) or a restore of a backup (SQLite)."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        servers, replica = (1, False) if engine == "sqlite" else (2, True)
        options = Options(constants={**_PAUSES, **_STATEMENTS})
        made = await cluster(stack, engine, servers, replica=replica, direct=True, options=options, **SETTINGS)
        keys = await keys_of_owners(made)
        receivers = await _receivers(stack, made, keys, chance)
        mirrors = [Mirror(server.port, made.key) for server in made.servers]
        stack.push_async_callback(lambda: asyncio.gather(*(asyncio.to_thread(each.close) for each in mirrors)))
        changes, began = Changes(made, keys, receivers, chance), time.monotonic()
        working = asyncio.create_task(changes.run(wanted))
        faults = Counter[str]()
        await _faults(made, changes, wanted, chance, faults)
        await working
        await changes.resume()
        took = time.monotonic() - began
        for receiver in receivers.values():
            receiver.faults = False
        visible, late, settling = await _until_equal(made, keys, receivers, mirrors)
        problems = [*changes.problems, *late, *await _problems(made, keys, receivers)]
    if engine == "sqlite" and any(receiver.counts["resets"] < 1 for receiver in receivers.values()):
        problems.append("a restore has reset no copy")
    if engine == "sqlite" and any(each.resets != 1 for each in mirrors):
        problems.append(f"a restore has reset copies of programs {[each.resets for each in mirrors]} times")
    counts = sum((receiver.counts for receiver in receivers.values()), Counter[str]())
    shown = (
        f"{changes.done} changes in {took:.0f} s and {changes.unknown} requests without a response, "
        f"{len(visible[0])} orders, {len(mirrors)} programs, {len(receivers)} receivers, "
        f"{counts['deliveries']} deliveries, {counts['repeated']} repeated, "
        f"{counts['repeated although acknowledged']} of them although acknowledged, "
        f"{counts['resets']} resets; equal after {settling:.1f} s; {_text(faults)}; receivers: "
        f"{_text({fault: counts[fault] for fault in ('slow', 'hang', 'half', '500', '429', 'outage')})}"
    )
    return Result(f"copies on {engine}", seed, shown, problems)


def _text(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


async def _receivers(
    stack: AsyncExitStack, made: Cluster, keys: list[str], chance: random.Random
) -> dict[str, Receiver]:
    """The receivers, each with a webhook from the beginning, by the paths of these."""
    found = {}
    for account, name in enumerate(OWNERS):
        for number, statuses in enumerate(FILTERS):
            receiver = Receiver(f"{name} {number}", chance, _sees(account), statuses)
            await receiver.start()
            stack.push_async_callback(receiver.close)
            body = {"url": _url(receiver), "after": "beginning", **({"statuses": statuses} if statuses else {})}
            reply = await _request(made, keys[account], "POST", _WEBHOOKS, body, chance)
            assert reply is not None, "no response"
            assert reply.status == 201, reply
            receiver.secrets.append(reply.json["secret"])
            found[f"{_WEBHOOKS}/{reply.json['id']}"] = receiver
    return found


def _sees(account: int) -> Any:
    return lambda order: account == 0 or order["petId"] % len(OWNERS) == account


async def _faults(made: Cluster, changes: Changes, wanted: int, chance: random.Random, counts: Counter[str]) -> None:
    """Kills and other faults until the changes are made; half-way, or after them, a failover or a restore."""
    faults = Faults(made, chance)
    kinds = [faults.kill, faults.kill, faults.kill, faults.restart, faults.freeze]
    if made.primary is not None:
        kinds += [faults.freeze_postgres, faults.crash_postgres, faults.freeze_redis]
    backup = Path(made.clocks[0].parent / "backup.db")
    half_way = False
    while changes.done < wanted or not half_way:
        await asyncio.sleep(chance.uniform(0.5, 3))
        if made.primary is None and not backup.exists() and changes.done > wanted / 4:
            await _command(made, "db", "backup", str(backup))
        elif changes.done > wanted / 2 and not half_way:
            half_way = True
            counts["failover" if made.primary else "restore"] += 1
            await (faults.promote() if made.primary else _command(made, "db", "restore", str(backup), "--yes"))
        else:
            fault = chance.choice(kinds)
            counts[fault.__name__] += 1
            await fault()


async def _command(made: Cluster, *arguments: str) -> None:
    done = await asyncio.to_thread(petstore, made.url, *arguments)
    assert done.returncode == 0, done.stderr


async def _until_equal(
    made: Cluster, keys: list[str], receivers: dict[str, Receiver], mirrors: list[Mirror]
) -> tuple[list[dict[int, Order]], list[str], float]:
    """Wait until all copies are equal to what the accounts list, and acknowledged.

    Return that, which of the copies are not equal, and how many seconds it took.
    """
    began = time.monotonic()
    while True:
        lists = [await asyncio.to_thread(listed, made.servers[0].port, key) for key in keys]
        visible = [{number: _as_sent(order) for number, order in found.items()} for found in lists]
        late = []
        for path, receiver in receivers.items():
            account = _account(receiver)
            if differing := receiver.differing(visible[account]):
                late.append(f"{receiver.name} differs in {len(differing)} orders, such as {min(differing)}")
            shown = await _shown(made, keys[account], path)
            if shown["state"] != "active" or shown["lag"]:
                late.append(f"{receiver.name} is {shown['state']} and lags {shown['lag']} s")
        late += [
            f"a program's copy is wrong about {differing[:5]}"
            for each in mirrors
            if (differing := each.differing(lists[0]))
        ]
        if not late or time.monotonic() > began + _SETTLING:
            return visible, late, time.monotonic() - began
        await asyncio.sleep(0.2)


async def _shown(made: Cluster, key: str, path: str) -> Any:
    with Connection(made.servers[0].port, key) as connection:
        return (await connection.request("GET", path)).json


def _account(receiver: Receiver) -> int:
    return OWNERS.index(receiver.name.split()[0])


def _as_sent(order: v2.Order) -> Order:
    """The order without the name of its owner, which messages leave out."""
    return replace(order, account=None).to_dict()


async def _problems(made: Cluster, keys: list[str], receivers: dict[str, Receiver]) -> list[str]:
    """What is wrong with what the receivers got."""
    found = [problem for receiver in receivers.values() for problem in receiver.problems[:3]]
    for receiver in receivers.values():
        if receiver.more or not receiver.next:
            found.append(f"{receiver.name} got nothing, or its last message says that there is more")
            continue
        following = await _shown(made, keys[_account(receiver)], f"/v2/store/changes?after={receiver.next}")
        if "next" not in following or (following["data"] and not receiver.statuses):
            found.append(f"listChanges does not go on from the last message of {receiver.name}: {following}")
    return found
