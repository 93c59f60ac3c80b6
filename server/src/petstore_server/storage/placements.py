"""Placed orders in batches, as a transaction that every engine runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from petstore_server.domain.errors import IdempotencyKeyInUse, IdempotencyKeyReused, ServiceUnavailable
from petstore_server.domain.orders import INT64_MAX, Order
from petstore_server.domain.placement import NO_IDENTIFIER_LEFT, Placed, Placement
from petstore_server.domain.search import TrackedOrder
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, audit_row
from petstore_server.storage.statements import Command, Row, Work

_FORGET = """
    DELETE FROM petstore.idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM petstore.idempotency_keys WHERE at <= %s LIMIT %s
    )
"""

KeyName = tuple[int, str]
"""The account of an idempotency key, and the key."""


class Remembered(NamedTuple):
    """What is stored under an idempotency key."""

    digest: bytes
    order_id: int
    body: str


class PlacementRequest(NamedTuple):
    """One caller's order."""

    placement: Placement
    actor: Actor

    @property
    def key(self) -> KeyName:
        return self.placement.account_id, self.placement.key


class Found(NamedTuple):
    """What a store knows before orders are placed.

    `free` says for each key whether no other transaction is using it. `last_id` is the largest identifier ever
    assigned to an order, at least 0. `changed_at` is the time that the change will have, in Unix microseconds.
    """

    free: Sequence[bool]
    known: Mapping[KeyName, Remembered]
    last_id: int
    changed_at: int


class PlacementTable(Protocol):
    """How an engine stores placed orders."""

    def find(self, keys: Sequence[KeyName], at: float) -> Work[Found]:
        """Prepare a change at `at` (Unix seconds), and find the keys that were used in the KEY_LIFETIME before.

        Until the commit no other transaction places an order.
        """

    def write(
        self, orders: Sequence[Order], records: Sequence[str], keys: Sequence[Row], audit: Sequence[Row]
    ) -> Work[None]:
        """Write new orders, ascending; used keys, (account, key, digest, order, body, Unix seconds); audit entries."""


def forget_keys(before: float, limit: int) -> Work[None]:
    """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
    yield Command(_FORGET, (before, limit))


def place_orders(table: PlacementTable, requests: Sequence[PlacementRequest]) -> Work[list[Placed | Exception]]:
    """Place an order for each new key; return what was placed under each request's key, or the error of its caller."""
    keys = [request.key for request in requests]
    free, known, last_id, changed_at = yield from table.find(keys, max(request.actor.at for request in requests))
    first: dict[KeyName, PlacementRequest] = {}
    for request, key, is_free in zip(requests, keys, free, strict=True):
        if is_free and key not in known:
            first.setdefault(key, request)
    new = list(first.values())[: INT64_MAX - last_id]
    stored = {**known, **((yield from _store(table, new, last_id, changed_at)) if new else {})}

    def outcome(request: PlacementRequest, is_free: bool) -> Placed | Exception:
        if not is_free:
            return IdempotencyKeyInUse()
        found = stored.get(request.key)
        if found is None:
            return ServiceUnavailable(NO_IDENTIFIER_LEFT)
        if first.get(request.key) is request:
            return Placed(found.order_id, found.body.encode())
        try:
            return request.placement.replay(found.digest, found.order_id, found.body.encode())
        except IdempotencyKeyReused as error:
            return error

    return [outcome(request, is_free) for request, is_free in zip(requests, free, strict=True)]


def _store(
    table: PlacementTable, requests: Sequence[PlacementRequest], last_id: int, at: int
) -> Work[dict[KeyName, Remembered]]:
    """Store a new order for each request, with its audit entry and its idempotency key, at `at` (Unix microseconds)."""
    orders = [request.placement.order(order_id) for order_id, request in enumerate(requests, last_id + 1)]
    records = [order.record() for order in orders]
    stored = {
        request.key: Remembered(request.placement.digest, order.id, TrackedOrder(record, order.status, at, at).text())
        for request, order, record in zip(requests, orders, records, strict=True)
    }
    audit = [
        audit_row(request.actor, "order.place", f"order:{order.id}", Change(None, order.fields()))
        for request, order in zip(requests, orders, strict=True)
    ]
    used = [
        (*key, *remembered, request.actor.at)
        for request, (key, remembered) in zip(requests, stored.items(), strict=True)
    ]
    yield from table.write(orders, records, used, audit)
    return stored
