"""One connection to PostgreSQL in use, and its errors. Statements are bounded in time, and need no session state.

So it works behind a pooler that gives each transaction another connection (pgbouncer with pool_mode = transaction).
"""

import asyncio
import math
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from petstore_server.deadlines import Timeouts, expiring
from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.store.engine import Command, Commands, Query, Result, Row, Rows, Work

Driver = psycopg.AsyncConnection[Row]

NO_RESPONSE = "PostgreSQL does not answer in time"

CONFLICT = (errors.DeadlockDetected, errors.SerializationFailure)  # rolled back, and can be repeated
DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted)
# SQLSTATEs, by class or code, for which no value is at fault. Any other error concerns the statement that it ended, and
# its caller only. They are of the connection, a transaction (its mode and its time limits), the user, conflicts,
# resources, a replica, locks, an administrator or a time limit, the system, an old snapshot, and damage.
ENVIRONMENT = ("08", "25", "28", "40", "53", "55000", "55P03", "57", "58", "72", "F0", "XX")
# A privilege, or a table, that is missing. In a function, which a shop may have added, it is one of the function's.
_OUTSIDE_FUNCTIONS = ("42501", "42P01", "3F000")
CONNECTION_ENDED = (errors.AdminShutdown, errors.CrashShutdown)  # the connection may not have noticed it yet


_TABLE = re.compile(r'petstore"?\."?(\w+)|in relation "(\w+)"')
_Errors = tuple[type[psycopg.Error], ...]


class OldPrimary(psycopg.OperationalError):
    """The server is a primary that another one has replaced."""


class Options(NamedTuple):
    """How a transaction begins, the seconds for each message and in total, and after which errors it is repeated."""

    begin: str
    statement: float
    total: float
    conflicts: _Errors = CONFLICT
    writes: bool = False


def _assignment(settings: Mapping[str, str]) -> str:
    """The statement that sets these for a transaction. Each SET LOCAL would add a tenth of a millisecond to it."""
    assigned = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {assigned}"


def _limits(statement: float, lock: float) -> dict[str, str]:
    """PostgreSQL's own limits, below ours: it ends a statement before we break the connection.

    A broken connection ends nothing by itself: a process of PostgreSQL that waits for a lock does not notice it.
    """
    return {"lock_timeout": f"{lock * 1000:.0f}", "statement_timeout": f"{statement * 1000 - 100:.0f}"}


# What rows and parameters mean, whatever the role, the database or the server has set. No session keeps it.
_MEANING = {"extra_float_digits": "1", "array_nulls": "on", "transform_null_equals": "off"}
# Compiling takes a tenth of a second, and no statement of ours gains as much.
_NO_JIT = {"jit": "off"}
# A process that is stopped in the middle of a transaction must not keep rows locked.
_IDLE = "idle_in_transaction_session_timeout"
_RELEASE = {_IDLE: "5000"} | _NO_JIT
_GONE = {"client_connection_check_interval": "1000"}  # ends a long statement whose client is gone
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; "  # what was committed before a lock was taken is seen after it
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "


class Transactions(NamedTuple):
    """The options of each kind of transaction."""

    read: Options
    """One statement that an index answers."""
    scan: Options
    """One that reads much."""
    snapshot: Options
    """Reads of one snapshot: each is quick."""
    export: Options
    """Reads for as long as the consumer takes."""
    write: Options
    """A change that a request waits for. After two seconds at the latest it learns that the store is unusable."""
    bulk: Options
    """Many changes at once, for which no request waits. Another transaction may insert some of its orders meanwhile."""


@cache
def transactions(timeouts: Timeouts) -> Transactions:
    """The kinds of transactions with these limits. Those for which no request waits have limits of their own."""

    def options(
        begin: str,
        settings: dict[str, str],
        statement: float,
        total: float,
        lock: float | None = None,
        conflicts: _Errors = CONFLICT,
    ) -> Options:
        limits = _limits(statement, statement - 0.2 if lock is None else lock)
        writes = begin == _BEGIN
        return Options(begin + _assignment(limits | _MEANING | settings), statement, total, conflicts, writes)

    lock, statement, total = timeouts.lock, timeouts.statement, timeouts.total
    exported = _GONE | _NO_JIT | {_IDLE: "600000"}
    return Transactions(
        # Statements in one message are one transaction, so these settings end with it.
        read=options("", {}, statement, total, lock),
        scan=options("", _GONE | _NO_JIT, 10.0, 12.0),
        snapshot=options(_BEGIN_SNAPSHOT, _NO_JIT, statement, max(60.0, total), lock),
        export=options(_BEGIN_SNAPSHOT, exported, 10.0, math.inf),
        write=options(_BEGIN, _RELEASE, statement, total, lock),
        bulk=options(_BEGIN, _RELEASE | _GONE, 30.0, 30.0, conflicts=(*CONFLICT, errors.UniqueViolation)),
    )


# PostgreSQL ends the statement by itself, also if this process has given it up or was killed.
_BRIEF = Options(_assignment({"lock_timeout": "500", "statement_timeout": "1100"}), 10.0, 10.0)

_NO_LIMITS = {"lock_timeout": "0", "statement_timeout": "0", _IDLE: "0"}
# The driver needs the last one for COPY; otherwise it quotes texts as the connection has it.
SET_FOR_COPY = _assignment(_MEANING | _NO_LIMITS | {"standard_conforming_strings": "on"})

# PostgreSQL plans by statistics that may be many changes old. For a page, an index in order is never a bad plan. What
# is turned off seems to cost so much, where it is needed all the same, that PostgreSQL would compile the statement.
_IN_ORDER = _assignment({"enable_sort": "off", "jit": "off"})
_BRIEFLY = _assignment({"lock_timeout": "1000"})  # as a change has it that a request waits for


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
            result = await self.run(work)
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

    async def run(self, work: Work[Result]) -> Result:
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
            self._unsent.append(_IN_ORDER)
        if any(query.briefly for query in queries):
            self._unsent.append(_BRIEFLY)
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
        with self._bounded(), _naming_table(message):
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
        return self._driver.closed or isinstance(error, CONNECTION_ENDED)

    def concerns_statement(self, error: psycopg.Error) -> bool:
        """Whether a statement, with its values, has caused the error, rather than the environment."""
        if self.timed_out or self._driver.closed:
            return False
        if not error.sqlstate:  # the driver's: what it cannot send
            return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
        outside = () if error.diag.context else _OUTSIDE_FUNCTIONS
        return not error.sqlstate.startswith((*ENVIRONMENT, *outside))

    @property
    def reusable(self) -> bool:
        return not self._driver.closed and self._driver.info.transaction_status is TransactionStatus.IDLE

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
    [rows] = await Connection(driver, _BRIEF, math.inf).rows([Query(sql, parameters)])
    return rows


@contextmanager
def _naming_table(sent: str) -> Iterator[None]:
    """Note at the error for a lock that was not available which table of the statements is meant."""
    try:
        yield
    except errors.LockNotAvailable as error:
        position = int(error.diag.statement_position or 0)  # of a table; of a row there is only a context
        found = _TABLE.search(sent[position - 1 :] if position else error.diag.context or "")
        if found is not None:
            error.add_note(f"petstore.{found[1] or found[2]}")
        raise


def _sets(statement: Command | Commands | Rows) -> Sequence[Sequence[Any]]:
    """The parameters for each execution of the statement."""
    if isinstance(statement, Command):
        return [statement.parameters]
    if isinstance(statement, Rows) and statement.parameters:
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


def unavailable(error: psycopg.Error) -> ServiceUnavailable:
    return ServiceUnavailable(f"the store cannot be used: {plain_words(error)}")


def plain_words(error: psycopg.Error) -> str:
    """Return the meaning of an error, in one line."""
    known = (words for kind, words in _PLAIN_WORDS.items() if isinstance(error, kind))
    named = [_first_line(error)] if isinstance(error, errors.InsufficientPrivilege) else getattr(error, "__notes__", [])
    return ": ".join([next(known, reported(error)), *named])


def reported(error: psycopg.Error) -> str:
    """Return an error in the words of PostgreSQL, in one line."""
    return f"PostgreSQL reports: {_first_line(error)}"


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_PLAIN_WORDS: dict[type[psycopg.Error], str] = {
    OldPrimary: "PostgreSQL is an old primary: another server was promoted in its place, so stop this one",
    errors.DataCorrupted: "PostgreSQL's data are damaged",
    errors.IndexCorrupted: "an index of PostgreSQL is damaged",
    errors.DiskFull: "PostgreSQL's disk is full",
    errors.QueryCanceled: "PostgreSQL took too long",
    errors.LockNotAvailable: "another program keeps a table or rows of PostgreSQL locked",
    errors.AdminShutdown: "PostgreSQL is being shut down, or an administrator ended the connection",
    errors.CrashShutdown: "PostgreSQL restarts after a crash",
    errors.CannotConnectNow: "PostgreSQL is starting or stopping",
    errors.TooManyConnections: "PostgreSQL has no connection to spare; raise max_connections or use a pooler",
    errors.ReadOnlySqlTransaction: "PostgreSQL takes no changes: it is a replica or was made read-only",
    errors.ObjectNotInPrerequisiteState: "PostgreSQL takes no changes: it is a replica",
    errors.InsufficientPrivilege: "this user lacks a privilege in PostgreSQL",
    errors.UndefinedTable: "the store's tables are gone",
    errors.InvalidSchemaName: "the store's tables are gone",
}
