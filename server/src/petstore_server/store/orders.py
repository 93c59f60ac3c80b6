"""Orders: changes and placed orders, which share commits; imports, which commit in batches; and reads of orders."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import partial
from operator import attrgetter

from petstore_server.domain import lists
from petstore_server.domain.audit import Actor, Change, Transition
from petstore_server.domain.errors import IdempotencyKeyInUse, IdempotencyKeyReused, NoIdentifierLeft, OrderNotFound
from petstore_server.domain.imports import Rejected, audit_change, evaluate, id_ranges
from petstore_server.domain.orders import (
    KEY_LIFETIME,
    MAX_ASSIGNED_ID,
    ORDER_FIELDS,
    PLACE,
    ImportOutcome,
    Order,
    Placed,
    Placement,
    evaluate_import,
)
from petstore_server.store.audit import audit_row
from petstore_server.store.engine import Command, Part, Query, Row, TryAgain, Work, bulk_transaction, one, transaction
from petstore_server.store.imports import add_batch, note
from petstore_server.store.pages import read_page
from petstore_server.store.records import order_row, read_order

AUDITED_TOGETHER = 1000  # orders in a batch of an import

_ALL = lists.Filters()
_COLUMNS = "record, status, id, reference"  # for `read_order`
_WITH_IDS = "FROM petstore.orders WHERE id = ANY(%s::bigint[])"
_FIND_MANY = f"SELECT {_COLUMNS} {_WITH_IDS}"
# In ascending order, as in every transaction, so that two of them never wait for each other.
LOCK = f"{_FIND_MANY} ORDER BY id FOR UPDATE"
_FIND_ORIGINS = f"SELECT {_COLUMNS}, placed, imported {_WITH_IDS}"
_PLACED = f"SELECT id {_WITH_IDS} AND placed = 1"
_FORGET = """
    DELETE FROM petstore.idempotency_keys WHERE (account_id, key) IN (
        SELECT account_id, key FROM petstore.idempotency_keys WHERE at <= %s LIMIT %s
    )
"""
_NO_IDENTIFIER = '{"id":0'  # how the JSON of an order begins that has no identifier yet

OrderChange = tuple[int, Transition[Order], Actor]
PlacementRequest = tuple[Placement, Actor]


class Orders(Part):
    async def change(self, order_id: int, transition: Transition[Order], actor: Actor, account_id: int = 0) -> Order:
        """Apply the transition and return the order after it, once both it and its audit entry are durable.

        Concurrent changes share a commit; each has its own outcome. Raises OrderNotFound, OrderConflict, DamagedRecord.
        """
        return await self._engine.submit(self._change_all, (order_id, transition, actor), account_id)

    async def place(self, placement: Placement, actor: Actor) -> Placed:
        """Store a new order under the next identifier up to MAX_ASSIGNED_ID; return once it is durable (D20).

        The idempotency key is kept for KEY_LIFETIME in the same transaction; a repeated request gets the same
        response. Nothing is kept of a request that fails. Raises IdempotencyKeyReused, IdempotencyKeyInUse,
        NoIdentifierLeft.
        """
        return await self._engine.submit(self._place_all, (placement, actor), placement.account_id)

    @transaction
    def forget(self, before: float, limit: int) -> Work[None]:
        """Delete at most `limit` idempotency keys that were used before `before` (Unix seconds)."""
        yield Command(_FORGET, (before, limit))

    async def last_identifier(self) -> int:
        """Return the largest identifier ever assigned to an order; 0 before the first."""
        [(last,)] = await self._engine.query("SELECT last_order_id FROM petstore.clock WHERE one = 1")
        return int(last)

    async def find(self, order_id: int) -> Order:
        """Return the order. Raises OrderNotFound, DamagedRecord."""
        return one(await self.find_many([order_id]), OrderNotFound, order_id)

    async def find_many(self, ids: Sequence[int]) -> list[Order]:
        """The orders that exist among these identifiers, in any order."""
        return [read_order(*row) for row in await self._engine.query(_FIND_MANY, (list(ids),), short=len(ids) == 1)]

    async def scan(
        self, filters: lists.Filters = _ALL, batch_size: int = lists.MAX_LIMIT
    ) -> AsyncGenerator[list[Order]]:
        """Yield the orders of one consistent snapshot that match, ascending by id, in bounded memory.

        A batch may be empty. A read transaction is held until the end: a caller that may stop earlier uses `aclosing`.
        """
        query = lists.PageQuery(filters, lists.Sort(), batch_size)
        async with self._engine.snapshot() as read:
            more = True
            while more:
                page = await read(partial(read_page, query, self._engine.dialect))
                yield [read_order(row[0], row[1], row[5], row[4]) for row in page.rows]
                query, more = query._replace(after=page.next), page.next is not None

    async def placed(self, ids: Sequence[int]) -> list[int]:
        """The orders among these identifiers that were placed over the API."""
        return [row[0] for row in await self._engine.query(_PLACED, (list(ids),), short=False)]

    @bulk_transaction
    def import_batch(
        self,
        orders: Sequence[Order],
        import_id: str,
        actor: Actor,
        *,
        replace_placed: bool = False,
        placed: Collection[int] = (),
        file: str = "",
        rejected: Callable[[Sequence[ImportOutcome]], Rejected] = lambda _: Rejected(),
    ) -> Work[list[ImportOutcome]]:
        """Import the orders in one transaction, and add to the import's record; return the outcome of each.

        Only these orders are locked (D6). Those that were placed over the API, and those in `placed`, are replaced only
        with `replace_placed`. `file` is the name in the record, and `rejected` returns what is rejected, by the
        outcomes. Raises DamagedRecord if a stored one cannot be read.
        """
        outcomes: list[ImportOutcome] = []
        for at in range(0, len(orders), AUDITED_TOGETHER):
            batch = orders[at : at + AUDITED_TOGETHER]
            outcomes += yield from self._import(batch, import_id, actor, None if replace_placed else placed)
        yield from note("orders", import_id, actor, file, outcomes, rejected(outcomes))
        return outcomes

    def _import(
        self, orders: Sequence[Order], import_id: str, actor: Actor, placed: Collection[int] | None
    ) -> Work[list[ImportOutcome]]:
        """Import the orders; with `placed` None, also over those that were placed."""
        rows = yield from _locked_rows(sorted({order.id for order in orders}))
        existing = {row[2]: read_order(*row[:4]) for row in rows}
        kept = set() if placed is None else {*placed, *(row[2] for row in rows if row[4])}
        outcomes, changed = evaluate(orders, existing, lambda old, new: evaluate_import(old, new, new.id in kept))
        if not changed:
            return outcomes
        new = sorted([order for order in changed.values() if order.id not in existing])
        replaced = [order for order in changed.values() if order.id in existing]
        before, after = audit_change("orders", existing, changed, outcomes)
        if new:
            after = {**(after or {}), "createdIds": id_ranges([order.id for order in new])}
        previous = {row[2]: row[5] for row in rows if row[2] in changed}
        batch = yield from add_batch(import_id, actor, Change(before, after), previous)
        if new:
            assignable = bisect_right(new, MAX_ASSIGNED_ID, key=attrgetter("id"))
            last_id = new[assignable - 1].id if assignable else 0
            yield from self._engine.dialect.insert_orders([order_row(order) for order in new], last_id, actor.at, batch)
        if replaced:
            rows = [_changed_row(existing[order.id], order) for order in replaced]
            yield from self._engine.dialect.update_orders(rows, (), actor.at, batch)
        return outcomes

    def _change_all(self, changes: Sequence[OrderChange]) -> Work[list[Order | Exception]]:
        """Apply the changes one after another; return each one's order after it, or the error that its caller gets.

        Everything is decided before anything is written: a change that fails, or has to wait, does not affect others.
        """
        wanted = sorted({order_id for order_id, _, _ in changes})
        stored = {row[2]: row for row in (yield from self._engine.dialect.lock_orders(wanted))}
        before: dict[int, Order] = {}
        after: dict[int, Order] = {}
        audit: list[Row] = []
        outcomes: list[Order | Exception] = []
        for order_id, transition, actor in changes:
            try:
                if order_id not in before:
                    before[order_id] = after[order_id] = _locked(order_id, stored.get(order_id))
                order = transition.apply(after[order_id])
                difference = _difference(after[order_id], order)
                audit.append(audit_row(actor, transition.action, f"order:{order_id}", difference))
                after[order_id] = order
                outcomes.append(order)
            except Exception as error:  # noqa: BLE001 - for its caller: even a defect must not affect the others
                outcomes.append(error)
        if audit:
            rows = [_changed_row(before[key], order) for key, order in after.items() if order != before[key]]
            now = max(actor.at for _, _, actor in changes)
            yield from self._engine.dialect.update_orders(rows, audit, now)
        return outcomes

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
            placed = yield from self._engine.dialect.place_orders(
                [_placed_row(*request) for request in first.values()], now
            )
            for (key, (placement, _)), assigned in zip(first.items(), placed, strict=False):
                stored[key] = placement.digest, *assigned
        return [
            _outcome(request[0], stored.get(key), is_free=is_free, is_first=first.get(key) is request)
            for request, key, is_free in zip(requests, keys, free, strict=True)
        ]


def _locked_rows(ids: Sequence[int]) -> Work[list[Row]]:
    """Lock the orders that exist among these identifiers, which ascend; return them with their origins."""
    rows = yield Query(f"{_FIND_ORIGINS} ORDER BY id FOR UPDATE", (ids,))
    missing = sorted({*ids} - {row[2] for row in rows})
    if missing:
        # With the clock locked, none of them is placed or imported by another transaction any more.
        [(last,)] = yield Query("SELECT last_order_id FROM petstore.clock WHERE one = 1 FOR UPDATE")
        rows += (yield Query(_FIND_ORIGINS, (missing,))) if missing[0] <= last or missing[-1] > MAX_ASSIGNED_ID else []
    return rows


def _locked(order_id: int, row: Row | None) -> Order:
    if row is None:
        raise OrderNotFound(order_id)
    if row[0] is None:
        raise TryAgain(f"another program keeps order {order_id} locked")
    return read_order(*row)


def _changed_row(before: Order, after: Order) -> Row:
    """The row to write; without a record where only the status changed."""
    if before.status is not after.status and before._replace(status=after.status) == after:
        return after.id, str(after.status), None, None, None, None, None
    return order_row(after)


def _difference(before: Order, after: Order) -> Change:
    """The fields that differ, as `audit.difference` has them, at a third of its cost."""
    changed = [(name, old, new) for name, old, new in zip(ORDER_FIELDS, before, after, strict=True) if old != new]
    return Change(
        {name: old for name, old, _ in changed if old is not None},
        {name: new for name, _, new in changed if new is not None},
    )


def _outcome(placement: Placement, placed: Row | None, *, is_free: bool, is_first: bool) -> Placed | Exception:
    """The outcome of a request whose key was used for `placed`: digest, order and time in Unix microseconds."""
    if not is_free:
        return IdempotencyKeyInUse()
    if placed is None:
        return NoIdentifierLeft()
    digest, order_id, placed_at = placed
    if digest != placement.digest:
        return IdempotencyKeyReused()
    return placement.placed(order_id, placed_at, replayed=not is_first)


def _placed_row(placement: Placement, actor: Actor) -> Row:
    """The row for `Dialect.place_orders`."""
    order = placement.order(0)
    _, _, pet_id, _, ship_date, reference, record = order_row(order)
    after = str(audit_row(actor, PLACE, "", Change(None, order.fields()))[-1])
    record, after = record.removeprefix(_NO_IDENTIFIER), after.removeprefix(_NO_IDENTIFIER)
    key = placement.account_id, placement.key, placement.digest
    return pet_id, ship_date, reference, record, *key, actor.at, actor.name, after
