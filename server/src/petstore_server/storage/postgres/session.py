"""One connection to PostgreSQL in use: every statement is bounded in time, nothing depends on session state.

So it works behind a pooler that gives each transaction another connection (pgbouncer with pool_mode = transaction).
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.storage.postgres.failures import CONNECTION_ENDED, NO_RESPONSE, unavailable

Result = TypeVar("Result")
Row = tuple[Any, ...]
Driver = psycopg.AsyncConnection[Row]


class TransactionOptions(NamedTuple):
    """How a transaction begins, and the time limits of each statement and of the whole call, in seconds."""

    begin: tuple[str, ...]
    statement: float
    total: float


def _assignment(settings: Mapping[str, str]) -> str:
    """The statement that sets these for a transaction. Each SET LOCAL would add a tenth of a millisecond to it."""
    assigned = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {assigned}"


def _options(begin: str, statement: float, total: float, **settings: str) -> TransactionOptions:
    limits = {"statement_timeout": f"{int(statement * 1000)}", **settings}
    return TransactionOptions((begin, _assignment(limits)), statement, total)


# A process that is stopped in the middle of a transaction must not keep rows locked.
_RELEASE = {"idle_in_transaction_session_timeout": "5000"}
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

WRITE = _options("BEGIN", 1.2, 1.8, **_RELEASE)
"""A change that a request waits for. After two seconds at the latest the request learns that the store is unusable."""

BATCH = _options("BEGIN", 10.0, 30.0, **_RELEASE)
"""Many changes at once, for which no request waits."""

BACKGROUND = _options("BEGIN", 30.0, 30.0, **_RELEASE)
"""Long work in the background, such as to create an index."""

READ = TransactionOptions((), 1.2, 1.8)
"""One statement that an index answers, in a separate transaction without settings."""

SNAPSHOT = _options(_SNAPSHOT, 1.2, 60.0)
"""Reads of one snapshot. Each is quick, and there may be many."""

SCAN = _options(_SNAPSHOT, 10.0, float("inf"))
"""The same, for as long as the consumer takes."""


# PostgreSQL plans by statistics that may be many changes old. For a page, an index in order is never a bad plan.
_IN_ORDER = _assignment({f"enable_{method}": "off" for method in ("sort", "incremental_sort", "bitmapscan", "seqscan")})


class Session:
    """A connection while one task uses it, until `ends` (of the event loop's clock)."""

    def __init__(self, driver: Driver, options: TransactionOptions, ends: float) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._ends = ends
        self._answered = False
        self._committing = False
        self._timed_out = False

    async def rows(self, sql: str, parameters: Sequence[Any] | None = None) -> list[Row]:
        """Return the rows of a statement. Raises psycopg.Error."""
        with self._bounded():
            cursor = await self._driver.execute(sql, parameters)
            found = await cursor.fetchall()
        self._answered = True
        return found

    async def rows_in_order(self, sql: str, parameters: Sequence[Any] | None) -> list[Row]:
        """Return the rows of a statement that reads indexes in order (`Query.in_order`). Raises psycopg.Error.

        Settings and statement are one message, and so one transaction.
        """
        with self._bounded():
            cursor = psycopg.AsyncClientCursor(self._driver)
            await cursor.execute(f"{_IN_ORDER}; {sql}", parameters)
            cursor.nextset()
            found = await cursor.fetchall()
        self._answered = True
        return found

    async def read_in_order(self) -> None:
        """Have the statements of this transaction read indexes in order. Raises psycopg.Error."""
        await self.execute(_IN_ORDER)

    async def rows_of_each(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[Row]:
        """Return the rows of several statements, which are sent together, as tuples. Raises psycopg.Error."""
        with self._bounded():
            cursors = [await self._driver.execute(sql, parameters) for sql, parameters in queries]
            found = [tuple(await cursor.fetchall()) for cursor in cursors]
        self._answered = True
        return found

    async def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> None:
        """Run a statement; within a transaction a later one may report its failure. Raises psycopg.Error."""
        with self._bounded():
            await self._driver.execute(sql, parameters)

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each set of parameters. Raises psycopg.Error."""
        with self._bounded():
            async with self._driver.cursor() as cursor:
                await cursor.executemany(sql, parameters)

    async def begin(self) -> None:
        """Begin a transaction, which `roll_back` ends."""
        await self.execute("; ".join(self._options.begin))

    async def transaction(self, work: Callable[["Session"], Awaitable[Result]]) -> Result:
        """Do the work in one transaction, whose begin and end need no separate round trips.

        Raises what the work raises, after a rollback.
        """
        try:
            async with self._pipeline():
                for statement in self._options.begin:
                    await self.execute(statement)
                result = await work(self)
                if not self._answered:  # a connection that was dead from the start must not look as if it died later
                    await self.rows("SELECT 1")
                self._committing = True
                await self.execute("COMMIT")
        except BaseException:
            await self.roll_back()
            raise
        self._committing = False
        return result

    def can_be_repeated(self, error: psycopg.Error) -> bool:
        """Whether only the connection failed, before anything was to be committed."""
        if self._committing or self._timed_out:
            return False
        return self._driver.closed or isinstance(error, CONNECTION_ENDED)

    def explain(self, error: psycopg.Error) -> ServiceUnavailable:
        """Return what an error over this connection becomes."""
        return ServiceUnavailable(NO_RESPONSE) if self._timed_out else unavailable(error)

    @property
    def reusable(self) -> bool:
        """Whether the connection can be used again."""
        return not self._driver.closed and self._driver.info.transaction_status is TransactionStatus.IDLE

    async def roll_back(self) -> None:
        """End the transaction; if that fails, close the connection, which ends it too."""
        try:
            if not self._driver.closed and self._driver.info.transaction_status is not TransactionStatus.IDLE:
                with self._bounded():
                    await self._driver.execute("ROLLBACK")
        except psycopg.Error:
            await self._driver.close()

    @asynccontextmanager
    async def _pipeline(self) -> AsyncIterator[None]:
        """A pipeline. Leaving it waits for the server's last response, which is bounded in time too."""
        timers: list[asyncio.TimerHandle] = []
        try:
            async with self._driver.pipeline():
                try:
                    yield
                finally:
                    timers.append(self._loop.call_at(self._limit(), self._abort))
        finally:
            for timer in timers:
                timer.cancel()

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        timer = self._loop.call_at(self._limit(), self._abort)
        try:
            yield
        finally:
            timer.cancel()

    def _limit(self) -> float:
        return min(self._loop.time() + self._options.statement, self._ends)

    def _abort(self) -> None:
        """Break the connection, so that the task that waits for the server's response gets an error instead.

        Asking a server that does not respond to cancel the statement would wait for it as well.
        """
        self._timed_out = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._driver.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
