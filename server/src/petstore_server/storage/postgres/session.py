"""One connection to PostgreSQL in use: every statement bounded in time, no session state, no named statements.

So it works behind a pooler that gives each transaction another connection (pgbouncer, pool_mode = transaction).
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.storage.postgres.failures import ENDED, unavailable

Result = TypeVar("Result")
Row = tuple[Any, ...]
Driver = psycopg.AsyncConnection[Row]


class Terms(NamedTuple):
    """How a transaction begins, and how many seconds one of its statements may take, and all of it."""

    begin: tuple[str, ...]
    statement: float
    total: float


def _terms(begin: str, statement: float, total: float, *more: str) -> Terms:
    return Terms((begin, f"SET LOCAL statement_timeout = {int(statement * 1000)}", *more), statement, total)


# A process that is stopped in the middle of a transaction must not keep rows locked.
_LET_GO = "SET LOCAL idle_in_transaction_session_timeout = 5000"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

WRITE = _terms("BEGIN", 1.2, 1.8, _LET_GO)
"""A change that a request waits for: it is told within two seconds that the store cannot be used."""

BATCH = _terms("BEGIN", 10.0, 30.0, _LET_GO)
"""Many changes at once, for which no request waits."""

READ = Terms((), 1.2, 1.8)
"""One statement that an index answers, in a transaction of its own, which takes no settings."""

SNAPSHOT = _terms(_SNAPSHOT, 1.2, 60.0)
"""Reads that all see the same moment. Each is quick, and there may be many of them."""

SCAN = _terms(_SNAPSHOT, 10.0, float("inf"))
"""The same for as long as the reader takes."""


class Session:
    """A connection while one task uses it. `ends` is the moment of the loop's clock at which its time is up."""

    def __init__(self, driver: Driver, terms: Terms, ends: float) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._terms = terms
        self._ends = ends
        self._heard = False
        self._committing = False
        self._timed_out = False

    async def rows(self, sql: str, parameters: Sequence[Any] | None = None) -> list[Row]:
        """The rows of a statement. Raises psycopg.Error."""
        with self._bounded():
            cursor = await self._driver.execute(sql, parameters)
            found = await cursor.fetchall()
        self._heard = True
        return found

    async def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> None:
        """Run a statement; within a transaction its failure may be told by a later one. Raises psycopg.Error."""
        with self._bounded():
            await self._driver.execute(sql, parameters)

    async def begin(self) -> None:
        """Begin a transaction, which `roll_back` ends."""
        await self.execute("; ".join(self._terms.begin))

    async def transaction(self, work: Callable[["Session"], Awaitable[Result]]) -> Result:
        """Do the work in one transaction, whose beginning and end cost no round trips of their own.

        Raises what the work raises, after a rollback.
        """
        try:
            async with self._pipeline():
                for statement in self._terms.begin:
                    await self.execute(statement)
                result = await work(self)
                if not self._heard:  # a connection that was dead all along must not look as if it died at the commit
                    await self.rows("SELECT 1")
                self._committing = True
                await self.execute("COMMIT")
        except BaseException:
            await self.roll_back()
            raise
        self._committing = False
        return result

    def can_be_done_again(self, error: psycopg.Error) -> bool:
        """Whether the work failed with the connection alone: nothing was to be committed yet, so none of it stands."""
        if self._committing or self._timed_out:
            return False
        return self._driver.closed or isinstance(error, ENDED)

    def explain(self, error: psycopg.Error) -> ServiceUnavailable:
        """What an error over this connection becomes."""
        return ServiceUnavailable("PostgreSQL does not answer in time") if self._timed_out else unavailable(error)

    @property
    def reusable(self) -> bool:
        """Whether the next one may use the connection."""
        return not self._driver.closed and self._driver.info.transaction_status is TransactionStatus.IDLE

    @asynccontextmanager
    async def _pipeline(self) -> AsyncIterator[None]:
        with self._bounded_end() as arm:
            async with self._driver.pipeline():
                try:
                    yield
                finally:
                    arm()

    async def roll_back(self) -> None:
        """Leave the transaction; where that fails, the connection is closed, which does it as well."""
        try:
            if not self._driver.closed and self._driver.info.transaction_status is not TransactionStatus.IDLE:
                with self._bounded():
                    await self._driver.execute("ROLLBACK")
        except psycopg.Error:
            await self._driver.close()

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        timer = self._loop.call_at(self._limit(), self._abort)
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def _bounded_end(self) -> Iterator[Callable[[], None]]:
        """Leaving a pipeline waits for the server's last word: bounded from when the function given is called."""
        timers: list[asyncio.TimerHandle] = []
        try:
            yield lambda: timers.append(self._loop.call_at(self._limit(), self._abort))
        finally:
            for timer in timers:
                timer.cancel()

    def _limit(self) -> float:
        return min(self._loop.time() + self._terms.statement, self._ends)

    def _abort(self) -> None:
        """Break the connection, so that whoever waits for the server's answer gets an error instead.

        Asking a server that does not answer to cancel the statement would wait for it as well.
        """
        self._timed_out = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._driver.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
