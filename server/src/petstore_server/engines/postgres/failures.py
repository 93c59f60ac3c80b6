"""The meaning of PostgreSQL's errors, in plain words for operators, without SQL."""

import psycopg
from psycopg import errors

from petstore_server.domain.errors import ServiceUnavailable
from petstore_server.engines.postgres.timelines import OldPrimary

NO_RESPONSE = "PostgreSQL does not answer in time"

CONFLICT = (errors.DeadlockDetected, errors.SerializationFailure)
"""The transaction met another one and was rolled back; it can be repeated."""

CONNECTION_ENDED = (errors.AdminShutdown, errors.CrashShutdown)
"""The server has ended the connection, which may not have noticed it yet."""


def unavailable(error: psycopg.Error) -> ServiceUnavailable:
    """Return ServiceUnavailable with a reason for operators."""
    return ServiceUnavailable(f"the store cannot be used: {plain_words(error)}")


def plain_words(error: psycopg.Error) -> str:
    """Return the meaning of an error, in one line."""
    for kind, words in _PLAIN_WORDS.items():
        if isinstance(error, kind):
            return words
    lines = str(error).strip().splitlines()
    return f"PostgreSQL reports: {lines[0] if lines else type(error).__name__}"


_PLAIN_WORDS: dict[type[psycopg.Error], str] = {
    OldPrimary: "PostgreSQL is an old primary: another server was promoted in its place, so stop this one",
    errors.DiskFull: "PostgreSQL's disk is full",
    errors.QueryCanceled: "PostgreSQL took too long, or another program keeps rows locked",
    errors.LockNotAvailable: "another program keeps rows locked",
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
