"""Placing orders in SQLite. Implements `ports.OrderPlacement`."""

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.domain.orders import INT64_MAX
from petstore_server.domain.placement import KEY_LIFETIME, NO_IDENTIFIER_LEFT, Placed, Placement
from petstore_server.domain.search import TrackedOrder
from petstore_server.ports import Actor
from petstore_server.storage.audit import Change, record
from petstore_server.storage.sqlite.engine import run
from petstore_server.storage.sqlite.search import log_change
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.statements import Command, Query, Work

_KNOWN = "SELECT digest, order_id, body FROM idempotency_keys WHERE account_id = ? AND key = ? AND at > ?"
_LAST_ID = "SELECT max(last_order_id, coalesce((SELECT max(id) FROM orders), 0), 0) FROM order_index_state"
_INSERT = """
    INSERT INTO orders (id, status, revision, record, changed)
    SELECT ?, ?, coalesce(max(revision), 0) + 1, ?, ? FROM orders
"""
_REMEMBER = (
    "INSERT OR REPLACE INTO idempotency_keys (account_id, key, digest, order_id, body, at) VALUES (?, ?, ?, ?, ?, ?)"
)
_FORGET = """
    DELETE FROM idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM idempotency_keys WHERE at <= ? LIMIT ?
    )
"""


class SqlitePlacements:
    """Placed orders of one store, and their idempotency keys."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order. Raises IdempotencyKeyReused, ServiceUnavailable."""
        return await self._writer.run(lambda connection: run(connection, _place(placement, actor)))

    async def forget(self, before: float, limit: int) -> None:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
        await self._writer.run(lambda connection: connection.execute(_FORGET, (before, limit)))


def _place(placement: Placement, actor: Actor) -> Work[Placed]:
    known = yield Query(_KNOWN, (placement.account_id, placement.key, actor.at - KEY_LIFETIME))
    if known:
        digest, order_id, body = known[0]
        return placement.replay(digest, order_id, body.encode())
    [(last,)] = yield Query(_LAST_ID)
    if last == INT64_MAX:
        raise ServiceUnavailable(NO_IDENTIFIER_LEFT)
    order = placement.order(last + 1)
    change, at = yield from log_change([order.id], actor.at)
    yield Command(_INSERT, (order.id, str(order.status), order.record(), change))
    yield Command("UPDATE order_index_state SET last_order_id = ?", (order.id,))
    yield record(actor, "order.place", f"order:{order.id}", Change(None, order.fields()))
    body = TrackedOrder(order.record(), order.status, at, at).text()
    yield Command(_REMEMBER, (placement.account_id, placement.key, placement.digest, order.id, body, actor.at))
    return Placed(order.id, body.encode())
