"""Coalescing of concurrent calls: one transaction, round trip or query serves all that wait at the same time."""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from petstore_server.deadlines import expiring
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.fair_queue import FairQueue

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_halves(
    perform: Callable[[Sequence[Item]], Awaitable[object]],
    items: Sequence[Item],
    refuse: Callable[[Item, Any], object],
    separable: tuple[type[Exception], ...] = (Exception,),
) -> None:
    """Perform items together, in order; after an error, each half of them, so that only the item that causes it fails.

    `refuse` gets that item with its error, if it is `separable`. Raises any other error, ServiceUnavailable, which
    concerns all items, and an error without items: what follows was then not performed.
    """
    parts = [items]
    while parts:
        part = parts.pop()
        try:
            await perform(part)
        except ServiceUnavailable:
            raise
        except separable as error:
            middle = len(part) // 2
            if middle:
                parts += part[middle:], part[:middle]
            elif part:
                refuse(part[0], error)
            else:
                raise


class Batcher(Generic[Item, Result]):
    """Collects the items of concurrent calls, and performs them in batches. Belongs to one event loop.

    A batch starts after the event loop has run everything that is ready, so all items of one turn share it. While
    `concurrency` batches are under way, items wait for the next one: the higher the load, the larger the batches.

        writer = Batcher(commit)            # async def commit(items) -> list of results and exceptions
        result = await writer.submit(item)  # raises if the outcome of this item is an exception
    """

    def __init__(
        self,
        perform: Callable[[list[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        concurrency: int = 1,
        limit: int = 64,
        outage: type[Exception] = ServiceUnavailable,
        separable: bool = False,
    ) -> None:
        """`perform` returns the outcome of each item, in order: its result, or the exception that its caller gets.

        If `perform` raises, every caller of the batch gets that exception. An `outage` also ends the calls that wait
        for a later batch, which would only find the same later. `separable`: `perform` has then done nothing, so after
        any other error it is repeated for halves of the batch, and only the caller gets it whose item causes it.
        `limit` is the largest number of items in a batch. With few flows, a flow's first waiting item waits only for
        the batch under way, and for its own.
        """
        self._perform = perform
        self._concurrency = concurrency
        self._limit = limit
        self._outage = outage
        self._separable = (Exception,) if separable else ()
        self._waiting: FairQueue[tuple[Item, asyncio.Future[Result], float]] = FairQueue()  # with a deadline
        self._working = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item, deadline: float | None = None, flow: Hashable = None) -> Result:
        """Perform the item with others, and return its result. A caller that is cancelled does not stop the item.

        Flows share each batch evenly, however many items each of them has.

        Raises TimeoutError if there is no result at `deadline`, a time of the event loop's clock, or after a pause of
        this process LAST_LOOK_SECONDS later (`deadlines.py`). An item that was still waiting at the deadline is never
        performed; one whose batch is under way may be.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.add(flow, (item, future, math.inf if deadline is None else deadline))
        if self._working < self._concurrency:
            self._working += 1
            task = loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if deadline is None:  # as for each change: without a context manager that does nothing
            return await future
        with expiring(deadline, partial(_fail, future, TimeoutError())):
            return await future

    async def close(self) -> None:
        """Finish everything that was submitted."""
        while self._working:
            await asyncio.wait(self._tasks)

    async def _work(self) -> None:
        """Perform one batch after the other until nothing waits, without items whose time is over."""
        try:
            while self._waiting:
                batch, now = self._waiting.take(self._limit), asyncio.get_running_loop().time()
                due = [
                    (item, future)
                    for item, future, deadline in batch
                    if future.cancelled() or (not future.done() and now < deadline)
                ]
                if due:
                    await self._perform_batch(due)
        finally:
            self._working -= 1

    async def _perform_batch(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            await in_halves(self._perform_part, batch, lambda call, error: _fail(call[1], error), self._separable)
        except asyncio.CancelledError:  # the event loop is being closed
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - for the callers; it must not end the worker
            if isinstance(error, self._outage):
                batch += [(item, future) for item, future, _ in self._waiting.take(sys.maxsize)]
            for _, future in batch:
                _fail(future, error)

    async def _perform_part(self, part: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        outcomes = await self._perform([item for item, _ in part])
        for (_, future), outcome in zip(part, outcomes, strict=True):
            if isinstance(outcome, Exception):
                _fail(future, outcome)
            elif not future.done():
                future.set_result(outcome)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    """End a call with an error, unless it has ended: its caller was cancelled, or does not wait any longer."""
    if not future.done():
        future.set_exception(error)


class SharedCall(Batcher[None, Result]):
    """Shares an asynchronous call between concurrent callers; each gets the result of one that began after its own."""

    def __init__(self, call: Callable[[], Awaitable[Result]]) -> None:
        async def perform(callers: list[None]) -> list[Result | Exception]:
            result = await call()
            return [result] * len(callers)

        super().__init__(perform, limit=sys.maxsize)

    async def __call__(self) -> Result:
        """Return the result. Raises what the call raises."""
        return await self.submit(None)
