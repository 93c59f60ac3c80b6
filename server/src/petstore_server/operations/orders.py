"""Orders: list them; change one or several."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from itertools import islice
from typing import NamedTuple

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import Conflict, DomainError, NotFound, ServiceUnavailable
from petstore_server.domain.orders import Order, Status
from petstore_server.domain.search import MAX_LIMIT, Filters
from petstore_server.domain.transitions import Transition
from petstore_server.store import Store

_AT_ONCE = 100  # changes that share commits


class Changed(NamedTuple):
    """What became of one order: the order after the change, or the error that prevented it."""

    order_id: int
    order: Order | None
    error: DomainError | None


async def list_orders(
    store: Store, statuses: Collection[Status] = (), pet_id: int | None = None, limit: int | None = None
) -> AsyncGenerator[list[Order]]:
    """The orders with one of these statuses (none: any) and this pet, ascending by id, in batches, `limit` in all.

    They are one consistent snapshot.
    """
    batch_size = min(limit or MAX_LIMIT, MAX_LIMIT)
    found = store.orders.scan(Filters(frozenset(statuses), pet_id), batch_size)
    async with aclosing(found):
        async for batch in found:
            if batch[:limit]:
                yield batch[:limit]
            if limit is not None:
                limit -= len(batch[:limit])
                if limit == 0:
                    return


async def change_orders(
    store: Store, order_ids: Sequence[int], transition: Transition[Order], actor: Actor
) -> AsyncIterator[Changed]:
    """Apply the transition to each order, and yield what became of each, in the given order.

    An order that does not allow the transition does not stop the others. After an error of the store the orders that
    were not tried yet are left out.
    """
    rest = iter(order_ids)
    while batch := list(islice(rest, _AT_ONCE)):
        outcomes = await asyncio.gather(*(_change(store, order_id, transition, actor) for order_id in batch))
        for outcome in outcomes:
            yield outcome
        if any(isinstance(outcome.error, ServiceUnavailable) for outcome in outcomes):
            return


async def _change(store: Store, order_id: int, transition: Transition[Order], actor: Actor) -> Changed:
    try:
        return Changed(order_id, await store.orders.change(order_id, transition, actor), None)
    except (NotFound, Conflict, ServiceUnavailable) as error:
        return Changed(order_id, None, error)
