"""Which table another program keeps locked, and statements that do not wait for it for long."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors

from petstore_server.store.engine import Row

Driver = psycopg.AsyncConnection[Row]

# PostgreSQL ends the statement by itself, also if this process has given it up or was killed.
_BRIEFLY = "SELECT set_config('lock_timeout', '500', true), set_config('statement_timeout', '1100', true)"
_TABLE = re.compile(r'petstore"?\."?(\w+)|in relation "(\w+)"')


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


async def briefly(driver: Driver, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
    """Return the rows of a statement that waits half a second for a lock at most. Raises psycopg.Error.

    In a transaction, the limits are those of its later statements too.
    """
    sent = f"{_BRIEFLY};{psycopg.AsyncClientCursor(driver).mogrify(sql, parameters)}"
    with naming_table(sent):
        cursor = await driver.execute(sent.encode())
        cursor.nextset()
        return await cursor.fetchall() if cursor.description is not None else []
