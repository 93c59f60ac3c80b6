"""Runs statements on PostgreSQL. Implements `storage.statements.Engine`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from petstore_server.storage.postgres.pool import Pool
from petstore_server.storage.postgres.session import BACKGROUND, SNAPSHOT, WRITE, Session
from petstore_server.storage.statements import Commands, Queries, Query, Row, Work

Result = TypeVar("Result")


class PostgresEngine:
    """Runs each transaction on a connection of the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        return await self._pool.rows(sql, parameters or None, in_order=in_order)

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        return await self._pool.transaction(lambda session: run(session, work()), SNAPSHOT)

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        return await self._pool.transaction(lambda session: run(session, work()), BACKGROUND if bulk else WRITE)


async def run(session: Session, work: Work[Result]) -> Result:
    """Run the statements of `work` one after the other, waiting only for those that have rows."""
    send: Callable[[], Any] = partial(next, work)
    try:
        while True:
            statement = send()
            rows: list[Row] = []
            if isinstance(statement, Query):
                if statement.in_order:
                    await session.read_in_order()
                rows = await session.rows(statement.sql, statement.parameters or None)
            elif isinstance(statement, Queries):
                rows = await session.rows_of_each([query[:2] for query in statement.queries])
            elif isinstance(statement, Commands):
                await session.execute_many(statement.sql, statement.parameters)
            else:
                await session.execute(statement.sql, statement.parameters or None)
            send = partial(work.send, rows)
    except StopIteration as stop:
        result: Result = stop.value
        return result
