"""One store in one database: each transaction takes one of a few connections, which are kept open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from petstore_server import deadlines
from petstore_server.batching import Batcher
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.postgres import dialect
from petstore_server.engines.postgres.connections import Connection
from petstore_server.engines.postgres.faults import NO_RESPONSE
from petstore_server.engines.postgres.options import transactions
from petstore_server.engines.postgres.pool import Pool
from petstore_server.engines.postgres.timelines import IDENTITY, Timelines
from petstore_server.store.engine import Perform, Snapshot, Stats, TryAgain
from petstore_server.store.statements import Item, Query, Result, Row, Work

CONCURRENCY = 2  # transactions of one kind of change at the same time: while one waits for the disk, the next is filled
LONG_READS = 2  # exports at most, and as many statements that read much: other connections are for requests
_DAMAGE = "SELECT damage FROM petstore.store WHERE one = 1"


class PostgresEngine:
    """Implements `store.engine.Engine`."""

    def __init__(self, url: str, timelines: Timelines | None = None) -> None:
        """`url` names a database with the latest schema; nothing is connected before it is needed."""
        self.dialect = dialect
        self._timelines = timelines or Timelines()
        self.stats = Stats(old_primaries=lambda: self._timelines.refused)
        self._options = transactions(deadlines.TIMEOUTS)
        self._pool = Pool(url, self._timelines)
        self.damage = self._pool.damage
        self._scans, self._exports = asyncio.Semaphore(LONG_READS), asyncio.Semaphore(LONG_READS)
        self._batchers: dict[Perform[Any, Any], Batcher[Any, Any]] = {}

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Always None: it would take a query."""

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        def read(connection: Connection) -> Awaitable[list[list[Row]]]:
            return connection.rows([Query(sql, parameters, in_order)])

        if short:
            [rows] = await self._pool.use(read, self._options.read)
        else:
            async with _slot(self._scans, self._options.scan.total):
                [rows] = await self._pool.use(read, self._options.scan)
        return rows

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        options = self._options.snapshot
        return await self._pool.use_for_long(lambda connection: connection.transaction(work()), options)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        options = self._options
        async with _slot(self._exports, options.read.total), self._pool.long_read(options.export) as connection:
            yield lambda work: connection.run_work(work())

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        options = self._options.bulk if bulk else self._options.write
        done = partial(self._unless_damaged, work) if bulk else work
        return await self._pool.use(lambda connection: connection.transaction(done()), options)

    def _unless_damaged(self, work: Callable[[], Work[Result]]) -> Work[Result]:
        """Do the work unless damage is saved, which a process that imports does not watch for."""
        [(saved,)] = yield Query(_DAMAGE)
        self.damage.require_none(saved)
        return (yield from work())

    async def submit(self, perform: Perform[Item, Result], item: Item, flow: int) -> Result:
        """All attempts share the time limit of the call. It does not bound their transactions, which others share."""
        batcher = self._batchers.get(perform)
        if batcher is None:
            work = partial(self._perform, perform)
            batcher = self._batchers[perform] = Batcher(work, concurrency=CONCURRENCY, separable=True)
        now = asyncio.get_running_loop().time
        deadline = now() + self._options.write.total
        reason, pause = NO_RESPONSE, 0.01
        while now() + pause < deadline:
            try:
                result: Result = await batcher.submit(item, deadline, flow)
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

    async def witness(self, epoch: str, at: int) -> None:
        await self._timelines.witness(epoch, at)

    def fault(self) -> str | None:
        return self._pool.fault()

    async def verify(self) -> None:
        self.damage.require_none()
        await self._pool.use(lambda connection: connection.verify(self._timelines.verify), self._options.read)

    async def close(self) -> None:
        for batcher in self._batchers.values():
            await batcher.close()
        await self.damage.close()
        await self._pool.close()

    async def _perform(self, perform: Perform[Any, Any], items: Sequence[Any]) -> Sequence[Any]:
        outcomes = await self.transaction(lambda: perform(items))
        self.stats.committed(len(items))
        return outcomes


@asynccontextmanager
async def _slot(slots: asyncio.Semaphore, seconds: float) -> AsyncIterator[None]:
    """Wait up to `seconds` for a slot for long reads. Raises ServiceUnavailable if none is free by then."""
    try:
        await asyncio.wait_for(slots.acquire(), seconds)
    except TimeoutError:
        raise ServiceUnavailable(f"{LONG_READS} long reads are under way already") from None
    try:
        yield
    finally:
        slots.release()
