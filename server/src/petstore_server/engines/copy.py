"""Copies a store from SQLite to an empty PostgreSQL database in one transaction there, and verifies every row."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import apsw

from petstore_server.domain.audit import Actor, Change
from petstore_server.domain.errors import Conflict, StoreUnusable, replacing_remedy
from petstore_server.engines import postgres, sqlite
from petstore_server.engines.postgres.connections import Driver
from petstore_server.engines.postgres.opening import connected
from petstore_server.engines.postgres.options import SET_FOR_COPY
from petstore_server.engines.sqlite import dialect as sqlite_dialect
from petstore_server.engines.sqlite.connections import connect_writer, transaction
from petstore_server.engines.sqlite.opening import SCHEMA, schema_version, unusable_on_error
from petstore_server.store.audit import record
from petstore_server.store.statements import Row

_BATCH = 5_000

# In an order in which every row comes after those that it refers to, each with the columns that sort its rows.
_TABLES = {
    "accounts": "id",
    "keys": "number",
    "bans": "key_id",
    "usage": "account_id",
    "idempotency_keys": "account_id, key",
    "usage_history": "account_id, seconds, start, operation",
    "api_use": "account_id, used",
    "keyless_history": "seconds, start",
    "key_use": "key_id",
    "response_history": "start, measure",
    "webhooks": "id",
    "pets": "id",
    "orders": "id",
    "audit": "id",
    "imports": "id",
    "import_batches": "id",
    "import_rejects": "import_id, number",
}


async def copy_store(
    path: Path, url: str, actor: Actor, announce: Callable[[str], None], progress: Callable[[int, int], None]
) -> dict[str, int]:
    """Copy the store at `path` to the database `url`; return the number of rows by table.

    Migrates the target, and keeps servers and writers off the source until the copy is verified: otherwise a key that
    is revoked meanwhile would be active in it. `progress` gets the rows that are done, and all. Raises Conflict if
    the target is not empty, and StoreUnusable, also if a copied row differs.
    """
    path = path.resolve()  # noqa: ASYNC240 - nothing else goes on meanwhile
    locked = sqlite.lock_for_serving(path, shared=False, advice="Stop it, and copy again.")
    with locked, unusable_on_error(path), closing(connect_writer(path)) as source:
        SCHEMA.must_migrate(schema_version(source, path), f"at {path}")
        with replacing_remedy("Check the URL of the target."):
            await postgres.migrate(url, announce)
        with transaction(source, "IMMEDIATE"):
            counts = {table: int(source.execute(f"SELECT count(*) FROM {table}").get) for table in _TABLES}
            change = Change(None, {"source": path.name, "rows": counts})
            async with connected(url) as driver, driver.transaction():
                await driver.execute(SET_FOR_COPY.encode())
                await _copy_tables(source, driver, lambda done: progress(done, sum(counts.values())))
                await driver.execute(*record(actor, "store.copy", "store", change))
                await driver.execute("ANALYZE")  # before the commit: the copy is complete, or it is not there
    return counts


async def _copy_tables(source: apsw.Connection, driver: Driver, advance: Callable[[int], None]) -> None:
    done = 0
    for table in _TABLES:
        columns = ", ".join([f'"{name}"' for _, name, *_ in source.execute(f"PRAGMA table_info({table})")])
        if await (await driver.execute(f"SELECT 1 FROM petstore.{table} LIMIT 1".encode())).fetchone():
            raise Conflict(f"The target has other data in its {table} already. Copy to an empty database.")
        rows = _rows(source, table, columns)
        while batch := list(islice(rows, _BATCH)):
            await write_rows(driver, table, columns, batch)
            done += len(batch)
            advance(done)
        if not await is_equal(driver, table, columns, _rows(source, table, columns)):
            raise StoreUnusable(f"The copy differs from the source in its {table}.")
    [(account,)] = source.execute(f"SELECT {sqlite_dialect.new_account}")
    await driver.execute("SELECT setval(pg_get_serial_sequence('petstore.accounts', 'id'), %s, false)", (account,))
    for name, column in (("keys", "number"), ("audit", "id"), ("import_batches", "id")):
        await driver.execute(
            f"SELECT setval(pg_get_serial_sequence('petstore.{name}', '{column}'), max({column}))"
            f" FROM petstore.{name} HAVING max({column}) > 0"
        )
    [clock] = source.execute("SELECT change, at, last_order_id FROM clock")
    await driver.execute("UPDATE petstore.clock SET change = %s, at = %s, last_order_id = %s WHERE one = 1", clock)
    required, [(secret,)] = source.pragma("user_version"), source.execute("SELECT webhook_secret FROM store")
    sql = "UPDATE petstore.store SET schema_version = %s, webhook_secret = %s WHERE one = 1"
    await driver.execute(sql, (required, secret))


async def write_rows(driver: Driver, table: str, columns: str, rows: Iterable[Row]) -> None:
    """Add rows to a table of the target."""
    async with driver.cursor() as cursor, cursor.copy(f"COPY petstore.{table} ({columns}) FROM STDIN") as copy:
        for row in rows:
            await copy.write_row(row)


async def is_equal(driver: Driver, table: str, columns: str, rows: Iterator[Row]) -> bool:
    """Whether a table of the target has exactly these rows, which are sorted as in `_TABLES`."""
    async with driver.cursor("copied") as copied:
        await copied.execute(f"SELECT {columns} FROM petstore.{table} ORDER BY {_TABLES[table]}".encode())
        while page := await copied.fetchmany(_BATCH):
            if page != list(islice(rows, len(page))):
                return False
    return next(rows, None) is None


def _rows(source: apsw.Connection, table: str, columns: str) -> Iterator[Row]:
    return iter(source.execute(f"SELECT {columns} FROM {table} ORDER BY {_TABLES[table]}"))
