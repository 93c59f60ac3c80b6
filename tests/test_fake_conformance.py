"""The fake service of the client next to the real one: the same requests get the same responses."""

import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from petstore_client import v2
from petstore_client.testing import FakeClock, FakePetstore
from petstore_server.domain.accounts import Plan
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order as Stored
from petstore_server.domain.orders import Status
from testing.checked_clients import checked_async_client
from testing.service import UNLIMITED, Service, bearer

SHOP = frozenset({Scope.ORDERS_READ, Scope.ORDERS_CANCEL, Scope.ORDERS_WRITE, Scope.ORDERS_MANAGE})
ORDERS = "/v2/store/orders"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SEEDED = [
    Stored(1, 3, 1),
    Stored(2, 3, 1, "2026-11-20T12:00:00Z", None, Status.SHIPPED),
    Stored(3, status=Status.CANCELLED, reference="A"),
    Stored(4, quantity=-5, complete=False, reference="B"),
]
TIMES = "createdAt", "updatedAt"


@dataclass
class Side:
    """One of the two services, as a key sees it, with the ETags and the last changes that it has shown."""

    client: httpx2.AsyncClient
    key: str
    etags: dict[int, list[str]] = field(default_factory=dict)
    changed: dict[int, str] = field(default_factory=dict)

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """Send a request, and return what both services must agree on; `@3-1` is the latest ETag but one of order 3."""
        given = {name: re.sub(r"@(-?\d+)-(\d)", self._etag, value) for name, value in headers.items()}
        names = {name.replace("_", "-"): value for name, value in given.items()}
        options = {} if body is None else {"json": self._with_etags(body)}
        response = await self.client.request(method, path, headers=bearer(self.key, **names), **options)
        found: dict[str, Any] = {"status": response.status_code, "location": response.headers.get("location")}
        found |= {name: name in response.headers for name in ("etag", "cache-control")} if found["status"] < 400 else {}
        content = response.json() if response.content else None
        if found["status"] < 300 and isinstance(content, dict) and "id" in content and "etag" in response.headers:
            self.etags.setdefault(content["id"], []).append(response.headers["etag"])
        return {**found, "body": self._agreed(content)}

    def _etag(self, found: re.Match[str]) -> str:
        known = self.etags.get(int(found[1]), ['"none"'])
        return known[max(0, len(known) - 1 - int(found[2]))].strip('"')

    def _with_etags(self, body: Any) -> Any:
        text = re.sub(r"@(-?\d+)-(\d)", self._etag, json.dumps(body))
        return json.loads(text)

    def _agreed(self, content: Any) -> Any:
        """The content without messages; an order says whether it has changed since it was seen last."""
        if isinstance(content, list):
            return [self._agreed(each) for each in content]
        if not isinstance(content, dict):
            return content
        found = {name: self._agreed(value) for name, value in content.items() if name not in (*TIMES, "message")}
        if "updatedAt" in content:
            found["moved"] = self.changed.get(content["id"]) != content["updatedAt"]
            self.changed[content["id"]] = content["updatedAt"]
        return found


@dataclass
class Both:
    """The real service and the fake one."""

    sides: tuple[Side, Side]
    accounts: list[str]

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """The response of both. Raises AssertionError if they differ."""
        real, fake = [await side(method, path, body, **headers) for side in self.sides]
        assert real == fake, (method, path, body, headers)
        return real


@pytest.fixture(name="stack")
async def _stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def both_services(
    service: Service, stack: AsyncExitStack, scopes: frozenset[Scope] = SHOP, **options: Any
) -> Both:
    """Both services with the same orders, accounts and scopes, each behind a client that checks every exchange."""
    accounts = [await service.account(Plan.ENTERPRISE, UNLIMITED) for _ in range(2)]
    await service.orders(*SEEDED, Stored(5, 7, 1, reference="A", account=accounts[1]))
    fake = FakePetstore(
        [
            v2.Order(
                id=each.id, pet_id=each.pet_id, quantity=each.quantity, complete=each.complete, status=each.status,
                ship_date=NOON if each.ship_date else None, reference=each.reference, created_at=NOON, updated_at=NOON,
            )
            for each in SEEDED
        ]
        + [
            v2.Order(
                id=5, pet_id=7, quantity=1, reference="A", account=accounts[1], status="pending", created_at=NOON,
                updated_at=NOON,
            )
        ],
        scopes=sorted(scopes),
        accounts=accounts,
        clock=FakeClock(service.clock.now),
        **options,
    )  # fmt: skip
    client = await stack.enter_async_context(checked_async_client(fake))
    key = await service.key(accounts[0], scopes=scopes)
    both = Both((Side(service.client, key), Side(client, fake.api_key)), accounts)
    for order_id in range(1, 6):
        await both("GET", f"{ORDERS}/{order_id}")
    return both


class Requests:
    """Random requests, most of which make sense."""

    def __init__(self, seed: int, accounts: list[str]) -> None:
        self._random = random.Random(seed)
        self._accounts = accounts
        self._count = 0

    def fields(self, *names: str, reference: bool) -> dict[str, Any]:
        """The fields of an order, or of a correction."""
        self._count += 1
        values: dict[str, list[Any]] = {
            "petId": [1, 2, None, "1"],
            "quantity": [1, 2, -3, None, 1.5],
            "shipDate": ["2026-11-20T12:00:00Z", "2026-11-20T14:00:00+02:00", None, "tomorrow"],
            "complete": [True, False, None, 0],
            "status": ["pending", "pending", "shipped", "cancelled", None, "lost"],
            "reference": ["A", "B", "C", None] if reference else [f"R{self._count}", None],
            "account": [*self._accounts, None, "unknown"],
        }
        chosen = [name for name in names if self._random.random() < 0.35]
        wrong = self._random.random() < 0.1
        given = {name: self._random.choice(values[name] if wrong else values[name][:3]) for name in chosen}
        return given | ({"colour": "red"} if self._random.random() < 0.02 else {})

    def order_id(self) -> int:
        return self._random.choice([1, 2, 3, 4, 5, 6, 8, 2**60])

    def operation(self, *, reference: bool = True) -> dict[str, Any]:
        """One operation, as `batchOrders` takes it."""
        kind = self._random.choice(["put", "put", "update", "update", "ship", "complete", "cancel"])
        order_id = self.order_id()
        found: dict[str, Any] = {"operation": kind, "orderId": order_id}
        correctable = "petId", "quantity", "shipDate", "complete", "reference"
        if kind == "put":
            found["order"] = self.fields(*correctable, "status", "account", reference=reference)
        elif kind == "update":
            found["changes"] = self.fields(*correctable, reference=reference)
        elif kind == "ship" and self._random.random() < 0.5:
            found |= self.fields("shipDate", reference=reference)
        if self._random.random() < 0.3:
            tag = f'"@{order_id}-{self._random.choice([0, 0, 1, 2])}"'
            forms = [tag, tag, "*", f"W/{tag}", f'"x", {tag[:-1]}-gzip"', "unquoted"]
            found["ifMatch"] = self._random.choice(forms)
        if kind == "put" and self._random.random() < 0.1:
            found["ifNoneMatch"] = "*"
        return found

    def request(self) -> tuple[str, str, Any, dict[str, str]]:
        """A request of its own, or a batch."""
        choice = self._random.random()
        if choice < 0.15:
            operations = [self.operation(reference=False) for _ in range(self._random.randrange(1, 7))]
            return "POST", f"{ORDERS}/batch", {"operations": operations}, {}
        if choice < 0.25:
            return "GET", f"{ORDERS}/{self.order_id()}", None, {}
        if choice < 0.3:
            order = {"petId": 1, "quantity": 1, "reference": self._random.choice("ABC")}
            return "POST", ORDERS, order, {"idempotency_key": str(self._random.random())}
        return request_of(self.operation())


def request_of(operation: dict[str, Any]) -> tuple[str, str, Any, dict[str, str]]:
    """An operation as a request of its own."""
    path, kind = f"{ORDERS}/{operation['orderId']}", operation["operation"]
    names = {"if_match": "ifMatch", "if_none_match": "ifNoneMatch"}
    headers = {header: operation[name] for header, name in names.items() if name in operation}
    method, suffix, body = {
        "put": ("PUT", "", operation.get("order")),
        "update": ("PATCH", "", operation.get("changes")),
        "ship": ("POST", "/ship", {n: v for n, v in operation.items() if n in ("shipDate", "colour")} or None),
        "complete": ("POST", "/complete", None),
        "cancel": ("DELETE", "", None),
    }[kind]
    return method, path + suffix, body, headers


@pytest.mark.parametrize("seed", range(12))
async def test_random_requests_get_the_same_responses(service: Service, stack: AsyncExitStack, seed: int) -> None:
    both = await both_services(service, stack)
    requests = Requests(seed, both.accounts)
    seen: set[int] = set()
    for _ in range(80):
        method, path, body, headers = requests.request()
        response = await both(method, path, body, **headers)
        seen.add(response["status"])
        seen |= {each["status"] for each in (response["body"] or {}).get("results", ())}
    assert {200, 201, 400, 409, 412} <= seen
    listed = await both("GET", f"{ORDERS}?limit=1000")
    assert len(listed["body"]["data"]) >= 5


@pytest.mark.settings(PETSTORE_ASSIGNED_IDS_FROM="1000")
async def test_assigned_identifiers_are_reserved_the_same(service: Service, stack: AsyncExitStack) -> None:
    both = await both_services(service, stack, assigned_ids_from=1000)

    async def put(order_id: int, **order: Any) -> tuple[int, str | None]:
        found = await both("PUT", f"{ORDERS}/{order_id}", order)
        return found["status"], found["body"].get("code")

    assert (201, None) == await put(999)
    assert [(409, "identifier_reserved")] * 2 == [await put(1000), await put(2**60)]
    placed = await both("POST", ORDERS, {"petId": 1, "quantity": 1}, idempotency_key="k")
    assert ("orders/1000", both.accounts[0]) == (placed["location"], placed["body"]["account"])
    assert (409, "account_mismatch") == await put(1000, quantity=2)
    assert (409, "account_mismatch") == await put(1000, quantity=2, account=both.accounts[1])
    assert (200, None) == await put(1000, petId=1, quantity=2, account=both.accounts[0])


@pytest.mark.parametrize(
    "scopes", [SHOP - {Scope.ORDERS_MANAGE}, SHOP - {Scope.ORDERS_CANCEL}], ids=["partner", "shop"]
)
async def test_each_scope_allows_the_same(service: Service, stack: AsyncExitStack, scopes: frozenset[Scope]) -> None:
    both = await both_services(service, stack, scopes)
    found = set()
    for kind in ("put", "update", "ship", "complete", "cancel"):
        operation: dict[str, Any] = {"operation": kind, "orderId": 4, **({"order": {}} if kind == "put" else {})}
        operation |= {"changes": {"quantity": 1}} if kind == "update" else {}
        found.add((await both("POST", f"{ORDERS}/batch", {"operations": [operation]}))["status"])
        method, path, body, headers = request_of(operation)
        found.add((await both(method, path, body, **headers))["status"])
    assert 403 in found


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"operations": []},
        {"operations": {}},
        {"operations": [{"operation": "ship", "orderId": 1}] * 501},
        {"operations": [{"operation": "ship", "orderId": 1}], "more": 1},
        {"operations": [{"operation": "sell", "orderId": 1}, 7, {"operation": "ship"}, {"orderId": 1}]},
        {"operations": [{"operation": "put", "orderId": 1}, {"operation": "update", "orderId": 1, "order": {}}]},
        {"operations": [{"operation": "ship", "orderId": "1"}, {"operation": "ship", "orderId": 1, "order": {}}]},
        {"operations": [{"operation": "ship", "orderId": 1, "ifNoneMatch": "*"}]},
        {"operations": [{"operation": "put", "orderId": 9, "order": {"reference": "A"}}]},
        {"operations": [{"operation": "put", "orderId": 9, "order": {"reference": "x" * 300_000}}]},
    ],
    ids=range(12),
)  # fmt: skip
async def test_a_batch_is_read_the_same(service: Service, stack: AsyncExitStack, body: Any) -> None:
    both = await both_services(service, stack)
    await both("POST", f"{ORDERS}/batch", body)
