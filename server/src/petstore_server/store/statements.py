"""Statements of SQL as values, which transactions yield to an engine, and parts of them.

A transaction is a generator: it yields statements, is sent the rows of each, and does no I/O itself, so its logic is
written once for every engine. Its SQL is PostgreSQL's; SQLite's engine translates the few differences. A parameter that
is a list is an array: `= ANY(%s::bigint[])`.
"""

from collections.abc import Collection, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

Row = tuple[Any, ...]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Query(NamedTuple):
    """A statement whose rows are sent back.

    `in_order`: an index has the rows in order. PostgreSQL might otherwise sort a range that its statistics think short.
    `briefly`: a bulk transaction waits for this lock, and for later ones, only as long as a request would: about a
    second. On SQLite it makes no difference.
    `last`: the transaction is committed with this statement, in one message to PostgreSQL; what it locks is locked only
    while the server works. The transaction must not fail after it.
    """

    sql: str
    parameters: Sequence[Any] = ()
    in_order: bool = False
    briefly: bool = False
    last: bool = False


class Execute(NamedTuple):
    """A statement without rows."""

    sql: str
    parameters: Sequence[Any] = ()


class ExecuteMany(NamedTuple):
    """A statement without rows, executed for each set of parameters, of which there may be none."""

    sql: str
    parameters: Sequence[Sequence[Any]]


class ExecuteRows(NamedTuple):
    """A statement for a sequence of rows, which may be empty: `unnest(%s::bigint[], %s::text[]) AS new (id, name)`.

    PostgreSQL executes it once, with the rows in order; SQLite for each row.
    """

    sql: str
    parameters: Sequence[Row]


# Of queries in a list, the rows of each are sent back as a list.
Statement = Query | list[Query] | Execute | ExecuteMany | ExecuteRows
Condition = tuple[str, Sequence[Any]]  # with its parameters
Work = Generator[Statement, list[Any], Result]

NOW = "extract(epoch FROM clock_timestamp())::double precision"
"""The time of the store's host in Unix seconds, which processes on other hosts share."""

OWNER_NAME = "(SELECT name FROM petstore.accounts WHERE accounts.id = account_id)"
"""The name of the account that owns an order."""

LAST_CHANGE = """
    SELECT updated_at FROM petstore.orders WHERE account_id = ANY(ARRAY[{}])
    ORDER BY account_id DESC, updated_at DESC LIMIT 1
"""
"""The time of the last change among an owner's orders. For max(), PostgreSQL might read the times of all orders."""


def all_of(conditions: Sequence[Condition]) -> Condition:
    """One condition, of these."""
    texts = [text for text, _ in conditions] or ["TRUE"]
    return " AND ".join(texts), [value for _, values in conditions for value in values]


def marks(values: Collection[object]) -> str:
    """Placeholders for an IN list."""
    return f"({', '.join(['%s'] * len(values))})"


def one(items: Sequence[Item], otherwise: type[Exception], *values: object) -> Item:
    """The first item. Raises `otherwise` with the values if there is none."""
    if not items:
        raise otherwise(*values)  # made only here: it takes a third as long as the look-up
    return items[0]
