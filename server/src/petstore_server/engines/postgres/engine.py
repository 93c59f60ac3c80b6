"""One store in one database: each transaction takes a connection of the pool."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from petstore_server.batching import Batcher
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.postgres.dialect import PostgresDialect
from petstore_server.engines.postgres.pool import Pool
from petstore_server.engines.postgres.session import BULK, NO_RESPONSE, READ, SCAN, SNAPSHOT, WRITE
from petstore_server.engines.postgres.timelines import IDENTITY, Timelines
from petstore_server.store.engine import Item, Perform, Query, Result, Row, Snapshot, Stats, TryAgain, Work

CONCURRENCY = 2
"""Transactions of one kind of change at the same time: while one waits for the disk, the next is filled."""


class PostgresEngine:
    """Implements `store.engine.Engine`."""

    def __init__(self, url: str, timelines: Timelines | None = None) -> None:
        """`url` names a database with the latest schema; nothing is connected before it is needed."""
        self.dialect = PostgresDialect()
        self.stats = Stats()
        self._timelines = timelines or Timelines()
        self._pool = Pool(url, self._timelines)
        self._batchers: dict[Perform[Any, Any], Batcher[Any, Any]] = {}
        self._closed = False

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Always None: it would take a query."""

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        return await self._pool.use(lambda session: session.rows(Query(sql, parameters, in_order)), READ)

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        return await self._pool.use(lambda session: session.transaction(work()), SNAPSHOT)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        async with self._pool.long_read(SCAN) as session:
            yield lambda work: session.run(work())

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        return await self._pool.use(lambda session: session.transaction(work()), BULK if bulk else WRITE)

    async def submit(self, perform: Perform[Item, Result], item: Item) -> Result:
        """All attempts share the time limit of the call. It does not bound their transactions, which others share."""
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        batcher = self._batchers.get(perform)
        if batcher is None:
            batcher = self._batchers[perform] = Batcher(
                lambda items: self._perform(perform, items), concurrency=CONCURRENCY
            )
        clock = asyncio.get_running_loop().time
        ends = clock() + WRITE.total
        reason, pause = NO_RESPONSE, 0.01
        while clock() + pause < ends:
            try:
                result: Result = await batcher.submit(item, ends)
            except TimeoutError:
                break
            except TryAgain as error:
                reason = str(error)
            else:
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.15)  # growing, so that many leave the processor to the one that they wait for
        raise ServiceUnavailable(reason)

    async def identity(self) -> str:
        [(cluster, database)] = await self.query(IDENTITY)
        return f"{cluster}-{database}"

    async def verify(self) -> None:
        await self._pool.use(lambda session: session.verify(self._timelines), READ)

    async def close(self) -> None:
        self._closed = True
        for batcher in self._batchers.values():
            await batcher.close()
        await self._pool.close()

    async def _perform(self, perform: Perform[Any, Any], items: Sequence[Any]) -> Sequence[Any]:
        outcomes = await self.transaction(lambda: perform(items))
        self.stats.committed(len(items))
        return outcomes
