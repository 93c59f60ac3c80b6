"""Runs statements on SQLite. Implements `storage.statements.Engine`."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import apsw

from petstore_server.storage.sqlite.reader import Reader
from petstore_server.storage.sqlite.writer import Writer
from petstore_server.storage.statements import Command, Commands, Queries, Query, Row, Work

Result = TypeVar("Result")

# Statements that engines share are written for PostgreSQL. A transaction of SQLite locks the whole store.
_DIFFERENCES = (
    (" = ANY(ARRAY[%s])", " = ?"),
    ("%s", "?"),
    ("petstore.", ""),
    (" FOR UPDATE SKIP LOCKED", ""),
    (" FOR UPDATE", ""),
    (" FOR SHARE", ""),
    ("keys.number", "keys.rowid"),
)


class SqliteEngine:
    """Reads at once or on threads, writes on the writer's thread."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        if short:
            return self._reader.now(translated(sql), tuple(parameters))
        return await self._reader.run(lambda connection: _rows(connection, Query(sql, parameters)))

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        return await self._reader.run(lambda connection: run(connection, work()))

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        return await self._writer.run(lambda connection: run(connection, work()))


def run(connection: apsw.Connection, work: Work[Result]) -> Result:
    """Run the statements of `work` one after the other."""
    send: Callable[[], Any] = partial(next, work)
    try:
        while True:
            statement = send()
            rows: list[Row] = []
            if isinstance(statement, Commands):
                connection.executemany(translated(statement.sql), statement.parameters)
            elif isinstance(statement, Queries):
                rows = [tuple(_rows(connection, query)) for query in statement.queries]
            else:
                rows = _rows(connection, statement)
            send = partial(work.send, rows)
    except StopIteration as stop:
        result: Result = stop.value
        return result


def _rows(connection: apsw.Connection, statement: Query | Command) -> list[Row]:
    return connection.execute(translated(statement.sql), tuple(statement.parameters)).fetchall()


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """Return PostgreSQL's text of a statement as SQLite accepts it."""
    for theirs, ours in _DIFFERENCES:
        sql = sql.replace(theirs, ours)
    return sql
