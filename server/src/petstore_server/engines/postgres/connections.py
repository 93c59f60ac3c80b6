"""One connection to PostgreSQL in use. Statements are bounded in time, and need no session state.

So it works behind a pooler that gives each transaction another connection (pgbouncer with pool_mode = transaction).
"""

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from petstore_server.deadlines import expiring
from petstore_server.engines.postgres import faults
from petstore_server.engines.postgres.faults import naming_table
from petstore_server.engines.postgres.options import BRIEF, BRIEFLY, IN_ORDER, Options
from petstore_server.store.statements import Execute, ExecuteMany, ExecuteRows, Query, Result, Row, Work

Driver = psycopg.AsyncConnection[Row]


class Connection:
    """A connection while one task uses it, until `deadline`, a time of the event loop's clock.

    `timed_out` says that it was broken, because a statement took too long.
    """

    def __init__(self, driver: Driver, options: Options, deadline: float) -> None:
        self._driver = driver
        self._binder = psycopg.AsyncClientCursor(driver)
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._deadline = deadline
        self._unsent = [options.begin] if options.begin else []
        self._answered = False
        self._committing = False
        self.timed_out = False

    async def verify(self, check: Callable[[Driver], Awaitable[None]]) -> None:
        """Close the connection if its server was replaced, which `check` raises. Raises psycopg.Error."""
        try:
            with self._bounded():
                await check(self._driver)
        except psycopg.Error:
            await self._driver.close()
            raise

    async def transaction(self, work: Work[Result]) -> Result:
        """Do the work in one transaction: statements without rows wait for the next one that has rows, or the commit.

        Raises what the work raises, after a rollback.
        """
        try:
            result = await self.run_work(work)
            if not self._committing:
                await self._commit()
        except BaseException:
            await self.roll_back()
            raise
        return result

    async def _commit(self, query: Query | None = None) -> list[Row]:
        """Commit with the last query of a transaction, if there is one; return its rows."""
        if not self._answered:  # a connection that was dead from the start must not look as if it died later
            await self._send()
        self._committing = True
        self._unsent += [*([] if query is None else [self._bound(query.sql, query.parameters)]), "COMMIT"]
        rows = await self._send()
        return rows[-1] if rows else []

    async def run_work(self, work: Work[Result]) -> Result:
        """Do the work in a transaction, which `roll_back` ends. Raises what the work raises, and psycopg.Error."""
        rows: Any = None  # what begins a generator
        try:
            while True:
                statement = work.send(rows)
                rows = []
                if isinstance(statement, Query):
                    rows = await self._commit(statement) if statement.last else (await self.rows([statement]))[0]
                elif isinstance(statement, list):
                    rows = await self.rows(statement)
                else:
                    self._unsent += [self._bound(statement.sql, parameters) for parameters in _sets(statement)]
        except StopIteration as stop:
            result: Result = stop.value
            return result

    async def rows(self, queries: Sequence[Query]) -> list[list[Row]]:
        """Return the rows of each query. Raises psycopg.Error."""
        if any(query.in_order for query in queries):
            self._unsent.append(IN_ORDER)
        if any(query.briefly for query in queries):
            self._unsent.append(BRIEFLY)
        self._unsent += [self._bound(query.sql, query.parameters) for query in queries]
        return (await self._send())[-len(queries) :]

    def _bound(self, sql: str, parameters: Sequence[Any]) -> str:
        """The statement with its parameters in it: several statements in one message take no others."""
        if not parameters:
            return sql
        values = [array(value) if isinstance(value, list) else value for value in parameters]
        return self._binder.mogrify(sql, values)

    async def _send(self) -> list[list[Row]]:
        """Send what was not sent yet as one message; return the rows of each statement that has rows."""
        message = ";".join(self._unsent)
        self._unsent.clear()
        rows: list[list[Row]] = []
        with self._bounded(), naming_table(message):
            cursor = await self._driver.execute(message.encode())
            more: bool | None = True
            while more:
                if cursor.description is not None:
                    rows.append(await cursor.fetchall())
                more = cursor.nextset()
        self._answered = True
        return rows

    def can_be_repeated(self, error: psycopg.Error) -> bool:
        """Whether only the connection failed, before anything was to be committed."""
        if self._committing or self.timed_out:
            return False
        return self._driver.closed or isinstance(error, faults.CONNECTION_ENDED)

    def concerns_statement(self, error: psycopg.Error) -> bool:
        """Whether a statement, with its values, has caused the error, rather than the environment."""
        return not (self.timed_out or self._driver.closed) and faults.concerns_statement(error)

    @property
    def reusable(self) -> bool:
        """Whether another task may use the connection: not if it was broken just after its response was received."""
        if self.timed_out or self._driver.closed:
            return False
        return self._driver.info.transaction_status is TransactionStatus.IDLE

    async def roll_back(self) -> None:
        """End the transaction. If that fails, the connection is not `reusable`: closing it ends the transaction."""
        self._unsent.clear()
        if self._driver.info.transaction_status is not TransactionStatus.IDLE:
            with suppress(psycopg.Error), self._bounded():
                await self._driver.execute("ROLLBACK")

    def _bounded(self) -> AbstractContextManager[None]:
        return expiring(min(self._loop.time() + self._options.statement, self._deadline), self._abort)

    def _abort(self) -> None:
        """Break the connection, so that the waiting task gets an error. Cancelling would wait for the server too."""
        self.timed_out = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._driver.fileno())) as raw_socket:
            raw_socket.shutdown(socket.SHUT_RDWR)


async def briefly(driver: Driver, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
    """Return the rows of a statement that waits half a second for a lock at most. Raises psycopg.Error.

    In a transaction, the limits are those of its later statements too.
    """
    [rows] = await Connection(driver, BRIEF, math.inf).rows([Query(sql, parameters)])
    return rows


def _sets(statement: Execute | ExecuteMany | ExecuteRows) -> Sequence[Sequence[Any]]:
    """The parameters for each execution of the statement."""
    if isinstance(statement, Execute):
        return [statement.parameters]
    if isinstance(statement, ExecuteRows) and statement.parameters:
        return [[list(column) for column in zip(*statement.parameters, strict=True)]]
    return statement.parameters


def array(values: Iterable[Any]) -> str:
    """A literal of an array: several times as fast as to convert each element."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
