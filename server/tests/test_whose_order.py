"""Whose order it is: every operation, with every set of scopes, for each account, about the orders of all owners (D21).

The operations are taken from the routes: a new one fails these tests until the table has it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations, count
from typing import Any, NamedTuple

import psycopg
import pytest

from petstore_server.api.routes import ANY_KEY, Operation
from petstore_server.domain.accounts import VisibleOrders
from petstore_server.domain.keys import Scope
from petstore_server.domain.orders import Order
from petstore_server.domain.pets import Pet
from testing import wire
from testing.deployment import Deployment
from testing.partners import Partner, partner
from testing.service import Service
from testing.stores import BY

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_deployment")]

OWNERS = ("own", "another's", "unowned", "nonexistent")
SCOPES = [frozenset(each) for each in chain(*(combinations(Scope, size) for size in range(len(Scope) + 1)))]
MANY = 60
"""Orders of each owner: a request that may change one gets an order that no other cell is about."""

CLOCK = "SELECT change, at, last_order_id FROM petstore.clock"
COUNTS = "SELECT (SELECT count(*) FROM petstore.audit), (SELECT count(*) FROM petstore.idempotency_keys)"
EVERYTHING = "SELECT * FROM petstore.orders ORDER BY id"


class Cell(NamedTuple):
    """A request about one order. `visible`: the order is there for the account."""

    order_id: int
    owner: str
    visible: bool

    @property
    def reference(self) -> str:
        return f"R-{self.order_id}"


class Asked(NamedTuple):
    """A request, and what comes back if the key has the scope: the status, and what the body then has, or has not."""

    path: str
    expected: Callable[[Cell], int]
    shows: str = ""
    body: str = ""
    changes: bool = False


def found(cell: Cell) -> int:
    return 200 if cell.visible else 404


def cancelled(cell: Cell) -> int:
    return 204 if cell.visible else 404


def placed(cell: Cell) -> int:
    """Only the account's own order keeps its reference from it, whatever the account sees."""
    return 409 if cell.owner == "own" else 201


def always(cell: Cell) -> int:
    return 200


ORDERS, USAGE = "/v2/store/orders", "/v2/usage"
BODY = '{{"petId":1,"quantity":1,"reference":"{reference}"}}'
TABLE = {
    ("listOrders", "GET"): Asked("/v1/store/orders", always, '{{"id":{id}'),
    ("listOrders", "HEAD"): Asked("/v1/store/orders", always),
    ("cancelOrder", "DELETE"): Asked("/v1/store/orders/{id}", cancelled, changes=True),
    ("getPet", "GET"): Asked("/v1/pets/1", always),
    ("getPet", "HEAD"): Asked("/v1/pets/1", always),
    ("v2.listOrders", "GET"): Asked(f"{ORDERS}?reference={{reference}}", always, '{{"id":{id}'),
    ("v2.listOrders", "HEAD"): Asked(f"{ORDERS}?reference={{reference}}", always),
    ("v2.placeOrder", "POST"): Asked(ORDERS, placed, body=BODY, changes=True),
    ("v2.getOrder", "GET"): Asked(f"{ORDERS}/{{id}}", found, '{{"id":{id}'),
    ("v2.getOrder", "HEAD"): Asked(f"{ORDERS}/{{id}}", found),
    ("v2.cancelOrder", "DELETE"): Asked(f"{ORDERS}/{{id}}", cancelled, changes=True),
    ("v2.listChanges", "GET"): Asked("/v2/store/changes?limit=1000", always, '{{"id":{id}'),
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
    placed: int = 0
    _keys: Iterator[int] = field(default_factory=count)
    _numbers: dict[str, Iterator[int]] = field(
        default_factory=lambda: {owner: count(10_000 * place) for place, owner in enumerate(OWNERS, 1)}
    )
    _unchanged: dict[str, int] = field(default_factory=dict)

    async def row(self, name: tuple[str, str], scopes: frozenset[Scope], key: str) -> None:
        """A request about the order of each owner; the account cannot tell those apart that it does not see."""
        operation, asked = self.operations[name], TABLE[name]
        allowed = operation.scope == ANY_KEY or operation.scope in scopes
        responses: dict[str, bytes] = {}
        for owner in OWNERS:
            before = await self._state()
            cell = self._cell(owner, fresh=allowed and asked.changes)
            response = await self._send(name[1], asked, cell, key)
            status = asked.expected(cell) if allowed else 403
            note = f"{name} with {sorted(scopes)}, {self.orders}: {owner} order {cell.order_id}"
            assert status == response.status, note
            is_change = asked.changes and status in (201, 204)
            after = await self._state()
            assert is_change == (before != after), note
            assert all((one == other) != is_change for one, other in zip(before, after, strict=True)), note
            self._note(name[1], cell, is_change)
            self._check(asked, cell, response, note)
            responses[owner] = self._normal(asked, response, cell)
            self.cells += 1
        same = OWNERS[1:] if allowed and self.orders is VisibleOrders.OWN else OWNERS if not allowed else ()
        assert 1 >= len({responses[owner] for owner in same}), (name, scopes, responses)

    def _cell(self, owner: str, *, fresh: bool) -> Cell:
        order_id = next(self._numbers[owner]) if fresh or owner not in self._unchanged else self._unchanged[owner]
        if not fresh:
            self._unchanged[owner] = order_id
        exists = owner != "nonexistent"
        return Cell(order_id, owner, exists and (self.orders is VisibleOrders.ALL or owner == "own"))

    async def _send(self, method: str, asked: Asked, cell: Cell, key: str) -> "Received":
        values = {"id": cell.order_id, "reference": cell.reference}
        body = asked.body.format(**values)
        lines = ["Content-Type: application/json", f"Idempotency-Key: {next(self._keys):06}"] if body else []
        target = asked.path.format(**values)
        head = wire.head(
            method, target, "Connection: close", "X-Request-Id: r", f"Content-Length: {len(body)}", *lines, key=key
        )
        return Received(await wire.send(self.service.transport.port, head + body.encode()))

    def _note(self, method: str, cell: Cell, is_change: bool) -> None:
        if is_change and method == "DELETE":
            self.changed.add(cell.order_id)
        elif is_change:
            self.placed += 1

    def _check(self, asked: Asked, cell: Cell, response: "Received", note: str) -> None:
        shown = asked.shows.format(id=cell.order_id).encode()
        if shown and response.status in (200, 404):
            assert cell.visible == (shown in response.raw), note
        if response.status == 409:
            assert f"location: orders/{cell.order_id}\r\n".encode() in response.raw, note
            assert b'"code":"reference_in_use"' in response.raw, note

    def _normal(self, asked: Asked, response: "Received", cell: Cell) -> bytes:
        """The response without its limit headers, and without what differs for any two orders."""
        raw = re.sub(rb"(?<![0-9])%d(?![0-9])" % cell.order_id, b"0", response.raw)
        raw = re.sub(rb"(?m)^(x-ratelimit|ratelimit)[^\r]*\r\n", b"", raw)
        if response.status == 201 or asked.path == USAGE:  # times, a new identifier, and what was used
            return re.sub(rb"[0-9]+", b"0", re.sub(rb"(?m)^etag[^\r]*\r\n", b"", raw))
        return raw

    async def _state(self) -> tuple[tuple[Any, ...], int]:
        """The clock, and the number of audit entries. With these unchanged, no order was changed."""
        query = self.service.backend.store.engine.query
        [clock], [counts] = await query(CLOCK), await query(COUNTS)
        return clock, counts[0]


class Received:
    """A response as it was received."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.status = int(raw.split(b" ", 2)[1])


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


@pytest.mark.parametrize("orders", VisibleOrders)
async def test_whose_order_it_is(service: Service, deployment: Deployment, orders: VisibleOrders) -> None:
    client, another = await partner(service, orders), await partner(service)
    accounts = {"own": client.account, "another's": another.account, "unowned": None}
    stored = [
        Order(number, 1, 1, reference=f"R-{number}", account=account)
        for place, account in enumerate(accounts.values(), 1)
        for number in range(10_000 * place, 10_000 * place + MANY)
    ]
    await service.orders(*stored)
    await service.backend.store.pets.import_batch([Pet(1, "Rex")], "import:1", BY)
    operations = operations_of(service)
    assert set(operations) == set(TABLE)
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
    assert len(TABLE) * len(SCOPES) * len(OWNERS) == table.cells == 896
    after = {row[0]: row for row in await query(EVERYTHING, short=False)}
    assert table.changed == {order_id for order_id, row in before.items() if after[order_id] != row}
    assert table.placed == len(after) - len(before)
    assert entries + table.placed + len(table.changed) == (await query(COUNTS))[0][0]
