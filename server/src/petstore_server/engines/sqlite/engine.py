"""One store in one file: short reads and changes at once, longer ones on threads; changes share commits."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw

from petstore_server.batching import Batcher
from petstore_server.engines.sqlite import connections
from petstore_server.engines.sqlite.checkpoints import Checkpoints
from petstore_server.engines.sqlite.serial import Job, SerialEngine
from petstore_server.store.engine import Perform, run_in_background
from petstore_server.store.statements import Item, Result, Work

BULK_GAP_SECONDS = 0.01  # pause after a bulk transaction, so that others can write; a busy server misses 3 ms

_READERS = 2  # one for the list, so that an export or a report does not delay it


class SqliteEngine(SerialEngine):
    """Implements `store.engine.Engine` for concurrent callers. Belongs to the event loop that creates it."""

    _readers: ThreadPoolExecutor
    _writer: ThreadPoolExecutor

    def __init__(self, path: Path) -> None:
        super().__init__(path, run_in_background)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="petstore-read")
        wait, event_loop = connections.patience(connections.BUSY_SECONDS), threading.get_ident()
        self._writing.set_busy_handler(lambda tries: threading.get_ident() != event_loop and wait(tries))
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="petstore-write")  # a commit waits for the disk
        self._checkpoints = Checkpoints(path, self._writing)
        self._batcher: Batcher[Job, Any] = Batcher(self._perform, separable=True)
        self._bulk = asyncio.Lock()
        self._bulk_ended = 0.0
        self._awaited: str | None = None  # why the last batch had to wait

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        if not bulk:
            return await super().transaction(work)
        async with self._bulk:
            await asyncio.sleep(self._bulk_ended + BULK_GAP_SECONDS - time.monotonic())
            try:
                return await super().transaction(work, bulk=True)
            finally:
                self._bulk_ended = time.monotonic()

    async def submit(self, perform: Perform[Item, Result], item: Item, flow: int = 0) -> Result:
        self._require_open()
        result: Result = await self._batcher.submit((perform, item), flow=flow)
        return result

    def fault(self) -> str | None:
        return super().fault() or self._awaited

    async def close(self) -> None:
        self._closed = True
        await self._batcher.close()
        for threads in self._writer, self._readers:
            await asyncio.to_thread(threads.shutdown)
        await self._checkpoints.close()
        await super().close()

    async def _call(self, threads: Executor | None, function: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)

    async def _perform(self, jobs: list[Job]) -> list[Any]:
        await self._checkpoints.before_transaction()
        outcomes = await super()._perform(jobs)
        self._checkpoints.after_transaction()
        return outcomes

    def _begin(self) -> bool:
        try:
            return super()._begin()
        except apsw.BusyError as error:
            self._awaited = connections.unavailable(error).reason
            return False

    def _run(self, jobs: list[Job]) -> list[Any]:
        self._awaited = None
        return super()._run(jobs)
