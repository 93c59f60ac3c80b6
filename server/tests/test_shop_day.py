"""A day of a shop: it pushes, corrects and ships in batches while partners cancel, and sends everything twice (D22)."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from petstore_server.domain.accounts import VisibleOrders
from testing.partners import CHANGES, ORDERS, Partner, partner
from testing.service import Service
from testing.stores import log

pytestmark = pytest.mark.usefixtures("each_deployment")

PUSHED, SHIPPED, CORRECTED, CANCELLED = 5_000, 4_000, 300, 200
LATE = 10  # one of so many is sent again out of order
SHIP_DATE = "2026-11-01T10:00:00Z"
NOT_IN_TABLE = ("id", "createdAt", "updatedAt")
STOPPED = "order_already_cancelled"


class Shop:
    """The shop's systems, with their own table of orders, which has what the service has acknowledged."""

    def __init__(self, client: Partner, partners: Sequence[Partner]) -> None:
        self.client = client
        self.table = {number: self._new(number, partners) for number in range(1, PUSHED + 1)}
        self.done = Counter[str]()  # the changes that were made

    @staticmethod
    def _new(number: int, partners: Sequence[Partner]) -> dict[str, Any]:
        """An order of the shop, or of one of the partners."""
        owner = (*partners, None)[number % (len(partners) + 1)]
        named = {} if owner is None else {"account": owner.account}
        return {"petId": number % 7, "quantity": 1, "status": "pending", "reference": f"SO-{number}", **named}

    async def send(self, operations: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[Any]]]:
        """Send batches of operations, each twice, as after a lost response; return both results of each operation."""
        found: list[tuple[dict[str, Any], list[Any]]] = []
        for first in range(0, len(operations), 500):
            some = operations[first : first + 500]
            both = [await self.client.results(*some) for _ in range(2)]
            found += [(each, list(results)) for each, *results in zip(some, *both, strict=True)]
        return found

    async def push(self) -> None:
        operations = [{"operation": "put", "orderId": number, "order": order} for number, order in self.table.items()]
        for operation, (first, again) in await self.send(operations):
            assert (201, 200, first["order"]) == (first["status"], again["status"], again["order"])
            assert operation["orderId"] == first["order"]["id"]
            self.done["order.put"] += 1

    async def push_again(self, numbers: Sequence[int]) -> None:
        """Push a second version of some orders; the first one comes once more, late, and must not replace it."""
        tags = await self.tags(numbers)
        second = {number: {**self.table[number], "quantity": 2} for number in numbers}
        newer = [
            {"operation": "put", "orderId": number, "order": order, "ifMatch": tags[number]}
            for number, order in second.items()
        ]
        older = [{**each, "order": self.table[number]} for number, each in zip(numbers, newer, strict=True)]
        for _, results in await self.send(newer):
            assert [(200, 2)] * 2 == [(result["status"], result["order"]["quantity"]) for result in results]
            self.done["order.put"] += 1
        for late in (older, [{"ifNoneMatch": "*", **each} for each in older]):
            assert {412} == {result["status"] for _, results in await self.send(late) for result in results}
        self.table |= second

    async def correct(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            assert self.table[number]["status"] == "pending"
        operations = [{"operation": "update", "orderId": n, "changes": {"quantity": 3}} for n in numbers]
        for operation, (first, again) in await self.send(operations):
            order = self.table[operation["orderId"]]
            if first["status"] == 200:
                assert (200, 3) == (again["status"], again["order"]["quantity"])
                order["quantity"] = 3
                self.done["order.update"] += 1
            else:
                assert STOPPED == first["code"] == again["code"]

    async def ship(self, numbers: Sequence[int]) -> None:
        operations = [{"operation": "ship", "orderId": number, "shipDate": SHIP_DATE} for number in numbers]
        for operation, (first, again) in await self.send(operations):
            order = self.table[operation["orderId"]]
            if first["status"] == 200:
                assert "order_already_shipped" == again["code"]
                order |= {"status": "shipped", "shipDate": SHIP_DATE}
                self.done["order.ship"] += 1
            else:  # the warehouse stops packing
                assert STOPPED == first["code"] == again["code"]
                order["status"] = "cancelled"

    async def send_late(self, tags: dict[int, str]) -> None:
        """Send a part of the day again, with the ETags of then: nothing of it is done."""
        late: list[dict[str, Any]] = []
        for number, tag in tags.items():
            late.append({"operation": "update", "orderId": number, "changes": {"quantity": 9}, "ifMatch": tag})
            late.append({"operation": "put", "orderId": number, "order": {"petId": 9}, "ifMatch": tag})
            late.append({"operation": "ship", "orderId": number, "ifMatch": tag})
        for _, results in await self.send(late):
            for result in results:
                assert result["code"] in ("precondition_failed", "order_already_shipped", STOPPED), result

    async def tags(self, numbers: Sequence[int]) -> dict[int, str]:
        """The ETag of each order."""
        return {number: (await self.client.get(f"{ORDERS}/{number}")).headers["etag"] for number in numbers}

    async def follow(self, token: str) -> None:
        """Learn of the cancels of partners."""
        more = True
        while more:
            page = (await self.client.get(CHANGES, after=token, limit=1000)).json()
            token, more = page["next"], page["more"]
            for order in page["data"]:
                if order["status"] == "cancelled":
                    self.table[order["id"]]["status"] = "cancelled"


async def cancel(owner: Partner, numbers: Sequence[int]) -> int:
    """Cancel orders of a partner, each twice; return how many cancels succeeded."""
    cancelled = 0
    for number in numbers:
        first, again = await owner.cancel(number), await owner.cancel(number)
        cancelled += first.status_code == 204
        assert again.json()["code"] == (STOPPED if first.status_code == 204 else first.json()["code"])
    return cancelled


async def test_a_day_ends_with_the_shops_own_table(service: Service) -> None:
    client = await partner(service, VisibleOrders.ALL)
    partners = [await partner(service) for _ in range(4)]
    shop, chance = Shop(client, partners), random.Random(3)
    token = (await client.get(CHANGES, after="now")).json()["next"]
    await shop.push()
    await shop.push_again(range(1, PUSHED + 1, LATE))
    sample = chance.sample([*shop.table], SHIPPED + CORRECTED)
    to_ship, to_correct = sample[:SHIPPED], sample[SHIPPED:]
    early = await shop.tags([*to_ship[::LATE], *to_correct[::LATE]])
    wanted = {
        owner.account: chance.sample(
            [n for n, order in shop.table.items() if order.get("account") == owner.account], 50
        )
        for owner in partners
    }
    assert CANCELLED == sum(map(len, wanted.values()))
    *_, cancelled = await asyncio.gather(
        shop.ship(to_ship),
        shop.correct(to_correct),
        asyncio.gather(*(cancel(owner, wanted[owner.account]) for owner in partners)),
    )
    await shop.follow(token)
    await shop.send_late(early)
    assert 0 < sum(cancelled) < CANCELLED
    assert sum(cancelled) == sum(order["status"] == "cancelled" for order in shop.table.values())
    assert await table_of(client) == shop.table
    for owner in partners:
        own = {n: order for n, order in shop.table.items() if order.get("account") == owner.account}
        assert await table_of(owner) == {
            n: {k: v for k, v in each.items() if k != "account"} for n, each in own.items()
        }
    made = Counter(entry.action for entry in await log(service.backend.store) if entry.actor.startswith("key:"))
    assert {**shop.done, "order.cancel": sum(cancelled)} == made


async def table_of(client: Partner) -> dict[int, dict[str, Any]]:
    """All orders that a client sees, page by page, without their times."""
    found: dict[int, dict[str, Any]] = {}
    query: dict[str, str | int] = {"limit": 1000}
    while True:
        page = (await client.get(ORDERS, **query)).json()
        for order in page["data"]:
            found[order["id"]] = {name: value for name, value in order.items() if name not in NOT_IN_TABLE}
        if "nextCursor" not in page:
            return found
        query["cursor"] = page["nextCursor"]
