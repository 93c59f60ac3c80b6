"""Partners of a service: accounts that see all orders or only their own, and what they ask for over HTTP."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest

from petstore_server.domain.accounts import Plan, VisibleOrders, edit
from petstore_server.domain.keys import Scope
from testing.service import UNLIMITED, Service, bearer
from testing.subprocesses import until

ORDERS = "/v2/store/orders"
LIST = "/v1/store/orders"
CHANGES = "/v2/store/changes"
EVERY_SCOPE = frozenset(Scope)
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass
class Partner:
    """A client with a key of one account. `id` is that of the account."""

    service: Service
    account: str
    id: int
    headers: dict[str, str]

    async def send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        return await self.service.client.request(method, path, headers=headers, **options)

    async def get(self, path: str, **query: str | int) -> httpx2.Response:
        return await self.send("GET", path, params=query or None)

    async def pages(self, query: str = "") -> AsyncIterator[dict[str, Any]]:
        """The pages of listOrders, each by the Link of the one before."""
        target: str | None = f"{ORDERS}?{query}"
        while target:
            response = await self.get(target)
            assert 200 == response.status_code, response.text
            yield response.json()
            target = urljoin(target, response.links["next"]["url"]) if "next" in response.links else None

    async def listed(self, query: str = "") -> list[dict[str, Any]]:
        """The orders of all pages."""
        return [order async for page in self.pages(query) for order in page["data"]]

    async def ids(self, query: str = "") -> list[int]:
        return [order["id"] for order in await self.listed(query)]

    async def place(self, key: str, reference: str | None = None, pet_id: int = 1) -> httpx2.Response:
        body = {"petId": pet_id, "quantity": 1, **({} if reference is None else {"reference": reference})}
        return await self.send("POST", ORDERS, json=body, headers={"Idempotency-Key": key})

    async def placed(self, key: str, reference: str | None = None) -> int:
        """The identifier of a new order."""
        response = await self.place(key, reference)
        assert 201 == response.status_code
        return int(response.json()["id"])

    async def put(self, order_id: int, headers: Mapping[str, str] = NO_HEADERS, **order: Any) -> httpx2.Response:
        return await self.send("PUT", f"{ORDERS}/{order_id}", json=order, headers=headers)

    async def update(self, order_id: int, headers: Mapping[str, str] = NO_HEADERS, **fields: Any) -> httpx2.Response:
        return await self.send("PATCH", f"{ORDERS}/{order_id}", json=fields, headers=headers)

    async def ship(self, order_id: int, headers: Mapping[str, str] = NO_HEADERS, **body: Any) -> httpx2.Response:
        return await self.send("POST", f"{ORDERS}/{order_id}/ship", headers=headers, **({"json": body} if body else {}))

    async def complete(self, order_id: int, headers: Mapping[str, str] = NO_HEADERS) -> httpx2.Response:
        return await self.send("POST", f"{ORDERS}/{order_id}/complete", headers=headers)

    async def cancel(self, order_id: int, headers: Mapping[str, str] = NO_HEADERS) -> httpx2.Response:
        return await self.send("DELETE", f"{ORDERS}/{order_id}", headers=headers)

    async def batch(self, *operations: Any) -> httpx2.Response:
        return await self.send("POST", f"{ORDERS}/batch", json={"operations": operations})

    async def results(self, *operations: Any) -> list[Any]:
        """The results of a batch."""
        response = await self.batch(*operations)
        assert 200 == response.status_code, response.text
        found: list[Any] = response.json()["results"]
        return found

    @asynccontextmanager
    async def held(self, token: str, seconds: int = 30) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
        """A request for changes that the service holds by now."""
        changes = self.service.application.changes
        before = changes.held
        waiting = asyncio.create_task(self.get(CHANGES, after=token, wait=seconds))
        await until(lambda: changes.held != before)
        yield waiting
        await waiting


def counted(service: Service, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often requests for changes ask the store from now on, by the name of the method."""
    asked, search = Counter[str](), service.backend.store.search

    def count(name: str) -> None:
        ask = getattr(search, name)

        async def counting(*arguments: Any) -> Any:
            asked[name] += 1
            return await ask(*arguments)

        monkeypatch.setattr(search, name, counting)

    for name in ("change_clock", "last_changes", "page"):
        count(name)
    return asked


async def partner(
    service: Service, orders: VisibleOrders = VisibleOrders.OWN, scopes: frozenset[Scope] = EVERY_SCOPE
) -> Partner:
    """A new account that sees these orders, with a key of these scopes."""
    name = await service.account(Plan.ENTERPRISE, UNLIMITED)
    account = await set_orders(service, name, orders)
    return Partner(service, name, account, bearer(await service.key(name, scopes=scopes)))


async def set_orders(service: Service, name: str, orders: VisibleOrders) -> int:
    """Set what an account sees, as an operator does; return the account's id."""
    return (await service.backend.store.accounts.change(name, edit(None, None, orders), service.actor)).id
