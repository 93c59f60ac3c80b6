"""Copies a whole store from its SQLite file to an empty PostgreSQL database, and verifies that nothing was lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from petstore_server.domain.errors import Conflict, StoreUnusable, advising
from petstore_server.domain.pets import Pet
from petstore_server.ports import Actor, Store
from petstore_server.storage import postgres, sqlite
from petstore_server.storage.audit import Change, record
from petstore_server.storage.postgres.opening import connected, place
from petstore_server.storage.postgres.pets import pet_record
from petstore_server.storage.postgres.session import Driver
from petstore_server.storage.search_sql import ENTRY_COLUMNS
from petstore_server.storage.search_update import update_index
from petstore_server.storage.sqlite.connections import connect_writer, write_lock
from petstore_server.storage.sqlite.engine import run
from petstore_server.storage.sqlite.opening import (
    SCHEMA,
    require_place,
    schema_version,
    unusable_on_error,
)
from petstore_server.storage.sqlite.search import UPDATE

Row = tuple[Any, ...]
Advance = Callable[[int], None]
"""Is called with the number of rows that are done."""

ListEtag = Callable[[Store], Awaitable[str]]
"""Returns the ETag of a store's list."""

_BATCH = 5_000


class _Table(NamedTuple):
    """A table: its columns in PostgreSQL, the first of which grows from row to row.

    `source` and `target` are what SQLite and PostgreSQL select for these columns, if that differs.
    """

    name: str
    columns: str
    source: str = ""
    target: str = ""
    order: str = ""  # where the first column repeats

    @property
    def key(self) -> str:
        return self.columns.partition(",")[0]


_KEYS = "id, account_id, digest, environment, scopes, note, created_at, expires_at, revoked_at, rotated_from"
_HISTORY = "account_id, start, admitted, refused_minute, refused_day, refused_banned, cancelled"
_KEYLESS = "start, refused_key, refused_address"
_AUDIT = "id, at, actor, action, subject"

# In an order in which every row comes after those that it refers to.
_SMALL = (
    _Table("accounts", "id, name, plan, per_minute, per_day, created_at, suspended_at, contact, note, closed_at"),
    _Table("keys", f"number, {_KEYS}", source=f"rowid, {_KEYS}"),
    _Table("bans", "key_id, began, until, level"),
    _Table("usage", "account_id, minute_start, minute_used, day_start, day_used"),
    _Table("idempotency_keys", "account_id, key, digest, order_id, body, at", order="account_id, key"),
    *(_Table(name, _HISTORY, order="account_id, start") for name in ("usage_hours", "usage_days")),
    *(_Table(name, _KEYLESS) for name in ("keyless_hours", "keyless_days")),
    _Table("key_use", "key_id, last_hour"),
)
"""Copied whole, in one transaction."""

_LARGE = (
    _Table("pets", "id, record", source="id, name, tag"),
    _Table("orders", "id, status, record"),
    _Table("order_index", ENTRY_COLUMNS),
    _Table("audit", f'{_AUDIT}, "before", "after"', target=f"{_AUDIT}, before::text, after::text"),
)
"""Copied in batches, from where an earlier copy was interrupted."""

_TABLES = _SMALL + _LARGE
_SEQUENCES = (("accounts", "id"), ("keys", "number"), ("audit", "id"))
# Whatever changes a store, but for what its limiter writes down, is in one of these.
_STATE = """
    SELECT
        epoch, access_version,
        (SELECT coalesce(max(id), 0) FROM audit), (SELECT coalesce(max(revision), 0) FROM orders)
    FROM store
"""

COPIED = "store.copy"
"""The action of the audit entry that the target gets."""

_COPIED_ROWS = {"audit": f"WHERE action <> '{COPIED}'"}
_FINISH = "UPDATE petstore.copies SET finished = true WHERE source = %s AND NOT finished RETURNING source"


class Copied(NamedTuple):
    """What was copied and verified: rows by table, and the ETag of the list, the same on both sides."""

    rows: dict[str, int]
    etag: str


class Copy:
    """A copy under way. Made by `copying`; `rows` is the number of rows in the source, by table."""

    def __init__(
        self, source: Path, connection: apsw.Connection, url: str, driver: Driver, etag: ListEtag, actor: Actor
    ) -> None:
        self._actor = actor
        self._path = source
        self._source = connection
        self._url = url
        self._driver = driver
        self._etag = etag
        (self._epoch, *state) = connection.execute(_STATE).fetchall()[0]
        self._state = json.dumps(state)
        while run(connection, update_index(UPDATE)):
            pass  # so that the copy of the index is complete
        self.rows = {
            table.name: int(connection.execute(f"SELECT count(*) FROM {table.name}").get)  # noqa: S608 - constants
            for table in _TABLES
        }

    async def take(self, advance: Advance) -> None:
        """Copy what is not there yet. Raises Conflict where the target holds other data."""
        if await self._is_finished():
            return
        async with self._driver.transaction():
            await self._driver.execute(f"TRUNCATE {_names(_SMALL)}")
            for table in _SMALL:
                await self.write(table, self._rows(table))
        done = sum(self.rows[table.name] for table in _SMALL)
        for table in _LARGE:
            reached = f"SELECT max({table.key}), count(*) FROM petstore.{table.name}"  # noqa: S608 - constants
            [(last, there)] = await self._ask(reached)
            done += there
            rows = self._rows(table, last)
            while batch := list(islice(rows, _BATCH)):
                await self.write(table, batch)
                done += len(batch)
                advance(done)
        for name, column in _SEQUENCES:
            await self._driver.execute(
                f"SELECT setval(pg_get_serial_sequence('petstore.{name}', '{column}'), max({column}))"  # noqa: S608
                f" FROM petstore.{name} HAVING max({column}) > 0"
            )
        await self._copy_index_state()
        await self._driver.execute("ANALYZE")

    async def verify(self, advance: Advance) -> Copied:
        """Compare both sides: every row of every table, and the list's ETag. Raises StoreUnusable where they differ."""
        done = 0
        for table in _TABLES:
            ours, theirs = _digest(self._rows(table)), await self._digest(table)
            if ours != theirs:
                raise StoreUnusable(
                    f"The copy in {place(self._url)} differs from the source in its {table.name}: it was changed "
                    "meanwhile. Drop the schema petstore there and copy again."
                )
            done += self.rows[table.name]
            advance(done)
        etags = await self._etags()
        if etags[0] != etags[1]:
            raise StoreUnusable(f"The list in {place(self._url)} differs from the source's; report this as a defect.")
        async with self._driver.transaction():
            if await self._ask(_FINISH, (self._epoch,)):
                change = Change(None, {"source": self._path.name, "rows": self.rows})
                await self._driver.execute(*record(self._actor, COPIED, "store", change))
        return Copied(self.rows, etags[0])

    async def _copy_index_state(self) -> None:
        """Mark the index of the target as complete: the copied orders do not count as changes."""
        at, last_order_id = self._source.execute("SELECT at, last_order_id FROM order_index_state").fetchall()[0]
        async with self._driver.transaction():
            await self._driver.execute(
                "UPDATE petstore.order_changes_head SET at = greatest(at, %s), last_order_id = %s", (at, last_order_id)
            )
            await self._driver.execute(
                "UPDATE petstore.order_index_state SET change = (SELECT change FROM petstore.order_changes_head)"
            )
            await self._driver.execute("TRUNCATE petstore.order_changes")

    async def _is_finished(self) -> bool:
        """Whether all was copied by an earlier run; where there was none, or not to the end, prepare the target."""
        found = await self._ask("SELECT state, finished FROM petstore.copies WHERE source = %s", (self._epoch,))
        if not found:
            await self._require_empty()
            await self._driver.execute(
                "INSERT INTO petstore.copies (source, state) VALUES (%s, %s)", (self._epoch, self._state)
            )
            return False
        [(state, finished)] = found
        if state != self._state and finished:
            raise Conflict(
                f"The source was copied to {place(self._url)} before and has changed since; copy to an empty database."
            )
        if state != self._state:  # what came over from another state of the source is of no use
            async with self._driver.transaction():
                await self._driver.execute(f"TRUNCATE {_names(_TABLES)}")
                await self._driver.execute(
                    "UPDATE petstore.copies SET state = %s WHERE source = %s", (self._state, self._epoch)
                )
        return bool(finished)

    async def _require_empty(self) -> None:
        for name in (*(table.name for table in _TABLES), "copies"):
            if await self._ask(f"SELECT 1 FROM petstore.{name} LIMIT 1"):  # noqa: S608 - constants
                raise Conflict(f"There is other data in {place(self._url)} already; copy to an empty database.")

    def _rows(self, table: _Table, after: object = None) -> Iterator[Row]:
        """The source's rows as the target keeps them, ascending, from beyond `after` on."""
        columns = table.source or table.columns
        key = columns.partition(",")[0]
        beyond = "" if after is None else f" WHERE {key} > ?"
        bindings = () if after is None else (after,)
        sql = f"SELECT {columns} FROM {table.name}{beyond} ORDER BY {table.order or key}"  # noqa: S608 - constants
        rows: Iterator[Row] = self._source.execute(sql, bindings)
        return ((row[0], pet_record(Pet(*row))) for row in rows) if table.name == "pets" else rows

    async def write(self, table: _Table, rows: Iterable[Row]) -> None:
        """Add rows to a table of the target."""
        async with (
            self._driver.cursor() as cursor,
            cursor.copy(f"COPY petstore.{table.name} ({table.columns}) FROM STDIN") as copy,
        ):
            for row in rows:
                await copy.write_row(row)

    async def _ask(self, sql: str, parameters: Row | None = None) -> list[Row]:
        return await (await self._driver.execute(sql, parameters)).fetchall()

    async def _digest(self, table: _Table) -> str:
        digest, columns = sha256(), table.target or table.columns
        async with self._driver.transaction():
            await self._driver.execute(
                f"DECLARE copied NO SCROLL CURSOR FOR SELECT {columns} FROM petstore.{table.name}"  # noqa: S608
                f" {_COPIED_ROWS.get(table.name, '')} ORDER BY {table.order or table.key}"
            )
            while page := await self._ask(f"FETCH {_BATCH} FROM copied"):
                for row in page:
                    digest.update(repr(row).encode())
        return digest.hexdigest()

    async def _etags(self) -> tuple[str, str]:
        async with AsyncExitStack() as opened:
            source = await sqlite.open_store(self._path, create=False, migrate=False, announce=_silent)
            opened.push_async_callback(source.close)
            target = await postgres.open_store(self._url, create=False, migrate=False, announce=_silent)
            opened.push_async_callback(target.close)
            return await self._etag(source), await self._etag(target)


@asynccontextmanager
async def copying(
    source: Path, url: str, announce: Callable[[str], None], etag: ListEtag, actor: Actor
) -> AsyncIterator[Copy]:
    """Migrate the target, and keep servers and writers off the source until the copy is verified or given up.

    Otherwise a key that is revoked meanwhile would be active in a copy that is reported as verified.
    Raises StoreUnusable.
    """
    source = source.resolve()  # noqa: ASYNC240 - nothing else goes on meanwhile
    require_place(source, file_too=True)
    with advising("Stop it, and copy again."):
        lock = sqlite.lock_for_serving(source, shared=False)
    with lock, unusable_on_error(source):
        connection = connect_writer(source)
        try:
            version = schema_version(connection, source)
            if outdated := SCHEMA.outdated(version, f"at {source}"):
                raise StoreUnusable(outdated)
            with advising("Check the URL given with --to."):
                await postgres.migrate(url, announce)
            with write_lock(connection):
                async with connected(url) as driver:
                    yield Copy(source, connection, url, driver, etag, actor)
        finally:
            await asyncio.to_thread(connection.close)


def _names(tables: Iterable[_Table]) -> str:
    return ", ".join(f"petstore.{table.name}" for table in tables)


def _digest(rows: Iterable[Row]) -> str:
    digest = sha256()
    for row in rows:
        digest.update(repr(row).encode())
    return digest.hexdigest()


def _silent(_: str) -> None:
    """Both stores are there."""
