"""Changes of single orders: those that come together share round trips and a commit, and each gets its own answer."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from petstore_server.domain.errors import DomainError, OrderNotFound, ServiceUnavailable
from petstore_server.domain.orders import Order, Transition
from petstore_server.ports import Actor
from petstore_server.storage.entries import difference
from petstore_server.storage.postgres.arrays import numbers, texts
from petstore_server.storage.postgres.audit import as_json
from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import Session
from petstore_server.storage.stats import Stats

LANES = 2
"""Transactions at once: while one waits for the disk, the next is filled."""

_MOST_IN_A_COMMIT = 1000

_PATIENCE_SECONDS = 1.5
"""How long a change waits for an order that somebody else keeps locked."""

_AGAIN_SECONDS = 0.01

# In ascending order, as everybody locks them: so nobody waits in a circle. An order that somebody else keeps locked
# is passed over, and tried again by itself: it must not hold up the others.
_LOCK = """
    SELECT id, record, status FROM petstore.orders WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
"""
_EXIST = "SELECT id FROM petstore.orders WHERE id = ANY(%s::bigint[])"

# One statement for both tables. `revision` changes only where the list shows the change; otherwise no index is touched.
_WRITE = """
    WITH changed AS (
        UPDATE petstore.orders SET
            status = new.status,
            record = coalesce(new.record, orders.record),
            revision = CASE WHEN new.record IS NULL THEN revision ELSE pg_current_xact_id()::text::bigint END
        FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS new (id, status, record)
        WHERE orders.id = new.id
    )
    INSERT INTO petstore.audit (at, actor, action, subject, before, after)
    SELECT at, actor, action, subject, before::json, after::json
    FROM unnest(%s::double precision[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
        AS entry (at, actor, action, subject, before, after)
"""


class _Job(NamedTuple):
    order_id: int
    transition: Transition
    actor: Actor
    response: asyncio.Future[Order]
    ends: float


class _Locked(Exception):
    """Somebody else keeps the order locked just now."""


class _Applied(NamedTuple):
    """A change that is to be written: its audit entry."""

    actor: Actor
    action: str
    subject: str
    before: str | None
    after: str | None


class Changes:
    """Takes changes, and writes down all that have queued as soon as a lane is free."""

    def __init__(self, pool: Pool, stats: Stats) -> None:
        self._pool = pool
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[_Job] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._closed = False

    async def apply(self, order_id: int, transition: Transition, actor: Actor) -> Order:
        """The order after the change, once it is durable. Raises OrderNotFound, OrderConflict, ServiceUnavailable."""
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        response: asyncio.Future[Order] = self._loop.create_future()
        self._queue([_Job(order_id, transition, actor, response, self._loop.time() + _PATIENCE_SECONDS)])
        return await response

    async def close(self) -> None:
        """Finish what is queued."""
        self._closed = True
        while tasks := self._lanes | self._waiting:
            await asyncio.gather(*tasks)
            await asyncio.sleep(0)  # since CPython 3.12 finished tasks are gathered at once, before they leave the sets

    def _queue(self, jobs: Sequence[_Job]) -> None:
        self._jobs.extend(jobs)
        if len(self._lanes) < LANES:
            _keep(asyncio.create_task(self._work()), self._lanes)

    async def _work(self) -> None:
        while self._jobs:
            batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), _MOST_IN_A_COMMIT))]
            outcomes: list[Order | Exception]
            try:
                outcomes = await self._pool.transaction(partial(_perform, batch=batch))
            except ServiceUnavailable as error:
                # Who queued meanwhile would find the same, only later.
                batch += self._jobs
                self._jobs.clear()
                outcomes = [ServiceUnavailable(error.reason) for _ in batch]
            except Exception as error:  # noqa: BLE001 - a defect is for the callers, and must not end the lane
                outcomes = [error] * len(batch)
            else:
                self._stats.committed(len(batch))
            self._respond(batch, outcomes)

    def _respond(self, batch: Sequence[_Job], outcomes: Sequence[Order | Exception]) -> None:
        """Tell each caller, all in one turn of the loop."""
        locked: list[_Job] = []
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.response.done():  # the caller has gone away
                continue
            if isinstance(outcome, Order):
                job.response.set_result(outcome)
            elif not isinstance(outcome, _Locked):
                job.response.set_exception(outcome)
            elif self._loop.time() < job.ends:
                locked.append(job)
            else:
                job.response.set_exception(ServiceUnavailable("another program keeps the order locked"))
        if locked:
            _keep(asyncio.create_task(self._try_again(locked)), self._waiting)

    async def _try_again(self, jobs: Sequence[_Job]) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)
        self._queue(jobs)


def _keep(task: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> None:
    """Hold on to a task until it is done."""
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _perform(session: Session, batch: Sequence[_Job]) -> list[Order | Exception]:
    """Within a transaction: lock the orders, have the domain decide on each change, and write them all down."""
    wanted = sorted({job.order_id for job in batch})
    before = {row[0]: Order.from_record(row[1], row[2]) for row in await session.rows(_LOCK, (numbers(wanted),))}
    missing = [order_id for order_id in wanted if order_id not in before]
    locked = {row[0] for row in await session.rows(_EXIST, (numbers(missing),))} if missing else set()
    now = dict(before)
    outcomes: list[Order | Exception] = []
    entries: list[_Applied] = []
    for job in batch:
        outcome = _Locked() if job.order_id in locked else _decide(now, job, entries)
        if isinstance(outcome, Order):
            now[job.order_id] = outcome
        outcomes.append(outcome)
    if entries:
        await session.execute(_WRITE, _columns(before, now, entries))
    return outcomes


def _decide(now: dict[int, Order], job: _Job, entries: list[_Applied]) -> Order | Exception:
    """The order after the change, which is noted for the audit log, or the error that is the caller's answer."""
    order = now.get(job.order_id)
    if order is None:
        return OrderNotFound(job.order_id)
    try:
        after = job.transition.apply(order)
    except DomainError as decision:
        return decision
    except Exception as error:  # noqa: BLE001 - a defect in one change is that caller's alone
        return error
    was, is_now = difference(order, after)
    entries.append(_Applied(job.actor, job.transition.action, f"order:{after.id}", as_json(was), as_json(is_now)))
    return after


def _columns(before: dict[int, Order], now: dict[int, Order], entries: list[_Applied]) -> list[str]:
    """What _WRITE takes: the orders that changed (a record only where the list shows it), and the audit entries."""
    changed = [order for order_id, order in now.items() if order is not before[order_id]]
    records = [order.record() for order in changed]
    shown = [text if text != before[order.id].record() else None for order, text in zip(changed, records, strict=True)]
    return [
        numbers(order.id for order in changed),
        texts(order.status for order in changed),
        texts(shown),
        numbers(entry.actor.at for entry in entries),
        texts(entry.actor.name for entry in entries),
        texts(entry.action for entry in entries),
        texts(entry.subject for entry in entries),
        texts(entry.before for entry in entries),
        texts(entry.after for entry in entries),
    ]
