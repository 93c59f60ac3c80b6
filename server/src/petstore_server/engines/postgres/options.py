"""Options of transactions: how each kind begins, what its settings are, and how long it may take (D19)."""

import math
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import psycopg
from psycopg import errors

from petstore_server.deadlines import Timeouts
from petstore_server.engines.postgres.faults import CONFLICT

_Errors = tuple[type[psycopg.Error], ...]


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
        scan=options("", _GONE | _NO_JIT, 10.0, 12.0, lock),
        snapshot=options(_BEGIN_SNAPSHOT, _NO_JIT, statement, max(60.0, total), lock),
        export=options(_BEGIN_SNAPSHOT, exported, 10.0, math.inf),
        write=options(_BEGIN, _RELEASE, statement, total, lock),
        bulk=options(_BEGIN, _RELEASE | _GONE, 30.0, 30.0, conflicts=(*CONFLICT, errors.UniqueViolation)),
    )


# PostgreSQL ends the statement by itself, also if this process has given it up or was killed.
BRIEF = Options(_assignment({"lock_timeout": "500", "statement_timeout": "1100"}), 10.0, 10.0)

_NO_LIMITS = {"lock_timeout": "0", "statement_timeout": "0", _IDLE: "0"}
# The driver needs the last one for COPY; otherwise it quotes texts as the connection has it.
SET_FOR_COPY = _assignment(_MEANING | _NO_LIMITS | {"standard_conforming_strings": "on"})

# PostgreSQL plans by statistics that may be many changes old. For a page, an index in order is never a bad plan. What
# is turned off seems to cost so much, where it is needed all the same, that PostgreSQL would compile the statement.
IN_ORDER = _assignment({"enable_sort": "off", "jit": "off"})
# As a change has it that a request waits for.
BRIEFLY = _assignment({"lock_timeout": f"{Timeouts().lock * 1000:.0f}"})
