"""Whose order it is: every operation, with every set of scopes, for each account, about the orders of all owners (D21).

The operations are taken from the routes: a new one fails these tests until the table has it. Operations of a batch are
rows of their own.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations, count
from typing import Any, NamedTuple

import psycopg
import pytest

from petstore_server.api.routes import ANY_KEY, Operation
from petstore_server.api.v2.bodies import MEMBERS
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.pets import Pet
from testing import wire
from testing.deployment import Deployment
from testing.partners import Partner, partner
from testing.service import Service
from testing.stores import BY

pytestmark = pytest.mark.usefixtures("each_deployment")
Name = tuple[str, ...]
"""An operation and its method; and the operation of a batch."""

OWNERS = ("own", "another's", "unowned", "nonexistent")
WEBHOOKS_TOO = frozenset({Scope.WEBHOOKS_MANAGE})
OTHERS = [scope for scope in Scope if scope is not Scope.WEBHOOKS_MANAGE]
SETS = [frozenset(each) for each in chain(*(combinations(OTHERS, size) for size in range(len(OTHERS) + 1)))]
SCOPES = [each | WEBHOOKS_TOO if number % 2 else each for number, each in enumerate(SETS)]
"""Every set of scopes; of those that differ only in webhooks:manage, which allows nothing about orders, one."""

MANY, MANY_SHIPPED = 200, 40
"""Orders of each owner: a request that may change one gets an order that no other cell is about."""

SHIPPED = 5_000  # by which the identifiers of shipped orders are larger
PLACED = 100_000  # the identifiers of placed orders begin here

CLOCK = "SELECT change, at, last_order_id FROM petstore.clock"
COUNTS = "SELECT (SELECT count(*) FROM petstore.audit), (SELECT count(*) FROM petstore.idempotency_keys)"
EVERYTHING = "SELECT * FROM petstore.orders ORDER BY id"


class Cell(NamedTuple):
    """A request about one order. `sees_all`: the account sees the orders of others."""

    order_id: int
    owner: str
    sees_all: bool

    @property
    def visible(self) -> bool:
        """Whether the order is there for the account."""
        return self.owner == "own" or (self.sees_all and self.owner != "nonexistent")

    @property
    def reference(self) -> str:
        return f"R-{self.order_id}"


class Asked(NamedTuple):
    """A request, and what comes back if the key has the scope: the status, and what the body then has, or has not.

    `shipped`: it is about orders that have shipped. `also` is another scope that it requires.
    """

    path: str
    expected: Callable[[Cell], int]
    shows: str = ""
    body: str = ""
    changes: bool = False
    shipped: bool = False
    also: Scope | None = None


def found(cell: Cell) -> int:
    return 200 if cell.visible else 404


def cancelled(cell: Cell) -> int:
    return 204 if cell.visible else 404


def placed(cell: Cell) -> int:
    """Only the account's own order keeps its reference from it, whatever the account sees."""
    return 409 if cell.owner == "own" else 201


def put(cell: Cell) -> int:
    """Where an account sees all orders, one that does not exist is created."""
    return 201 if cell.sees_all and not cell.visible else found(cell)


def always(cell: Cell) -> int:
    return 200


def no_webhook(cell: Cell) -> int:
    return 404


def refused(cell: Cell) -> int:
    """A webhook whose URL is refused is not created."""
    return 400


def batched(
    operation: str, more: str = "", expected: Callable[[Cell], int] = found, *, also: Scope | None = None
) -> Asked:
    """A batch of one operation, whose status is the one that is expected."""
    body = f'{{{{"operations":[{{{{"operation":"{operation}","orderId":{{id}}{more}}}}}]}}}}'
    shows = "" if operation == "cancel" else SHOWN
    return Asked(BATCH, expected, shows, body, changes=True, shipped=operation == "complete", also=also)


LIST = "/v1/store/orders"
ORDERS, USAGE, BATCH = "/v2/store/orders", "/v2/usage", "/v2/store/orders/batch"
WEBHOOKS = "/v2/webhooks"
BODY = '{{"petId":1,"quantity":1,"reference":"{reference}"}}'
PUT, UPDATE = '{{"petId":2,"reference":"{reference}"}}', '{{"quantity":2}}'
SHOWN = '{{"id":{id},'
TABLE: dict[Name, Asked] = {
    ("listOrders", "GET"): Asked(LIST, always, '{{"id":{id}'),
    ("listOrders", "HEAD"): Asked(LIST, always),
    ("cancelOrder", "DELETE"): Asked("/v1/store/orders/{id}", cancelled, changes=True),
    ("getPet", "GET"): Asked("/v1/pets/1", always),
    ("getPet", "HEAD"): Asked("/v1/pets/1", always),
    ("v2.listOrders", "GET"): Asked(f"{ORDERS}?reference={{reference}}", always, '{{"id":{id}'),
    ("v2.listOrders", "HEAD"): Asked(f"{ORDERS}?reference={{reference}}", always),
    ("v2.placeOrder", "POST"): Asked(ORDERS, placed, body=BODY, changes=True),
    ("v2.getOrder", "GET"): Asked(f"{ORDERS}/{{id}}", found, '{{"id":{id}'),
    ("v2.getOrder", "HEAD"): Asked(f"{ORDERS}/{{id}}", found),
    ("v2.cancelOrder", "DELETE"): Asked(f"{ORDERS}/{{id}}", cancelled, changes=True),
    ("v2.putOrder", "PUT"): Asked(f"{ORDERS}/{{id}}", put, SHOWN, PUT, changes=True),
    ("v2.updateOrder", "PATCH"): Asked(f"{ORDERS}/{{id}}", found, SHOWN, UPDATE, changes=True),
    ("v2.shipOrder", "POST"): Asked(f"{ORDERS}/{{id}}/ship", found, SHOWN, changes=True),
    ("v2.completeOrder", "POST"): Asked(f"{ORDERS}/{{id}}/complete", found, SHOWN, changes=True, shipped=True),
    ("v2.batchOrders", "POST", "put"): batched("put", f',"order":{PUT}', put),
    ("v2.batchOrders", "POST", "update"): batched("update", f',"changes":{UPDATE}'),
    ("v2.batchOrders", "POST", "ship"): batched("ship"),
    ("v2.batchOrders", "POST", "complete"): batched("complete"),
    ("v2.batchOrders", "POST", "cancel"): batched("cancel", "", cancelled, also=Scope.ORDERS_CANCEL),
    ("v2.listChanges", "GET"): Asked("/v2/store/changes?limit=1000", always, '{{"id":{id}'),
    ("v2.listWebhooks", "GET"): Asked(WEBHOOKS, always),
    ("v2.listWebhooks", "HEAD"): Asked(WEBHOOKS, always),
    ("v2.createWebhook", "POST"): Asked(
        WEBHOOKS, refused, body='{{"url":"http://shop.example"}}', also=Scope.ORDERS_READ
    ),
    ("v2.getWebhook", "GET"): Asked(f"{WEBHOOKS}/wh_1", no_webhook),
    ("v2.getWebhook", "HEAD"): Asked(f"{WEBHOOKS}/wh_1", no_webhook),
    ("v2.updateWebhook", "PATCH"): Asked(f"{WEBHOOKS}/wh_1", no_webhook, body='{{"state":"paused"}}'),
    ("v2.deleteWebhook", "DELETE"): Asked(f"{WEBHOOKS}/wh_1", no_webhook),
    ("v2.pingWebhook", "POST"): Asked(f"{WEBHOOKS}/wh_1/ping", no_webhook),
    ("v2.rotateWebhook", "POST"): Asked(f"{WEBHOOKS}/wh_1/rotate", no_webhook),
    ("v2.getUsage", "GET"): Asked(USAGE, always),
    ("v2.getUsage", "HEAD"): Asked(USAGE, always),
}


@dataclass
class Table:
    """The cells of one account on one engine, and what they have changed."""

    service: Service
    client: Partner
    orders: VisibleOrders
    operations: dict[tuple[str, str], Operation]
    cells: int = 0
    changed: set[int] = field(default_factory=set)
    created: int = 0
    _keys: Iterator[int] = field(default_factory=count)
    _numbers: dict[str, Iterator[int]] = field(
        default_factory=lambda: {owner: count(10_000 * place) for place, owner in enumerate(OWNERS, 1)}
    )
    _shipped: dict[str, Iterator[int]] = field(
        default_factory=lambda: {owner: count(10_000 * place + SHIPPED) for place, owner in enumerate(OWNERS, 1)}
    )
    _unchanged: dict[str, int] = field(default_factory=dict)

    async def row(self, name: Name, scopes: frozenset[Scope], key: str) -> None:
        """A request about the order of each owner; the account cannot tell those apart that it does not see."""
        operation, asked = self.operations[name[0], name[1]], TABLE[name]
        allowed = operation.scope == ANY_KEY or operation.scope in scopes
        allowed = allowed and (asked.also is None or asked.also in scopes)
        sees_accounts = self.orders is VisibleOrders.ALL and Scope.ORDERS_MANAGE in scopes
        responses: dict[str, bytes] = {}
        for owner in OWNERS:
            before = await self._state()
            cell = self._cell(owner, fresh=allowed and asked.changes, shipped=asked.shipped)
            response = await self._send(name[1], asked, cell, key)
            status = asked.expected(cell) if allowed else 403
            note = f"{name} with {sorted(scopes)}, {self.orders}: {owner} order {cell.order_id}"
            assert status == response.status, note
            is_change = asked.changes and status in (200, 201, 204)
            after = await self._state()
            assert is_change == (before != after), note
            assert all((one == other) != is_change for one, other in zip(before, after, strict=True)), note
            if is_change and status == 201:
                self.created += 1
            elif is_change:
                self.changed.add(cell.order_id)
            self._check(asked, cell, response, note)
            self._check_accounts(asked, response, note, sees_accounts=sees_accounts)
            responses[owner] = self._normal(asked, response, cell)
            self.cells += 1
        same = OWNERS[1:] if allowed and self.orders is VisibleOrders.OWN else OWNERS if not allowed else ()
        assert 1 >= len({responses[owner] for owner in same}), (name, scopes, responses)

    def _cell(self, owner: str, *, fresh: bool, shipped: bool) -> Cell:
        numbers = self._shipped if shipped else self._numbers
        order_id = next(numbers[owner]) if fresh or owner not in self._unchanged else self._unchanged[owner]
        if not fresh:
            self._unchanged[owner] = order_id
        return Cell(order_id, owner, self.orders is VisibleOrders.ALL)

    async def _send(self, method: str, asked: Asked, cell: Cell, key: str) -> "Received":
        values = {"id": cell.order_id, "reference": cell.reference}
        body = asked.body.format(**values)
        lines = ["Content-Type: application/json", f"Idempotency-Key: {next(self._keys):06}"] if body else []
        target = asked.path.format(**values)
        head = wire.head(
            method, target, "Connection: close", "X-Request-Id: r", f"Content-Length: {len(body)}", *lines, key=key
        )
        return Received(await wire.send(self.service.transport.port, head + body.encode()))

    def _check(self, asked: Asked, cell: Cell, response: "Received", note: str) -> None:
        shown = asked.shows.format(id=cell.order_id).encode()
        if shown and response.status in (200, 201, 404):
            assert (cell.visible or response.status == 201) == (shown in response.raw), note
        if response.status == 409:
            assert f"Location: orders/{cell.order_id}\r\n".encode() in response.raw, note
            assert b'"code":"reference_in_use"' in response.raw, note

    def _check_accounts(self, asked: Asked, response: "Received", note: str, *, sees_accounts: bool) -> None:
        """Only the shop's own systems see whose each order is."""
        for order in response.orders():
            is_owned = order["id"] < 30_000 or order["id"] >= PLACED
            assert (sees_accounts and is_owned and asked.path != LIST) == ("account" in order), f"{note}: {order}"

    def _normal(self, asked: Asked, response: "Received", cell: Cell) -> bytes:
        """The response without its limit headers, and without what differs for any two orders."""
        raw = re.sub(rb"(?<![0-9])%d(?![0-9])" % cell.order_id, b"0", response.raw)
        raw = re.sub(rb"(?mi)^(x-ratelimit|ratelimit)[^\r]*\r\n", b"", raw)
        if response.status == 201 or asked.path == USAGE:  # times, a new identifier, and what was used
            return re.sub(rb"[0-9]+", b"0", re.sub(rb"(?mi)^etag[^\r]*\r\n", b"", raw))
        return raw

    async def _state(self) -> tuple[tuple[Any, ...], int]:
        """The clock, and the number of audit entries. With these unchanged, no order was changed."""
        query = self.service.backend.store.engine.query
        [clock], [counts] = await query(CLOCK), await query(COUNTS)
        return clock, counts[0]


class Received:
    """A response as it was received. `status` of a batch is that of its operation."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        head, _, body = raw.partition(b"\r\n\r\n")
        self._body = json.loads(body) if body else {}
        results = self._body.get("results", []) if isinstance(self._body, dict) else []
        self.status = int(results[0]["status"] if results else head.split(b" ", 2)[1])

    def orders(self) -> Any:
        """All orders that it has."""
        if isinstance(self._body, list):
            return self._body
        if "results" in self._body:
            return [result["order"] for result in self._body["results"] if "order" in result]
        return self._body.get("data", [self._body] if "createdAt" in self._body else [])


def operations_of(service: Service) -> dict[tuple[str, str], Operation]:
    """Every operation by its identifier and method."""
    routes = service.application.routes.all
    return {(operation.id, method): operation for route in routes for method, operation in route.operations.items()}


@contextmanager
def others_locked(deployment: Deployment, owner: int) -> Iterator[None]:
    """On PostgreSQL, no request can lock an order of another owner: another program has locked them all."""
    url = deployment.engines.get("PETSTORE_DATABASE_URL", "")
    with ExitStack() as stack:
        if url:
            other = stack.enter_context(psycopg.connect(url))
            other.execute("SELECT FROM petstore.orders WHERE account_id IS DISTINCT FROM %s FOR UPDATE", [owner])
        yield
        if url:
            other.rollback()


@pytest.mark.settings(PETSTORE_ASSIGNED_IDS_FROM=str(PLACED), PETSTORE_WEBHOOK_SECRET="s" * 32)
@pytest.mark.parametrize("orders", VisibleOrders)
async def test_whose_order_it_is(service: Service, deployment: Deployment, orders: VisibleOrders) -> None:
    client, another = await partner(service, orders), await partner(service)
    accounts = {"own": client.account, "another's": another.account, "unowned": None}
    stored = [
        Order(first + number, 1, 1, status=status, reference=f"R-{first + number}", account=account)
        for place, account in enumerate(accounts.values(), 1)
        for first, many, status in (
            (10_000 * place, MANY, Status.PENDING),
            (10_000 * place + SHIPPED, MANY_SHIPPED, Status.SHIPPED),
        )
        for number in range(many)
    ]
    await service.orders(*stored)
    await service.backend.store.pets.import_batch([Pet(1, "Rex")], "import:1", BY)
    operations = operations_of(service)
    assert set(operations) == {name[:2] for name in TABLE}, "TABLE lacks an operation, or has one that is gone"
    in_batches = {name[2] for name in TABLE if len(name) > 2}
    assert set(MEMBERS) == in_batches, "TABLE lacks an operation of a batch, or has one that is gone"
    table = Table(service, client, orders, operations)
    query = service.backend.store.engine.query
    before = {row[0]: row for row in await query(EVERYTHING, short=False)}
    [(entries, _)] = await query(COUNTS)
    with others_locked(deployment, client.id) if orders is VisibleOrders.OWN else ExitStack():
        for scopes in SCOPES:
            key = await service.key(client.account, scopes=scopes)
            entries += 1
            for name in TABLE:
                await table.row(name, scopes, key)
    assert len(TABLE) * len(SCOPES) * len(OWNERS) == table.cells
    after = {row[0]: row for row in await query(EVERYTHING, short=False)}
    assert table.changed == {order_id for order_id, row in before.items() if after[order_id] != row}
    assert table.created == len(after) - len(before)
    assert entries + table.created + len(table.changed) == (await query(COUNTS))[0][0]
