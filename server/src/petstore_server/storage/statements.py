"""Transactions as generators of SQL statements, so that their logic is written once for every engine.

A transaction yields statements and is sent the rows of each; it does no I/O itself. Its SQL is PostgreSQL's:
`sqlite.engine` translates the few differences. SQLite runs a transaction on a thread, PostgreSQL with awaits:

    def rename(old: str, new: str) -> Work[int]:
        [(account_id,)] = yield Query("SELECT id FROM petstore.accounts WHERE name = %s", (old,))
        yield Command("UPDATE petstore.accounts SET name = %s WHERE id = %s", (new, account_id))
        return account_id

    await engine.transaction(lambda: rename("zoo", "park"))
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")
Row = tuple[Any, ...]


class Query(NamedTuple):
    """A statement whose rows are sent back.

    `in_order`: indexes have the rows in order, and are to be read in it. PostgreSQL might otherwise read and sort all
    rows of a range, of which its statistics know few.
    """

    sql: str
    parameters: Sequence[Any] = ()
    in_order: bool = False


class Queries(NamedTuple):
    """Queries that are sent together. The rows of each are sent back as one tuple."""

    queries: Sequence[Query]


class Command(NamedTuple):
    """A statement without rows. PostgreSQL may report its failure with a later statement."""

    sql: str
    parameters: Sequence[Any] = ()


class Commands(NamedTuple):
    """One command for each set of parameters."""

    sql: str
    parameters: Sequence[Sequence[Any]]


Statement = Query | Queries | Command | Commands
Work = Generator[Statement, list[Row], Result]


def only(command: Command) -> Work[None]:
    """A transaction of one command."""
    yield command


class Engine(Protocol):
    """Runs statements on one store. Every method raises ServiceUnavailable if the store cannot be used."""

    async def query(
        self, sql: str, parameters: Sequence[Any] = (), in_order: bool = False, *, short: bool = True
    ) -> list[Row]:
        """Return the rows of one statement. A short one reads few rows, which an index finds: SQLite does not wait.

        `in_order` is that of `Query`.
        """

    async def read(self, work: Callable[[], Work[Result]]) -> Result:
        """Run the queries of `work` on one snapshot."""

    async def transaction(self, work: Callable[[], Work[Result]], *, bulk: bool = False) -> Result:
        """Run `work` in one transaction; return once it is durable. Raises what `work` raises, after a rollback.

        A transaction may be started again from the beginning. `bulk`: many changes, for which no request waits.
        """
