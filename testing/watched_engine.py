"""The list of a store over an engine that a test watches: what it is asked, and when its reads end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar, cast

from petstore_server.engines.postgres.engine import PostgresEngine
from petstore_server.engines.sqlite.engine import SqliteEngine
from petstore_server.runtime.opening import is_sqlite, sqlite_path
from petstore_server.store.engine import Engine
from petstore_server.store.listing import Listing
from petstore_server.store.statements import Query, Row, Statement, Work

Result = TypeVar("Result")


class WatchedEngine:
    """An engine as far as reads use it. A test sees what it is asked, and says when its reads end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.dialect, self.stats = engine.dialect, engine.stats
        self.peeks = 0
        self.readings = 0
        self.statements: list[Query] = []
        """The statements of all reads."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called after each statement of a read, within its snapshot."""
        self.faults: list[Exception] = []
        """Raised by the reads to come, instead of what they found."""
        self.gate = asyncio.Event()
        """No read ends before this is set."""
        self.gate.set()

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row] | None:
        self.peeks += 1
        return self._engine.peek(sql, parameters)

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        self.statements.append(Query(sql, parameters, in_order))
        return await self._engine.query(sql, parameters, in_order, short=short)

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        found = await self._engine.read(lambda: self._watched(work()))
        self.readings += 1
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop()
        return found

    def _watched(self, work: Work[Result]) -> Work[Result]:
        send: Callable[[], Statement] = partial(next, work)
        try:
            while True:
                statement = send()
                found = yield statement
                self.statements += statement if isinstance(statement, list) else [cast(Query, statement)]
                self.meanwhile()
                send = partial(work.send, found)
        except StopIteration as stop:
            result: Result = stop.value
            return result


@asynccontextmanager
async def watched_listing(url: str) -> AsyncIterator[tuple[Listing, WatchedEngine]]:
    """The list of an existing store as another process has it, and the engine that it uses."""
    engine: Engine = SqliteEngine(sqlite_path(url)) if is_sqlite(url) else PostgresEngine(url)
    watched = WatchedEngine(engine)
    listing = Listing(cast(Engine, watched))
    try:
        yield listing, watched
    finally:
        watched.gate.set()
        await listing.close()
        await engine.close()
