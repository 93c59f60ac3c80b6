"""Copies a whole store from its SQLite file to an empty PostgreSQL database, and verifies every row.

All of it is one transaction of PostgreSQL: an interrupted copy leaves nothing, and is started again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import apsw

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import Conflict, StoreUnusable, advising
from petstore_server.engines import postgres, sqlite
from petstore_server.engines.postgres.opening import connected
from petstore_server.engines.postgres.session import Driver
from petstore_server.engines.sqlite.connections import connect_writer, snapshot
from petstore_server.engines.sqlite.opening import SCHEMA, require_place, schema_version, unusable_on_error
from petstore_server.store.audit import record
from petstore_server.store.engine import Row

_BATCH = 5_000

# In an order in which every row comes after those that it refers to, each with the columns that sort its rows.
_TABLES = {
    "accounts": "id",
    "keys": "number",
    "bans": "key_id",
    "usage": "account_id",
    "idempotency_keys": "account_id, key",
    "usage_hours": "account_id, start",
    "usage_days": "account_id, start",
    "keyless_hours": "start",
    "keyless_days": "start",
    "key_use": "key_id",
    "pets": "id",
    "orders": "id",
    "audit": "id",
}
_COLUMNS = """
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = ('petstore.' || %s)::regclass AND attnum > 0 AND NOT attisdropped
"""
_SEQUENCES = (("accounts", "id"), ("keys", "number"), ("audit", "id"))
_CLOCK = "SELECT change, at, last_order_id FROM clock"
_SET_CLOCK = "UPDATE petstore.clock SET change = %s, at = %s, last_order_id = %s"


class Copy:
    """A copy under way. Made by `copying`; `rows` is the number of rows in the source, by table."""

    def __init__(self, source: Path, connection: apsw.Connection, driver: Driver, actor: Actor) -> None:
        self._path = source
        self._source = connection
        self._driver = driver
        self._actor = actor
        self.rows = {
            table: int(connection.execute(f"SELECT count(*) FROM {table}").get)  # noqa: S608 - constants
            for table in _TABLES
        }

    async def run(self) -> AsyncGenerator[int]:
        """Copy all rows and verify them, table by table; yield the number of rows that are done.

        Raises Conflict where the target is not empty, StoreUnusable where a copied row differs.
        """
        done = 0
        async with self._driver.transaction():
            for table in _TABLES:
                [(columns,)] = await self._ask(_COLUMNS, (table,))
                if await self._ask(f"SELECT 1 FROM petstore.{table} LIMIT 1"):  # noqa: S608
                    raise Conflict(f"The target has other data in its {table} already. Copy to an empty database.")
                rows = self._rows(table, columns)
                while batch := list(islice(rows, _BATCH)):
                    await self.write(table, columns, batch)
                    done += len(batch)
                    yield done
                if not await self._is_equal(table, columns):
                    raise StoreUnusable(f"The copy differs from the source in its {table}.")
            for name, column in _SEQUENCES:
                await self._driver.execute(
                    f"SELECT setval(pg_get_serial_sequence('petstore.{name}', '{column}'), max({column}))"  # noqa: S608
                    f" FROM petstore.{name} HAVING max({column}) > 0"
                )
            await self._driver.execute(_SET_CLOCK, self._source.execute(_CLOCK).fetchall()[0])
            change = Change(None, {"source": self._path.name, "rows": self.rows})
            await self._driver.execute(*record(self._actor, "store.copy", "store", change))
        await self._driver.execute("ANALYZE")

    async def write(self, table: str, columns: str, rows: Iterable[Row]) -> None:
        """Add rows to a table of the target."""
        async with (
            self._driver.cursor() as cursor,
            cursor.copy(f"COPY petstore.{table} ({columns}) FROM STDIN") as copy,
        ):
            for row in rows:
                await copy.write_row(row)

    def _rows(self, table: str, columns: str) -> Iterator[Row]:
        """The source's rows, ascending. SQLite numbers keys by itself."""
        columns = columns.replace("number", "rowid AS number")
        return iter(self._source.execute(f"SELECT {columns} FROM {table} ORDER BY {_TABLES[table]}"))  # noqa: S608

    async def _is_equal(self, table: str, columns: str) -> bool:
        rows = self._rows(table, columns)
        async with self._driver.cursor("copied") as copied:
            await copied.execute(f"SELECT {columns} FROM petstore.{table} ORDER BY {_TABLES[table]}".encode())  # noqa: S608
            while page := await copied.fetchmany(_BATCH):
                if page != list(islice(rows, len(page))):
                    return False
        return next(rows, None) is None

    async def _ask(self, sql: str, parameters: Row = ()) -> list[Row]:
        return await (await self._driver.execute(sql, parameters)).fetchall()


@asynccontextmanager
async def copying(source: Path, url: str, announce: Callable[[str], None], actor: Actor) -> AsyncIterator[Copy]:
    """Migrate the target, and keep servers and writers off the source until the copy is verified or given up.

    Otherwise a key that is revoked meanwhile would be active in a copy that is reported as verified.
    Raises StoreUnusable.
    """
    source = source.resolve()  # noqa: ASYNC240 - nothing else goes on meanwhile
    require_place(source, file_too=True)
    locked = sqlite.lock_for_serving(source, shared=False, advice="Stop it, and copy again.")
    with locked, unusable_on_error(source):
        connection = connect_writer(source)
        try:
            version = schema_version(connection, source)
            if outdated := SCHEMA.outdated(version, f"at {source}"):
                raise StoreUnusable(outdated)
            with advising("Check the URL of the target."):
                await postgres.migrate(url, announce)
            with snapshot(connection, locked=True):
                async with connected(url) as driver:
                    yield Copy(source, connection, driver, actor)
        finally:
            await asyncio.to_thread(connection.close)
