"""Placing orders in SQLite. Implements `ports.OrderPlacement` and `storage.placements.PlacementTable`."""

import json
from collections.abc import Sequence

import apsw

from petstore_server.domain.orders import Order
from petstore_server.domain.placement import KEY_LIFETIME, Placed, Placement
from petstore_server.ports import Actor
from petstore_server.storage.audit import INSERT_ENTRY
from petstore_server.storage.placements import Found, KeyName, PlacementRequest, Remembered, forget_keys, place_orders
from petstore_server.storage.sqlite.engine import run
from petstore_server.storage.sqlite.orders import OrderRows
from petstore_server.storage.sqlite.search import time_of_change
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.statements import Command, Commands, Queries, Query, Row, Work

_KNOWN = """
    SELECT known.account_id, known.key, digest, order_id, body
    FROM json_each(?) AS wanted CROSS JOIN idempotency_keys AS known
    ON known.account_id = wanted.value ->> 0 AND known.key = wanted.value ->> 1
    WHERE at > ?
"""
_LAST_ID = "SELECT max(last_order_id, coalesce((SELECT max(id) FROM orders), 0), 0) FROM order_index_state"
_ADVANCE = "UPDATE order_index_state SET last_order_id = ?"
_REMEMBER = (
    "INSERT OR REPLACE INTO idempotency_keys (account_id, key, digest, order_id, body, at) VALUES (?, ?, ?, ?, ?, ?)"
)


class SqlitePlacements:
    """Placed orders of one store, and their idempotency keys."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        return await self._writer.submit(_place, PlacementRequest(placement, actor))

    async def forget(self, before: float, limit: int) -> None:
        await self._writer.run(lambda connection: run(connection, forget_keys(before, limit)))


def _place(connection: apsw.Connection, requests: Sequence[PlacementRequest]) -> list[Placed | Exception]:
    return run(connection, place_orders(_PlacementTable(), requests))


class _PlacementTable:
    """Writes placed orders. A transaction has the whole store locked, so every key is free."""

    _at = 0.0

    def find(self, keys: Sequence[KeyName], at: float) -> Work[Found]:
        self._at = at
        known, [(last_id,)] = yield Queries((Query(_KNOWN, (json.dumps(keys), at - KEY_LIFETIME)), Query(_LAST_ID)))
        changed_at = yield from time_of_change(at)
        remembered = {(row[0], row[1]): Remembered(*row[2:]) for row in known}
        return Found([True] * len(keys), remembered, last_id, changed_at)

    def write(
        self, orders: Sequence[Order], records: Sequence[str], keys: Sequence[Row], audit: Sequence[Row]
    ) -> Work[None]:
        yield from OrderRows().insert(orders, records, self._at)
        yield Command(_ADVANCE, (orders[-1].id,))
        yield Commands(_REMEMBER, keys)
        yield Commands(INSERT_ENTRY, audit)
