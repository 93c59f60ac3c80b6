"""The errors of PostgreSQL: which ones a statement has caused, and what each means in plain words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from petstore_server.domain.errors import ServiceUnavailable

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


class OldPrimary(psycopg.OperationalError):
    """The server is a primary that another one has replaced."""


def concerns_statement(error: psycopg.Error) -> bool:
    """Whether a statement, with its values, has caused the error on a connection that is open."""
    if not error.sqlstate:  # the driver's: what it cannot send
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
    outside = () if error.diag.context else _OUTSIDE_FUNCTIONS
    return not error.sqlstate.startswith((*ENVIRONMENT, *outside))


@contextmanager
def naming_table(sent: str) -> Iterator[None]:
    """Note at the error for a lock that was not available which table of the statements is meant."""
    try:
        yield
    except errors.LockNotAvailable as error:
        position = int(error.diag.statement_position or 0)  # of a table; of a row there is only a context
        found = _TABLE.search(sent[position - 1 :] if position else error.diag.context or "")
        if found is not None:
            error.add_note(f"petstore.{found[1] or found[2]}")
        raise


def unavailable(error: psycopg.Error) -> ServiceUnavailable:
    return ServiceUnavailable(f"the store cannot be used: {plain_words(error)}")


def plain_words(error: psycopg.Error) -> str:
    """Return the meaning of an error, in one line."""
    known = (words for kind, words in _PLAIN_WORDS.items() if isinstance(error, kind))
    named = [first_line(error)] if isinstance(error, errors.InsufficientPrivilege) else getattr(error, "__notes__", [])
    return ": ".join([next(known, reported(error)), *named])


def reported(error: psycopg.Error) -> str:
    """Return an error in the words of PostgreSQL, in one line."""
    return f"PostgreSQL reports: {first_line(error)}"


def first_line(error: psycopg.Error) -> str:
    """Return what libpq or PostgreSQL says first; its other lines are details."""
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
