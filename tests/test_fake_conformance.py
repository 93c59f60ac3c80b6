"""The fake service of the client next to the real one: the same requests get the same responses."""

import json
import random
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx2
import pytest

from petstore_client import v2
from petstore_client.testing import FakeClock, FakePetstore
from petstore_server.domain.accounts import Plan, VisibleOrders
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order as Stored
from petstore_server.domain.orders import Status
from petstore_server.engines.sqlite.maintenance import backup, restore
from testing.checked_clients import checked_async_client, contract
from testing.contract import resolved
from testing.deployment import Deployment
from testing.partner_webhooks import deliver
from testing.partners import set_orders
from testing.served_fake import Handler, serving
from testing.service import UNLIMITED, Service, bearer
from testing.stores import BY

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
OWN_HEADERS = {"connection", "content-encoding", "content-length", "date", "etag", "link", "location", "x-request-id"}
DOCUMENT = contract().versions["v2"].document
IN_BATCHES: list[str] = DOCUMENT["components"]["schemas"]["BatchOperation"]["properties"]["operation"]["enum"]
# In their order as texts, too.
TIMES_IN_ORDER = ["2026-01-01T00:00:00Z", "2026-11-20T12:00:00Z", "2026-11-20T14:00:00.5+02:00", "2027-01-01T00:00:00Z"]
MEMBERS = {"OrderReplacement": "order", "OrderCorrection": "changes", "Shipment": ""}
"""The member of an operation of a batch that has what a request has as its body; without one, it has the fields."""


class Change(NamedTuple):
    """How a request changes one order; `body` is the name of the schema of its body, or empty."""

    method: str
    path: str
    body: str


def documented() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The method, the path and the description of each operation of version 2."""
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), f"/v2{path}", operation


def changes() -> Iterator[tuple[str, Change]]:
    """The operations of version 2 that change one order, by their names in batches."""
    for method, path, operation in documented():
        if path.startswith(f"{ORDERS}/{{orderId}}") and method != "GET":
            content = operation.get("requestBody", {}).get("content", {})
            bodies = {each["schema"]["$ref"].rpartition("/")[2] for each in content.values()} or {""}
            yield operation["operationId"].removesuffix("Order"), Change(method, path, *bodies)


CHANGES = dict(changes())
OPERATIONS = [(method, path) for method, path, _ in documented()]
FILTERS: dict[str, dict[str, Any]] = {
    each["name"]: each["schema"]
    for each in (resolved(part, DOCUMENT) for part in DOCUMENT["paths"]["/store/orders"]["get"]["parameters"])
    if each["in"] == "query" and each["name"] != "cursor"
}
"""The schemas of the parameters of listOrders."""


@dataclass
class Side:
    """One of the two services, as a key sees it, with the ETags and the last changes that it has shown.

    `hook` is the URL of a receiver, `webhooks` are the identifiers that the service has shown, and `tokens` those of
    changes.
    """

    client: httpx2.AsyncClient
    key: str
    hook: str = ""
    etags: dict[int, list[str]] = field(default_factory=dict)
    changed: dict[int, str] = field(default_factory=dict)
    webhooks: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    cursor: str = ""

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """Send a request, and return what both services must agree on; `@3-1` is the latest ETag but one of order 3.

        `wh@0` is the identifier of the first webhook, `token@0` the first token, `cursor@` the last cursor, and `hook@`
        the URL of the receiver.
        """
        names = {name.replace("_", "-"): self._filled(value) for name, value in headers.items()}
        options = {} if body is None else {"json": json.loads(self._filled(json.dumps(body)))}
        response = await self.client.request(method, self._filled(path), headers=bearer(self.key, **names), **options)
        found: dict[str, Any] = {"status": response.status_code, "location": response.headers.get("location")}
        found |= {name: value for name, value in response.headers.items() if name not in OWN_HEADERS}
        found["etag"] = found["status"] < 400 and "etag" in response.headers
        found["link"] = re.sub("cursor=[^>]*", "cursor=", response.headers.get("link", ""))
        content = response.json() if response.content else None
        if found["status"] < 300 and isinstance(content, dict) and "id" in content and "etag" in response.headers:
            self.etags.setdefault(content["id"], []).append(response.headers["etag"])
        agreed = {**found, "body": self._agreed(content)}
        if "webhook" in (found["location"] or ""):
            agreed["location"] = found["location"].replace(self.webhooks[-1], "wh@")
        return agreed

    def _filled(self, text: str) -> str:
        """The text with what this service has shown in place of the names that both have in common."""
        text = re.sub(r"(wh|token)@(\d)", self._named, text)
        text = re.sub(r"@(-?\d+)-(\d)", self._etag, text)
        return text.replace("hook@", self.hook).replace("cursor@", self.cursor)

    def _named(self, found: re.Match[str]) -> str:
        return (self.webhooks if found[1] == "wh" else self.tokens)[int(found[2])]

    def _etag(self, found: re.Match[str]) -> str:
        known = self.etags.get(int(found[1]), ['"none"'])
        return known[max(0, len(known) - 1 - int(found[2]))].strip('"')

    def _agreed(self, content: Any) -> Any:
        """The content without messages; an order says whether it has changed since it was seen last."""
        if isinstance(content, list):
            return [self._agreed(each) for each in content]
        if not isinstance(content, dict):
            return content
        found = {name: self._agreed(value) for name, value in content.items() if name not in (*TIMES, "message")}
        if "lag" in content:
            found |= self._webhook(content)
        if "milliseconds" in content:
            found = {"status": content["status"], "excerpt": content["excerpt"]} if "status" in content else {}
        if "windows" in content:  # what a key has used; the fake has a plan of its own
            return sorted(content)
        found |= self._positions(content)
        if "updatedAt" in content:
            found["moved"] = self.changed.get(content["id"]) != content["updatedAt"]
            self.changed[content["id"]] = content["updatedAt"]
        return found

    def _positions(self, content: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "nextCursor" in content:
            self.cursor, found["nextCursor"] = content["nextCursor"], True
        if "next" in content:
            self.tokens.append(content["next"])
            found["next"] = len(set(self.tokens))
        return found

    def _webhook(self, content: dict[str, Any]) -> dict[str, Any]:
        if content["id"] not in self.webhooks:
            self.webhooks.append(content["id"])
        found = {"id": self.webhooks.index(content["id"]), "url": content["url"].replace(self.hook, "hook@")}
        return found | {name: True for name in ("failingSince", "secret") if name in content}


@dataclass
class Both:
    """The real service and the fake one."""

    sides: tuple[Side, Side]
    accounts: list[str]
    fake: FakePetstore

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
    now = datetime.fromtimestamp(service.clock.now, UTC)
    accounts = [await service.account(Plan.ENTERPRISE, UNLIMITED) for _ in range(2)]
    seeded = [*SEEDED, Stored(5, 7, 1, reference="A", account=accounts[1])]
    if options.get("sees") == "own":
        await set_orders(service, accounts[0], VisibleOrders.OWN)
        seeded = [each._replace(account=accounts[0]) for each in SEEDED] + [*seeded[4:], Stored(6, 7, 1)]
    await service.orders(*seeded)
    fake = FakePetstore(
        [
            v2.Order(
                id=each.id, pet_id=each.pet_id, quantity=each.quantity, complete=each.complete, status=each.status,
                ship_date=NOON if each.ship_date else None, reference=each.reference, created_at=now, updated_at=now,
                account=each.account,
            )
            for each in seeded
        ],
        scopes=sorted(scopes),
        accounts=accounts,
        clock=FakeClock(service.clock.now),
        **options,
    )  # fmt: skip
    client = await stack.enter_async_context(checked_async_client(fake))
    key = await service.key(accounts[0], scopes=scopes)
    both = Both((Side(service.client, key), Side(client, fake.api_key)), accounts, fake)
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
        assert set(names) <= values.keys(), "Requests.fields has no values of a field"
        chosen = [name for name in names if self._random.random() < 0.35]
        wrong = self._random.random() < 0.1
        given = {name: self._random.choice(values[name] if wrong else values[name][:3]) for name in chosen}
        return given | ({"colour": "red"} if self._random.random() < 0.02 else {})

    def order_id(self) -> int:
        return self._random.choice([1, 2, 3, 4, 5, 6, 8, 2**60])

    def operation(self, kinds: Iterable[str] = CHANGES, *, reference: bool = True) -> dict[str, Any]:
        """One operation, as `batchOrders` takes it."""
        kind = self._random.choice([*kinds, "put", "update"])
        order_id, body = self.order_id(), CHANGES[kind].body
        found: dict[str, Any] = {"operation": kind, "orderId": order_id}
        if body:
            assert body in MEMBERS, f"MEMBERS lacks the body of {kind}Order"
            fields = self.fields(*DOCUMENT["components"]["schemas"][body]["properties"], reference=reference)
            found |= {MEMBERS[body]: fields} if MEMBERS[body] else fields
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
            operations = [self.operation(IN_BATCHES, reference=False) for _ in range(self._random.randrange(1, 7))]
            return "POST", f"{ORDERS}/batch", {"operations": operations}, {}
        if choice < 0.25:
            return "GET", f"{ORDERS}/{self.order_id()}", None, {}
        if choice < 0.3:
            order = {"petId": 1, "quantity": 1, "reference": self._random.choice("ABC")}
            return "POST", ORDERS, order, {"idempotency_key": str(self._random.random())}
        return request_of(self.operation())

    def query(self) -> str:
        """The query of a list, with some of its parameters."""
        given = {name: self._value(schema) for name, schema in FILTERS.items() if self._random.random() < 0.3}
        if {"shipDateFrom", "shipDateTo"} <= given.keys():
            given["shipDateFrom"], given["shipDateTo"] = sorted([given["shipDateFrom"], given["shipDateTo"]])
        return urlencode(given, doseq=True)

    def _value(self, schema: dict[str, Any]) -> Any:
        schema = resolved(schema, DOCUMENT)
        match schema:
            case {"type": "array"}:
                return [self._value(schema["items"]) for _ in range(self._random.randrange(1, 3))]
            case {"enum": values}:
                return self._random.choice(values)
            case {"type": "integer"}:
                return self._random.choice([1, 2, 3, 7])
            case {"type": "boolean"}:
                return self._random.choice(["true", "false"])
            case {"format": "date-time"}:
                return self._random.choice(TIMES_IN_ORDER)
        assert schema["type"] == "string", f"Requests has no values of {schema}"
        return self._random.choice("ABC")


def request_of(operation: dict[str, Any]) -> tuple[str, str, Any, dict[str, str]]:
    """An operation as a request of its own."""
    change = CHANGES[operation["operation"]]
    names = {"if_match": "ifMatch", "if_none_match": "ifNoneMatch"}
    headers = {header: operation[name] for header, name in names.items() if name in operation}
    if member := MEMBERS.get(change.body):
        body = operation.get(member)
    else:
        common = {"operation", "orderId", *names.values()}
        body = {name: value for name, value in operation.items() if name not in common} or None
    return change.method, change.path.format(orderId=operation["orderId"]), body, headers


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


@pytest.mark.parametrize("seed", range(6))
async def test_an_account_that_sees_its_own_orders_gets_the_same_responses(
    service: Service, stack: AsyncExitStack, seed: int
) -> None:
    both = await both_services(service, stack, sees="own")
    assert [1, 2, 3, 4] == [each["id"] for each in (await both("GET", "/v1/store/orders"))["body"]]
    requests = Requests(seed, both.accounts)
    seen: set[int] = set()
    for _ in range(80):
        method, path, body, headers = requests.request()
        seen.add((await both(method, path, body, **headers))["status"])
    assert {200, 400, 404, 409} <= seen
    placed = await both("POST", ORDERS, {"petId": 1, "quantity": 1}, idempotency_key="k")
    assert 200 == (await both("GET", f"{ORDERS}/{placed['body']['id']}"))["status"]
    for order_id in (5, 6):
        for method, version in (("GET", "v2"), ("DELETE", "v1"), ("DELETE", "v2")):
            response = await both(method, f"/{version}/store/orders/{order_id}")
            assert (404, "order_not_found") == (response["status"], response["body"]["code"])
    for path in (f"{ORDERS}?limit=1000", "/v2/store/changes?limit=2", "/v2/store/changes?after=now"):
        listed = await both("GET", path)
        assert {5, 6}.isdisjoint(each["id"] for each in listed["body"]["data"])
        assert not any("account" in each for each in listed["body"]["data"])
    for side in both.sides:
        usage = await side.client.get("/v2/usage", headers=bearer(side.key))
        assert "own" == usage.json()["orders"]


@pytest.mark.parametrize("seed", range(4))
async def test_random_lists_are_the_same(service: Service, stack: AsyncExitStack, seed: int) -> None:
    both = await both_services(service, stack)
    requests = Requests(seed, both.accounts)
    for _ in range(20):
        method, path, body, headers = request_of(requests.operation())
        await both(method, path, body, **headers)
    sizes = Counter[int]()
    for _ in range(60):
        query = requests.query()
        page = await both("GET", f"{ORDERS}?{query}")
        sizes[len(page["body"].get("data", ()))] += 1
        while "nextCursor" in page["body"]:
            page = await both("GET", f"{ORDERS}?{query}&cursor=cursor@")
    assert len(sizes) > 3


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
    for kind, change in CHANGES.items():
        operation: dict[str, Any] = {"operation": kind, "orderId": 4}
        if member := MEMBERS.get(change.body):
            operation[member] = {"quantity": 1}
        if kind in IN_BATCHES:
            found.add((await both("POST", f"{ORDERS}/batch", {"operations": [operation]}))["status"])
        method, path, body, headers = request_of(operation)
        found.add((await both(method, path, body, **headers))["status"])
    assert 403 in found


OF_64_BITS = -(2**63), 2**63 - 1, -(2**63) - 1, 2**63
"""The bounds of identifiers, and the numbers beyond them."""

PLACEMENTS: list[Any] = [[], {}, {"petId": 1}, {"petId": 1, "quantity": "1"}]
BATCHES: list[Any] = [
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
    {"operations": [{"operation": "put", "orderId": number, "order": {}} for number in OF_64_BITS]},
]


@pytest.mark.parametrize(
    ("path", "body"),
    [*((ORDERS, body) for body in PLACEMENTS), *((f"{ORDERS}/batch", body) for body in BATCHES)],
    ids=range(len(PLACEMENTS) + len(BATCHES)),
)
async def test_a_body_is_read_the_same(service: Service, stack: AsyncExitStack, path: str, body: Any) -> None:
    both = await both_services(service, stack)
    await both("POST", path, body, idempotency_key="k")


WEBHOOKS = "/v2/webhooks"
WITH_WEBHOOKS = SHOP | {Scope.WEBHOOKS_MANAGE}
with_webhooks = pytest.mark.settings(
    PETSTORE_WEBHOOK_SECRET="the text from which all secrets are derived", PETSTORE_WEBHOOK_NETWORKS="127.0.0.0/8"
)
Answer = tuple[int, dict[str, str], bytes]
Message = tuple[Mapping[str, str], bytes]


@dataclass
class Receivers:
    """A receiver of each service: the responses that it gives next, and the messages that it has received."""

    both: Both
    service: Service
    fake: FakePetstore
    answers: tuple[deque[Answer], deque[Answer]] = field(default_factory=lambda: (deque(), deque()))
    received: tuple[list[Message], list[Message]] = field(default_factory=lambda: ([], []))
    numbers: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))

    def receive(self, side: int, headers: Mapping[str, str], body: bytes) -> Answer:
        self.received[side].append((headers, body))
        return self.answers[side].popleft() if self.answers[side] else (204, {}, b"")

    def receive_of_fake(self, headers: Mapping[str, str], body: bytes) -> httpx2.Response:
        status, more, text = self.receive(1, headers, body)
        return httpx2.Response(status, headers=more, content=text)

    def next(self, *answers: Answer) -> None:
        for side in self.answers:
            side.extend(answers)

    def wait(self, seconds: float) -> None:
        self.service.clock.now += seconds
        assert isinstance(self.fake.clock, FakeClock)
        self.fake.clock.advance(seconds)

    async def deliver(self) -> list[Any]:
        """What both receivers have got since the last time: the messages, and which have the same identifiers."""
        await deliver(self.service)
        self.fake.deliver()
        return self.messages()

    def messages(self) -> list[Any]:
        real, fake = [self._agreed(side) for side in (0, 1)]
        assert real == fake
        return real

    def _agreed(self, side: int) -> list[Any]:
        agreed, numbers = [], self.numbers[side]
        for headers, body in self.received[side]:
            number = numbers.setdefault(headers["webhook-id"], len(numbers))
            names = {name for name in map(str.lower, headers) if name.startswith(("webhook", "content-type"))}
            signatures = re.sub("[A-Za-z0-9+/]{43}=", "HMAC", headers["webhook-signature"])
            contract().versions["v2"].check_message({name.lower(): value for name, value in headers.items()}, body)
            message = self.both.sides[side]._agreed(json.loads(body))
            agreed.append((number, sorted(names), signatures, message))
        self.received[side].clear()
        return agreed


@asynccontextmanager
async def both_receivers(service: Service, stack: AsyncExitStack, **options: Any) -> AsyncIterator[Receivers]:
    """Both services, with webhooks, and a receiver of each."""
    both = await both_services(service, stack, **{"scopes": WITH_WEBHOOKS, **options})
    found = Receivers(both, service, both.fake)

    class Hook(Handler):
        def respond(self) -> None:
            status, headers, text = found.receive(0, dict(self.headers.items()), self.content())
            self.send(status, {**headers, "Content-Length": str(len(text))}.items(), text)

    assert service.backend.deliveries is not None
    service.backend.deliveries._uniform = lambda: 0.0
    with serving(Hook) as port:
        both.sides[0].hook, both.sides[1].hook = f"http://127.0.0.1:{port}/hook", "https://shop.example/hook"
        both.fake.receivers[both.sides[1].hook] = found.receive_of_fake
        yield found


@pytest.mark.parametrize("scopes", [SHOP, SHOP | {Scope.PETS_READ}], ids=["no pets", "pets"])
async def test_version_1_gives_the_same_responses(
    service: Service, stack: AsyncExitStack, scopes: frozenset[Scope]
) -> None:
    both = await both_services(service, stack, scopes)
    for path in ("/v1/pets/3", "/v1/pets/x", "/v1/store/orders"):
        await both("GET", path)
    for number in (1, 1, 2, 9, "x"):
        await both("DELETE", f"/v1/store/orders/{number}")


async def test_a_malformed_identifier_is_refused_the_same(service: Service, stack: AsyncExitStack) -> None:
    both = await both_services(service, stack)
    for text in ("001", "+1", "-0", "1.0", "1_0", "١", "9" * 19, str(2**63), str(-(2**63) - 1), "x"):
        for version in ("v1", "v2"):
            refused = await both("DELETE", f"/{version}/store/orders/{text}")
            assert (404, "invalid_order_id") == (refused["status"], refused["body"]["code"]), text


async def test_a_malformed_parameter_is_refused_the_same(service: Service, stack: AsyncExitStack) -> None:
    both = await both_services(service, stack)
    limits = [f"{path}?limit={limit}" for path in (ORDERS, "/v2/store/changes") for limit in (-1, 0, 1001)]
    for target in (*limits, f"{ORDERS}?sort=name"):
        refused = await both("GET", target)
        assert (400, "invalid_parameter") == (refused["status"], refused["body"]["code"]), target


@with_webhooks
@pytest.mark.parametrize(
    "scopes",
    [frozenset(Scope), SHOP, SHOP - {Scope.ORDERS_MANAGE}, WITH_WEBHOOKS - {Scope.ORDERS_READ}],
    ids=["all", "shop", "partner", "webhooks"],
)
async def test_every_operation_gives_the_same_response(
    service: Service, stack: AsyncExitStack, scopes: frozenset[Scope]
) -> None:
    both = await both_services(service, stack, scopes)
    await send_each_operation(both)
    for fields in ({"after": "now"}, {"state": "paused"}, {"state": "paused", "statuses": None}):
        await both("PATCH", f"{WEBHOOKS}/wh_1", fields)


@pytest.mark.settings(PETSTORE_WEBHOOK_SECRET="")
@pytest.mark.parametrize("scopes", [frozenset(Scope), {Scope.WEBHOOKS_MANAGE}, SHOP], ids=["all", "no orders", "shop"])
async def test_webhooks_that_are_off_are_refused_the_same(
    service: Service, stack: AsyncExitStack, scopes: frozenset[Scope]
) -> None:
    found = await send_each_operation(await both_services(service, stack, frozenset(scopes), webhooks=False))
    assert (403, "webhooks_disabled" if Scope.WEBHOOKS_MANAGE in scopes else "insufficient_scope") in found


async def send_each_operation(both: Both) -> set[tuple[int, str | None]]:
    """Send a request of each operation; return their statuses and codes."""
    found = set()
    for method, path in OPERATIONS:
        body: dict[str, Any] | None = {} if method in ("POST", "PUT", "PATCH") else None
        response = await both(method, path.format(orderId=1, webhookId="wh_1"), body)
        content = response["body"] if isinstance(response["body"], dict) else {}
        found.add((response["status"], content.get("code")))
    return found


@with_webhooks
async def test_webhooks_are_managed_the_same(service: Service, stack: AsyncExitStack) -> None:
    async with both_receivers(service, stack) as receivers:
        both, seen = receivers.both, set()
        await both("GET", "/v2/store/changes")  # token@0
        requests: list[tuple[str, str, Any]] = [
            ("POST", "", {"url": "hook@"}),
            ("POST", "", {"url": "hook@", "statuses": ["shipped", "cancelled"], "state": "paused", "after": "token@0"}),
            ("POST", "", {"url": "hook@", "statuses": None, "state": None, "after": "beginning"}),
            *(("POST", "", body) for body in WRONG_BODIES),
            *(("POST", "", {"url": "hook@", **more}) for more in WRONG),
            ("POST", "", {"url": "hook@", "statuses": []}),
            ("GET", "", None),
            ("GET", "/wh@1", None),
            *((method, "/wh_unknown", body) for method, body in (("GET", None), ("DELETE", None), ("PATCH", {}))),
            *(("POST", f"/wh_unknown/{name}", None) for name in ("ping", "rotate")),
            *(("PATCH", "/wh@0", more) for more in (*WRONG, *WRONG_BODIES[2:], {"state": None}, {"after": None})),
            ("PATCH", "/wh@1", {}),
            ("PATCH", "/wh@1", {"state": "active", "statuses": None, "after": "now", "url": "hook@"}),
            ("PATCH", "/wh@1", {"statuses": ["pending"]}),
            *(("POST", "/wh@1/rotate", body) for body in ROTATIONS),
            ("POST", "/wh@1/ping", None),
            ("DELETE", "/wh@1", None),
            ("GET", "", None),
            *[("POST", "", {"url": "hook@"})] * 19,
        ]
        for method, path, body in requests:
            response = await both(method, WEBHOOKS + path, body)
            seen.add((response["status"], (response["body"] or {}).get("code")))
            receivers.wait(0.01)  # so that one webhook is older than the next
        errors = {
            (400, "invalid_body"),
            (400, "invalid_cursor"),
            (404, "webhook_not_found"),
            (409, "too_many_webhooks"),
        }
        assert seen == {(200, None), (201, None), (204, None), *errors}
        [(_, _, signatures, ping)] = receivers.messages()
        assert ("v1,HMAC v1,HMAC", "ping") == (signatures, ping["type"])


WRONG_BODIES: list[Any] = [[], {}, {"url": None}, {"url": ""}, {"url": "ftp://x"}, {"url": "hook@", "more": 1}]
ROTATIONS: list[Any] = [
    *(None, {}, {"grace": 0}, {"grace": None}, {"grace": 86_400}),
    *([], {"grace": 86_401}, {"grace": -1}, {"grace": "1"}),
]
WRONG: list[dict[str, Any]] = [
    {"statuses": ["lost"]}, {"statuses": "shipped"}, {"state": "stopped"}, {"state": 1}, {"after": "then"},
    {"after": 1}, {"secret": "x"},
]  # fmt: skip


@with_webhooks
async def test_messages_are_the_same_through_failures_a_replay_and_an_end(
    service: Service, stack: AsyncExitStack
) -> None:
    async with both_receivers(service, stack) as receivers:
        both = receivers.both
        await both("POST", WEBHOOKS, {"url": "hook@", "after": "beginning"})
        receivers.next((500, {}, b"broken"), (429, {"Retry-After": "60"}, b"x" * 500), (302, {"Location": "/"}, b""))
        ((first, *_),) = await receivers.deliver()
        for wait, delivered in ((4.25, 0), (1.25, 1), (30.5, 0), (30.5, 1), (120.5, 1)):
            receivers.wait(wait)
            assert [first] * delivered == [number for number, *_ in await receivers.deliver()]
            await both("GET", f"{WEBHOOKS}/wh@0")
        await both("DELETE", f"{ORDERS}/4")
        await both("POST", f"{ORDERS}/1/ship")
        receivers.wait(5.5)
        await both("GET", f"{WEBHOOKS}/wh@0")
        ((_, _, _, changed),) = await receivers.deliver()
        assert [4, 1] == [order["id"] for order in changed["data"]["orders"]]
        await both("PATCH", f"{WEBHOOKS}/wh@0", {"after": "token@0", "statuses": ["cancelled"]})
        ((_, _, _, again),) = await receivers.deliver()
        assert [4] == [order["id"] for order in again["data"]["orders"]]
        receivers.next((410, {}, b"gone"))
        await both("PATCH", f"{WEBHOOKS}/wh@0", {"after": "beginning"})
        assert 1 == len(await receivers.deliver())
        for method, path, body in (("PATCH", "", {}), ("POST", "/ping", None), ("POST", "/rotate", None)):
            response = await both(method, f"{WEBHOOKS}/wh@0{path}", body)
            assert (409, "webhook_ended") == (response["status"], response["body"]["code"])
        assert [204, 410] == [each["status"] for each in (await both("GET", f"{WEBHOOKS}/wh@0"))["body"]["attempts"]][
            -2:
        ]
        await both("DELETE", f"{WEBHOOKS}/wh@0")


@with_webhooks
async def test_messages_have_as_many_orders(service: Service, stack: AsyncExitStack) -> None:
    async with both_receivers(service, stack) as receivers:
        order = {"petId": 1, "quantity": 1, "shipDate": "2026-11-20T12:00:00Z", "account": receivers.both.accounts[0]}
        for number in range(100, 200):
            await receivers.both("PUT", f"{ORDERS}/{number}", {**order, "reference": f"{number:064}"})
        await receivers.both("POST", WEBHOOKS, {"url": "hook@", "after": "beginning"})
        first, _ = await receivers.deliver()
        assert 50 < len(first[3]["data"]["orders"]) < 100


@with_webhooks
async def test_after_a_restore_both_begin_again(
    deployment: Deployment, service: Service, stack: AsyncExitStack, tmp_path: Path
) -> None:
    async with both_receivers(service, stack) as receivers:
        await receivers.both("POST", WEBHOOKS, {"url": "hook@", "after": "beginning"})
        (before,) = await receivers.deliver()
        backup(deployment.store, tmp_path / "backup.db")
        restore(deployment.store, tmp_path / "backup.db", BY)
        receivers.both.fake.restore()
        reset, again = await receivers.deliver()
        assert ("orders.reset", before[3]["data"]["orders"]) == (reset[3]["type"], again[3]["data"]["orders"])


STATUSES = None, ["cancelled", "shipped"], ["pending"]


@with_webhooks
@pytest.mark.parametrize("seed", range(6))
async def test_random_changes_are_delivered_the_same(service: Service, stack: AsyncExitStack, seed: int) -> None:
    async with both_receivers(service, stack) as receivers:
        both, source = receivers.both, random.Random(seed)
        requests, sent = Requests(seed, both.accounts), 0
        await both("POST", WEBHOOKS, {"url": "hook@", "statuses": STATUSES[seed % 3], "after": "beginning"})
        for _ in range(60):
            method, path, body, headers = request_of(requests.operation())  # a batch has one time for all its orders
            await both(method, path, body, **headers)
            if source.random() < 0.3:
                status = source.choice([200, 202, 500, 429])
                receivers.next((status, source.choice([{}, {"Retry-After": "10"}]), b"\x1b[2Jtext\r\n\xff\xe2\x80\xae"))
            if source.random() < 0.5:
                receivers.wait(source.choice([1.25, 5.5, 40]))
            if source.random() < 0.2:
                changes = [{"state": "paused"}, {"state": "active"}, {"statuses": None}, {"statuses": ["pending"]}]
                change = source.choice([*changes, {"after": "now"}, {"after": "beginning"}])
                await both("PATCH", f"{WEBHOOKS}/wh@0", change)
            if source.random() < 0.1:
                await both("POST", f"{WEBHOOKS}/wh@0/rotate", {"grace": source.choice([0, 1, 6])})
            if source.random() < 0.1:
                await both("POST", f"{WEBHOOKS}/wh@0/ping")
            if source.random() < 0.5:
                sent += len(await receivers.deliver())
                await both("GET", WEBHOOKS)
        assert sent > 0
