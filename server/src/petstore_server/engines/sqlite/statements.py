"""Runs the statements of a transaction on a connection to SQLite."""

from functools import lru_cache
from typing import Any

import apsw
import msgspec

from petstore_server.store.engine import Command, Commands, Queries, Query, Result, Row, Work

_encode = msgspec.json.encode

# Statements that engines share are written for PostgreSQL. A transaction of SQLite locks the whole store.
_DIFFERENCES = (
    (" = ANY(%s::bigint[])", " IN (SELECT value FROM json_each(?))"),
    (" = ANY(ARRAY[%s])", " = ?"),
    ("%s", "?"),
    ("petstore.", ""),
    (" FOR UPDATE", ""),
    (" FOR SHARE", ""),
    ("::json ->>", " ->>"),
)


def run(connection: apsw.Connection, work: Work[Result]) -> Result:
    """Run the statements of `work` one after the other."""
    rows: Any = None  # what begins a generator
    try:
        while True:
            statement = work.send(rows)
            rows = []
            if isinstance(statement, Commands):
                connection.executemany(translated(statement.sql), statement.parameters)
            elif isinstance(statement, Queries):
                rows = [rows_of(connection, query) for query in statement.queries]
            else:
                rows = rows_of(connection, statement)
    except StopIteration as stop:
        result: Result = stop.value
        return result


def rows_of(connection: apsw.Connection, statement: Query | Command) -> list[Row]:
    """Return the rows of one statement."""
    bound = [_encode(value).decode() if isinstance(value, list) else value for value in statement.parameters]
    return connection.execute(translated(statement.sql), bound).fetchall()


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """Return PostgreSQL's text of a statement as SQLite accepts it."""
    for theirs, ours in _DIFFERENCES:
        sql = sql.replace(theirs, ours)
    return sql
