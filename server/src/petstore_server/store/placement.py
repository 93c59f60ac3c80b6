"""Placed orders: those that come together share a commit, and an idempotency key gets one order (D20)."""

from collections.abc import Sequence

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import IdempotencyKeyInUse, IdempotencyKeyReused, ServiceUnavailable
from petstore_server.domain.placement import KEY_LIFETIME, NO_IDENTIFIER_LEFT, Placed, Placement
from petstore_server.store.audit import audit_row
from petstore_server.store.engine import Command, Part, Row, Work, transaction
from petstore_server.store.records import order_row

_FORGET = """
    DELETE FROM petstore.idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM petstore.idempotency_keys WHERE at <= %s LIMIT %s
    )
"""
_NO_IDENTIFIER = '{"id":0'
"""How the JSON of an order begins that has no identifier yet."""

PlacementRequest = tuple[Placement, Actor]
"""One caller's order."""


class Placements(Part):
    """Placed orders of one store, and their idempotency keys."""

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order under an identifier larger than all used before; return once it is durable (D20).

        The idempotency key is kept for KEY_LIFETIME in the same transaction; a repeated request gets the same
        response. Nothing is kept of a request that fails. Raises IdempotencyKeyReused, IdempotencyKeyInUse.
        """
        return await self._engine.submit(self._place_all, (placement, actor), placement.account_id)

    @transaction
    def forget(self, before: float, limit: int) -> Work[None]:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
        yield Command(_FORGET, (before, limit))

    async def last_identifier(self) -> int:
        """Return the largest identifier ever assigned to an order; 0 before the first."""
        [(last,)] = await self._engine.query("SELECT last_order_id FROM petstore.clock")
        return int(last)

    def _place_all(self, requests: Sequence[PlacementRequest]) -> Work[list[Placed | Exception]]:
        """Place an order for each new key; return what was placed under each request's key, or the caller's error."""
        now = max(actor.at for _, actor in requests)
        keys = [(placement.account_id, placement.key) for placement, _ in requests]
        free, known = yield from self._engine.dialect.find_keys(keys, now - KEY_LIFETIME)
        stored: dict[tuple[int, str], Row] = {(row[0], row[1]): row[2:] for row in known}
        first: dict[tuple[int, str], PlacementRequest] = {}
        for request, key, is_free in zip(requests, keys, free, strict=True):
            if is_free and key not in stored:
                first.setdefault(key, request)
        if first:
            placed = yield from self._engine.dialect.place_orders([_row(*each) for each in first.values()], now)
            for (key, (placement, _)), assigned in zip(first.items(), placed, strict=False):
                stored[key] = placement.digest, *assigned
        return [
            _outcome(request[0], stored.get(key), is_free=is_free, is_first=first.get(key) is request)
            for request, key, is_free in zip(requests, keys, free, strict=True)
        ]


def _outcome(placement: Placement, found: Row | None, *, is_free: bool, is_first: bool) -> Placed | Exception:
    """The outcome of a request whose key was used for `found`: digest, order and Unix microseconds of its placement."""
    if not is_free:
        return IdempotencyKeyInUse()
    if found is None:
        return ServiceUnavailable(NO_IDENTIFIER_LEFT)
    digest, order_id, placed_at = found
    if digest != placement.digest:
        return IdempotencyKeyReused()
    return placement.placed(order_id, placed_at, replayed=not is_first)


def _row(placement: Placement, actor: Actor) -> Row:
    """The row for `Dialect.place_orders`."""
    order = placement.order(0)
    _, _, pet_id, _, ship_date, record = order_row(order)
    after = str(audit_row(actor, "order.place", "", Change(None, order.fields()))[-1])
    record, after = record.removeprefix(_NO_IDENTIFIER), after.removeprefix(_NO_IDENTIFIER)
    key = placement.account_id, placement.key, placement.digest
    return pet_id, ship_date, record, *key, actor.at, actor.name, after
